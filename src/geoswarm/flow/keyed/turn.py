"""Makes an operator's turn: rows grouped by key, and the state of these keys.

`store/keyed_state.py` stores the state, `core/keys/plan.py` has the executor of each key.

Keys are sorted and looked up by 64-bit ids. The id of a text is a hash; where two texts share one, the texts themselves
are compared, so that a collision costs time and changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.flow.keyed.operator import KEY, Moment, Operator, StateRows, Turn


class KeyGroups(NamedTuple):
    """Rows by key, and the ids of the keys, ascending."""

    ids: Ints
    keys: pa.Array
    rows: pa.RecordBatch
    starts: Ints

    def without_rows(self) -> "KeyGroups":
        return self._replace(rows=self.rows.slice(0, 0), starts=np.zeros(len(self.ids) + 1, np.int64))


class Shelf(NamedTuple):
    """Rows of state from one file, by the ids of their keys."""

    ids: Ints
    batches: Ints
    rows: pa.RecordBatch
    """`key`, then the columns of the operator's `kept`."""
    interval: int


def group(rows: pa.RecordBatch, order: Sequence[str] = (), by: str = KEY) -> KeyGroups:
    """`by` is a column without nulls."""
    ids = key_ids(rows.column(by))
    if order:
        # Arrow sorts by several columns; the last sort, by id, is stable and keeps their order.
        chosen = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in order]).to_numpy().astype(np.int64)
        chosen = chosen[np.argsort(ids[chosen], kind="stable")]
    else:
        chosen = np.argsort(ids, kind="stable")
    rows, ids = rows.take(pa.array(chosen)), ids[chosen]
    first = _first_of_key(ids, rows.column(by))
    if first is None:  # rows of texts that share an id are mixed
        by_text = np.lexsort((_ranks(rows.column(by)), ids))  # stable, so each key's rows stay in order
        rows, ids = rows.take(pa.array(by_text)), ids[by_text]
        first = _first_of_key(ids, rows.column(by), mixed=True)
        assert first is not None
    at = np.flatnonzero(first)
    return KeyGroups(ids[at], rows.column(by).take(pa.array(at)), rows, np.append(at, len(ids)).astype(np.int64))


def _first_of_key(ids: Ints, keys: pa.Array, mixed: bool = False) -> Bools | None:
    """Which rows begin a key; None if rows of several keys with the same id are mixed, and must be sorted first."""
    first = np.ones(len(ids), np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    if pa.types.is_integer(keys.type) or not len(ids):
        return first
    differs = np.ones(len(ids), np.bool_)
    differs[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    if not mixed and (differs & ~first).any():
        return None
    return first | differs


def _ranks(keys: pa.Array) -> Ints:
    encoded = keys.dictionary_encode()
    ranks: Ints = pc.rank(encoded.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
    indices: Ints = encoded.indices.to_numpy().astype(np.int64)
    return ranks[indices]


def turn_of(
    grouped: KeyGroups,
    shelves: Iterable[tuple[Shelf, Bools | None]],
    operator: Operator,
    moment: Moment,
    belong: Callable[[Shelf, Ints], Bools] | None = None,
) -> Turn:
    """The turn of these keys with their state. With each shelf comes which of the keys are looked up on it; None: all.
    Shelves come from oldest to newest. Of the rows found on a shelf, only those that `belong` are in the turn."""
    parts: list[pa.RecordBatch] = []
    groups, batches, intervals = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for shelf, wanted in shelves:
        at, of = _find(shelf, grouped, wanted)
        if belong is not None:
            chosen = belong(shelf, at)
            at, of = at[chosen], of[chosen]
        if len(at):
            parts.append(shelf.rows.take(pa.array(at)).drop_columns([KEY]))
            groups.append(of)
            batches.append(shelf.batches[at])
            intervals.append(np.full(len(at), shelf.interval, np.int64))
    group_of, batch_of = np.concatenate(groups), np.concatenate(batches)
    order = np.lexsort((batch_of, group_of))
    nothing = pa.RecordBatch.from_pylist([], schema=operator.kept)
    held = pa.concat_batches(parts).take(pa.array(order)) if parts else nothing
    counts = np.bincount(group_of, minlength=len(grouped.ids))
    return Turn(
        grouped.keys,
        grouped.rows,
        grouped.starts,
        held,
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate(intervals)[order],
        batch_of[order],
        moment,
    )


def _find(shelf: Shelf, grouped: KeyGroups, wanted: Bools | None) -> tuple[Ints, Ints]:
    """Rows of the shelf that belong to the keys, and the number of the key of each."""
    at, of = find_ids(shelf, grouped.ids, wanted)
    if len(of) and not pa.types.is_integer(grouped.keys.type):
        same = pc.equal(shelf.rows.column(KEY).take(pa.array(at)), grouped.keys.take(pa.array(of)))
        equal = same.to_numpy(zero_copy_only=False)
        at, of = at[equal], of[equal]
    return at, of


def find_ids(shelf: Shelf, ids: Ints, wanted: Bools | None) -> tuple[Ints, Ints]:
    """Rows of the shelf with these ids, and the place of the id of each. `wanted`: those to look up; None: all."""
    numbers = np.arange(len(ids)) if wanted is None else np.flatnonzero(wanted)
    if not len(numbers) or not len(shelf.ids):
        return numbers[:0], numbers[:0]
    lows, highs = (np.searchsorted(shelf.ids, ids[numbers], side) for side in ("left", "right"))
    counts = highs - lows
    of = np.repeat(numbers, counts)
    return np.arange(len(of)) + np.repeat(lows - (np.cumsum(counts) - counts), counts), of


def make_shelf(rows: pa.RecordBatch, batches: Ints, interval: int) -> Shelf:
    """A shelf of rows, which have their key, in the order of a shelf."""
    ids = key_ids(rows.column(KEY))
    order = np.lexsort((batches, ids))
    return Shelf(ids[order], batches[order], rows.take(pa.array(order)), interval)


def compact_shelves(shelves: Sequence[Shelf], operator: Operator) -> Shelf:
    """One compacted shelf from several of one interval."""
    rows = pa.concat_batches([shelf.rows for shelf in shelves])
    batches = np.concatenate([shelf.batches for shelf in shelves])
    numbered = rows.append_column(_BATCH, pa.array(batches))
    grouped = group(numbered, (_BATCH,))
    of_batch = grouped.rows.column(_BATCH).to_numpy()
    held = StateRows(grouped.rows.drop_columns([KEY, _BATCH]), grouped.starts, of_batch)
    fewer = operator.compact(held)
    counts = np.diff(fewer.starts)
    keys = grouped.keys.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    whole = pa.record_batch([keys, *fewer.rows.columns], schema=rows.schema)
    return Shelf(np.repeat(grouped.ids, counts), fewer.batches, whole, shelves[0].interval)


_BATCH = "_batch"
