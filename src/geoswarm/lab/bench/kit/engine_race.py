"""Strategies on the real engine, one after the other over the same files: what each batch would take on many machines.

Measures for others (`swarm_fig11.py`). This machine has two cores, the paper's cluster thirty, so throughput is
projected: every event is routed, exchanged and matched by Spark as always, the CPU time of each executor is taken from
its tasks' reports, and a batch would end when the last machine is done. Tasks are handed to machines in order, each to
the first that is free, as Spark does; with as many executors as machines that is the costliest executor. What it leaves
out is the network and what Spark takes to start a task, so `batch_s`, the wall clock of this machine, stands beside it.
"""

import heapq
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.control.strategy import Sample
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.store import journal
from geoswarm.store.storage import Storage

CELLS_PER_SIDE = 1000
ROUND_S = 15.0
HISTORY_POINTS = 400_000
HISTORY_RECTS = 200_000
"""SWARM §6: what `static-history` is drawn from."""


@dataclass(frozen=True)
class Race:
    workload: Hotspots
    subscriptions: int
    machines: int
    batches: int
    """Each is one round of the stream."""


@dataclass(frozen=True)
class Lap:
    """One batch under one strategy."""

    queries: int
    events: int
    makespan_s: float
    mean_s: float
    """Of all machines: what perfect balance would take."""
    batch_s: float
    prepare_s: float
    plan_epoch: int

    @property
    def units_of_work(self) -> float:
        return self.queries * self.events / self.makespan_s


def run_race(spark: Any, race: Race, names: Sequence[str], report: Progress) -> dict[str, list[Lap]]:
    with tempfile.TemporaryDirectory() as root:
        report("writing the stream")
        _write(race, Path(root))
        laps = {}
        for name in names:
            report(f"{name} on the engine")
            laps[name] = _run(spark, race, name, Path(root))
        return laps


def summed_work(laps: Sequence[Lap]) -> float:
    """Units of work over the whole run: checks by the time they would have taken."""
    return sum(lap.queries * lap.events for lap in laps) / sum(lap.makespan_s for lap in laps)


def row(name: str, laps: Sequence[Lap]) -> dict[str, Any]:
    settled = laps[len(laps) // 2 :]
    return {
        "strategy": name,
        "units_of_work": summed_work(laps),
        "makespan_ms": sum(lap.makespan_s for lap in laps) / len(laps) * 1e3,
        "worst_batch_ms": max(lap.makespan_s for lap in laps) * 1e3,
        "max_over_mean": median([lap.makespan_s / lap.mean_s for lap in settled]),
        "cpu_s": sum(lap.mean_s for lap in laps),
        "plans": laps[-1].plan_epoch,
        "batch_s": median([lap.batch_s for lap in laps[1:]]),
        "prepare_s": median([lap.prepare_s for lap in laps[1:]]),
    }


def makespan_us(tasks_us: Sequence[float], machines: int) -> float:
    """When the last machine is done, if each task goes to the first that is free."""
    free_at = [0.0] * machines
    for task_us in tasks_us:
        heapq.heapreplace(free_at, free_at[0] + task_us)
    return max(free_at)


def nowhere(matches: Any, batch_id: int) -> None:
    """A sink: every match is made, and none is kept."""
    matches.write.format("noop").mode("overwrite").save()


def _write(race: Race, root: Path) -> None:
    """Events and operations, one file a batch, and the standing subscriptions."""
    workload, base = race.workload, race.workload.base
    for folder in ("events", "operations"):
        (root / folder).mkdir()
    pq.write_table(pa.table(workload.subscriptions(0, race.subscriptions)), root / "subscriptions.parquet")
    events_per_round = int(base.events_per_s * ROUND_S)
    for batch in range(race.batches):
        rows = workload.events(batch * events_per_round, events_per_round)
        pq.write_table(pa.table(rows), root / "events" / f"{batch:05d}.parquet")
        changes = workload.operations(batch * ROUND_S, (batch + 1) * ROUND_S)
        pq.write_table(pa.table(changes), root / "operations" / f"{batch:05d}.parquet")


def _run(spark: Any, race: Race, name: str, root: Path) -> list[Lap]:
    checkpoint = str(root / f"state-{name}")
    contract = Contract(
        bounds=race.workload.base.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=race.machines
    )
    tuning = Tuning(strategy=name, round_s=ROUND_S)
    with Engine(
        spark, contract, tuning, checkpoint=checkpoint, sample=_sample(race), clock=_clock(race.workload.base.start_s)
    ) as engine:
        engine.load(str(root / "subscriptions.parquet"))
        events = sources.events_from_files(spark, str(root / "events"), format="parquet", files_per_batch=1)
        changes = sources.operations_from_files(spark, str(root / "operations"), format="parquet", files_per_batch=1)
        engine.start(
            events=events,
            operations=changes,
            sink=nowhere,
            available_now=True,
        ).wait()
    return [_lap(entry, race.machines) for entry in journal.read(Storage(checkpoint), "batch")]


def _lap(entry: dict[str, Any], machines: int) -> Lap:
    tasks_us = [float(load[3]) for _, load in sorted(entry["executors"].items(), key=lambda item: int(item[0]))]
    return Lap(
        queries=entry["subscriptions"],
        events=entry["events_in"],
        makespan_s=makespan_us(tasks_us, machines) / 1e6,
        mean_s=sum(tasks_us) / machines / 1e6,
        batch_s=entry["batch_s"],
        prepare_s=entry["prepare_s"],
        plan_epoch=entry["plan_epoch"],
    )


def _sample(race: Race) -> Sample:
    """From the base alone: history knows of no hotspot."""
    base = race.workload.base
    points = base.events(0, HISTORY_POINTS)
    rects = base.subscriptions(0, HISTORY_RECTS)
    return Sample(
        np.stack([points.column(side).to_numpy() for side in ("x", "y")], axis=1),
        np.stack([np.asarray(rects.column(side)) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1),
    )


def _clock(start_s: float) -> Callable[[], float]:
    """A batch is a round: time goes on by one whenever it is asked for."""
    now_s = start_s

    def tick() -> float:
        nonlocal now_s
        now_s += ROUND_S
        return now_s

    return tick
