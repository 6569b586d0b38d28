"""The coordinator applies what a strategy wants, or refuses and reports why; either way the numbers are recorded."""

from collections.abc import Sequence

import pytest

from control.lines import line
from geoswarm.control.balance.swarm import Swarm
from geoswarm.control.coordinator import Coordinator, RoundOutcome
from geoswarm.control.estimate import by_cost
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.registry import strategy
from geoswarm.control.strategy import Decision, RoundReport, Sample
from geoswarm.core.space.change import Change, Merge, Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Trio
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import LoadReport


class Stubborn:
    """Always wants the same."""

    name = "stubborn"
    needs_stats, needs_sample = True, False

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        return by_cost(plan, report)

    def __init__(self, *changes: Change) -> None:
        self.changes: Sequence[Change] = changes
        self.shown: list[RoundReport] = []

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return uniform(grid, executors)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        self.shown.append(report)
        return Decision(self.changes, {"wanted": len(self.changes)})


class CountsPartitions(Stubborn):
    """Balances by another measure, which a move does not change."""

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        return float(len(plan.partitions))


def outcome_of(coordinator: Coordinator) -> RoundOutcome:
    plan, stats = line([[[4], [4, 4]], [[1]]])
    return coordinator.decide(plan, RoundReport(3, 45.0, LoadReport(), stats))


def test_a_change_that_helps_is_applied_and_written_down() -> None:
    plan, entry, _ = outcome_of(Coordinator(Stubborn(Move(0, 1))))
    assert plan is not None
    assert plan.partition(0).executor == 1
    assert entry == RoundEntry(
        round=3,
        now_s=45.0,
        strategy="stubborn",
        epoch=0,
        epoch_next=1,
        outcome="applied",
        changes=(Move(0, 1),),
        why={"wanted": 1},
        cost_max=12.0,
        cost_mean=6.5,
        cost_min=1.0,
        estimate_before=12.0,
        estimate_after=8.0,
    )


# fmt: off
REFUSED = [
    ([Move(9, 1)],                       "plan 0 has no partition 9"),
    ([Move(0, 5)],                       "gives 1 of 3 partitions to executors outside 0..1"),
    ([Merge((0, 2), 1)],                 "merge only what forms a rectangle"),
    ([Split(0, "column", 0, (0, 1))],    "no split after 0"),
    ([Move(2, 0)],                       "plan 1 raises the estimated maximum from 12 to 13: plan 0 stays"),
    ([Move(0, 1), Move(1, 1)],           "plan 1 raises the estimated maximum from 12 to 13"),
]
# fmt: on


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_a_change_that_is_no_plan_or_makes_the_maximum_worse_is_refused(changes: list[Change], reason: str) -> None:
    plan, entry, _ = outcome_of(Coordinator(Stubborn(*changes)))
    assert plan is None
    assert entry.outcome == "refused"
    assert reason in str(entry.reason)
    assert entry.changes == tuple(changes)


def test_no_change_keeps_the_plan() -> None:
    plan, entry, _ = outcome_of(Coordinator(Stubborn()))
    assert plan is None
    assert entry.outcome == "kept"


def test_a_strategy_that_balances_something_else_is_judged_by_that_or_trusted() -> None:
    trusted, _, _ = outcome_of(Coordinator(Stubborn(Move(2, 0)), trusts=True))
    assert trusted is not None
    by_partitions, _, _ = outcome_of(Coordinator(CountsPartitions(Move(2, 0))))
    assert by_partitions is not None


def test_closing_a_round_closes_the_statistics_and_counts_on_after_a_restart() -> None:
    plan, stats = line([[[4]], [[1]]])
    stubborn = Stubborn()
    coordinator = Coordinator(stubborn, rounds=6)
    outcome = coordinator.close_round(plan, LoadReport(events_in=5), stats, now_s=7.5)
    assert stats[0].trio == Trio(2, 1, 0)  # older points faded, nothing arrived
    assert outcome.entry.round == 7
    assert (stubborn.shown[0].now_s, stubborn.shown[0].load.events_in) == (7.5, 5)


def test_strategies_are_made_by_name() -> None:
    assert isinstance(strategy("swarm"), Swarm)
    with pytest.raises(
        SettingsError, match=r"no strategy 'swam': did you mean 'swarm'\? There are 'auto', 'auto-places', "
    ):
        strategy("swam")
