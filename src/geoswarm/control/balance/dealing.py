"""Deal all events out among all executors, and give slow executors fewer turns. `auto.py` decides when.

    turns   spent          slowness by turn       next turns
    8 8 8   100 100 200     0.75 0.75 1.5          8 8 4

Where each executor has every subscription in reach, nothing need move when a crowd does. What can still differ is the
executors themselves. Their times differ by chance, too, the greatest by a tenth on a quiet machine and by twice the
mean on one that others use. So only what lasts is answered: an executor counts as slow by what it was slow by at least,
in each of the last rounds, and if that is more than what passes: slow is compared with slow, since one slow executor
makes all others look fast.

    one executor, of the mean    lasts    the most that passes    turns change
    2.0  1.8  2.1                1.8      1.2                     yes
    2.0  0.9  3.0                1        3.0                     no: once it was as fast as others
    1.5  1.5  1.6                1.5      2.2                     no: another one was at 2.2 in one of these rounds
    1.6  1.6  1.6                1.6      1.3                     yes: others were at 0.57 and 1.28, so never as slow
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
"""Rounds in a row that the same executor is beyond it, before turns are changed: a worker that starts is slow once."""
EVENTS_MIN = 500
"""For each executor: rounds with fewer events say nothing of its speed."""


class Dealing:
    def __init__(self) -> None:
        self._by_turn: Floats = np.empty((0, 0))
        """What a turn cost on each executor in the last rounds, of the mean; a row for each round."""

    def slowness(self, executors: int) -> Floats:
        """What a turn costs on each executor, of the mean."""
        return _lasting(self._by_turn) if self._by_turn.shape[1] == executors else np.ones(executors)

    def forget(self) -> None:
        self._by_turn = np.empty((0, 0))

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        if len(plan.partitions) > 1 or set(plan.partitions[0].turns) != set(range(plan.executors)):
            return self._begin(plan, report.subscriptions)
        counts = np.bincount(plan.partitions[0].turns, minlength=plan.executors)
        if self._by_turn.shape[1] != plan.executors:  # as whoever dealt the turns knew it, before a restart
            self._by_turn = np.tile(_over_mean(1.0 / counts), (LASTS, 1))
        spent = np.zeros(plan.executors)
        for executor, load in report.load.executors.items():
            if executor < plan.executors:  # the others have just left
                spent[executor] = load.cpu_us
        if report.load.events >= EVENTS_MIN * plan.executors and spent.all():
            self._by_turn = np.vstack([self._by_turn[1:], _over_mean(spent / counts)])
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
        if _are_level(self._by_turn * counts):
            return None
        slowness, most = self.slowness(len(counts)), min(TURNS, TURNS_MAX // len(counts))
        fewer: Ints = np.maximum(1, np.rint(most * slowness.min() / slowness)).astype(np.int64)
        better = np.ones_like(counts) if _are_level(self._by_turn) else fewer
        return None if np.array_equal(better * counts.sum(), counts * better.sum()) else better


def _over_mean(spent: Floats) -> Floats:
    """A value for each executor, of the mean of its round."""
    of_mean: Floats = spent / spent.mean(axis=-1, keepdims=True)
    return of_mean


def _lasting(rounds: Floats) -> Floats:
    """For each executor what it is above the mean in every round, or below it in every round; else 1."""
    least, most = rounds.min(axis=0), rounds.max(axis=0)
    lasting: Floats = np.where(least > 1.0, least, np.minimum(most, 1.0))
    return lasting


def _are_level(rounds: Floats) -> bool:
    """Whether nobody is always slower or faster than usual, or by no more than what passes: the greatest difference
    that does not last, in the median round. Who is slow is compared with who was slow for once, and who is fast with
    both: where others are slow by turns, who has had no turn looks fast."""
    spent = _over_mean(rounds)
    lasting = _lasting(spent)
    passing = spent / lasting
    slow, either = (np.median(differences.max(axis=1)) for differences in (passing, _factors(passing)))
    return bool(lasting.max() <= max(SLOW, slow) and 1.0 / lasting.min() <= max(SLOW, either))


def _factors(ratios: Floats) -> Floats:
    """By how much more or less."""
    return np.maximum(ratios, 1.0 / ratios)


def said_turns(counts: Ints) -> str:
    """How many executors have how many turns."""
    executors = Counter(counts.tolist())
    return ", ".join(f"{executors[count]} have {count}" for count in sorted(executors, reverse=True))
