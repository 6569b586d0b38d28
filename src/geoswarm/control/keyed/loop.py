"""The control plane of a keyed operator: loads of keys go in batch by batch, a new plan comes out when a round ends.

    loads of a batch ─> sums per key ─> [the round is over] ─> planner ─> plan, entry for the journal

A round is one of Mixed's intervals; state may be kept by longer ones. Loads add up over the round. State does not: an
executor reports what a key holds in its whole window (`flow/keyed/state_size.py`), and its last report counts, so that
nothing has to be remembered from one round to the next. After a restart the sums begin at zero, with the plan in force.
Mixed §II-B, Figure 5. `registry.py` finds the planner; splitting a key that no plan can balance is decided here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geoswarm.control.keyed.problem import Case, KeyStats, Limits, Planner, Rebalance, keep_plan
from geoswarm.control.outcome import KeyFigures, KeyRoundEntry
from geoswarm.core.keys.hashing import SLOTS
from geoswarm.core.keys.plan import KeyPlan, parts_of
from geoswarm.flow.keyed.key_report import KeyLoads

PART_SHARE = 0.5
"""A key is split into parts of at most this share of the average load: small enough to be dealt out evenly."""
JOIN_SHARE = 0.8
"""A split key is joined again when its load is below this share of the average; in between it stays split."""
FOLDED_MAX = 4_000_000
"""Reports of (key, batch), 24 bytes each, that are held before they are added up to one per key of the round."""
SPLITS_MAX = 64
"""The most keys that are split at once; their rows are looked up one by one."""


def add_up(reports: Sequence[KeyLoads]) -> KeyLoads:
    """One report of several, in their order, with ascending ids and slots: loads are added, the last state counts."""
    if not reports:
        return KeyLoads(np.empty(0, np.int64), np.empty(0), np.empty(0))
    joined = KeyLoads(*(np.concatenate([report[i] for report in reports]) for i in range(len(KeyLoads._fields))))
    ids, at = np.unique(joined.ids, return_inverse=True)
    state = np.empty(len(ids))
    state[at] = joined.state  # numpy assigns in order
    slots, slot_at = np.unique(joined.slots, return_inverse=True)
    load, slot_load = np.bincount(at, joined.load, len(ids)), np.bincount(slot_at, joined.slot_load, len(slots))
    return KeyLoads(ids, load.astype(np.float64), state, slots, slot_load.astype(np.float64))


class KeyOutcome(NamedTuple):
    plan: KeyPlan | None
    """The next plan; None: the old one stays."""
    entry: KeyRoundEntry
    """For the journal. The operator's runner fills in its name, the round and the batch."""


class KeyedLoop:
    def __init__(self, planner: Planner, plan: KeyPlan, can_split: bool) -> None:
        self.plan = plan
        self._planner, self._can_split = planner, can_split
        self._now: list[KeyLoads] = []

    def take(self, report: KeyLoads) -> None:
        """Adds what an executor reports of a batch. Reports come in the order of batches."""
        if len(report.ids) or len(report.slots):
            self._now.append(report)
        if sum(len(part.ids) + len(part.slots) for part in self._now) > FOLDED_MAX:
            self._now = [add_up(self._now)]

    def scale(self, executors: Sequence[int]) -> KeyPlan:
        """The plan for other executors, in force from the next batch on; it is balanced when the round ends."""
        if tuple(sorted(executors)) != self.plan.executors:
            self.plan = self.plan.with_executors(executors)
        return self.plan

    def close_round(self, state_bytes: float = 0.0, noise: float = 0.0) -> KeyOutcome | None:
        """Ends the round. The outcome has a plan if the present one should change; None if nothing was counted.
        `state_bytes` is the state of all keys. A load may be off by the share `noise`, by chance."""
        took = add_up(self._now)
        self._now = []
        if not took.load.any() and not len(took.slots):
            return None
        before = self.plan
        plan = self._split(took) or before
        stats = _stats(took, plan, state_bytes)
        result = _keep_within_noise(plan, stats, self._planner.limits, noise) if plan is before else None
        result = result or self._planner.rebalance(plan, stats)
        # Readers of the plan see splitting and moving as one step.
        self.plan = _successor(result.plan, before)
        entry = KeyRoundEntry(
            operator="",
            decision="kept" if self.plan is before else "rebalanced",
            executors=len(before.executors),
            epoch=self.plan.epoch,
            planner=self._planner.name,
            splits=dict(_splits(self.plan)),
            figures=KeyFigures.of(result.why),
        )
        return KeyOutcome(self.plan if self.plan is not before else None, entry)

    def _split(self, took: KeyLoads) -> KeyPlan | None:
        """The plan with other keys split; None if the split keys stay the same."""
        mean = float(took.load.sum() + took.slot_load.sum()) / len(self.plan.executors)
        if not self._can_split or mean == 0.0 or len(self.plan.executors) == 1:
            return None
        limit = (1.0 + self._planner.limits.theta_max) * mean
        before = dict(_splits(self.plan))
        wanted: dict[int, int] = {}
        for i in np.argsort(-took.load, kind="stable")[:SPLITS_MAX]:
            key, load = int(took.ids[i]), float(took.load[i])
            if load > limit or (key in before and load > JOIN_SHARE * mean):
                ways = min(max(2, int(np.ceil(load / (PART_SHARE * mean)))), 2 * len(self.plan.executors))
                # A small change of load is no reason to change the number of parts.
                held = before.get(key, 0)
                wanted[key] = held if held and abs(ways - held) <= max(1, held // 4) else ways
        if wanted == before:
            return None
        keys = np.array(list(wanted), np.int64)
        return self.plan.with_splits(keys, np.array(list(wanted.values()), np.int64))


def _stats(took: KeyLoads, plan: KeyPlan, state_bytes: float) -> KeyStats:
    """What the planner is shown; a split key is replaced by its parts, each with its share."""
    ids, load, state = took.ids, took.load.copy(), took.state.copy()
    for key, ways in _splits(plan):
        at = np.searchsorted(ids, key)
        if at < len(ids) and ids[at] == key:
            parts = np.setdiff1d(parts_of(key, ways), ids)
            load[at], state[at] = load[at] / ways, state[at] / ways
            ids = np.append(ids, parts)
            load = np.append(load, np.full(len(parts), load[at]))
            state = np.append(state, np.full(len(parts), state[at]))
            order = np.argsort(ids)
            ids, load, state = ids[order], load[order], state[order]
    slot_load = np.zeros(SLOTS if len(took.slots) else 0)
    slot_load[took.slots] = took.slot_load
    return KeyStats(ids, load, state, slot_load, max(0.0, state_bytes - float(state.sum())))


def _keep_within_noise(plan: KeyPlan, stats: KeyStats, limits: Limits, noise: float) -> Rebalance | None:
    """The plan as it is, if it is out of balance by no more than chance explains; None: a planner must look at it."""
    if not noise or len(plan.keys) > limits.table_max:
        return None
    case = Case.of(plan, stats)
    reach, load_max = case.reach(case.loads_now, limits), case.load_max(limits)
    if case.is_balanced(case.loads_now, limits) or reach > load_max + noise * case.mean:
        return None
    why = "the old plan: the imbalance is within the noise of measuring"
    return keep_plan(plan, stats, case, limits, case.loads_now, kept=why, noise=noise)


def _splits(plan: KeyPlan) -> list[tuple[int, int]]:
    return [(int(k), int(w)) for k, w in zip(plan.split_keys, plan.split_ways, strict=True)]


def _successor(plan: KeyPlan, before: KeyPlan) -> KeyPlan:
    """The plan with the epoch after `before`; `before` itself if they are the same."""
    if plan.epoch == before.epoch:
        return before
    return KeyPlan(before.epoch + 1, plan.executors, plan.keys, plan.targets, plan.split_keys, plan.split_ways)
