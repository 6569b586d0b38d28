"""A plan, in force or proposed, with the times of its partitions in a round and the bytes that they hold.

Times of partitions in force were measured. Proposed ones get theirs in proportion to the counts of a sample
(`tally.py`), or to their areas without one. `adjust.py` decides. A sample is small, so when the terms of a place are
shared in a new way, it is used only for terms that change their executor: the time of the others was measured.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.control.balance.tally import QUERY_BYTES, Tally
from geoswarm.control.layout.load_model import Costs
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.plan import Plan
from geoswarm.flow.observe import LoadReport


class Seen(NamedTuple):
    plan: Plan
    times: Floats
    """The time of each slot, in µs."""
    sizes: Ints
    """The bytes of the queries of each slot. Without a sample, the time per event stands for their number: since L_g is
    n_o·n_q (Definition 3), n_q is L_g / n_o up to a factor."""
    of_executor: Floats
    """The time of each executor, in µs."""
    is_proposed: Bools
    """Whether each slot is only proposed. Partitions made of it in the same round would have no time to share."""
    counted: Tally | None

    def slots_held_by(self, executor: int) -> Ints:
        found: Ints = np.flatnonzero(self.plan.executor_of_slot == executor)
        return found


def see(
    plan: Plan,
    before: Plan,
    load: LoadReport,
    counted: Tally | None,
    costs: Costs,
    query_weight: float,
    counted_before: Tally | None = None,
) -> Seen:
    """`before` is the plan that the load was measured under. Each counted query stands for `query_weight`."""
    weights = np.array([p.cells for p in plan.partitions], np.float64)
    if counted is not None:
        weights = counted.weights(costs)
    weights_before = None if counted_before is None else counted_before.weights(costs)
    times, is_proposed = _times_us(
        plan, before, {i: float(part.cpu_us) for i, part in load.partitions.items()}, weights, weights_before
    )
    if counted is not None:
        sizes = np.ceil(counted.sizes * query_weight).astype(np.int64)
    else:
        events = [load.partitions[p.id].events if p.id in load.partitions else 1 for p in plan.partitions]
        sizes = np.ceil(QUERY_BYTES * times / np.maximum(events, 1)).astype(np.int64)
    return Seen(plan, times, sizes, plan.by_executor(times), is_proposed, counted)


def _times_us(
    plan: Plan, before: Plan, known: dict[int, float], weights: Floats, weights_before: Floats | None
) -> tuple[Floats, Bools]:
    """The time of each slot, and whether it is proposed. A partition of both plans keeps its measured time. The time of
    one that is gone is divided by weight among those proposed in its place."""
    ids = plan.partition_id_of_slot
    times = np.array([known.get(i, 0.0) for i in ids.tolist()])
    is_proposed = ~np.isin(ids, before.partition_id_of_slot)
    fresh = np.flatnonzero(is_proposed)
    gone = np.flatnonzero(~np.isin(before.partition_id_of_slot, ids))
    if weights_before is not None:
        for box in {before.partitions[slot].box for slot in gone.tolist()}:
            old, new = (
                [slot for slot in some.tolist() if of.partitions[slot].box == box]
                for some, of in ((gone, before), (fresh, plan))
            )
            if not new or not weights[new].any():
                continue
            took = np.array([known.get(before.partitions[slot].id, 0.0) for slot in old])
            owners = [of.executor_of_slot[some].astype(np.int64) for of, some in ((before, old), (plan, new))]
            times[new] = _times_after_handover(took, weights_before[old], weights[new], *owners)
            gone = gone[~np.isin(gone, old)]
    for slot in gone.tolist():
        left = before.partitions[slot]
        height = np.minimum(plan.borders[fresh, 2], left.row1) - np.maximum(plan.borders[fresh, 0], left.row0) + 1
        width = np.minimum(plan.borders[fresh, 3], left.col1) - np.maximum(plan.borders[fresh, 1], left.col0) + 1
        common = np.maximum(height, 0) * np.maximum(width, 0)
        cells = (plan.borders[fresh, 2:] - plan.borders[fresh, :2] + 1).prod(axis=1)
        parts = weights[fresh] * common / cells
        times[fresh] += known.get(left.id, 0.0) * _shares(parts if parts.any() else common.astype(np.float64))
    return times, is_proposed


def _times_after_handover(
    took: Floats, weights_before: Floats, weights: Floats, owners_before: Ints, owners: Ints
) -> Floats:
    """The times of one place's shares: an executor's own for the terms that it keeps, and for new terms the rate of the
    executors that lose some. The sum may grow: an event that goes to one more executor is one more visit."""
    room = int(max(owners_before.max(), owners.max())) + 1
    had, time = (np.bincount(owners_before, some, minlength=room).astype(np.float64) for some in (weights_before, took))
    has = np.bincount(owners, weights, minlength=room).astype(np.float64)
    loses = has < had
    if not had[loses].any():
        loses = had > 0
    if not loses.any():
        found: Floats = time.sum() * _shares(weights)
        return found
    kept = time * np.minimum(1.0, np.divide(has, had, out=np.zeros(room), where=had > 0))
    after: Floats = kept + np.maximum(0.0, has - had) * (time[loses].sum() / had[loses].sum())
    return after[owners] * np.divide(weights, has[owners], out=np.ones(len(weights)), where=has[owners] > 0)


def _shares(weights: Floats) -> Floats:
    total = weights.sum()
    return weights / total if total else np.full(len(weights), 1.0 / len(weights))
