"""Routes rows to the executors of their keys; rows without a key become dead letters."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.keys.hashing import KeyOwners, key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import EVENT_PARCEL, NARROW_PARCEL
from geoswarm.flow.keyed.operator import KEY, Operator
from geoswarm.flow.route import Parcel


def feed_schema(operator: Operator, rows: pa.Schema) -> pa.Schema:
    """The schema that `feed` returns for such rows; an error if they cannot be routed."""
    try:
        fed = operator.feed(pa.RecordBatch.from_pylist([], schema=rows)).schema
    except KeyError as missing:
        raise SchemaError(f"operator {operator.name} finds no column {missing} in rows of {rows.names}") from missing
    if KEY not in fed.names:
        raise SchemaError(
            f"operator {operator.name} makes rows of {fed.names}, which have no column {KEY!r}: name one of them so"
        )
    kind = fed.field(KEY).type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SchemaError(f"the key of operator {operator.name} is {kind}: use integers or strings")
    return fed


def route_by_key(rows: pa.RecordBatch, operator: Operator, plan: KeyPlan, dead: DeadLetters) -> Iterator[Parcel]:
    """`rows` are those that `feed` returned."""
    keys = rows.column(KEY)
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        dead.add(rows, missing, "key", f"{KEY} is null: send a value, or leave the row out")
        rows = rows.filter(pa.array(~missing))
    if len(rows):
        ids = key_ids(rows.column(KEY))
        numbers = operator.part_numbers(rows) if len(plan.split_keys) else None
        owners = plan.route(plan.deal(ids, numbers))
        narrow = np.zeros(len(rows), np.bool_) if operator.narrow is None else operator.fits_narrow(rows)
        if operator.narrow is not None and narrow.any():
            some, theirs = rows.select(operator.narrow.names), owners
            if not narrow.all():
                some, theirs = some.filter(pa.array(narrow)), owners[narrow]
            yield from split_by_owner(some, theirs, NARROW_PARCEL)
        if not narrow.all():
            rest = rows.filter(pa.array(~narrow)) if narrow.any() else rows
            yield from split_by_owner(rest, owners[~narrow])


def route_given(given: pa.RecordBatch, merge_by: str, executors: Ints) -> Iterator[Parcel]:
    """Send rows that must be merged before they go out to one executor, by the column in which they agree."""
    if len(given):
        slots = key_ids(given.column(merge_by)).view(np.uint64) % np.uint64(len(executors))
        yield from split_by_owner(given, executors[slots.astype(np.int64)].astype(np.int32))


def split_by_owner(rows: pa.RecordBatch, owners: KeyOwners, kind: int = EVENT_PARCEL) -> Iterator[Parcel]:
    order = sort_order(owners.astype(np.uint32), int(owners.max(initial=0)))
    rows, owners = rows.take(pa.array(order)), owners[order]
    begins = np.flatnonzero(np.diff(owners, prepend=-1))
    for begin, end in zip(begins, np.append(begins[1:], len(owners)), strict=True):
        yield Parcel(0, int(owners[begin]), rows.slice(begin, end - begin), kind)
