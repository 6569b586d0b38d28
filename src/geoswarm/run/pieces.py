"""Share the files of a batch out among tasks: large files are cut into pieces, small ones are put together."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.run.file_reading import Piece

TASK_BYTES_MIN, TASK_BYTES_MAX = 1 << 20, 128 << 20
"""Bytes of the files that a task reads. Below, starting another task takes longer than reading on."""
PLAIN_TEXT = (".json", ".jsonl", ".ndjson")
"""What can be cut at the ends of lines. A line of CSV may be part of a quoted text, and compressed files have none."""


def share_out(paths: Sequence[str], kind: str, slots: int) -> list[list[Piece]]:
    """The pieces of each task, in the order of the files; `slots` tasks run at once."""
    sizes = [size_of(path) for path in paths]
    share = min(max(ceil(sum(sizes) / slots), TASK_BYTES_MIN), TASK_BYTES_MAX)
    tasks, filled = list[list[Piece]](), 0
    for path, size in zip(paths, sizes, strict=True):
        for piece, piece_bytes in _cut(path, size, kind, share):
            if not tasks or filled + piece_bytes / 2 > share:  # more than half of it would be too much
                tasks.append([])
                filled = 0
            tasks[-1].append(piece)
            filled += piece_bytes
    return tasks


def size_of(path: str) -> int:
    """Bytes of a file."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0  # the task that reads it says what is wrong


def _cut(path: str, size: int, kind: str, share: int) -> list[tuple[Piece, int]]:
    """The pieces of a file of about `share` bytes each, with their sizes."""
    if size <= 1.5 * share:
        return [(Piece(path), size)]
    if kind == "parquet":
        return _cut_at_groups(path, size, share)
    if not path.endswith(PLAIN_TEXT):
        return [(Piece(path), size)]
    count = ceil(size / share)
    bounds = [size * i // count for i in range(count + 1)]
    return [(Piece(path, a, b), b - a) for a, b in pairwise(bounds)]


def _cut_at_groups(path: str, size: int, share: int) -> list[tuple[Piece, int]]:
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return [(Piece(path), size)]
    pieces, first, held = list[tuple[Piece, int]](), 0, 0
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        held += sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))
        if held >= share or group == footer.num_row_groups - 1:
            pieces.append((Piece(path, first, group + 1), held))
            first, held = group + 1, 0
    return pieces or [(Piece(path), size)]
