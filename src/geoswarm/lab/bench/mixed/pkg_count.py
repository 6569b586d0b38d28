"""Partial key grouping on the engine: a count whose keys have two places each, and the operator behind it that adds up.

A rival for the benchmarks; nothing else uses it. Each row goes to the less loaded of the two executors of its key, as
far as the task that sends it knows, which is what the paper's sources know, too. Its load for planners is
`control/keyed/pkg.py`. Mixed §V, "Baseline Approaches"; Nasir et al., ICDE 2015.

    row of "river" ──► "river0" or "river1" ──► PkgCount ──► partial counts ──► PkgTotals, by "river" ──► counts
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.control.keyed.pkg import deal_tuples
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.columns import key_column, sum_groups
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, Turn


class PkgCount(Count):
    def __init__(self, executors: int, window: int = 1) -> None:
        super().__init__(window=window, name="pkg-count")
        self.executors = executors

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = key_column(rows, self.key, self.name)
        plan, parts = KeyPlan.first(range(self.executors)), [_part(keys, n) for n in (0, 1)]
        first, second = (plan.homes(key_ids(part)) for part in parts)
        chosen = deal_tuples(first, second, np.zeros(self.executors))
        return pa.record_batch([pc.if_else(pa.array(chosen == first), *parts)], names=[KEY])


class PkgTotals(Operator):
    """Takes what `PkgCount` gives and makes one row of each key. It keeps nothing: partial counts are of the window."""

    name = "pkg-totals"

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([])

    def given(self, fed: pa.Schema) -> pa.Schema:
        return fed

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        whole = _whole(rows.column(KEY))
        return pa.record_batch([whole, rows.column("count"), rows.column("added")], names=[KEY, "count", "added"])

    def update(self, turn: Turn) -> Answer:
        sums = [pa.array(sum_groups(turn.rows.column(name).to_numpy(), turn.starts)) for name in ("count", "added")]
        given = pa.record_batch([turn.keys, *sums], schema=turn.rows.schema)
        nothing: Ints = np.empty(0, np.int64)
        none = pa.RecordBatch.from_struct_array(pa.array([], pa.struct([])))
        return Answer(none, nothing, given, turn.row_counts.astype(np.float64))


def _part(keys: pa.Array, number: int) -> pa.Array:
    """The name of one of a key's two places."""
    if pa.types.is_integer(keys.type):
        return pc.add(pc.multiply(keys.cast(pa.int64()), 2), number)
    return pc.binary_join_element_wise(keys, str(number), "")


def _whole(parts: pa.Array) -> pa.Array:
    if pa.types.is_integer(parts.type):
        return pc.shift_right(parts, pa.scalar(1, parts.type))
    return pc.utf8_slice_codeunits(parts, 0, -1)
