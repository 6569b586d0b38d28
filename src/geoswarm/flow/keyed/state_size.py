"""S(k, w): the bytes of state that a key holds in the window, counted where its rows are mapped.

A row of state counts with its columns, by the length of its own texts and lists, and with the id and the batch number
beside it. So a key is as large as what it would take along. Mixed §II, Table II.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.flow.keyed.operator import KEY, Answer, Turn
from geoswarm.flow.keyed.turn import Shelf, find_ids

ROW_BYTES = 16.0
"""The id of the key and the number of the batch, which every row of state has."""


def state_after(turn: Turn, answer: Answer) -> Floats:
    """The state of each key of a turn once the answer is filed: what it held in the window, and what it keeps now."""
    keys = len(turn.keys)
    held = np.bincount(turn.held_groups, row_bytes(turn.held), keys)
    kept = np.bincount(np.asarray(answer.kept_groups, np.int64), row_bytes(answer.kept), keys)
    return held.astype(np.float64) + kept


def state_of(ids: Ints, shelves: Iterable[tuple[Shelf, Bools | None]]) -> Floats:
    """The state of keys, by ascending ids, on these shelves. Texts that share an id count together: it is a cost."""
    found = np.zeros(len(ids))
    for shelf, wanted in shelves:
        at, of = find_ids(shelf, ids, wanted)
        found += np.bincount(of, row_bytes(shelf.rows.take(pa.array(at)).drop_columns([KEY])), len(ids))
    return found


def row_bytes(rows: pa.RecordBatch) -> Floats:
    """The bytes of each row of state, without the key."""
    found = np.full(len(rows), ROW_BYTES)
    for column in rows.columns if len(rows) else []:
        found += _cell_bytes(column)
    return found


def _cell_bytes(column: pa.Array) -> Floats | float:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind):
        ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        inner = column.values if pa.types.is_list(kind) else None
        each = 1.0 if inner is None else inner.nbytes / max(1, len(inner))
        return 4.0 + each * np.diff(ends)
    return float(column.nbytes) / len(column)
