"""The journal entries of the control plane, as values.

`coordinator.py` makes a `RoundEntry`, `keyed/loop.py` a `KeyRoundEntry`, `elastic.py` a `ScaleEntry`. Nothing is
written here: the engine hands them to `store/journal/`. `service/explain.py` makes sentences of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from geoswarm.core.journal_entry_base import FLAT, Figure, JournalEntry
from geoswarm.core.space.change import ChangeNote


class Handover(NamedTuple):
    """One executor takes work from another, as SWARM's rounds report it."""

    giver: int
    taker: int
    cost_high: float
    """The cost of the giver before."""
    cost_low: float
    """The cost of the taker before."""
    cost_moved: float
    decision: str
    """Either move or split."""


@dataclass(frozen=True)
class RoundEntry(JournalEntry):
    """A round of the plan of places: what was decided or refused, and the numbers behind it."""

    kind: ClassVar[str] = "round"

    round: int
    strategy: str
    epoch: int
    """The plan that was in force."""
    outcome: str
    """One of applied, kept and refused."""
    now_s: float | None = None
    """When the round ended; None where the plan was not reached by a round, as after `scale`."""
    changes: tuple[ChangeNote, ...] = ()
    """The changes that the strategy asked for; empty where it drew a new plan."""
    why: Mapping[str, Figure] = field(default_factory=dict)
    """The strategy's own figures."""
    cost_max: float | None = None
    """The cost of the costliest executor, by the statistics."""
    cost_mean: float | None = None
    cost_min: float | None = None
    estimate_before: float | None = None
    """What the costliest executor would cost under the plan in force, by the strategy's estimate."""
    estimate_after: float | None = None
    """The same under the plan that was proposed."""
    reason: str | None = None
    """Why the plan was refused."""
    epoch_next: int | None = None
    """The plan that takes over; None: the old one stays."""

    @property
    def decision(self) -> str:
        """The strategy's name for what it did."""
        return str(self.why.get("decision", ""))

    @property
    def applied(self) -> int:
        """How many changes of the plan came into force."""
        return len(self.changes) if self.outcome == "applied" else 0

    @property
    def handover(self) -> Handover | None:
        """Who took work from whom, where the strategy reports it."""
        why = self.why
        if "from" not in why:
            return None
        giver, taker = int(why["from"]), int(why["to"])
        high, low, moved = (float(why[name]) for name in ("cost_high", "cost_low", "cost_moved"))
        return Handover(giver, taker, high, low, moved, self.decision)


@dataclass(frozen=True)
class KeyFigures:
    """What a planner reports of a round (`keyed/problem.py`)."""

    keys: int
    """Keys with load or state."""
    skew_before: float
    """Load of the busiest executor over the mean, under the plan that was in force."""
    skew: float
    """The same under the planner's answer."""
    balanced: int
    """1: every executor is within its bound."""
    table: int
    """Entries of the routing table."""
    table_max: int
    moved_keys: int
    moved_state: float
    migration_share: float
    """State that moves, as a share of all state."""
    overweight: str | None = None
    """A sentence that names the keys that alone exceed the bound."""
    remedy: str | None = None
    """What can be done about them."""
    splittable: int | None = None
    """The number of these keys."""
    kept: str | None = None
    """Why the old plan was kept although it is not balanced."""
    more: Mapping[str, Figure] = field(default_factory=dict, metadata=FLAT)
    """Figures that only this planner reports."""

    @classmethod
    def of(cls, why: Mapping[str, Figure]) -> "KeyFigures":
        named = {each.name for each in fields(cls)}
        known: dict[str, Any] = {name: value for name, value in why.items() if name in named}
        return cls(**known, more={name: value for name, value in why.items() if name not in named})


@dataclass(frozen=True)
class KeyRoundEntry(JournalEntry):
    """A look at the keys of an operator, or a change of how many executors share them."""

    kind: ClassVar[str] = "keys"

    operator: str
    """The operator's name; empty until its runner fills it in."""
    decision: str
    """One of kept, rebalanced and scaled."""
    executors: int
    epoch: int
    """The plan from now on."""
    round: int | None = None
    """Filled in by the operator's runner, as is `batch`."""
    batch: int | None = None
    """The first batch under the plan."""
    planner: str | None = None
    executors_before: int | None = None
    """The former number of executors, if the operator was scaled."""
    splits: Mapping[int, int] | None = None
    """The number of parts of each split key, by key id."""
    figures: KeyFigures | None = field(default=None, metadata=FLAT)
    """None if the operator was scaled: no planner was asked."""


@dataclass(frozen=True)
class ScaleEntry(JournalEntry):
    """A decision about the number of executors: by the load, by a command, or by another range at a start."""

    kind: ClassVar[str] = "scale"

    executors: int
    """The number before."""
    executors_next: int
    """The number from the next batch on; the same if nothing changes."""
    cause: str
    """One of load, command and range."""
    reason: str
    now_s: float | None = None
    """When the round ended, or when the command was given."""
    load: float | None = None
    """The smaller of `busy` and `batch_s` / `interval_s`. It and what follows is known where the load decided."""
    busy: float | None = None
    """The share of the time without rest between batches."""
    batch_s: float | None = None
    """Seconds of a batch, on average."""
    interval_s: float | None = None
    """Seconds that a batch may take."""
    events_per_s: float | None = None
    idle: int | None = None
    """Executors without a partition."""
    slots: int | None = None
    """Tasks that the cluster runs at once, if that is known."""
