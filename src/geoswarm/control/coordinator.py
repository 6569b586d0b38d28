"""The coordinator closes a round, asks the strategy, and turns its changes into the next plan, or refuses them.

It decides nothing itself (`balance/`), and has no clock, no file and no Spark. The engine and the simulator give it the
counts, put the plan that it returns in force at the next batch boundary, and write its entry into the journal.
SWARM §4.3.1 (Figures 8 and 10).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from geoswarm.control.estimate import executor_costs, is_worse
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.strategy import Decision, RoundReport, Sample, Strategy, WatchedRound
from geoswarm.core.space.change import note_of
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import TrioStat
from geoswarm.errors import PlanError
from geoswarm.flow.observe import LoadReport


class RoundOutcome(NamedTuple):
    plan: Plan | None
    """The next plan; None: the old one stays in force."""
    entry: RoundEntry
    """For the journal: what was decided or refused, and the numbers."""
    watched: WatchedRound | None = None
    """The places that would have changed, if events were not dealt out."""


class Coordinator:
    def __init__(self, strategy: Strategy, *, trusts: bool = False, rounds: int = 0) -> None:
        """A coordinator that `trusts` its strategy lets it worsen its own estimate. `rounds` were closed before."""
        self.strategy = strategy
        self.trusts = trusts
        self.rounds = rounds
        self.last_report: RoundReport | None = None
        """The one that the strategy saw last."""

    def close_round(
        self,
        plan: Plan,
        load: LoadReport,
        stats: Mapping[int, TrioStat],
        now_s: float,
        sample: Sample | None = None,
        subscriptions: int = 0,
    ) -> RoundOutcome:
        """Closes `stats`, by partition id, in place. The caller redraws them if a plan is returned
        (`core/stats/redraw.py`)."""
        for stat in stats.values():
            stat.close_round()
        self.rounds += 1
        self.last_report = RoundReport(self.rounds, now_s, load, stats, sample, subscriptions)
        return self.decide(plan, self.last_report)

    def decide(self, plan: Plan, report: RoundReport) -> RoundOutcome:
        """Asks the strategy about a round whose statistics are closed."""
        try:
            decision = self.strategy.rebalance(plan, report)
        except PlanError as error:  # the strategy tried a plan that is not valid
            decision = Decision((), {"decision": "failed", "reason": str(error)})
        entry = RoundEntry(
            round=report.round,
            now_s=report.now_s,
            strategy=self.strategy.name,
            epoch=plan.epoch,
            outcome="kept",
            changes=tuple(note_of(change) for change in decision.changes),
            why=dict(decision.why),
        )
        if self.strategy.needs_stats:
            costs = executor_costs(plan, report.stats)
            high, mean, low = float(costs.max()), float(costs.mean()), float(costs.min())
            entry = replace(entry, cost_max=high, cost_mean=mean, cost_min=low)
        if not decision.changes and decision.fresh is None:
            return RoundOutcome(None, entry, decision.watched)
        try:
            if decision.fresh is not None:
                proposed = plan.replace_by(decision.fresh, self.strategy.name)
            else:
                proposed = plan.apply(decision.changes)
        except PlanError as error:
            return RoundOutcome(None, replace(entry, outcome="refused", reason=str(error)), decision.watched)
        if not self.trusts:
            before, after = self.strategy.estimate(plan, report), self.strategy.estimate(proposed, report)
            entry = replace(entry, estimate_before=before, estimate_after=after)
            if is_worse(after, before):
                raised = f"plan {proposed.epoch} raises the estimated maximum from {before:g} to {after:g}"
                reason = f"{raised}: plan {plan.epoch} stays"
                return RoundOutcome(None, replace(entry, outcome="refused", reason=reason), decision.watched)
        return RoundOutcome(proposed, replace(entry, outcome="applied", epoch_next=proposed.epoch), decision.watched)


def fresh_plan_entry(before: Plan, after: Plan, rounds: int, why: Mapping[str, int | str]) -> RoundEntry:
    """The journal's entry for a plan that was not reached by changes."""
    return RoundEntry(
        round=rounds,
        strategy=after.drawn_by,
        epoch=before.epoch,
        outcome="applied",
        why=dict(why),
        epoch_next=after.epoch,
    )
