"""What aggregates remember: counted rows by key, as arrays; and how rows that belong together become one.

    sorted by key, then `first`     key    7  7   7    9  9     a key is one subscription and group; where two share
                                    first  0  60  60   0  60    a 64-bit hash it is noticed, and they are sorted apart
    rows of one pane are a group           0 │   1   │ 2 │ 3

The columns that plain counts do not have (`REST`) are left out while all are null: then nothing but integers is sorted,
merged and written; and of these columns, those that follow from others (`PLAIN`) are no arrays of their own. A column
that is another one, or has one value, stays so when rows are taken or joined. `counted.py` says what a row is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.partials import COUNT, EXTREME, PACKED, VALUES, merge_partials, partial_fields
from geoswarm.core.arrays.jit import Bools, Ints, SubIds, kernel, read_only
from geoswarm.core.keys.hashing import scramble, stir, text_ids
from geoswarm.flow.aggregates.counted import BEGAN, EVENT_ID, FIRST, GROUP, LAST, SUB
from geoswarm.flow.keyed.operator import KEY

PLAIN = pa.schema([BEGAN, FIRST, COUNT])
"""The columns of a plain count of a pane: the key is its subscription, `last` is `first`, and it is no single event."""
NUMBERS = pa.schema([*PLAIN, SUB, LAST, EVENT_ID])
REST = pa.schema([GROUP, *(field.with_nullable(True) for field in (VALUES, EXTREME, PACKED))])
INSERTED_MAX = 24
"""Rows of one key that are sorted by insertion; more are sorted by merging."""


@dataclass(frozen=True)
class HeldRows:
    keys: Ints
    batches: Ints
    """The batch that kept each row."""
    subs: SubIds
    began: Ints
    first: Ints
    last: Ints
    events: Ints
    counts: Ints
    rest: pa.RecordBatch | None
    """The columns of REST; None: all are null."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def numbers(self) -> tuple[Ints, ...]:
        return self.keys, self.batches, self.subs, self.began, self.first, self.last, self.events, self.counts

    @classmethod
    def made(cls, numbers: Sequence[Ints], rest: pa.RecordBatch | None) -> "HeldRows":
        """From the columns of `numbers`."""
        keys, batches, subs, began, first, last, events, counts = numbers
        return cls(keys, batches, subs, began, first, last, events, counts, rest)

    @classmethod
    def of(cls, rows: pa.RecordBatch, keys: Ints, batches: Ints) -> "HeldRows":
        """`rows` have the columns NUMBERS and REST, or only those of PLAIN."""
        began, first, counts = (np.asarray(rows.column(name), np.int64) for name in PLAIN.names)
        if SUB.name not in rows.schema.names:
            return cls.plain(keys, batches, began, first, counts)
        subs, last, events = (np.asarray(rows.column(field.name), np.int64) for field in (SUB, LAST, EVENT_ID))
        has_rest = any(rows.column(name).null_count < len(rows) for name in REST.names)
        rest = rows.select(REST.names).cast(REST) if has_rest else None
        return cls(keys, batches, subs, began, first, last, events, counts, rest)

    @classmethod
    def plain(cls, keys: Ints, batches: Ints, began: Ints, first: Ints, counts: Ints) -> "HeldRows":
        return cls(keys, batches, keys, began, first, first, constant(0, len(keys)), counts, None)

    @property
    def is_plain(self) -> bool:
        """Whether the columns of PLAIN say all."""
        return self.rest is None and self.subs is self.keys and self.last is self.first and is_constant(self.events)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows in their columns: NUMBERS and REST, or those of PLAIN if they say all."""
        numbers = self.began, self.first, self.counts, self.subs, self.last, self.events
        if self.is_plain:
            return pa.record_batch([pa.array(column) for column in numbers[: len(PLAIN)]], schema=PLAIN)
        columns = [*map(pa.array, numbers), *_rest_of(self).columns]
        return pa.record_batch(columns, schema=pa.schema([*NUMBERS, *REST]))

    def take(self, at: Ints) -> "HeldRows":
        rest, taken = None if self.rest is None else self.rest.take(pa.array(at)), dict[int, Ints]()
        for column in self.numbers:
            if id(column) not in taken:
                is_same = is_constant(column) and len(column)
                taken[id(column)] = constant(int(column[0]), len(at)) if is_same else column[at]
        return HeldRows.made([taken[id(column)] for column in self.numbers], rest)

    def where(self, chosen: Bools) -> "HeldRows":
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    @property
    def groups(self) -> Ints:
        """A number for the group of each row; null has one, too."""
        if self.rest is None:
            return np.zeros(len(self), np.int64)
        encoded = self.rest.column(GROUP.name).dictionary_encode(null_encoding="encode")
        return np.asarray(encoded.indices, np.int64)

    @property
    def row_bytes(self) -> float:
        """What a row takes in a file, on average."""
        rest = 0 if self.rest is None else self.rest.nbytes
        return 8.0 * (len(self.numbers) + 1) + rest / max(1, len(self))


class Sorted(NamedTuple):
    """Rows by key and `first`."""

    rows: HeldRows
    is_new: Bools
    """Whether a row is the first one of its subscription and group."""

    @property
    def numbers(self) -> Ints:
        """The number of the subscription and group of each row, from 0."""
        return np.cumsum(self.is_new) - 1

    def where(self, chosen: Bools) -> "Sorted":
        """Only some of the rows."""
        if chosen.all():
            return self
        numbers = self.numbers[chosen]
        return Sorted(self.rows.where(chosen), np.diff(numbers, prepend=-1) != 0)


def join(parts: Sequence[HeldRows]) -> HeldRows:
    """All rows of several; at least one is given."""
    parts = [part for part in parts if len(part)] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    made = dict[tuple[int, ...], Ints]()
    columns = list(zip(*(part.numbers for part in parts), strict=True))
    for some in columns:
        names = tuple(map(id, some))
        if names not in made:
            is_same = all(is_constant(column) and column[0] == some[0][0] for column in some)
            made[names] = constant(int(some[0][0]), sum(map(len, some))) if is_same else np.concatenate(some)
    whole = [made[tuple(map(id, some))] for some in columns]
    if all(part.rest is None for part in parts):
        return HeldRows.made(whole, None)
    return HeldRows.made(whole, pa.concat_batches([_rest_of(part) for part in parts]))


def constant(value: int, count: int) -> Ints:
    """An array of one value, which takes no room."""
    return np.broadcast_to(np.int64(value), count)


def is_constant(column: Ints) -> bool:
    return column.strides == (0,)


def no_rows() -> HeldRows:
    none = np.empty(0, np.int64)
    return HeldRows.plain(none, none, none, none, none)


def are_plain(rows: pa.RecordBatch) -> Bools:
    """Which rows are said by the columns of PLAIN; they have a key, NUMBERS and REST."""
    first, last, subs, events = (np.asarray(rows.column(f.name), np.int64) for f in (FIRST, LAST, SUB, EVENT_ID))
    found: Bools = (last == first) & (events == 0) & (np.asarray(rows.column(KEY), np.int64) == subs)
    for column in (rows.column(name) for name in REST.names):
        if column.null_count < len(rows):
            found &= column.is_null().to_numpy(zero_copy_only=False)
    return found


def keys_of(subs: SubIds, groups: pa.Array) -> Ints:
    """The key by which a subscription's group is routed: its id, or with a group a hash of both."""
    if groups.null_count == len(groups):
        return subs
    named = np.flatnonzero(groups.is_valid().to_numpy(zero_copy_only=False))
    texts = groups.take(pa.array(named)).cast(pa.large_string())
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    text = np.frombuffer(data or b"", np.uint8)
    keys = subs.copy()
    keys[named] = _mix(subs[named], text_ids(places, text))
    return keys


def sort(rows: HeldRows) -> Sorted:
    """Stable: rows of a key that begin at the same time stay in order."""
    keys = rows.keys
    if _ascends(read_only(keys), read_only(rows.first)):
        return _noticed(rows)
    order = np.argsort(keys, kind="stable")  # timsort, which merges the runs of files fast
    _settle(keys[order], rows.first[order], order)
    return _noticed(rows.take(order))


def _noticed(rows: HeldRows) -> Sorted:
    """Sorted rows with their subscriptions and groups. Where several share a key they are sorted apart."""
    is_new = np.ones(len(rows), np.bool_)
    same_key = rows.keys[1:] == rows.keys[:-1]
    if rows.subs is rows.keys and rows.rest is None:
        is_new[1:] = ~same_key
        return Sorted(rows, is_new)
    groups = rows.groups
    differs = (rows.subs[1:] != rows.subs[:-1]) | (groups[1:] != groups[:-1])
    if (same_key & differs).any():
        order = np.lexsort((rows.first, groups, rows.subs, rows.keys))
        rows, groups = rows.take(order), groups[order]
        differs = (rows.subs[1:] != rows.subs[:-1]) | (groups[1:] != groups[:-1])
        same_key = rows.keys[1:] == rows.keys[:-1]
    is_new[1:] = ~same_key | differs
    return Sorted(rows, is_new)


def merge(rows: HeldRows, starts: Ints, functions: Sequence[str], function_of: Ints, *, spans: bool = True) -> HeldRows:
    """One row for each group of rows; none is empty. `function_of` has the place of each group's function. Without
    `spans`, nobody asks when the merged rows began and ended and were kept: they are as their first row."""
    if len(starts) == len(rows) + 1:
        return rows
    at = starts[:-1]
    heads = replace(rows, rest=None).take(at)
    counts = np.add.reduceat(rows.counts, at)
    rest = None if rows.rest is None else _merge_rest(rows.rest, rows.counts, starts, functions, function_of)
    if not spans:
        return replace(heads, counts=counts, rest=rest)
    first, last = np.minimum.reduceat(rows.first, at), np.maximum.reduceat(rows.last, at)
    return replace(
        heads, batches=np.maximum.reduceat(rows.batches, at), first=first, last=last, counts=counts, rest=rest
    )


def _merge_rest(
    rest: pa.RecordBatch, counts: Ints, starts: Ints, functions: Sequence[str], function_of: Ints
) -> pa.RecordBatch:
    """Groups of a single row stay as they are; of the others each function merges its own."""
    sizes = np.diff(starts)
    alone = np.flatnonzero(sizes == 1)
    parts, places = [rest.take(pa.array(starts[alone]))], [alone]
    for number in np.unique(function_of[sizes > 1]).tolist():
        mine = np.flatnonzero((sizes > 1) & (function_of == number))
        rows, own = rows_of_groups(starts, mine)
        taken = rest.take(pa.array(rows))
        fields = partial_fields(functions[number])
        columns = [pa.array(counts[rows]), *(taken.column(field.name) for field in fields[1:])]
        merged = dict(zip([f.name for f in fields], merge_partials(functions[number], columns, own), strict=True))
        groups = rest.column(GROUP.name).take(pa.array(starts[mine]))
        others = [merged.get(f.name, pa.nulls(len(mine), f.type)) for f in list(REST)[1:]]
        parts.append(pa.record_batch([groups, *others], schema=REST))
        places.append(mine)
    return pa.concat_batches(parts).take(pa.array(np.argsort(np.concatenate(places), kind="stable")))


def rows_of_groups(starts: Ints, groups: Ints) -> tuple[Ints, Ints]:
    """The rows of some groups, one group after the other, and where each of them begins among these."""
    sizes = starts[groups + 1] - starts[groups]
    own = np.append(0, np.cumsum(sizes))
    return np.arange(own[-1]) + np.repeat(starts[groups] - own[:-1], sizes), own


def starts_of(is_first: Bools) -> Ints:
    """Where groups begin, and the end of the last one."""
    return np.append(np.flatnonzero(is_first), len(is_first))


def _rest_of(rows: HeldRows) -> pa.RecordBatch:
    if rows.rest is not None:
        return rows.rest
    return pa.record_batch([pa.nulls(len(rows), field.type) for field in REST], schema=REST)


@kernel
def _ascends(keys: Ints, first: Ints) -> bool:
    for i in range(1, len(keys)):
        if keys[i] < keys[i - 1] or (keys[i] == keys[i - 1] and first[i] < first[i - 1]):
            return False
    return True


@kernel
def _mix(subs: SubIds, texts: Ints) -> Ints:
    keys = np.empty(len(subs), np.int64)
    for i in range(len(subs)):
        keys[i] = np.int64(stir(scramble(subs[i]), np.uint64(texts[i])))
    return keys


@kernel
def _settle(keys: Ints, first: Ints, order: Ints) -> None:
    """Sort `order` by `first` within each key. `keys` and `first` are in that order already."""
    begin = 0
    while begin < len(keys):
        end = begin + 1
        is_sorted = True
        while end < len(keys) and keys[end] == keys[begin]:
            is_sorted = is_sorted and first[end] >= first[end - 1]
            end += 1
        if not is_sorted and end - begin <= INSERTED_MAX:
            for at in range(begin + 1, end):
                moved, time, to = order[at], first[at], at
                while to > begin and first[to - 1] > time:
                    order[to], first[to] = order[to - 1], first[to - 1]
                    to -= 1
                order[to], first[to] = moved, time
        elif not is_sorted:
            within = np.argsort(first[begin:end], kind="mergesort")
            order[begin:end] = order[begin:end][within]
        begin = end
