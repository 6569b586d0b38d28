"""Plans redrawn at random: lists of changes, and a strategy that asks for nothing else.

It balances nothing. What it draws is legal but pointless, some of it illegal, and none of it may show in the matches.
"""

from copy import copy

import numpy as np
import pyarrow as pa

from geoswarm.control.balance.merge import find_rectangles
from geoswarm.control.balance.static import StaticUniform
from geoswarm.control.strategy import Decision, RoundReport
from geoswarm.core.space.change import Change, Divide, Merge, Move, Split, Spread
from geoswarm.core.space.partition import Axis
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.core.text.tokens import hash_terms
from worlds import WORDS

ROUNDS_MAX = 10
PARTITIONS_MAX = 60


def legal_changes(plan: Plan, rng: np.random.Generator, count: int) -> list[Change]:
    """Moves, splits and merges, each applicable after the ones before it. Some partitions become all executors'."""
    draft, changes = plan, []
    for _ in range(count):
        changes.append(_random_change(draft, rng))
        draft = draft.apply(changes[-1:])
    return changes


def illegal_change(plan: Plan, rng: np.random.Generator) -> Change:
    """One change that no plan can take."""
    p = plan.partitions[int(rng.integers(len(plan.partitions)))]
    wrong: list[Change] = [
        Move(p.id, plan.executors),
        Move(plan.next_partition_id + 1000, 0),
        Split(p.id, "row", p.row1, (0, 0)),
        Merge((p.id,), 0),
    ]
    return wrong[int(rng.integers(len(wrong)))]


def changes_with_terms(plan: Plan, rng: np.random.Generator, count: int) -> list[Change]:
    """Legal changes, some of which divide terms or merge them again."""
    draft, changes = plan, []
    for _ in range(count):
        changes.append(_random_change_of_terms(draft, rng) or _random_change(_without_terms(draft), rng))
        draft = draft.apply(changes[-1:])
    return changes


def _random_change_of_terms(plan: Plan, rng: np.random.Generator) -> Change | None:
    p = plan.partitions[int(rng.integers(len(plan.partitions)))]
    if p.cut is None and rng.random() < 0.5:
        count = int(rng.integers(2, 6))
        listed = {int(h): int(rng.integers(count)) for h in hash_terms(pa.array(WORDS[:4]))}
        return Divide(p.id, TermCut.of(count, listed), tuple(rng.integers(0, plan.executors, count).tolist()))
    family = [q.id for q in plan.partitions if q.cut is not None and q.box == p.box]
    if len(family) > 1 and rng.random() < 0.5:
        return Merge(tuple(family[: int(rng.integers(2, len(family) + 1))]), int(rng.integers(plan.executors)))
    return _random_owners(p.id, plan.executors, rng) if p.cut is not None else None


def _without_terms(plan: Plan) -> Plan:
    """The partitions of a plan that are cut along rows and columns alone."""
    view = copy(plan)
    object.__setattr__(view, "partitions", tuple(p for p in plan.partitions if p.cut is None))
    return view


def _random_change(plan: Plan, rng: np.random.Generator) -> Change:
    p = plan.partitions[int(rng.integers(len(plan.partitions)))]
    owners = rng.integers(0, plan.executors, 2).tolist()
    kind, axis = rng.random(), _axis(p.row1 > p.row0, p.col1 > p.col0, rng)
    if len(plan.partitions) > PARTITIONS_MAX or kind < 0.3:
        groups = find_rectangles(list(plan.partitions))
        if groups:
            return Merge(groups[int(rng.integers(len(groups)))], owners[0])
    if kind < 0.75 and axis is not None:
        low, high = (p.row0, p.row1) if axis == "row" else (p.col0, p.col1)
        return Split(p.id, axis, int(rng.integers(low, high)), (owners[0], owners[1]))
    return _random_owners(p.id, plan.executors, rng)


def _random_owners(partition: int, executors: int, rng: np.random.Generator) -> Change:
    owners = tuple(rng.permutation(executors)[: int(rng.integers(1, executors + 1))].tolist())
    return Spread(partition, owners) if len(owners) > 1 else Move(partition, owners[0])


def _axis(has_rows: bool, has_columns: bool, rng: np.random.Generator) -> Axis | None:
    axes: list[Axis] = [axis for axis, has in (("row", has_rows), ("column", has_columns)) if has]  # type: ignore[misc]
    return axes[int(rng.integers(len(axes)))] if axes else None


def restless(seed: int, rounds_max: int = ROUNDS_MAX) -> type[StaticUniform]:
    """A strategy that redraws the plan every 1 to `rounds_max` rounds, the same way whenever it is made anew."""

    class Restless(StaticUniform):
        name = "restless"
        needs_stats = seed % 2 == 0  # counting points must not matter either

        @staticmethod
        def estimate(plan: Plan, report: RoundReport) -> float:
            return 0.0

        def __init__(self) -> None:
            self._rng = np.random.default_rng((seed, 7))
            self._rests = self._redraws = 0

        def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
            if self._rests:
                self._rests -= 1
                return Decision((), {"decision": "rest"})
            self._rests = int(self._rng.integers(rounds_max))
            draw = (
                legal_changes if self.needs_stats else changes_with_terms
            )  # statistics are of places, not of shares of terms
            changes = draw(plan, self._rng, int(self._rng.integers(1, 7)))
            self._redraws += 1
            if self._redraws % 3 == 2:
                changes.append(illegal_change(plan.apply(changes), self._rng))
            return Decision(changes, {"decision": "redraw"})

    return Restless
