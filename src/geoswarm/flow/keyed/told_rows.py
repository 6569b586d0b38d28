"""What subscriptions are told of objects, as rows of alerts; also of objects that send nothing.

`initial.py` and `forgotten.py` find these, `life_work.py` calls them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keyed.state_lists import LONGS, to_lists
from geoswarm.model import OBJECT, SUB_IDS, TIMESTAMP

TOLD = pa.schema([pa.field(name, LONGS, nullable=False) for name in ("_kinds", "_since_us", "_sequence")])
"""Lists as long as `sub_ids`, as in `transition_arrays.Notices`."""


class Telling(NamedTuple):
    """How an operator finds who asked to be told of objects that send nothing. It travels to workers."""

    notify: Callable[[SubIds], Ints]
    """What each of ascending subscriptions is told beside events, as a code of `core/subscriptions/ending.py`."""
    begun: Callable[[], Searchable | None]
    """Opens the subscriptions that begin with the batch and want to be told who is inside; None: there are none."""
    grid: Grid
    now_us: int
    sequence_us: int
    """How long a sequence goes on after an alert."""


class ToldPairs(NamedTuple):
    """Of the object `groups[i]`, the subscription `subs[i]` is told; ascending by both."""

    groups: Ints
    subs: SubIds
    since_us: Ints
    sequence: Ints


def told_rows(keys: pa.Array, held: pa.RecordBatch, pairs: ToldPairs, kind: int, schema: pa.Schema) -> pa.RecordBatch:
    """A row for each object that some subscription is told something of, without an event: `ts`, `x` and `y` are those
    of its last fix in `held`, and what else events have is null."""
    objects, counts = np.unique(pairs.groups, return_counts=True)
    offsets, rows = np.append(0, np.cumsum(counts)).astype(np.int32), pa.array(objects)
    columns = {
        OBJECT.name: keys.take(rows),
        "ts": held.column("seen_us").take(rows).cast(TIMESTAMP),
        **{axis: held.column(axis).take(rows) for axis in ("x", "y")},
        SUB_IDS.name: pa.ListArray.from_arrays(pa.array(offsets), pa.array(pairs.subs), type=SUB_IDS.type),
    }
    told = (np.full(len(pairs.subs), kind), pairs.since_us, pairs.sequence)
    columns |= {name: to_lists(offsets, values) for name, values in zip(TOLD.names, told, strict=True)}
    whole = [columns.get(field.name, pa.nulls(len(objects), field.type)) for field in schema]
    return pa.record_batch(
        [column.cast(field.type) for column, field in zip(whole, schema, strict=True)], schema=schema
    )
