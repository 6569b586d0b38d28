"""The arguments and the result of every planner of keyed state: statistics and limits in, a plan and its figures out.

Nothing is decided here: the planners are `mixed.py`, `simple.py`, `compact.py`, and the rivals `readj.py`, `pkg.py`
and `fixed.py`. Mixed §II, Table II.

Inside, keys and executors are positions: key i of the statistics, executor j of the plan. `Case` is that view.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from geoswarm.control.keyed.llfd import SLACK, loads_of
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.hashing import SLOTS, KeyOwners, slot_owners
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import InputError, SettingsError

OVERWEIGHT_NAMED_MAX = 20
"""The most keys that a journal entry names."""
GAIN_MIN = 0.02
"""While a key is too heavy for any plan, the maximum must fall by this share for a new plan to be worth its migration:
without it, each interval would move a tenth of the state to lower the maximum by almost nothing."""


@dataclass(frozen=True)
class Limits:
    """Limits of a planner: Mixed Table II, with the values in bold there as defaults."""

    theta_max: float = 0.08
    """θ_max: how far an executor's load may lie above the average, as a share of it."""
    table_max: int = 3000
    """A_max: entries of the routing table."""
    beta: float = 1.5
    """β in γ = load^β / state: above 1 prefers few heavy keys, and so a small table."""
    window: int = 5
    """w: intervals of which a key keeps state."""
    level_bits: int = 3
    """r: compact statistics distinguish values in steps of R = 2^r."""
    table_is_soft: bool = False
    """Whether the table may outgrow A_max when balance needs it, as in the paper (Appendix, Figure 17). If not, the
    lightest entries are dropped, and the imbalance that is left is reported."""
    theta_is_two_sided: bool = False
    """Whether an executor that lies as far below the average is out of balance, too, as the paper defines θ. If not,
    only the busiest count: a batch ends with them."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.theta_max < np.inf):
            raise SettingsError(f"theta_max is {self.theta_max}: use 0 (exact balance) or more, 0.08 if in doubt")
        if self.table_max < 0:
            raise SettingsError(f"table_max is {self.table_max}: use 0 (plain hash) or more")
        if not (0.0 <= self.beta <= 10.0):
            raise SettingsError(f"beta is {self.beta}: use 0 to 10, 1.5 if in doubt")
        if self.window < 1:
            raise SettingsError(f"window is {self.window} intervals: use 1 or more")
        if not 0 <= self.level_bits <= 30:
            raise SettingsError(f"level_bits is {self.level_bits}: use 0 (exact) to 30, 3 if in doubt")


@dataclass(frozen=True)
class KeyStats:
    """What an interval measured, with every key that a plan may move, once: those with load, and those of the table
    with state. The table's entries for other keys are dropped, since they have nothing to move."""

    keys: Ints
    load: Floats
    """c(k): the load in the last interval, in any unit; the engine measures microseconds."""
    state: Floats
    """S(k, w): the state of the last w intervals."""
    slot_load: Floats = field(default_factory=lambda: np.empty(0))
    """The load of keys that are not named, which go where their hash sends them, by slot of the hash; or empty."""
    other_state: float = 0.0
    """The state of all keys that are not named."""

    def __post_init__(self) -> None:
        if not len(self.keys) == len(self.load) == len(self.state):
            lengths = f"{len(self.keys)} keys, {len(self.load)} loads, {len(self.state)} states"
            raise InputError(f"statistics of keys have {lengths}: give one of each per key")
        if len(self.slot_load) not in (0, SLOTS):
            raise InputError(f"statistics of keys have loads of {len(self.slot_load)} slots: give all {SLOTS}, or none")
        for what, values in (("load", self.load), ("state", self.state), ("load by slot", self.slot_load)):
            if len(values) and not (values.min() >= 0.0 and values.max() < np.inf):  # also false for NaN
                bad = int((~((values >= 0.0) & (values < np.inf))).sum())
                raise InputError(f"{what} of {bad} of {len(values)} keys is negative or no number: measure it again")


@dataclass(frozen=True)
class Case:
    load: Floats
    state: Floats
    owner: KeyOwners
    """F(k), the executor of each key, as a position."""
    home: KeyOwners
    """h(k), the executor of each key's hash, as a position."""
    executors: int
    count: Ints
    """The number of keys that an item stands for: 1, except for the vectors of `compact.py`."""
    fixed: Floats | None = None
    """The load of each executor's keys that are not named, which stay where they are; None: all are named."""
    other_state: float = 0.0

    @classmethod
    def of(cls, plan: KeyPlan, stats: KeyStats) -> "Case":
        positions = np.full(plan.executors[-1] + 1, -1, np.int32)
        positions[list(plan.executors)] = np.arange(len(plan.executors))
        owner, home = positions[plan.route(stats.keys)], positions[plan.homes(stats.keys)]
        load, state = (np.ascontiguousarray(a, np.float64) for a in (stats.load, stats.state))
        count, executors, fixed = np.ones(len(load), np.int64), len(plan.executors), None
        if len(stats.slot_load):
            owners = positions[slot_owners(plan.executors)]
            fixed = np.bincount(owners, stats.slot_load, executors).astype(np.float64)
        return cls(load, state, owner, home, executors, count, fixed, stats.other_state)

    def loads(self, owner: KeyOwners) -> Floats:
        named = loads_of(self.load, self.count, owner, self.executors)
        return named if self.fixed is None else named + self.fixed

    @cached_property
    def loads_now(self) -> Floats:
        return self.loads(self.owner)

    @property
    def mean(self) -> float:
        return float(self.loads_now.sum()) / self.executors

    def load_max(self, limits: Limits) -> float:
        return (1.0 + limits.theta_max) * self.mean

    def load_min(self, limits: Limits) -> float:
        """The least load of an executor in balance; 0 if θ has one side."""
        return max(0.0, 1.0 - limits.theta_max) * self.mean if limits.theta_is_two_sided else 0.0

    def reach(self, loads: Floats, limits: Limits) -> float:
        """The largest load, or, if θ has two sides, the load that lies as far above the average as any lies from it."""
        low = 2.0 * self.mean - float(loads.min()) if limits.theta_is_two_sided else 0.0
        return max(float(loads.max()), low)

    def is_balanced(self, loads: Floats, limits: Limits) -> bool:
        """Whether every executor is within its bounds."""
        return self.reach(loads, limits) <= self.load_max(limits) * (1.0 + SLACK)


@dataclass(frozen=True)
class Rebalance:
    """A planner's answer. `plan` is the old one if nothing is to be done."""

    plan: KeyPlan
    moved: Ints
    """Keys whose state moves to another executor."""
    sources: KeyOwners
    targets: KeyOwners
    loads: Floats
    """The load that each executor would have had in the interval."""
    why: Mapping[str, float | int | str] = field(default_factory=dict)
    """Figures for the journal."""
    overweight: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Keys that alone exceed the bound, heaviest first. No plan can balance these; an operator whose `merge` allows it
    may split them over several executors (`pkg.py`)."""

    @property
    def balanced(self) -> bool:
        return bool(self.why["balanced"])

    @property
    def migration_share(self) -> float:
        """State that moves, as a share of all state."""
        return float(self.why["migration_share"])


class Planner(Protocol):
    """A planner, made by `kind(limits)` or with further options of its own. It keeps nothing between intervals.

    A class may have three more attributes: `only_compares`, true for a rival that does not route by a plan and cannot
    run in a stream; `heeds`, the fields of `Limits` that it uses beyond those that all planners use; and `heavy_keys`,
    for a planner that uses `KeyStats.slot_load`: how many keys each executor has to name."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Limits: ...

    def rebalance(self, plan: KeyPlan, stats: KeyStats) -> Rebalance: ...


def answer(
    plan: KeyPlan, stats: KeyStats, case: Case, limits: Limits, owner: KeyOwners, **more: float | int | str
) -> Rebalance:
    """The plan that gives each key to `owner`, or the old one if this is not worth it."""
    before = case.loads_now
    loads = before if owner is case.owner else case.loads(owner)
    heavy, alarm = _overweight(stats, case, limits)
    gain_min = GAIN_MIN if len(heavy) else SLACK
    table_before, table = int((case.owner != case.home).sum()), int((owner != case.home).sum())
    shrinks = limits.table_max < table_before > table
    is_no_better = case.reach(loads, limits) >= case.reach(before, limits) * (1.0 - gain_min)
    if is_no_better and not case.is_balanced(loads, limits) and not shrinks:
        owner, loads, more = case.owner, before, more | {"kept": "the old plan: no better one was found"}
    changed = np.flatnonzero(owner != case.owner)
    executors = np.array(plan.executors, np.int32)
    new = plan
    if len(changed) or table_before < len(plan.keys):
        listed = np.flatnonzero(owner != case.home)
        new = plan.with_table(stats.keys[listed], executors[owner[listed]])
    why = _figures(case, limits, loads, changed, len(new.keys)) | more | alarm
    sources, targets = executors[case.owner[changed]], executors[owner[changed]]
    return Rebalance(new, stats.keys[changed], sources, targets, loads, why, heavy)


def keep_plan(
    plan: KeyPlan, stats: KeyStats, case: Case, limits: Limits, loads: Floats, **more: float | int | str
) -> Rebalance:
    """An answer that keeps the plan and reports these loads, for rivals that do not route by a plan."""
    none, no_executors = np.empty(0, np.int64), np.empty(0, np.int32)
    why = _figures(case, limits, loads, none, len(plan.keys)) | more
    return Rebalance(plan, none, no_executors, no_executors, loads, why)


def _overweight(stats: KeyStats, case: Case, limits: Limits) -> tuple[Ints, dict[str, float | int | str]]:
    """Keys that alone exceed the bound, and the journal's figures about them."""
    bound = case.load_max(limits) * (1.0 + SLACK)
    heavy = np.flatnonzero(case.load > bound)
    heavy = heavy[np.argsort(-case.load[heavy], kind="stable")]
    if not len(heavy):
        return stats.keys[heavy], {}
    named = ", ".join(f"{stats.keys[i]} ({case.load[i] / case.mean:.2f})" for i in heavy[:OVERWEIGHT_NAMED_MAX])
    alone = f"{len(heavy)} keys alone exceed {1 + limits.theta_max:.2f} of the average load: {named}"
    remedy = "no plan can balance them; split them over executors, if the operator's merge allows it"
    return stats.keys[heavy], {"overweight": alone, "remedy": remedy, "splittable": len(heavy)}


def _figures(case: Case, limits: Limits, loads: Floats, changed: Ints, table: int) -> dict[str, float | int | str]:
    mean, moved = case.mean, float(case.state[changed].sum())
    state = float(case.state.sum()) + case.other_state
    return {
        "keys": len(case.load),
        "skew_before": float(case.loads_now.max() / mean) if mean else 1.0,
        "skew": float(loads.max() / mean) if mean else 1.0,
        "balanced": int(case.is_balanced(loads, limits)),
        "table": table,
        "table_max": limits.table_max,
        "moved_keys": len(changed),
        "moved_state": moved,
        "migration_share": moved / state if state else 0.0,
    }


def is_settled(case: Case, limits: Limits) -> bool:
    """Whether every executor is within its bounds now."""
    return case.is_balanced(case.loads_now, limits)
