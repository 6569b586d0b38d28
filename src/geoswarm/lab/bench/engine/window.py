"""What it costs to keep events: throughput with a window beside none, and the pause when old events go.

Two streams on `local[2]`, with the same subscriptions, Parquet files in, `noop` out, take turns round by round, as in
`pipeline.py`; one keeps an hour, so nothing goes. A round is the median of its batches, and a merge of kept files ends
within the round that began it. The wall clock also counts waiting for the disk, which others may keep busy; CPU time
does not, but has all merges. Then files are kept without a stream, as many as 64 batches have: batches make old ones
go, and merges are adopted.

    vs_without        events/s with an hour kept, of those without, by the wall clock
    vs_without_cpu    the same by the CPU time of all processes
    bytes_per_event   on disk, all columns
    expiry_ms_p99     milliseconds in which a batch seals what it kept, adopts a merge, and removes what is too old
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning, WindowSettings
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keep import arrays_of_rows, part_of, sort_by_place
from geoswarm.lab.bench.engine.pipeline import load_world, pipeline_row
from geoswarm.lab.bench.kit.contest import PipelineContestant
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, ratio
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.past import Past
from geoswarm.store.kept import files
from geoswarm.store.kept.keeper import Keeper
from geoswarm.store.manifest import EMPTY
from geoswarm.store.storage import Storage

KEPT_BATCHES = 64
"""Of the stream whose old events go."""
HOUR = WindowSettings(keep="1 hour")
WITHOUT, KEPT = "without", "an hour kept"


@dataclass(frozen=True)
class KeepSizes:
    subscriptions: int
    file_events: int
    files: int
    """Files of a batch."""
    batches: int
    """Batches of a round, the first of which is not counted."""
    rounds: int
    small_events: int
    small_batches: int
    """Of the stream in one process."""


SIZES = {
    Scale.SMALL: KeepSizes(200_000, 125_000, 2, 5, 9, 10_000, 120),
    Scale.FULL: KeepSizes(1_000_000, 125_000, 4, 6, 15, 50_000, 400),
}


def measure(sizes: KeepSizes, seed: int, report: Progress, session: Any = None) -> Result:
    with bench_session(session) as spark, tempfile.TemporaryDirectory() as folder:
        report(f"loading {sizes.subscriptions:,} subscriptions twice")
        contestants = _with_and_without(Path(folder), sizes, seed, spark)
        turns = {name: c.turn(name, spark, sizes.batches, report) for name, c in contestants.items()}
        for name in contestants:  # Java compiles what it runs often
            turns[name]()
            contestants[name].forget()
        seconds = interleave(turns, sizes.rounds, np.random.default_rng(seed))
        runs = Past(contestants[KEPT].world.checkpoint).query(limit=1).touched
        size, events = (sum(getattr(b, name) for run in runs for b in run.run.batches) for name in ("bytes", "rows"))
    report("letting old events go")
    pauses_s = _pauses_s(sizes, seed)
    rows = [pipeline_row(name, contestant) for name, contestant in contestants.items()]
    summary = {
        "vs_without": ratio(seconds[WITHOUT], seconds[KEPT]),
        "vs_without_cpu": contestants[WITHOUT].cpu_s() / contestants[KEPT].cpu_s(),
        "bytes_per_event": size / events,
        "expiry_ms_p99": float(np.quantile(pauses_s, 0.99)) * 1e3,
        "expiry_ms_median": float(np.median(pauses_s)) * 1e3,
    }
    return Result(rows, summary, {**sizes.__dict__})


def _with_and_without(root: Path, sizes: KeepSizes, seed: int, spark: Any) -> dict[str, PipelineContestant]:
    sources = [root / f"{number:04d}.parquet" for number in range(sizes.files)]
    for number, source in enumerate(sources):
        events = Tweets(seed=seed).events(number * sizes.file_events, sizes.file_events)
        pq.write_table(pa.Table.from_batches([events]), source)
    worlds = {name: load_world(root / name, sizes.subscriptions, 1.0, seed, spark) for name in (WITHOUT, KEPT)}
    tunings = {WITHOUT: Tuning(), KEPT: Tuning(window=HOUR)}
    return {name: PipelineContestant(worlds[name], sources, tunings[name]) for name in worlds}


def _pauses_s(sizes: KeepSizes, seed: int) -> list[float]:
    """The seconds of each seal of a stream that keeps 64 batches, from when the first goes."""
    window, rows = WindowSettings(keep=f"{KEPT_BATCHES * sizes.small_events} events"), sizes.small_events
    with tempfile.TemporaryDirectory() as folder:
        storage, contract = Storage(folder), Contract(executors=4)
        grid = Grid.of(contract)
        seconds, keeper = list[float](), Keeper(storage, grid, window)
        for number in range(sizes.small_batches):
            events = sort_by_place(Tweets(seed=seed).events(number * rows, rows), grid)
            arrays = arrays_of_rows(events, grid)
            part = part_of(*files.write(storage, f"{number:012d}", arrays), rows, arrays)
            began_s = time.perf_counter()
            keeper.seal(replace(EMPTY, now_us=number), number, [part], rows)
            seconds.append(time.perf_counter() - began_s)
        keeper.close()
    return seconds[KEPT_BATCHES:]
