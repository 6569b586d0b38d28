"""Planners of keys on the real engine, in turns on the same batches: what Mixed's Figures 13 to 16 share.

Measures for others: each figure names its stream. Every row is routed, exchanged and worked
on by Spark, every contestant in a checkpoint of its own, all of them with a batch before any has the next. This machine
has two cores, the paper's cluster 21 hosts, so throughput is projected: a batch would end with its costliest executor.

What an executor takes comes from what its tasks report: their CPU times are fitted by costs per row, key and unit of
other work (`task_costs.py`), and an executor takes what these say of what it really had. The cost per task is left out:
at saturation batches are as large as need be. It is not the same for all: under a planner that changes its plan often,
state lies in more files, and a task has more of them to look through. `cpu_vs_hash_...` says how much CPU all that took
in the batches as they were, over plain hash.

`_raw` figures are of CPU times as they came: the whole turn of an executor, from its first row to its last given one,
its part by bytes of what receiving the rows of its task took, and by rows of what Spark's side of the task took.
Contestants with several `turns` run side by side, and an executor takes the least of them; `..._once` is of single
turns. Keys are balanced by work,
not by time, so that all turns have the same plans. The executor that a task serves first takes a sixth longer, while
caches are cold; it is another one in every turn.

Ideal is the same work in equal shares: the paper's shuffles rows regardless of keys, and nothing can be evener. By raw
times it is the mean executor of the contestant. No plan of whole keys reaches Ideal while one key is more than an
executor's share: `heaviest_key` says how much it is. PKG is two operators, one behind the other (`pkg_count.py`), and
takes what both take.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import KeyTuning
from geoswarm.control.keyed.loop import add_up
from geoswarm.core.arrays.jit import Floats
from geoswarm.flow.keyed.key_report import KeyLoads
from geoswarm.flow.keyed.operator import Operator
from geoswarm.lab.bench.kit.harness import Progress, cpu_s, median
from geoswarm.lab.bench.kit.sessions import MASTER
from geoswarm.lab.bench.mixed.pkg_count import PkgCount, PkgTotals
from geoswarm.lab.bench.mixed.task_costs import StageTasks, TaskCosts, fit_costs, task_features
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.rows import Rows
from geoswarm.run.spark.batches import ARROW
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.session import build_session
from geoswarm.store.journal import Journal
from geoswarm.store.storage import Storage

EXECUTORS = 15
ROUND_S = 10.0
"""Seconds between two decisions about the table."""
IDEAL, PKG = "ideal", "pkg"
TRIAL_SHARES = (1.0, 0.5, 0.1, 0.25)


@dataclass(frozen=True)
class KeyedContestant:
    planner: str
    theta_max: float = 0.08
    splits: bool = False
    """Whether a key that is too heavy for an executor may be split, as the engine does and no paper."""
    turns: int = 1
    """Runs of the whole stream side by side; what an executor took is the least of them."""

    @property
    def name(self) -> str:
        if self.planner in ("hash", PKG):
            return self.planner
        return f"{self.planner} {self.theta_max:g}{', splits' if self.splits else ''}"


@dataclass(frozen=True)
class KeyedRace:
    """One stream for all: a batch is a round."""

    operator: Operator
    contestants: Sequence[KeyedContestant]
    executors: int = EXECUTORS
    rounds_per_interval: int = 1
    scaled: Mapping[int, int] = field(default_factory=dict)
    """{round: executors from then on}."""


class KeyedRound(NamedTuple):
    """One round of one contestant."""

    round: int
    rows: int
    stages: tuple[StageTasks, ...]
    """One, or for PKG two."""
    plan_s: float
    """CPU of the driver before the batch; what no planner takes is not taken off yet."""
    table: int
    heaviest_key: float = 0.0
    """The work of the heaviest key, over what an executor has on average."""
    single: tuple[tuple[StageTasks, ...], ...] = ()
    """The stages of each turn, where `stages` has the least of all turns."""


class TimedRound(NamedTuple):
    """What a round would take on a machine per executor."""

    round: int
    rows: int
    makespan_s: float
    ideal_s: float
    makespan_raw_s: float
    ideal_raw_s: float
    once_over_mean: float
    """The costliest executor over the mean one, by raw times of a single turn: the mean over turns."""
    cpu_raw_s: float
    """The CPU time of the average executor over all stages."""
    plan_s: float
    table: int
    heaviest_key: float = 0.0


class KeyedRounds(NamedTuple):
    of: dict[str, list[KeyedRound]]
    """The rounds of each contestant, in order."""
    trials: list[tuple[str, KeyedRound]]
    """Rounds on parts of the first batch, which separate the cost of a row from that of a task."""


def run_keyed_race(
    race: KeyedRace,
    batches: Callable[[int], pa.Table],
    rounds: int,
    seed: int,
    report: Progress,
    what: str,
    nth: int = 0,
) -> KeyedRounds:
    """`batches(n)` is round n of the stream. Only the first race of a figure has trials."""
    spark = build_session(MASTER)
    for key, value in ARROW.items():
        spark.conf.set(key, value)
    with tempfile.TemporaryDirectory() as folder:
        lanes = [
            _Lane(race, contestant, Path(folder) / f"{contestant.name}-{turn}", turn)
            for contestant in race.contestants
            for turn in range(contestant.turns)
        ]
        report(f"{what}: compiling")
        trials = [] if nth else list(_try_shares(spark, race, batches(0), Path(folder)))
        laps = KeyedRounds({lane.name: [] for lane in lanes}, trials)
        for number in range(rounds):
            path = str(Path(folder) / f"{number}.parquet")
            pq.write_table(batches(number), path)
            seen: dict[str, list[KeyedRound]] = {lane.name: [] for lane in lanes}
            for i in np.random.default_rng((seed, number)).permutation(len(lanes)):
                report(f"{what}: round {number + 1} of {rounds}, {lanes[i].name}")
                seen[lanes[i].name].append(lanes[i].lap(spark.read.parquet(path), number))
            for name, turns in seen.items():
                laps.of[name].append(least_of(turns))
    return laps


def least_of(turns: Sequence[KeyedRound]) -> KeyedRound:
    """One round in several turns, with the least time of each executor: neighbours on the machine only add. Keys are
    balanced by work, so that the same work is done in all turns."""
    first = turns[0]
    stages = []
    for alike in zip(*(lap.stages for lap in turns), strict=True):
        for stage in alike:
            assert np.array_equal(stage.rows, alike[0].rows), "turns with other rows for an executor do not compare"
        stages.append(alike[0]._replace(cpu_us=np.min([stage.cpu_us for stage in alike], axis=0)))
    single = tuple(lap.stages for lap in turns)
    return first._replace(stages=tuple(stages), plan_s=min(lap.plan_s for lap in turns), single=single)


def _try_shares(spark: Any, race: KeyedRace, rows: pa.Table, folder: Path) -> Iterator[tuple[str, KeyedRound]]:
    """Each operator once more on parts of a batch; its first round, in which workers compile, is left out."""
    for contestant in {c.planner == PKG: c for c in race.contestants}.values():
        lane = _Lane(race, contestant, folder / f"trial-{contestant.name}")
        for number, share in enumerate(TRIAL_SHARES):
            path = str(folder / f"trial-{number}.parquet")
            pq.write_table(rows.slice(0, int(share * len(rows))), path)
            lap = lane.lap(spark.read.parquet(path), number)
            if number:
                yield lane.name, lap


class _Lane:
    def __init__(self, race: KeyedRace, contestant: KeyedContestant, folder: Path, turn: int = 0) -> None:
        """`turn` is added to the numbers of its batches, by which tasks choose the executor that they serve first."""
        self.race, self.name, self.storage, self.turn = race, contestant.name, Storage(str(folder)), turn
        interval_s = ROUND_S * race.rounds_per_interval
        operator = copy(race.operator)
        operator.can_split = operator.can_split and contestant.splits
        planner, operators = contestant.planner, [operator]
        if planner == PKG:
            planner, operators = "hash", [PkgCount(race.executors, race.operator.window), PkgTotals()]
        tuning = KeyTuning(
            executors=race.executors,
            interval_s=interval_s,
            round_s=ROUND_S,
            planner=planner,
            theta_max=contestant.theta_max,
            load_by="work",
        )
        self.runs = [KeyedRun(self.storage, Journal(self.storage), o, tuning, lambda: None) for o in operators]

    def lap(self, rows: Any, number: int) -> KeyedRound:
        now_us = int(number * ROUND_S * 1e6)
        if number in self.race.scaled:
            self._scale(self.race.scaled[number])
        began_s = cpu_s()
        batch = number + self.turn
        given: Rows = self.runs[0].apply(SparkRows(rows), batch, now_us)
        plan_s = cpu_s() - began_s
        for run in self.runs[1:]:
            given = run.apply(given, batch, now_us)
        given.run()
        stages = [self._tasks(run.operator.name) for run in self.runs]
        heaviest_key = self._heaviest_key(self.runs[0].operator.name)
        entries = [run.finish() for run in self.runs]
        for i, entry in enumerate(entries):  # with Spark's side, which is known once a batch is finished
            executors = entry.executors.values()
            stages[i] = stages[i]._replace(cpu_us=np.array([load.cpu_us for load in executors], np.float64))
        return KeyedRound(number, entries[0].rows, tuple(stages), plan_s, len(self.runs[0].plan.keys), heaviest_key)

    def _scale(self, executors: int) -> None:
        for run in self.runs:
            run.scale(executors)
            if isinstance(run.operator, PkgCount):
                run.operator.executors = executors

    def _heaviest_key(self, operator: str) -> float:
        """Over the mean of executors; what a key is charged by several executors is added up."""
        folder = self._reports(operator)
        names = [name for name in self.storage.names(folder) if name.startswith("loads-")]
        loads = add_up([KeyLoads.unpack(self.storage.read(f"{folder}/{name}")) for name in names])
        return float(loads.load.max() / loads.load.sum() * len(names))

    def _reports(self, operator: str) -> str:
        """Their folder, until the batch is finished."""
        (attempt,) = self.storage.folders(f"keyed/{operator}/reports")
        return f"keyed/{operator}/reports/{attempt}"

    def _tasks(self, operator: str) -> StageTasks:
        folder = self._reports(operator)
        rows, keys, other, cpu_us = [], [], [], []
        for name in sorted(self.storage.names(folder)):
            if name.startswith("work-"):
                report = json.loads(self.storage.read(f"{folder}/{name}"))
                rows.append(report["rows"])
                keys.append(report["keys"])
                other.append(max(0.0, report["work"] - report["rows"]))
                cpu_us.append(report["cpu_us"])
        return StageTasks(np.array(rows), np.array(keys), np.array(other), np.array(cpu_us, np.float64))


def time_rounds(races: Sequence[KeyedRounds]) -> tuple[list[dict[str, list[TimedRound]]], TaskCosts]:
    """Races of one operator, under one fit."""
    seen = [(name, lap) for laps in races for name, lap in laps.trials]
    seen += [(name, lap) for laps in races for name, some in laps.of.items() for lap in some]
    behind = [lap.stages[1] for name, lap in seen if name == PKG]
    # PKG's first operator counts as that of the others does: their tasks are of one kind.
    first, error = fit_costs([lap.stages[0] for _, lap in seen])
    costs = TaskCosts(first, fit_costs(behind)[0] if behind else None, error)
    return [_project_rounds(laps.of, costs) for laps in races], costs


def _project_rounds(laps: Mapping[str, Sequence[KeyedRound]], costs: TaskCosts) -> dict[str, list[TimedRound]]:
    at_rest_s = min(median([lap.plan_s for lap in some]) for some in laps.values())
    fitted_s = {name: [_seconds(lap, costs) for lap in some] for name, some in laps.items()}
    raw_s = {name: [[stage.cpu_us / 1e6 for stage in lap.stages] for lap in some] for name, some in laps.items()}
    keyed = [name for name in laps if name != PKG]

    def makespan_s(stages: list[Floats]) -> float:
        return sum(float(stage.max()) for stage in stages)

    def over_mean(stages: tuple[StageTasks, ...]) -> float:
        return makespan_s([stage.cpu_us for stage in stages]) / sum(float(stage.cpu_us.mean()) for stage in stages)

    return {
        name: [
            TimedRound(
                lap.round,
                lap.rows,
                makespan_s(fitted_s[name][i]),
                median([float(fitted_s[other][i][0].mean()) for other in keyed]),  # whichever planner dealt them out
                makespan_s(raw_s[name][i]),
                sum(float(stage.mean()) for stage in raw_s[name][i]),
                fmean(map(over_mean, lap.single or (lap.stages,))),
                sum(float(stage.mean()) for stage in raw_s[name][i]),
                max(0.0, lap.plan_s - at_rest_s),
                lap.table,
                lap.heaviest_key,
            )
            for i, lap in enumerate(some)
        ]
        for name, some in laps.items()
    }


def _seconds(lap: KeyedRound, costs: TaskCosts) -> list[Floats]:
    kinds = [cost for cost in (costs.first, costs.second) if cost is not None]
    return [task_features(stage)[:, 1:] @ kinds[n][1:] / 1e6 for n, stage in enumerate(lap.stages)]


def cpu_vs_hash(laps: Mapping[str, Sequence[TimedRound]], name: str) -> float:
    """CPU of a contestant's tasks over that of plain hash, once both have state."""
    mine, plain = (sum(lap.cpu_raw_s for lap in laps[who][1:]) for who in (name, "hash"))
    return mine / plain


def rounds_row(laps: Sequence[TimedRound]) -> dict[str, Any]:
    """The columns that a figure shows of some rounds in a row."""
    rows = sum(lap.rows for lap in laps)
    return {
        "rows_per_s": rows / sum(lap.makespan_s for lap in laps),
        "ideal_rows_per_s": rows / sum(lap.ideal_s for lap in laps),
        "latency_ms": 1e3 * sum(lap.rows * lap.makespan_s for lap in laps) / rows,
        "max_over_mean": sum(lap.makespan_s for lap in laps) / sum(lap.ideal_s for lap in laps),
        "max_over_mean_raw": sum(lap.makespan_raw_s for lap in laps) / sum(lap.ideal_raw_s for lap in laps),
        "max_over_mean_once": sum(lap.once_over_mean * lap.rows for lap in laps) / rows,
        "cpu_ms_raw": 1e3 * sum(lap.cpu_raw_s for lap in laps) / len(laps),
        "plan_ms": 1e3 * sum(lap.plan_s for lap in laps) / len(laps),
        "heaviest_key": sum(lap.heaviest_key * lap.rows for lap in laps) / rows,
        "table": laps[-1].table,
    }
