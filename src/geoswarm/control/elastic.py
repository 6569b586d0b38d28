"""How many executors the load needs: more when batches fill their time, fewer when they leave most of it unused.

A rule with its memory, and no clock, file or Spark: `run/scaling.py` hands it each batch and puts its number in force.
Who works where is for strategies (`balance/`). Thesis of SWARM, §7.2, which leaves the rule open.

    load = the smaller of   busy time / time        is there any rest between batches?
                            batch time / interval   are they longer than they may be?

Both are needed. Without a trigger the next batch begins when one ends, so there is never any rest, but batches stay
short while the load is low. And a batch that is long but rare fills little of the time. A pause of up to OUTSIDE_S
after a batch is no rest: Spark writes its logs and plans the next one.

         load 1 ┤▒▒▒▒▒▒▒▒▒▒   too few executors, for UP_ROUNDS: so many that the load would be AIM
           HIGH ┤
            AIM ┤- - - - -
            LOW ┤
              0 ┤▒▒▒▒▒▒▒▒▒▒   too many, for DOWN_ROUNDS: so few that the load would be AIM, at least half

A change leaves the load at AIM. To change back, it must then grow by HIGH / AIM = 1.6, or shrink by LOW / AIM = 0.6: a
constant load with noise of 20 % does neither, as long as batch time goes by the work per executor. Where it does not,
the rule learns it. If batches are no shorter with more executors, it goes back to fewer, and tries more again when more
events arrive. If fewer were not enough, it keeps what it had before, until fewer events arrive.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from geoswarm.config import ExecutorRange
from geoswarm.control.outcome import ScaleEntry

HIGH, AIM, LOW = 0.8, 0.5, 0.3
"""The load above which there are too few executors, the load that a change aims at, and the one below which there are
too many."""
UP_ROUNDS, DOWN_ROUNDS = 2, 4
"""Rounds in a row before executors are added, and before they are removed: a queue hurts more than an idle task."""
WAIT_ROUNDS = 2
"""Rounds after a change in which nothing is judged: the strategy first deals the work out anew."""
OUTSIDE_S = 1.0
"""Seconds between two batches that count as busy: without any rest, 0.4 to 0.5 s were measured on a loaded machine."""
GROWTH = 1.1
"""A batch so many times longer than in the round before, and longer than its interval, is a growing backlog."""
SHORTER_MIN, MORE_MIN = 0.95, 1.5
"""With MORE_MIN times the executors, the time per event must fall to this share of what it was, or they do not help."""
EVENTS_RATIO = 1.25
"""So many times the events per second, and what was learned about too few or too many executors holds no more."""
LEARNED_ROUNDS = 1000
"""Rounds after which it is forgotten in any case, four hours by default: what was slow may have had another cause."""


class TimedBatch(NamedTuple):
    """What the rule sees of a batch."""

    began_s: float
    batch_s: float
    events: int


class ClusterState(NamedTuple):
    """What the rule sees of the cluster after a batch."""

    executors: int
    """By the plan in force."""
    idle: int = 0
    """Executors that the plan gives no partition yet."""
    slots: int | None = None
    """Tasks that run at once; None if it is not known, or follows the number of tasks."""


@dataclass
class _Sums:
    """The batches of a round."""

    seconds: float = 0.0
    """From the beginning of the first to the beginning of the one after the last."""
    busy_s: float = 0.0
    batch_s: float = 0.0
    batches: int = 0
    events: int = 0

    def add(self, batch: TimedBatch, until_s: float) -> None:
        seconds = max(0.0, until_s - batch.began_s)
        self.seconds += seconds
        self.busy_s += min(seconds, batch.batch_s + OUTSIDE_S)
        self.batch_s += batch.batch_s
        self.batches += 1
        self.events += batch.events

    @property
    def batch_s_mean(self) -> float:
        return self.batch_s / self.batches

    @property
    def event_s(self) -> float:
        """Seconds per event."""
        return self.batch_s / max(1, self.events)

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        return self.busy_s / self.seconds if self.seconds else 1.0


class _Trial(NamedTuple):
    """Executors that were added, until it is known whether they help."""

    before: int
    after: int
    event_s: float
    """Seconds per event before."""


class _Learned(NamedTuple):
    """A number of executors, and the events per second at which more of them did not help, or fewer were not enough."""

    executors: int
    events_per_s: float
    round: int
    """When it was learned."""


class Elastic:
    def __init__(self, span: ExecutorRange, interval_s: float, round_s: float) -> None:
        """`interval_s` is how long a batch may take."""
        self._span, self._interval_s, self._round_s = span, interval_s, round_s
        self._executors = 0
        self._trial: _Trial | None = None
        self._most: _Learned | None = None  # more do not help
        self._least: _Learned | None = None  # fewer are not enough
        self._shrunk: _Learned | None = None  # the number before the last change, if that took executors away
        self._round = 0
        self._begin(0)

    def _begin(self, executors: int) -> None:
        """Forget what was measured with another number of executors."""
        self._added, self._executors = max(0, executors - self._executors), executors
        self._pending: TimedBatch | None = None
        self._sums = _Sums()
        self._batch_s_before = float("inf")
        self._waited = 0
        self._loads = deque[float](maxlen=DOWN_ROUNDS)  # of rounds in a row, all HIGH and above or all below LOW
        self._in_a_row = 0

    def add_batch(self, batch: TimedBatch, cluster: ClusterState) -> ScaleEntry | None:
        """The decision, if a round has ended with this batch. The caller puts its number in force, or another."""
        if cluster.executors != self._executors:
            self._begin(cluster.executors)
            return None  # the first batch with this number also starts workers and maps files
        pending, self._pending = self._pending, batch
        if pending is None:
            return None
        self._sums.add(pending, batch.began_s)
        if self._sums.seconds < self._round_s:
            return None
        sums, self._sums = self._sums, _Sums()
        load = min(sums.busy, sums.batch_s_mean / self._interval_s)
        executors, reason = self._decide(load, sums, cluster)
        self._batch_s_before = sums.batch_s_mean
        return ScaleEntry(
            executors=cluster.executors,
            executors_next=executors,
            cause="load",
            reason=reason,
            now_s=batch.began_s,
            load=load,
            busy=sums.busy,
            batch_s=sums.batch_s_mean,
            interval_s=self._interval_s,
            events_per_s=sums.events_per_s,
            idle=cluster.idle,
            slots=cluster.slots,
        )

    def _decide(self, load: float, sums: _Sums, cluster: ClusterState) -> tuple[int, str]:
        """The number of executors from now on, and why."""
        executors, waited = cluster.executors, self._waited
        self._waited += 1
        self._round += 1
        if waited < WAIT_ROUNDS:
            return executors, f"the number is new: wait for round {WAIT_ROUNDS + 1}"
        if cluster.idle and waited < WAIT_ROUNDS + self._added:
            return executors, f"{cluster.idle} of {executors} executors have no work yet: wait for the strategy"
        if self._is_useless(load, sums, executors):
            assert self._trial is not None
            before, self._trial = max(self._trial.before, self._span.min), None
            self._most, self._shrunk = self._learn(before, sums), None
            return before, f"batches are no shorter with {executors} executors: back to {before}"
        self._trial = None
        if LOW <= load < HIGH:
            self._loads.clear()
            return executors, f"between {LOW:.0%} and {HIGH:.0%}"
        if self._loads and (self._loads[-1] >= HIGH) != (load >= HIGH):
            self._loads.clear()
        self._in_a_row = self._in_a_row + 1 if self._loads else 1
        self._loads.append(load)
        return self._grow(sums, cluster) if load >= HIGH else self._shrink(sums, executors)

    def _learn(self, executors: int, sums: _Sums) -> _Learned:
        return _Learned(executors, sums.events_per_s, self._round)

    def _is_useless(self, load: float, sums: _Sums, executors: int) -> bool:
        """Whether executors were added, the load is still high, and an event takes as long as before."""
        trial = self._trial
        if trial is None or executors != trial.after or load < HIGH:
            return False
        return sums.event_s > SHORTER_MIN * trial.event_s

    def _grow(self, sums: _Sums, cluster: ClusterState) -> tuple[int, str]:
        executors, span, slots = cluster.executors, self._span, cluster.slots
        is_behind = sums.batch_s_mean > max(self._interval_s, GROWTH * self._batch_s_before)
        rounds = 1 if is_behind else UP_ROUNDS
        above = f"above {HIGH:.0%} for {self._rounds_text}" + (", and batches get longer" if is_behind else "")
        if self._in_a_row < rounds:
            return executors, f"{above}: wait for round {rounds}"
        if executors >= span.max:
            return executors, f"{above}, but {span.max} executors are the most allowed"
        if slots is not None and executors >= slots:
            return executors, f"{above}, but the cluster runs {slots} tasks at once: give it more cores"
        most, shrunk = self._still(self._most), self._shrunk
        if most is not None and executors >= most.executors and sums.events_per_s <= EVENTS_RATIO * most.events_per_s:
            return executors, f"{above}, but more than {most.executors} executors did not help"
        if shrunk is not None and sums.events_per_s <= EVENTS_RATIO * shrunk.events_per_s:
            self._least = shrunk
        self._shrunk = None
        wanted = min(ceil(executors * min(list(self._loads)[-rounds:]) / AIM), span.max)
        wanted = wanted if slots is None else min(wanted, max(slots, span.min))
        self._trial = _Trial(executors, wanted, sums.event_s) if wanted >= MORE_MIN * executors else None
        return wanted, above

    def _shrink(self, sums: _Sums, executors: int) -> tuple[int, str]:
        below = f"below {LOW:.0%} for {self._rounds_text}"
        if executors <= self._span.min:
            return executors, f"{below}, but {executors} executors are the fewest allowed"
        if self._in_a_row < DOWN_ROUNDS:
            return executors, f"{below}: wait for round {DOWN_ROUNDS}"
        wanted = max(ceil(executors * max(self._loads) / AIM), ceil(executors / 2), self._span.min)
        if wanted == executors:
            return executors, f"{below}, but fewer executors would be above {AIM:.0%}"
        least = self._still(self._least)
        if least is not None and sums.events_per_s * EVENTS_RATIO >= least.events_per_s:
            wanted = max(wanted, min(least.executors, executors))
        if wanted == executors:
            return executors, f"{below}, but fewer executors were not enough"
        self._shrunk = self._learn(executors, sums)
        return wanted, below

    @property
    def _rounds_text(self) -> str:
        return f"{self._in_a_row} round{'' if self._in_a_row == 1 else 's'}"

    def _still(self, learned: _Learned | None) -> _Learned | None:
        """What was learned, unless it is too long ago."""
        return learned if learned is not None and self._round - learned.round < LEARNED_ROUNDS else None
