"""Balance by what executors spend: deal events out while subscriptions are few, else level the places of executors.

While every executor can have all subscriptions at hand, events are dealt out among all (`dealing.py`): that is level
before, during and after every step, and whole tasks cost no more by it. Beyond `deal_max` subscriptions executors have
places. With Guard, what places would have done is followed all the same (`watch.py`).

SWARM's protocol (`swarm.py`, `measured.py`) hands over between a few pairs of executors a round, and cuts where its
statistics of rows and columns say. Three things are different here. The work of a partition is divided among the
cells where its events fell, so it is cut in the right place at once, also where nobody subscribes. As many executors
hand over in a round as help, since a move copies nothing. And a cell that is too hot for one executor is dealt out
among several (`Spread`), so no cell is a limit. `levelling.py` has the steps.

The first plan is drawn from the cells of a sample, which is the first batch if none is given.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from geoswarm.control.balance.dealing import Dealing
from geoswarm.control.balance.distributor import DistributorAtOnce
from geoswarm.control.balance.levelling import CellWork, Levelling
from geoswarm.control.balance.watch import PlacesWatch
from geoswarm.control.layout.dealt import dealt, is_dealt
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.layout.weighted import weighted_plan
from geoswarm.control.strategy import Decision, RoundReport, Sample, Strategy, WatchedRound, Why
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.arrays.least_squares import fit_nonnegative
from geoswarm.core.space.change import Change, Merge, name_of, note_of
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.density import expected_matches
from geoswarm.flow.observe import LoadReport
from geoswarm.parameters import check_arguments

DEAL_MAX = 2_000_000
"""Subscriptions: some 200 MB, all of which every machine then reads."""
TOLERATED, AIM = 1.08, 1.02
"""Of the mean: what the costliest executor may have before anything is done, and what is aimed at then. Measured times
differ by some per cent from round to round."""
STUCK = 1.5
"""Of the mean: above this, it is said that nothing helps."""
STEP, FADING = 1.5, 0.5
"""Of the mean: above this, the load has moved, and what was before it is forgotten; else so much of what is known stays
from round to round, as SWARM's points do (§4.2.2)."""
FADED = 1e-7
"""Of all work: a cell with less is forgotten."""
FAR = 2.0
"""Of the mean: if changes of the plan leave more than this, a fresh one is tried."""
COOL = 0.5
"""Of the mean: what is spread and has no more work than this goes back to one executor."""
PARTITIONS_MAX = 6
"""Partitions for each executor, before some are merged. Steps of one round may add a few."""
COLD = 0.25
"""Of the mean: partitions of several executors are merged if they have no more work together."""
STEPS = 8
"""Steps for each executor in a round."""
EVENT_US, MATCH_US = 0.2, 0.4
"""Before anything is measured: what an event and a match are taken to cost. Only their ratio matters, and it is about
that of the Parquet sink."""
WORDS_SHARE = 0.05
"""Before anything is measured: the share of events near a subscription that also have its words."""
SAID = {"move": "move", "split": "cut", "merge": "merge", "spread": "spread"}


class Auto:
    """Deals events out among all executors while subscriptions are few; else levels what their places cost."""

    name = "auto"
    needs_stats = False
    needs_sample = False
    draws_from_sample = True

    @check_arguments
    def __init__(
        self,
        *,
        deal_max: Annotated[
            int, Field(ge=0, description="subscriptions up to which events are dealt out among all; 0: never")
        ] = DEAL_MAX,
    ) -> None:
        self.deal_max = deal_max
        self.watches = False
        self._is_dealing = False
        self._watch: PlacesWatch | None = None
        self._dealing = Dealing()
        self._seen: tuple[RoundReport, CellWork] | None = None
        self._past: CellWork | None = None
        """The work of the last rounds by cell."""

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        if sample is None or not len(sample.points):
            return uniform(grid, executors)
        if self._deals(sample.subscriptions):
            self._is_dealing = True
            return dealt(grid, executors)
        events = np.bincount(grid.locate(*np.ascontiguousarray(sample.points.T)), minlength=grid.cells)
        cells = np.flatnonzero(events)
        counts = np.ones(len(sample.rects)) if sample.keywords is None else _match_shares(sample.keywords)
        matches = expected_matches(grid, sample.rects, counts * sample.weight)[cells]
        work = events[cells] * (EVENT_US + MATCH_US * matches)
        return fresh_plan(grid, executors, CellWork(cells // grid.columns, cells % grid.columns, work))

    @property
    def reads_cells(self) -> bool:
        """While events are dealt out, where they fall matters to Guard only; counting that takes some per cent of a
        task."""
        return self.watches or not self._is_dealing

    def for_pairs(self) -> Strategy:
        return DistributorAtOnce()

    def keeps(self, plan: Plan) -> bool:
        """Not where terms are divided, which sends events twice."""
        if is_dealt(plan):
            return self.deal_max > 0
        return not plan.siblings and len(plan.partitions) >= min(plan.executors, plan.grid.cells)

    def _deals(self, subscriptions: int, plan: Plan | None = None) -> bool:
        """A plan of places stays until there are far fewer, so that their number does not swing it back and forth."""
        most = self.deal_max if plan is None or len(plan.partitions) == 1 else self.deal_max // 2
        return self.deal_max > 0 and subscriptions <= most

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        self._is_dealing = self._deals(report.subscriptions, plan)
        if self._is_dealing:
            self._past = None
            return replace(self._dealing.rebalance(plan, report), watched=self._watched(plan, report))
        self._dealing.forget()
        self._watch = None
        places = self._leave_dealing(plan, report) if is_dealt(plan) else None
        if places is not None:
            return places
        is_new = self._seen is None or self._seen[0] is not report
        shown = self._cells(plan, report)
        cells = self._remember(plan, shown) if is_new or self._past is None else shown
        before, draft = Levelling(plan, cells).busiest, self._draft(plan, cells)
        if draft.busiest > max(before, TOLERATED) or self._worsens(plan, draft.changes, shown):
            draft = Levelling(plan, cells)  # nothing that was tried is better than the plan in force
        changes, fresh = draft.changes, None
        if draft.busiest > FAR:
            drawn = fresh_plan(plan.grid, plan.executors, cells)
            if Levelling(drawn, cells).busiest < draft.busiest:
                changes, fresh, draft = [], drawn, Levelling(drawn, cells)
        decision = _decision(changes, fresh, before)
        why: Why = {"decision": decision, "busiest": before, "busiest_after": draft.busiest}
        why |= {"mean_us": draft.mean, "sentence": _sentence(decision, changes, before, draft.busiest)}
        if draft.busiest > STUCK:
            why["warning"] = (
                f"the costliest executor has {draft.busiest:.1f} times the mean, and no move, cut or spread lowers it"
            )
        return Decision(changes, why, fresh)

    def _watched(self, plan: Plan, report: RoundReport) -> WatchedRound | None:
        cells = self._cells(plan, report)
        if not self.watches or not len(cells.work):
            return None
        if self._watch is None or self._watch.executors != plan.executors:
            self._watch = PlacesWatch(AutoPlaces(), fresh_plan(plan.grid, plan.executors, cells))
            return None
        return self._watch.follow(report, cells)

    def _leave_dealing(self, plan: Plan, report: RoundReport) -> Decision | None:
        """Places for executors that had none; None where a single cell is all there is."""
        if not len(report.load.cells.cells):
            return Decision((), {"decision": "wait: cells are counted from now on"})
        drawn = fresh_plan(plan.grid, plan.executors, self._cells(plan, report))
        if is_dealt(drawn):
            return None
        told = f"{report.subscriptions} subscriptions are more than {self.deal_max}, up to which events are dealt out"
        sentence = f"{told}: from now on executors have places"
        why: Why = {"decision": "places", "subscriptions": report.subscriptions, "sentence": sentence}
        return Decision((), why, drawn)

    def _remember(self, plan: Plan, shown: CellWork) -> CellWork:
        """The work of this round and, fading, of those before it: a single round is noisy. After a step, what was
        before it means nothing any more."""
        past, self._past = self._past, shown
        both_known = past is not None and past.work.any() and shown.work.any()
        if past is None or not both_known or Levelling(plan, shown).busiest > STEP:
            return shown
        faded = past.work * (FADING * shown.work.sum() / past.work.sum())
        rows, columns = (np.concatenate([shown[i], past[i]]) for i in range(2))
        both = CellWork(rows.astype(np.int64), columns.astype(np.int64), np.concatenate([shown.work, faded]))
        self._past = _sum_by_cell(both, plan.grid.columns)
        return self._past

    def _worsens(self, plan: Plan, changes: Sequence[Change], shown: CellWork) -> bool:
        """Whether the changes would have made this very round worse."""
        after = Levelling(plan.apply(changes), shown).busiest
        return after > max(TOLERATED, Levelling(plan, shown).busiest)

    def _draft(self, plan: Plan, cells: CellWork) -> Levelling:
        draft, most = Levelling(plan, cells), PARTITIONS_MAX * plan.executors
        before = draft.busiest
        if draft.partitions > most:
            draft.merge()
        if draft.partitions > most:
            draft.merge_cold(COLD)
        if draft.busiest > min(TOLERATED, before):  # also where merging has made it worse
            draft.take_back(COOL)
            draft.level(AIM, STEPS * plan.executors)
        return draft

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """The time of the costliest executor under `plan`, if the work stays where it was. Dealing out too many
        subscriptions counts as no division of work at all."""
        cells = self._cells(plan, report)
        if is_dealt(plan) and not self._deals(report.subscriptions, plan):
            return float(cells.work.sum())
        slots = plan.slot_of_cell[cells.rows * plan.grid.columns + cells.columns]
        spent = plan.by_executor(np.bincount(slots, cells.work, minlength=len(plan.partitions)))
        return float((spent * self._dealing.slowness(plan.executors)).max())

    def _cells(self, plan: Plan, report: RoundReport) -> CellWork:
        """The work by cell. It was measured under the plan in force, so it is remembered for proposed ones."""
        if self._seen is None or self._seen[0] is not report:
            self._seen = report, work_by_cell(plan, report.load)
        return self._seen[1]


class AutoPlaces(Auto):
    """Does what auto does with many subscriptions: executors have places, whose cost is levelled."""

    name = "auto-places"

    def __init__(self) -> None:
        super().__init__(deal_max=0)


def _sum_by_cell(cells: CellWork, columns: int) -> CellWork:
    """Each cell once, without those that have faded."""
    ids, places = np.unique(cells.rows * columns + cells.columns, return_inverse=True)
    work = np.zeros(len(ids))
    np.add.at(work, places, cells.work)
    kept = work > FADED * work.sum()
    return CellWork(ids[kept] // columns, ids[kept] % columns, work[kept])


def _match_shares(keywords: pa.StringArray) -> Floats:
    return np.where(keywords.is_null().to_numpy(zero_copy_only=False), 1.0, WORDS_SHARE)


def _decision(changes: Sequence[Change], fresh: Plan | None, before: float) -> str:
    if fresh is not None:
        return "fresh plan"
    if changes:
        return "merge" if all(isinstance(change, Merge) for change in changes) else "level"
    return "wait" if before <= TOLERATED else "nothing helps"


def _sentence(decision: str, changes: Sequence[Change], before: float, after: float) -> str:
    """What was done and why, for people."""
    had = f"the costliest executor had {before:.2f} times the mean"
    counts = Counter(name_of(note_of(change)) for change in changes)
    done = ", ".join(f"{count} {SAID[name]}{'s' * (count > 1)}" for name, count in counts.items())
    return {
        "wait": f"{had}, which is level enough",
        "nothing helps": f"{had}, and nothing that was tried is better",
        "merge": f"{had}; there were more than {PARTITIONS_MAX} partitions for each executor: {done}",
        "level": f"{had}; {done} should bring it to {after:.2f}",
        "fresh plan": f"{had}, too far off for changes; a fresh plan should bring it to {after:.2f}",
    }[decision]


def fresh_plan(grid: Grid, executors: int, cells: CellWork) -> Plan:
    """A plan of epoch 0 that is level for this work: equal weights first, and then what no cut can divide."""
    weights = np.zeros(grid.cells)
    np.add.at(weights, cells.rows * grid.columns + cells.columns, cells.work)
    plan = weighted_plan(grid, executors, weights)
    draft = Levelling(plan, cells)
    draft.level(AIM, STEPS * executors)
    return replace(plan.replace_by(plan.apply(draft.changes), ""), epoch=0)


def work_by_cell(plan: Plan, load: LoadReport) -> CellWork:
    """The time of each partition of the plan in force, divided among the cells where its events fell."""
    cells, events, matches = load.cells
    slots, columns = plan.slot_of_cell[cells], plan.grid.columns
    slot_of_id = {p.id: slot for slot, p in enumerate(plan.partitions)}
    times = np.zeros(len(plan.partitions))
    for partition, measured in load.partitions.items():
        if partition in slot_of_id:
            times[slot_of_id[partition]] = measured.cpu_us
    event_us, match_us = fit_costs(load)
    weights = event_us * events + match_us * matches
    sums = np.bincount(slots, weights, minlength=len(times))
    work = np.divide(times[slots] * weights, sums[slots], out=np.zeros(len(cells)), where=sums[slots] > 0)
    bare = np.flatnonzero((times > 0) & (sums == 0))  # no event of it was counted: in its middle
    rows, cols = (plan.borders[bare][:, [i, i + 2]].mean(axis=1).astype(np.int64) for i in (0, 1))
    return CellWork(
        np.concatenate([cells // columns, rows]),
        np.concatenate([cells % columns, cols]),
        np.concatenate([work, times[bare]]),
    )


def fit_costs(load: LoadReport) -> tuple[float, float]:
    """What an event and what a match cost, in µs: the least squares over all partitions, neither below 0. One
    partition cannot tell them apart."""
    rows = np.array([(part.events, part.matches, part.cpu_us) for part in load.partitions.values()], np.float64)
    if not len(rows) or not rows[:, 2].any():
        return 1.0, 0.0
    if len(rows) == 1:
        return EVENT_US, MATCH_US
    event_us, match_us = fit_nonnegative(rows[:, :2], rows[:, 2]).tolist()
    return (event_us, match_us) if event_us + match_us > 0 else (1.0, 0.0)
