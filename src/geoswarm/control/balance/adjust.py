"""PS2Stream's adjustment: the most loaded executor hands partitions to the least loaded, few bytes at a time.

`migration.py` chooses the partitions, `ps2_cuts.py` cuts one, and `tally.py` counts what they hold. PS2Stream §V.

    L_max / L_min > σ ?  ── no ──► wait
        │ yes
    Phase I   of its p most loaded partitions: divide one by terms, or join it with its sibling at the least loaded,
        │     if all loads together fall
    Phase II  the rest of the gap: whole partitions, the fewest bytes (Definition 4); a partition that is larger than
              the gap is cut first

A load is the time that a partition took, which the engine measures and Definition 3 estimates as n_o·n_q. Sizes, and
the shares of its time when a partition is cut, come from `RoundReport.sample`. Without a sample there is no Phase I,
cuts are in the middle, and the time per event estimates how many queries a partition has (`seen.py`).

On the paper's machines (`replicates`), which keep queries of their own, Definition 1 decides whether the sum of loads
falls. On this engine no executor keeps queries: events meet the same entries of lists under every plan, and only
copies of events differ. So here Phase I joins and never divides, and a cell too hot for one executor is divided by
terms in Phase II, where neither a move nor a cut by space can help.

Every `global_every_rounds` a new layout is drawn from the sample. It takes over if its largest load is less by
`global_gain_min`, unless the times of the round contradict it. The paper then keeps two distributions in force until
the old queries have gone, because migrating them all would take too long (§V-B). Here a plan decides who works and not
where queries are stored: the new plan takes over between two batches and moves nothing. `run/sim/words.py` simulates
machines that need both.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from geoswarm.control.balance.layouts import HybridDelta, HybridLeaves, HybridSigma
from geoswarm.control.balance.migration import WAYS
from geoswarm.control.balance.ps2_cuts import cut_partition
from geoswarm.control.balance.seen import Seen, see
from geoswarm.control.balance.tally import Tally, tally
from geoswarm.control.balance.term_shares import divide_in_two, join_shares
from geoswarm.control.estimate import is_worse
from geoswarm.control.layout.hybrid import DELTA, SIGMA, hybrid
from geoswarm.control.layout.load_model import ENGINE, Costs
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Decision, RoundReport, Sample, Why
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.change import Change, Divide, Move
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError
from geoswarm.parameters import check_arguments

DrawLayout = Callable[[Grid, int, TextSample], Plan]
MOVED_SHARE_MIN = 0.3
"""The least share of the wanted load that whole partitions must move; else one is cut."""


class MigrationProblem(NamedTuple):
    """Minimum Cost Migration, Definition 4."""

    slots: Ints
    loads: Floats
    sizes: Ints
    wanted: float
    """τ: half of the two executors' difference, or less if they need not become equal."""


class Ps2Adjusted:
    """Hands partitions, few bytes at a time, from the most loaded executor to the least; now and then, a new layout."""

    name = "ps2-adjusted"
    needs_stats = False
    needs_sample = True
    draws_from_sample = True

    @check_arguments
    def __init__(
        self,
        *,
        sigma: Annotated[
            float, Field(gt=1, description="σ: most load over least, above which work is handed over")
        ] = 1.3,
        cells_max: Annotated[int, Field(ge=0, description="p: partitions that Phase I looks at")] = 4,
        pairs_max: Annotated[
            int, Field(ge=1, description="executors that hand over in one round; the paper's is 1")
        ] = 4,
        way: Annotated[
            Literal["dp", "gr", "si", "ra"], Field(description="DP, GR, SI or RA: how partitions to migrate are chosen")
        ] = "gr",
        aim: Annotated[
            float, Field(ge=1, description="the ratio of the two after it: 1 if moves are free, σ if bytes count")
        ] = 1.0,
        costs: Costs = ENGINE,
        replicates: Annotated[
            bool, Field(description="whether machines keep queries of their own, as the paper's do")
        ] = False,
        global_every_rounds: Annotated[int, Field(ge=0, description="rounds between two new layouts; 0: never")] = 240,
        global_gain_min: Annotated[
            float, Field(ge=0, le=1, description="share that the largest load must fall by for a new layout")
        ] = 0.2,
        layout_sigma: HybridSigma = SIGMA,
        delta: HybridDelta = DELTA,
        leaves_max: HybridLeaves = None,
        query_weight: Annotated[float, Field(gt=0, description="queries that one of the sample stands for")] = 1.0,
        size_unit_bytes: Annotated[int, Field(ge=1, description="unit of sizes; `dp` needs a large one for many")] = 1,
        layout: DrawLayout | None = None,
        seed: Annotated[int, Field(description="of the chance that `ra` takes")] = 0,
    ) -> None:
        """The default `layout` is `hybrid`. `costs` and `replicates` describe the machines: this engine's, or the
        paper's, which keep queries of their own."""
        if aim > sigma:
            raise SettingsError(f"aim {aim} is above sigma {sigma}, so nothing would move: give 1 to sigma")
        self.sigma, self.aim, self.cells_max, self.pairs_max, self.way = sigma, aim, cells_max, pairs_max, way
        self.costs, self.replicates, self.query_weight = costs, replicates, query_weight
        self.layout: DrawLayout = layout or partial(
            hybrid, costs=costs, sigma=layout_sigma, delta=delta, leaves_max=leaves_max
        )
        self.global_every_rounds, self.global_gain_min = global_every_rounds, global_gain_min
        self.size_unit_bytes = size_unit_bytes
        self._rng = np.random.default_rng(seed)
        self._before: Plan | None = None
        """The plan that the round was measured under; proposed plans are compared with it."""
        self._counted_before: Tally | None = None

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        text = _text(grid, sample)
        return uniform(grid, executors) if text is None else self.layout(grid, executors, text)

    def rebalance(self, plan: Plan, report: RoundReport) -> Decision:
        self._before = plan
        seen = self._see_plan(plan, report, None)
        why: Why = {"load_max": float(seen.of_executor.max()), "load_min": float(seen.of_executor.min())}
        is_due = self.global_every_rounds > 0 and report.round % self.global_every_rounds == 0
        if not is_due and not self._violated(seen, *_extremes(seen)):
            return Decision((), why | {"decision": "wait"})
        text = _text(plan.grid, report.sample)  # the slowest step of a round
        if is_due and text is not None:
            fresh, loads = self._fresh(plan, text)
            why |= loads
            if fresh is not None and not self._worsens(plan, fresh, report):
                return Decision((), why | {"decision": "global"}, fresh)
        return self._local(self._see_plan(plan, report, text), report, text, why)

    def _local(self, seen: Seen, report: RoundReport, text: TextSample | None, why: Why) -> Decision:
        plan, changes, totals = seen.plan, list[Change](), dict[str, float]()
        stuck: list[int] = []
        """Executors that cannot be relieved and are passed over; the paper would stop at the first of them."""
        for _ in range(self.pairs_max):
            high, low = _extremes(seen, stuck)
            if not self._violated(seen, high, low):
                break
            some, numbers = self._hand_over(seen, report, text, high, low)
            after = self._see_plan(plan.apply(changes + some), report, text) if some else seen
            if after.of_executor[[high, low]].max() >= seen.of_executor[high]:
                stuck.append(high)
                continue
            changes, seen = changes + some, after
            totals = {key: totals.get(key, 0) + value for key, value in numbers.items()}
        if not changes:
            return Decision((), why | {"decision": "wait"})
        return Decision(changes, why | totals | {"decision": "adjust", "load_max_after": float(seen.of_executor.max())})

    def estimate(self, plan: Plan, report: RoundReport) -> float:
        """Microseconds that the most loaded executor would have taken under `plan`."""
        return float(self._see_plan(plan, report, _text(plan.grid, report.sample)).of_executor.max())

    def _violated(self, seen: Seen, high: int, low: int) -> bool:
        return bool(seen.of_executor[high] > self.sigma * seen.of_executor[low])

    def _hand_over(
        self, seen: Seen, report: RoundReport, text: TextSample | None, high: int, low: int
    ) -> tuple[list[Change], dict[str, float]]:
        if not self._violated(seen, high, low):
            return [], {}
        changes: list[Change] = []
        if text is not None:
            changes, seen = self._phase_one(seen, report, text, high, low)
        divisions = sum(isinstance(change, Divide) for change in changes)
        numbers: dict[str, float] = {"pairs": 1, "divided": divisions, "joined": len(changes) - divisions}
        if self._violated(seen, high, low):
            some, more = self._phase_two(seen, text, high, low)
            changes, numbers = changes + some, numbers | more
        return changes, numbers

    def _phase_one(
        self, seen: Seen, report: RoundReport, text: TextSample, high: int, low: int
    ) -> tuple[list[Change], Seen]:
        changes: list[Change] = []
        mine = seen.slots_held_by(high)
        mine = mine[~seen.is_proposed[mine]]
        heaviest = mine[np.argsort(-seen.times[mine], kind="stable")][: self.cells_max]
        for part in [seen.plan.partitions[slot] for slot in heaviest]:
            change: Change | None = None
            if part.cut is not None:
                change = join_shares(seen, part, low)
            elif self.replicates:
                change = divide_in_two(part, text, self.costs, high, low)
            if change is None:
                continue
            after = self._see_plan(seen.plan.apply([change]), report, text)
            relieved = max(after.of_executor[[high, low]]) < seen.of_executor[high]
            if relieved and self._total(after, text) < self._total(seen, text):
                changes.append(change)
                seen = after
                if not self._violated(seen, high, low):
                    break
        return changes, seen

    def _phase_two(
        self, seen: Seen, text: TextSample | None, high: int, low: int
    ) -> tuple[list[Change], dict[str, float]]:
        problem = self.problem(seen, high, low)
        slots, gap = problem.slots, float(seen.of_executor[high] - seen.of_executor[low])
        choice = WAYS[self.way](problem.loads, problem.sizes, problem.wanted, self._rng)
        picked = sorted(slots[choice.cells].tolist(), key=lambda slot: float(seen.times[slot]))
        while picked and seen.times[picked].sum() >= gap:
            picked.pop()  # Definition 4 allows any load of τ or more; one as large as the gap would reverse it
        moved = float(seen.times[picked].sum()) if picked else 0.0
        numbers: dict[str, float] = {
            "wanted_us": problem.wanted,
            "moved_us": moved,
            "moved_bytes": int(seen.sizes[picked].sum()) if picked else 0,
            "moved": len(picked),
            "steps": choice.steps,
        }
        if moved < MOVED_SHARE_MIN * problem.wanted:
            mine = seen.slots_held_by(high)
            heaviest = seen.plan.partitions[int(mine[np.argmax(seen.times[mine])])]
            cut = cut_partition(seen, heaviest, text, self.costs, (high, low), problem.wanted)
            if cut:
                return cut, numbers | {"moved": 0, "moved_us": 0.0, "moved_bytes": 0, "cut": 1}
        ids = sorted(seen.plan.partitions[slot].id for slot in picked)
        return [Move(i, low) for i in ids], numbers

    def problem(self, seen: Seen, high: int, low: int) -> MigrationProblem:
        """The partitions of the most loaded executor that may go: a load as large as the gap would only reverse it."""
        gap = float(seen.of_executor[high] - seen.of_executor[low])
        mine = seen.slots_held_by(high)
        slots = mine[seen.times[mine] < gap]
        units = -(-seen.sizes[slots] // self.size_unit_bytes)
        wanted = float(seen.of_executor[high] - self.aim * seen.of_executor[low]) / (1 + self.aim)
        return MigrationProblem(slots, seen.times[slots], units, wanted)

    def _fresh(self, plan: Plan, text: TextSample) -> tuple[Plan | None, Why]:
        drawn = self.layout(plan.grid, plan.executors, text)
        now, then = (self._worst(p, text) for p in (plan, drawn))
        numbers: Why = {"global_now": now, "global_fresh": then}
        return (drawn if then < (1 - self.global_gain_min) * now else None), numbers

    def _worsens(self, plan: Plan, fresh: Plan, report: RoundReport) -> bool:
        """Whether the measured round contradicts the sample, which may be of earlier rounds. The coordinator would then
        refuse the fresh plan, and the round would end without a local adjustment."""
        now, then = (self.estimate(p, report) for p in (plan, plan.replace_by(fresh, self.name)))
        return is_worse(then, now)

    def _worst(self, plan: Plan, text: TextSample) -> float:
        shared = self.costs.divided_event * text.events / plan.executors if plan.siblings else 0.0
        return float(tally(plan, text).loads(text, self.costs, replicates=self.replicates).max()) + shared

    def _total(self, seen: Seen, text: TextSample) -> float:
        assert seen.counted is not None
        return float(seen.counted.loads(text, self.costs, replicates=self.replicates).sum())

    def _see_plan(self, plan: Plan, report: RoundReport, text: TextSample | None) -> Seen:
        before = self._before or plan
        counted = None if text is None else tally(plan, text)
        if plan is before:
            self._counted_before = counted
        was = self._counted_before if text is not None else None
        return see(plan, before, report.load, counted, self.costs, self.query_weight, was)


def _text(grid: Grid, sample: Sample | None) -> TextSample | None:
    if sample is None or sample.texts is None or sample.keywords is None:
        return None
    return TextSample.of(grid, sample.points, sample.rects, sample.texts, sample.keywords)


def _extremes(seen: Seen, left_out: Sequence[int] = ()) -> tuple[int, int]:
    """The most loaded executor, except for those left out, and the least loaded of all."""
    loads = seen.of_executor.copy()
    loads[list(left_out)] = -1.0
    return int(np.argmax(loads)), int(np.argmin(seen.of_executor))
