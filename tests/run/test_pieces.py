"""Large files are cut and small ones put together; whatever the pieces, every row is read once."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run import pieces
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.pieces import share_out

SCHEMA = pa.schema([("event_id", pa.int64()), ("text", pa.string()), (MALFORMED, pa.string())])


def ids_of(tasks: list[list[Piece]], kind: str) -> list[int]:
    batches = [batch for task in tasks for piece in task for batch in read_piece(piece, kind, SCHEMA)]
    assert all(batch.column(MALFORMED).null_count == len(batch) for batch in batches)
    return [number for batch in batches for number in batch.column("event_id").to_pylist()]


@pytest.mark.parametrize("share", [1, 7, 40, 41, 100, 10_000])
def test_lines_are_cut_at_any_byte_and_each_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", share)
    monkeypatch.setattr(pieces, "TASK_BYTES_MAX", share)
    rng = np.random.default_rng(share)
    lines = [json.dumps({"event_id": i, "text": "é" * int(rng.integers(0, 60))}) for i in range(60)]
    for name, end in (("a.json", "\n"), ("b.jsonl", "")):
        (tmp_path / name).write_text("\n".join(lines) + end)
    tasks = share_out([str(tmp_path / "a.json"), str(tmp_path / "b.jsonl")], "json", 2)
    assert ids_of(tasks, "json") == [*range(60), *range(60)]
    assert len(tasks) > 20 or share >= 100


def test_parquet_is_cut_between_row_groups_and_small_files_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", 1000)
    big = pa.table({"event_id": range(20_000), "text": [f"text {i}" for i in range(20_000)]})
    pq.write_table(big, tmp_path / "big.parquet", row_group_size=1000)
    small = [tmp_path / f"{i}.parquet" for i in range(6)]
    for path in small:
        pq.write_table(big.slice(0, 5), path)
    tasks = share_out([str(tmp_path / "big.parquet")], "parquet", 4)
    assert 3 <= len(tasks) <= 5
    assert ids_of(tasks, "parquet") == list(range(20_000))
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", 1 << 20)
    assert len(share_out([*map(str, small)], "parquet", 4)) == 1
    assert ids_of(share_out([*map(str, small)], "parquet", 4), "parquet") == [*range(5)] * 6


def test_what_cannot_be_cut_or_read_is_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "TASK_BYTES_MIN", 10)
    (tmp_path / "a.csv").write_text("event_id,text\n" + '1,"a\nb"\n' * 50)
    (tmp_path / "bad.parquet").write_text("no parquet at all" * 50)
    paths = [str(tmp_path / name) for name in ("a.csv", "bad.parquet", "gone.parquet")]
    for path in paths:
        (task,) = share_out([path], path.split(".")[-1], 4)
        assert task == [Piece(path)]
    assert share_out([], "json", 4) == []
