"""Strategies on the real engine, one after the other over the same files: what each batch would take on many machines.

Measures for others (`swarm/engine.py`, `engine/auto.py`). `projection.py` says what is projected and what it leaves
out; `batch_s`, the wall clock of this machine, stands beside it.
"""

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Sample
from geoswarm.guard.limits import GuardSettings
from geoswarm.lab.bench.kit.batch_log import batches
from geoswarm.lab.bench.kit.files import EVENTS, OPERATIONS, run_files, sample_of, write_batches
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.bench.kit.projection import ProjectedBatch, project
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.run.spark.engine import Engine
from geoswarm.store.journal.entries import BatchEntry

CELLS_PER_SIDE = 1000
ROUND_S = 15.0
WARM_BATCHES = 4
"""From the second on, tasks took what they took in later runs."""
HISTORY_POINTS = 400_000
HISTORY_RECTS = 200_000
"""SWARM §6: what `static-history` is drawn from."""


class RaceStream(NamedTuple):
    """A stream whose batches are rounds."""

    bounds: Bounds
    start_s: float
    standing: pa.RecordBatch
    """The subscriptions at the start."""
    events: Callable[[int], pa.RecordBatch]
    """Of a batch, by its number."""
    operations: Callable[[int], pa.RecordBatch]
    history: Sample | None = None
    """For strategies that draw from a sample; without it the first batch is the sample."""
    guard: GuardSettings | None = None


class StrategyRuns(NamedTuple):
    """The batches of a strategy."""

    least: list[ProjectedBatch]
    """What they took at least, over runs that did the same work (`least_of_runs`)."""
    single: list[list[ProjectedBatch]]
    """What they took in each run of its own, with all that the machine's neighbours did."""


@dataclass(frozen=True)
class StrategyRace:
    stream: RaceStream
    machines: int
    batches: int
    routed: bool = False
    """Whether routing, which all machines share, is part of what a batch takes."""


def hotspot_stream(workload: Hotspots, subscriptions: int, *, has_history: bool = True) -> RaceStream:
    """History is from the base alone: it knows of no hotspot."""
    base, per_round = workload.base, int(workload.base.events_per_s * ROUND_S)
    history = base.events(0, HISTORY_POINTS), base.subscriptions(0, HISTORY_RECTS)
    return RaceStream(
        base.bounds,
        base.start_s,
        workload.subscriptions(0, subscriptions),
        lambda n: workload.events(n * per_round, per_round),
        lambda n: workload.operations(n * ROUND_S, (n + 1) * ROUND_S),
        sample_of(*history) if has_history else None,
    )


def run_strategies(
    spark: Any,
    race: StrategyRace,
    names: Sequence[str],
    report: Progress,
    *,
    turns: int = 1,
    repeated: Collection[str] | None = None,
    warms: bool = True,
) -> dict[str, StrategyRuns]:
    """The batches of each strategy, or of those `repeated` alone in all turns but the first."""
    with tempfile.TemporaryDirectory() as root:
        report("writing the stream")
        pq.write_table(pa.table(race.stream.standing), Path(root) / "subscriptions.parquet")
        few = min(WARM_BATCHES, race.batches) if warms else 0
        _write_batches(race, Path(root), 0, few)
        if warms:  # its time is in the CPU time of tasks, and whoever is first would pay
            report("a short run that warms Spark up")
            _run_strategy(spark, race, names[0], Path(root))
        _write_batches(race, Path(root), few, race.batches)
        found = defaultdict[str, list[list[BatchEntry]]](list)
        for turn in range(turns):
            for name in names if turn % 2 == 0 else reversed(names):
                if turn == 0 or repeated is None or name in repeated:
                    report(f"{name} on the engine")
                    found[name].append(_run_strategy(spark, race, name, Path(root)))
        of_all = list(zip(*(run for runs in found.values() for run in runs), strict=True))
        return {
            name: StrategyRuns(
                list(map(least_of_runs, zip(*runs, strict=True), of_all, repeat(race))),
                [[project(entry, race.machines, routed=race.routed) for entry in run] for run in runs],
            )
            for name, runs in ((name, found[name]) for name in names)
        }


def least_of_runs(own: Sequence[BatchEntry], of_all: Sequence[BatchEntry], race: StrategyRace) -> ProjectedBatch:
    """One batch of a strategy: the turn of its own that would have ended first, and in it for each executor the least
    time of all runs, of any strategy, in which every executor had the same events and matches: they are runs of one
    plan, and differ by what the machine's neighbours did. Where plans differ, there is no such run."""
    first = min(own, key=lambda entry: project(entry, race.machines, routed=race.routed).makespan_s)
    alike = [entry for entry in of_all if _work_of(entry) == _work_of(first)]
    executors = {
        number: load._replace(cpu_us=min(entry.executors[number].cpu_us for entry in alike))
        for number, load in first.executors.items()
    }
    least = replace(first, executors=executors, route_cpu_us=min(entry.route_cpu_us for entry in alike))
    return project(least, race.machines, routed=race.routed)


def _work_of(entry: BatchEntry) -> dict[int, tuple[int, int]]:
    return {number: (load.events, load.matches) for number, load in entry.executors.items()}


def work_rate(run: Sequence[ProjectedBatch]) -> float:
    """Units of work over the whole run: checks by the time they would have taken."""
    return sum(batch.entry.subscriptions * batch.events for batch in run) / sum(batch.makespan_s for batch in run)


def race_row(name: str, run: Sequence[ProjectedBatch]) -> dict[str, Any]:
    settled, later = run[len(run) // 2 :], run[1:]
    return {
        "strategy": name,
        "units_of_work": work_rate(run),
        "makespan_ms": sum(batch.makespan_s for batch in run) / len(run) * 1e3,
        "worst_batch_ms": max(batch.makespan_s for batch in run) * 1e3,
        "max_over_mean": median([batch.makespan_s / batch.mean_s for batch in settled]),
        "cpu_s": sum(batch.mean_s for batch in run),
        "plans": run[-1].entry.plan_epoch,
        "batch_s": median([batch.entry.batch_s for batch in later]),
        "prepare_s": median([batch.entry.prepare_s for batch in later]),
    }


def _write_batches(race: StrategyRace, root: Path, first: int, end: int) -> None:
    """Events and operations, one file a batch."""
    write_batches(root / EVENTS, map(race.stream.events, range(first, end)), first)
    write_batches(root / OPERATIONS, map(race.stream.operations, range(first, end)), first)


def _run_strategy(spark: Any, race: StrategyRace, name: str, root: Path) -> list[BatchEntry]:
    checkpoint, stream = root / "state", race.stream
    contract = Contract(bounds=stream.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=race.machines)
    tuning = Tuning(strategy=name, round_s=ROUND_S, driver_bytes_max=0)  # what tasks take is measured
    ticks = count(stream.start_s + ROUND_S, ROUND_S)  # a batch is a round: time goes on whenever it is asked for
    with Engine(
        spark,
        contract,
        tuning,
        checkpoint=str(checkpoint),
        sample=stream.history,
        guard=stream.guard,
        clock=lambda: float(next(ticks)),
    ) as engine:
        engine.load(str(root / "subscriptions.parquet"))
        run_files(engine, spark, root)
    found = batches(checkpoint)
    shutil.rmtree(checkpoint)
    return found
