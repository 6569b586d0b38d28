"""The rows that go out: the answers of windows that are over, if `when` is true of them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.partials import TOP, Answers, partial_fields, read_answers
from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.core.where.read import read_where
from geoswarm.core.where.when import meets
from geoswarm.flow.aggregates.counted import GROUP
from geoswarm.flow.aggregates.held_rows import HeldRows
from geoswarm.flow.aggregates.live import Rules, distinct
from geoswarm.model import TIMESTAMP

ANSWERS = pa.schema(
    [
        pa.field("sub_id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("group", pa.string()),
        pa.field("window_start", TIMESTAMP, nullable=False),
        pa.field("window_end", TIMESTAMP, nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("top", TOP),
        pa.field("error", pa.float64(), nullable=False),
    ]
)
Users = Callable[[SubIds], pa.StringArray]
"""The user of each of ascending subscriptions."""


class Closed(NamedTuple):
    """Windows that are over, each in one row."""

    rows: HeldRows
    rules: Rules
    starts: Ints
    ends: Ints

    def take(self, at: Ints) -> "Closed":
        return Closed(self.rows.take(at), self.rules.take(at), self.starts[at], self.ends[at])


def answer(closed: Closed, users: Users) -> tuple[pa.RecordBatch, Ints]:
    """The rows, and the key of each."""
    closed, found = _read(closed)
    rows = closed.rows
    ids, at = distinct(rows.subs)
    groups = pa.nulls(len(rows), pa.string()) if rows.rest is None else rows.rest.column(GROUP.name)
    columns = [
        pa.array(rows.subs),
        users(ids).take(pa.array(at)),
        groups,
        pa.array(closed.starts).cast(TIMESTAMP),
        pa.array(closed.ends).cast(TIMESTAMP),
        pa.array(rows.counts),
        *found,
    ]
    return pa.record_batch(columns, schema=ANSWERS), rows.keys


def _read(closed: Closed) -> tuple[Closed, Answers]:
    """The answers that are asked for. What is shared by many specs is done once: few have the same condition."""
    parts, places = list[Answers](), list[Ints]()
    for mine, code in _by_code(closed.rules):
        spec = closed.rules.specs[code]
        function, _, argument = spec.aggregate
        rest, counts = closed.rows.rest, closed.rows.counts[mine]
        others = partial_fields(function)[1:]
        held = [pa.nulls(len(mine), f.type) if rest is None else _take(rest, f, mine) for f in others]
        found = read_answers(function, [pa.array(counts), *held], argument)
        if spec.when is not None:
            values = np.asarray(found.value.to_numpy(zero_copy_only=False), np.float64)
            chosen = meets(read_where(spec.when), function, values, counts)
            found, mine = _where(found, chosen), mine[chosen]
        parts.append(found)
        places.append(mine)
    if len(parts) == 1 and len(places[0]) == len(closed.rows):
        return closed, parts[0]
    columns = (pa.concat_arrays([part[i] for part in parts]) for i in range(len(Answers._fields)))
    return closed.take(np.concatenate(places)), Answers(*columns)


def _take(rest: pa.RecordBatch, field: pa.Field, mine: Ints) -> pa.Array:
    return rest.column(field.name).take(pa.array(mine))


def _where(found: Answers, chosen: Bools) -> Answers:
    return found if chosen.all() else Answers(*(column.filter(pa.array(chosen)) for column in found))


def _by_code(rules: Rules) -> Iterator[tuple[Ints, int]]:
    """The rows of each spec."""
    if len(rules.specs) == 1:
        yield np.arange(len(rules.codes)), next(iter(rules.specs))
        return
    order = np.argsort(rules.codes, kind="stable")
    codes = rules.codes[order]
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(codes)), strict=True):
        yield order[begin:end], int(codes[begin])
