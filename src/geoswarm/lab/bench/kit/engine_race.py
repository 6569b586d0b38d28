"""Strategies on the real engine, one after the other over the same files: what each batch would take on many machines.

Measures for others (`swarm/engine.py`). `projection.py` says what is projected and what it leaves out; `batch_s`, the
wall clock of this machine, stands beside it.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.lab.bench.kit.batch_log import batches
from geoswarm.lab.bench.kit.files import run_files, sample_of, write_batches
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.bench.kit.projection import ProjectedBatch, project
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.run.spark.engine import Engine
from geoswarm.store.journal.entries import BatchEntry

CELLS_PER_SIDE = 1000
ROUND_S = 15.0
HISTORY_POINTS = 400_000
HISTORY_RECTS = 200_000
"""SWARM §6: what `static-history` is drawn from."""


@dataclass(frozen=True)
class StrategyRace:
    workload: Hotspots
    subscriptions: int
    machines: int
    batches: int
    """Each is one round of the stream."""
    has_history: bool = True
    """Whether strategies that want one get a sample from before the start; else the first batch is the sample."""
    routed: bool = False
    """Whether routing, which all machines share, is part of what a batch takes."""


def run_strategies(
    spark: Any, race: StrategyRace, names: Sequence[str], report: Progress
) -> dict[str, list[ProjectedBatch]]:
    """The batches of each strategy."""
    with tempfile.TemporaryDirectory() as root:
        report("writing the stream")
        _write_race(race, Path(root))
        report("a run that warms Spark up")  # its time is in the CPU time of tasks, and whoever is first would pay
        _run_strategy(spark, race, names[0], Path(root))
        shutil.rmtree(_state_of(names[0], Path(root)))
        found = {}
        for name in names:
            report(f"{name} on the engine")
            entries = _run_strategy(spark, race, name, Path(root))
            found[name] = [project(entry, race.machines, routed=race.routed) for entry in entries]
        return found


def _state_of(name: str, root: Path) -> Path:
    return root / f"state-{name}"


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


def _write_race(race: StrategyRace, root: Path) -> None:
    """Events and operations, one file a batch, and the standing subscriptions."""
    workload = race.workload
    pq.write_table(pa.table(workload.subscriptions(0, race.subscriptions)), root / "subscriptions.parquet")
    per_round = int(workload.base.events_per_s * ROUND_S)
    write_batches(root / "events", (workload.events(n * per_round, per_round) for n in range(race.batches)))
    changes = (workload.operations(n * ROUND_S, (n + 1) * ROUND_S) for n in range(race.batches))
    write_batches(root / "operations", changes)


def _run_strategy(spark: Any, race: StrategyRace, name: str, root: Path) -> list[BatchEntry]:
    checkpoint, base = str(_state_of(name, root)), race.workload.base
    contract = Contract(bounds=base.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=race.machines)
    tuning = Tuning(strategy=name, round_s=ROUND_S)
    ticks = count(base.start_s + ROUND_S, ROUND_S)  # a batch is a round: time goes on whenever it is asked for
    # From the base alone: history knows of no hotspot.
    history = base.events(0, HISTORY_POINTS), base.subscriptions(0, HISTORY_RECTS)
    sample = sample_of(*history) if race.has_history else None
    with Engine(
        spark, contract, tuning, checkpoint=checkpoint, sample=sample, clock=lambda: float(next(ticks))
    ) as engine:
        engine.load(str(root / "subscriptions.parquet"))
        run_files(engine, spark, root)
    return batches(checkpoint)
