"""From an event's making to its match in the sink: p50 and p99, on Spark and in one process, from files and Kafka.

A producer in a process of its own makes events at a steady rate (`kit/paced.py`); each has the time at which it was
due. A file, or a send to Kafka, has the events of 20 ms, so an event is 10 ms old on average when anybody can see it.
The sink writes Parquet; a match is there once its batch is in place. One match per event. The first seconds are left
out.

Producer, broker and engine share the cores of one machine. Where an engine falls behind, so that the delay grows as
long as events come, there is no figure of it, but by how much it grows, and how many events a second were done.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract
from geoswarm.core.arrays.jit import Floats
from geoswarm.errors import StreamError
from geoswarm.lab.bench.kit.batch_log import batches
from geoswarm.lab.bench.kit.density import tweets_for
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.paced import Paced, Pacing, Producer
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.sessions import APP, MASTER
from geoswarm.lab.crash.broker import BROKER_JARS, Broker
from geoswarm.model import EVENT
from geoswarm.run import local
from geoswarm.run.engine import BaseEngine
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.sinks import Parquet, Sink
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.jars import kafka_conf, resolve
from geoswarm.run.spark.session import build_session
from geoswarm.run.stream import Run
from geoswarm.store.journal.entries import BatchEntry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPARK, LOCAL = "spark", "local"
FILES, KAFKA = "files", "kafka"
DENSITY = 1.0
EXECUTORS = 8
FIRST_RATE, FIRST_S = 2_000, 3.0
"""Events per second, and seconds, that come before the others and are not counted."""
FIRST_S_MAX = 60.0
"""Seconds that a cold engine may take for them."""
POLL_S = 0.1


class Cell(NamedTuple):
    runner: str
    source: str
    rate: int


@dataclass(frozen=True)
class LatencySizes:
    subscriptions: int
    cells: tuple[Cell, ...]
    warm_s: float
    """Seconds that are left out: the virtual machine compiles, and files of subscriptions are mapped."""
    measured_s: float
    claim_rate: int = 100_000
    """Events per second that the claims are about."""
    growth_max: float = 0.1
    """Seconds by which the delay may grow in a second; beyond, the engine has fallen behind."""
    catch_up_s: float = 10.0
    """Seconds after the last event within which an engine must have done all; else it has fallen behind."""


SIZES = {
    Scale.SMALL: LatencySizes(
        300_000,
        (Cell(SPARK, FILES, 100_000), Cell(LOCAL, FILES, 100_000), Cell(SPARK, FILES, 10_000)),
        warm_s=8.0,
        measured_s=10.0,
    ),
    Scale.FULL: LatencySizes(
        1_000_000,
        (
            *(Cell(runner, FILES, rate) for rate in (100_000, 10_000, 500_000) for runner in (SPARK, LOCAL)),
            *(Cell(SPARK, KAFKA, rate) for rate in (10_000, 100_000, 500_000)),
        ),
        warm_s=15.0,
        measured_s=45.0,
    ),
}


class TimedSink(Sink):
    """A sink that notes when each batch was in place."""

    def __init__(self, folder: Path) -> None:
        self.inner = Parquet(str(folder), roll_s=0)  # every batch is visible at once
        self.placed_s: dict[int, float] = {}

    def bind(self, checkpoint: str) -> None:
        self.inner.bind(checkpoint)

    def write(self, matches: Any, batch_id: int) -> None:
        self.inner.write(matches, batch_id)
        self.placed_s[batch_id] = time.time()


class Delays(NamedTuple):
    """Of the matches of a cell, in the order of their making."""

    made_s: Floats
    """Seconds since the first event was due."""
    delay_s: Floats

    @classmethod
    def of(cls, sink: TimedSink, began_s: float) -> "Delays":
        made_s, delay_s = [np.empty(0)], [np.empty(0)]
        for batch, placed_s in sink.placed_s.items():
            folder = Path(sink.inner.path) / f"batch={batch}"
            if folder.exists():  # it has matches
                made = pq.read_table(folder, columns=["ts"], partitioning=None)["ts"]
                made_s.append(made.cast(pa.int64()).to_numpy() / 1e6)
                delay_s.append(placed_s - made_s[-1])
        made, delay = np.concatenate(made_s), np.concatenate(delay_s)
        order = np.argsort(made, kind="stable")
        return cls(made[order] - began_s, delay[order])

    def between(self, first_s: float, last_s: float) -> "Delays":
        kept = (self.made_s >= first_s) & (self.made_s < last_s)
        return Delays(self.made_s[kept], self.delay_s[kept])

    def growth(self) -> float:
        """The seconds by which the delay grows in a second, from the first third to the last."""
        thirds = np.array_split(np.arange(len(self.made_s)), 3)
        (t0, d0), (t1, d1) = ((np.median(self.made_s[i]), np.median(self.delay_s[i])) for i in (thirds[0], thirds[2]))
        return float((d1 - d0) / max(t1 - t0, 1e-9))


def measure(sizes: LatencySizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    with ExitStack() as closing:
        root = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="geoswarm-latency-")))
        broker = None
        if any(cell.source == KAFKA for cell in sizes.cells):
            report("starting Kafka")
            broker = closing.enter_context(Broker(resolve(BROKER_JARS)))
        report("starting Spark")
        spark = build_session(MASTER, APP, conf=kafka_conf(stand_in=True) if broker is not None else {})
        report(f"loading {sizes.subscriptions:,} subscriptions")
        loaded = _load_checkpoint(root, sizes.subscriptions, seed)
        for number, cell in enumerate(sizes.cells):
            report(f"{cell.rate:,} events/s from {cell.source} on {cell.runner}")
            home = root / f"cell-{number}"
            shutil.copytree(loaded, home / "checkpoint")
            rows.append(_measure_cell(cell, home, sizes, seed, spark, broker))
            shutil.rmtree(home)
            if cell.source == FILES and cell.rate == sizes.claim_rate:
                _check_claim(rows[-1])
    config = {
        "master": MASTER,
        "subscriptions": sizes.subscriptions,
        "left_out_s": sizes.warm_s,
        "measured_s": sizes.measured_s,
        "shared": "producer, broker and engine run on the same cores",
        "side_share": tweets_for(sizes.subscriptions, DENSITY, seed).side_share,
    }
    return Result(rows, _summary(rows, sizes.claim_rate), config)


def _check_claim(row: dict[str, Any]) -> None:
    """Those that are claimed come first: without them, no other need be measured."""
    if row["p99_s"] is None:
        raise StreamError(
            f"{row['runner']} does not keep up with {row['events_per_s']:,} events/s from files: the delay grows by "
            f"{row['growth_s_per_s']} s in a second, or was not made up for in time; leave the machine to the benchmark"
        )


def _summary(rows: list[dict[str, Any]], rate: int) -> dict[str, float]:
    found = {(row["runner"], row["source"], row["events_per_s"]): row for row in rows}
    summary: dict[str, float] = {}
    for prefix, runner in (("", SPARK), ("local_", LOCAL)):
        row = found[runner, FILES, rate]
        summary |= {f"{prefix}p50_s_{rate // 1000}k": row["p50_s"], f"{prefix}p99_s_{rate // 1000}k": row["p99_s"]}
    return summary | {"kept_up_share": float(np.mean([row["p99_s"] is not None for row in rows]))}


def _load_checkpoint(root: Path, subscriptions: int, seed: int) -> Path:
    file, checkpoint = root / "subscriptions.parquet", root / "loaded"
    workload = tweets_for(subscriptions, DENSITY, seed)
    pq.write_table(pa.Table.from_batches([workload.subscriptions(0, subscriptions)]), file)
    with LocalEngine(Contract(executors=EXECUTORS), checkpoint=str(checkpoint)) as engine:
        engine.load(str(file))
    return checkpoint


def _measure_cell(
    cell: Cell, home: Path, sizes: LatencySizes, seed: int, spark: Any, broker: Broker | None
) -> dict[str, Any]:
    sink, span_s = TimedSink(home / "matches"), sizes.warm_s + sizes.measured_s
    (home / "events").mkdir()
    pacing = Pacing(cell.rate, span_s, seed, folder=str(home / "events"))
    if broker is not None and cell.source == KAFKA:
        topic = f"{home.name}-events"
        broker.create_topic(topic, partitions=2)
        pacing = Pacing(cell.rate, span_s, seed, bootstrap=broker.bootstrap, topic=topic)
    else:  # a source of Parquet files has the columns of the first one
        pq.write_table(EVENT.empty_table(), home / "events" / "-first.parquet")
    with _running(cell, home, pacing, sink, spark) as (engine, run):
        # Slowly at first: what a cold engine leaves undone would have to be caught up with.
        first = replace(pacing, rate=FIRST_RATE, seconds=FIRST_S, prefix="-")
        _produce(first)
        _caught_up(lambda: _events_in(home) >= first.events or not run.is_active, FIRST_S_MAX)
        paced, wanted = _produce(pacing), first.events + pacing.events
        is_done = _caught_up(lambda: _events_in(home) >= wanted or not run.is_active, sizes.catch_up_s)
        if not run.is_active:
            run.wait()  # raises what ended it
        engine.close()
    every = Delays.of(sink, paced.began_s)
    seen = every.between(sizes.warm_s, span_s)
    taken = [entry for entry in batches(home / "checkpoint") if entry.events_in]
    growth, keeps_up = (seen.growth(), is_done) if len(seen.made_s) else (float("inf"), False)
    keeps_up = keeps_up and growth < sizes.growth_max
    p50_s, p99_s = np.quantile(seen.delay_s, (0.5, 0.99)) if keeps_up else (None, None)
    return {
        "runner": cell.runner,
        "source": cell.source,
        "events_per_s": cell.rate,
        "p50_s": p50_s,
        "p99_s": p99_s,
        "growth_s_per_s": round(growth, 3),
        "done_per_s": _done_per_s(taken, sink, paced.began_s + sizes.warm_s, paced.began_s + span_s),
        "batch_s": float(np.median([entry.batch_s for entry in taken])) if taken else None,
        "batch_events": int(np.median([entry.events_in for entry in taken])) if taken else None,
        "matches": len(seen.made_s),
        "producer_late_s": paced.late_s,
    }


def _done_per_s(taken: Sequence[BatchEntry], sink: TimedSink, first_s: float, last_s: float) -> float | None:
    """Events per second, from the first batch in place to the last one while events came; None if only one was."""
    placed = [(sink.placed_s[entry.batch], entry.events_in) for entry in taken if entry.batch in sink.placed_s]
    placed = [(at_s, events) for at_s, events in placed if first_s <= at_s < last_s]
    if len(placed) < 2:
        return None
    return sum(events for _, events in placed[1:]) / (placed[-1][0] - placed[0][0])


def _produce(pacing: Pacing) -> Paced:
    producer = Producer(pacing)
    try:
        return producer.wait()
    except BaseException:
        producer.stop()
        raise


@contextmanager
def _running(cell: Cell, home: Path, pacing: Pacing, sink: Sink, spark: Any) -> Iterator[tuple[BaseEngine, Run]]:
    contract, state, folder = Contract(executors=EXECUTORS), str(home / "checkpoint"), str(home / "events")
    if cell.runner == LOCAL:
        with LocalEngine(contract, checkpoint=state) as in_process:
            yield in_process, in_process.start(events=local.events_from_files(folder), sink=sink)
        return
    if pacing.topic:
        events = sources.events_from_kafka(spark, pacing.bootstrap, pacing.topic)
    else:
        events = sources.events_from_files(spark, folder, format="parquet")
    with Engine(spark, contract, checkpoint=state) as on_spark:
        yield on_spark, on_spark.start(events=events, sink=sink)


def _events_in(home: Path) -> int:
    return sum(entry.events_in for entry in batches(home / "checkpoint"))


def _caught_up(is_done: Callable[[], bool], most_s: float) -> bool:
    gives_up_s = time.monotonic() + most_s
    while not is_done():
        if time.monotonic() > gives_up_s:
            return False
        time.sleep(POLL_S)
    return True


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    kinds = list(dict.fromkeys((row["runner"], row["source"]) for row in result.rows))
    for color, (runner, source) in zip(PALETTE, kinds, strict=False):
        shown = [r for r in result.rows if (r["runner"], r["source"]) == (runner, source) and r["p99_s"] is not None]
        shown.sort(key=lambda row: row["events_per_s"])
        for key, line in (("p99_s", "-"), ("p50_s", ":")):
            label = f"{runner}, {source}, {key.removesuffix('_s')}"
            axes.plot([r["events_per_s"] for r in shown], [r[key] for r in shown], line, color=color, label=label)
    axes.set(xscale="log", yscale="log", xlabel="events per second", ylabel="seconds from making to match")
    axes.set_title("From an event to its match in the sink")
    axes.legend()
    return drawn
