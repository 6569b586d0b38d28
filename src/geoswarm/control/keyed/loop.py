"""The control plane of a keyed operator: loads of keys go in batch by batch, a new plan comes out when a round ends.

    loads of a batch ─> sums per key ─> [the round is over] ─> planner ─> plan, entry for the journal

A round is one of Mixed's intervals; state may be kept by longer ones. The sums are not stored: after a restart they
begin at zero, with the plan in force. Mixed §II-B, Figure 5. `registry.py` finds the planner; splitting a key that no
plan can balance is decided here.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geoswarm.control.keyed.problem import KeyStats, Planner
from geoswarm.control.outcome import KeyFigures, KeyRoundEntry
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.plan import KeyPlan, parts_of

PART_SHARE = 0.5
"""A key is split into parts of at most this share of the average load: small enough to be dealt out evenly."""
JOIN_SHARE = 0.8
"""A split key is joined again when its load is below this share of the average; in between it stays split."""
FOLDED_MAX = 4_000_000
"""Reports of (key, batch), 24 bytes each, that are held before they are added up to one per key."""
SPLITS_MAX = 64
"""The most keys that are split at once; their rows are looked up one by one."""


class Sums(NamedTuple):
    """Work and bytes per key, ids ascending."""

    ids: Ints
    work: Floats
    size: Floats

    @classmethod
    def of(cls, parts: Sequence["Sums"]) -> "Sums":
        if not parts:
            return cls(np.empty(0, np.int64), np.empty(0), np.empty(0))
        ids, at = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
        work, size = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return cls(ids, *(np.bincount(at, values, len(ids)).astype(np.float64) for values in (work, size)))


class KeyOutcome(NamedTuple):
    plan: KeyPlan | None
    """The next plan; None: the old one stays."""
    entry: KeyRoundEntry
    """For the journal. The operator's runner fills in its name, the round and the batch."""


class KeyedLoop:
    def __init__(self, planner: Planner, plan: KeyPlan, rounds: int, can_split: bool) -> None:
        """A key's state is counted over the last `rounds`."""
        self.plan = plan
        self._planner, self._can_split = planner, can_split
        self._now: list[Sums] = []
        self._kept: deque[Sums] = deque(maxlen=rounds)

    def take(self, ids: Ints, work: Floats, size: Floats) -> None:
        """Adds what an executor reports of a batch."""
        if len(ids):
            self._now.append(Sums(ids, work, size))
        if sum(len(part.ids) for part in self._now) > FOLDED_MAX:
            self._now = [Sums.of(self._now)]

    def scale(self, executors: Sequence[int]) -> KeyPlan:
        """The plan for other executors, in force from the next batch on; it is balanced when the round ends."""
        if tuple(sorted(executors)) != self.plan.executors:
            self.plan = self.plan.with_executors(executors)
        return self.plan

    def close_round(self) -> KeyOutcome | None:
        """Ends the round. The outcome has a plan if the present one should change; None if nothing was counted."""
        took = Sums.of(self._now)
        self._now = []
        self._kept.append(took)
        if not len(took.ids):
            return None
        before, stats = self.plan, self._stats(took)
        split = self._split(took)
        plan, stats = (self.plan, stats) if split is None else (split, self._stats(took, split))
        result = self._planner.rebalance(plan, stats)
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

    def _stats(self, took: Sums, plan: KeyPlan | None = None) -> KeyStats:
        """Keys with load or state; a split key is replaced by its parts, each with its share."""
        plan = plan or self.plan
        kept = Sums.of([*self._kept])
        load = np.zeros(len(kept.ids))
        load[np.searchsorted(kept.ids, took.ids)] = took.work
        ids, size = kept.ids, kept.size
        for key, ways in _splits(plan):
            at = np.searchsorted(ids, key)
            if at < len(ids) and ids[at] == key:
                parts = np.setdiff1d(parts_of(key, ways), ids)
                load[at], size[at] = load[at] / ways, size[at] / ways
                ids = np.append(ids, parts)
                load = np.append(load, np.full(len(parts), load[at]))
                size = np.append(size, np.full(len(parts), size[at]))
                order = np.argsort(ids)
                ids, load, size = ids[order], load[order], size[order]
        return KeyStats(ids, load, size)

    def _split(self, took: Sums) -> KeyPlan | None:
        """The plan with other keys split; None if the split keys stay the same."""
        mean = float(took.work.sum()) / len(self.plan.executors)
        if not self._can_split or mean == 0.0 or len(self.plan.executors) == 1:
            return None
        limit = (1.0 + self._planner.limits.theta_max) * mean
        before = dict(_splits(self.plan))
        wanted: dict[int, int] = {}
        for i in np.argsort(-took.work, kind="stable")[:SPLITS_MAX]:
            key, load = int(took.ids[i]), float(took.work[i])
            if load > limit or (key in before and load > JOIN_SHARE * mean):
                ways = min(max(2, int(np.ceil(load / (PART_SHARE * mean)))), 2 * len(self.plan.executors))
                # A small change of load is no reason to change the number of parts.
                held = before.get(key, 0)
                wanted[key] = held if held and abs(ways - held) <= max(1, held // 4) else ways
        if wanted == before:
            return None
        keys = np.array(list(wanted), np.int64)
        return self.plan.with_splits(keys, np.array(list(wanted.values()), np.int64))


def _splits(plan: KeyPlan) -> list[tuple[int, int]]:
    return [(int(k), int(w)) for k, w in zip(plan.split_keys, plan.split_ways, strict=True)]


def _successor(plan: KeyPlan, before: KeyPlan) -> KeyPlan:
    """The plan with the epoch after `before`; `before` itself if they are the same."""
    if plan.epoch == before.epoch:
        return before
    return KeyPlan(before.epoch + 1, plan.executors, plan.keys, plan.targets, plan.split_keys, plan.split_ways)
