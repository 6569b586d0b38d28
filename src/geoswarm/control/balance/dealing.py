"""Deal all events out among all executors, and give slow executors fewer turns. `auto.py` decides when.

    turns   spent          slowness by turn       next turns
    8 8 8   100 100 200     0.75 0.75 1.5          8 8 4

Where each executor has every subscription in reach, nothing need move when a crowd does. What can still differ is the
executors themselves. Their times differ by a tenth by chance alone, so only what lasts is answered, and taken back once
it is over.
"""

from collections import Counter

import numpy as np

from geoswarm.control.layout.dealt import dealt
from geoswarm.control.strategy import Decision, RoundReport, Why
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import TURNS_MAX, Spread
from geoswarm.core.space.plan import Plan

TURNS = 8
"""The turns of the fastest executors, once turns differ."""
SLOW = 1.25
"""Of the mean: what an executor may take more, or less, before turns are changed. Equal tasks differ by up to 1.15."""
LASTS = 3
"""Rounds in a row that one is beyond it, before turns are changed: a worker that starts is slow once."""
FADING = 0.5
"""So much of the known slowness stays from round to round."""
EVENTS_MIN = 500
"""For each executor: rounds with fewer events say nothing of its speed."""


class Dealing:
    def __init__(self) -> None:
        self._slowness: Floats = np.empty(0)
        self._rounds_off = 0

    def slowness(self, executors: int) -> Floats:
        """What a turn costs on each executor, of the mean."""
        return self._slowness if len(self._slowness) == executors else np.ones(executors)

    def forget(self) -> None:
        self._slowness, self._rounds_off = np.empty(0), 0

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        if len(plan.partitions) > 1 or set(plan.partitions[0].turns) != set(range(plan.executors)):
            return self._begin(plan, report.subscriptions)
        counts = np.bincount(plan.partitions[0].turns, minlength=plan.executors)
        if len(self._slowness) != plan.executors:  # as whoever dealt the turns knew it, before a restart
            self._slowness = (1.0 / counts) / (1.0 / counts).mean()
        spent = np.zeros(plan.executors)
        for executor, load in report.load.executors.items():
            if executor < plan.executors:  # the others have just left
                spent[executor] = load.cpu_us
        if report.load.events >= EVENTS_MIN * plan.executors and spent.all():
            by_turn = spent / counts
            self._slowness = FADING * self._slowness + (1 - FADING) * by_turn / by_turn.mean()
            self._rounds_off = 0 if _is_level(spent) else self._rounds_off + 1
        busiest = float(spent.max() / spent.mean()) if spent.any() else 1.0
        had = f"the costliest executor had {busiest:.2f} times the mean"
        why: Why = {"decision": "wait", "busiest": busiest, "mean_us": float(spent.mean())}
        better = self._better_counts(counts)
        if better is None:
            return Decision((), why | {"sentence": f"{had}; events are dealt out among all"})
        turns = tuple(np.repeat(np.arange(plan.executors), better).tolist())
        sentence = f"{had}, round after round: slow executors get fewer turns, {said_turns(better)}"
        return Decision([Spread(plan.partitions[0].id, turns)], why | {"decision": "turns", "sentence": sentence})

    def _begin(self, plan: Plan, subscriptions: int) -> Decision:
        self.forget()
        told = f"{subscriptions} subscriptions are few enough for every executor to have them all"
        sentence = f"{told}: events are dealt out among {plan.executors}, wherever they are"
        why: Why = {"decision": "deal out", "subscriptions": subscriptions, "sentence": sentence}
        return Decision((), why, dealt(plan.grid, plan.executors))

    def _better_counts(self, counts: Ints) -> Ints | None:
        """The turns by which all are done at about the same time; None if those in force will do."""
        if self._rounds_off < LASTS or _is_level(counts * self._slowness):
            return None
        most = min(TURNS, TURNS_MAX // len(counts))
        fewer: Ints = np.maximum(1, np.rint(most * self._slowness.min() / self._slowness)).astype(np.int64)
        better = np.ones_like(counts) if _is_level(self._slowness) else fewer
        self._rounds_off = 0
        return None if np.array_equal(better * counts.sum(), counts * better.sum()) else better


def _is_level(spent: Floats) -> bool:
    return bool(spent.max() <= SLOW * spent.mean() <= SLOW * SLOW * spent.min())


def said_turns(counts: Ints) -> str:
    """How many executors have how many turns."""
    executors = Counter(counts.tolist())
    return ", ".join(f"{executors[count]} have {count}" for count in sorted(executors, reverse=True))
