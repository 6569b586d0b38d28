"""Pipelines that take turns: the engine, the same stages without matching, and what the batches of each cost.

`engine/pipeline.py` runs them with places, `engine/text_pipeline.py` with words, too. The null pipeline is what one
would write with plain Spark and the engine's own stages: Spark reads the files, and its rows go to the sink as a
DataFrame. Behind the exchange it hands on every event with one made-up subscription, so that the sink has something to
do. The engine `by_rows` gets and gives such DataFrames, too, as it does with any source and any function of a user's.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.flow.exchange import unpack_parcels
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.lab.bench.kit.batch_log import batches as batches_of
from geoswarm.lab.bench.kit.harness import Progress, median
from geoswarm.lab.bench.kit.process_tree import TICK_S, split_cpu_s
from geoswarm.model import SUB_IDS
from geoswarm.run.offsets import OffsetLog
from geoswarm.run.sinks import Function, Noop, Parquet, Sink
from geoswarm.run.spark.batches import Stream, combine
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import arrow_schema, conform_events
from geoswarm.run.spark.sources import events_from_files
from geoswarm.run.to_matches import exchange
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import BatchEntry

PIPELINE_EXECUTORS = 8
"""Of every pipeline, on any machine, so that figures can be compared."""


@dataclass
class PipelineWorld:
    """A folder of events that grows by links to the same files, and the checkpoint of the streams that read it."""

    root: Path
    subscriptions: int | None
    """None for the null pipeline."""
    density: float = 1.0
    """Matches per event."""
    linked: int = 0
    contract: Contract = field(default_factory=lambda: Contract(executors=PIPELINE_EXECUTORS))

    @property
    def events(self) -> str:
        return str(self.root / "events")

    @property
    def checkpoint(self) -> str:
        return str(self.root / "checkpoint")

    def link(self, files: list[Path]) -> None:
        for file in files:
            os.link(file, self.root / "events" / f"{self.linked:06d}.parquet")
            self.linked += 1


@dataclass(frozen=True)
class TimedBatch:
    events: int
    seconds: float
    """The time from trigger to commit, as Spark reports it: listing, planning, our part, offsets."""
    entry: BatchEntry | None
    """Its entry in our journal; None for the null pipeline."""


class Cpu(NamedTuple):
    """CPU seconds, of the driver too. Unlike the wall clock they do not count what the neighbours do."""

    java_s: float
    python_s: float


class MeteredSink(Sink):
    """A sink that notes the CPU time at the end of the first batch, which does not count. It takes 5 ms, so no batch
    that is timed has it in it."""

    def __init__(self, inner: Sink) -> None:
        self._inner = inner
        self.first_done: Cpu | None = None

    def write(self, matches: Any, batch_id: int) -> None:
        self._inner.write(matches, batch_id)
        if self.first_done is None:
            self.first_done = cpu_now()


def cpu_now() -> Cpu:
    """The CPU time of this process and of all that it started: Java, and the workers that Java started."""
    java_s, python_s = split_cpu_s(os.getpid(), "java")
    return Cpu(java_s, python_s)


@dataclass
class PipelineContestant:
    world: PipelineWorld
    files: list[Path]
    """The files of one batch."""
    tuning: Tuning = field(default_factory=Tuning)
    to_parquet: bool = False
    by_rows: bool = False
    """Whether Spark reads the files and writes the matches, row by row."""
    draw: Callable[[int], Path] | None = None
    """Makes the file with a number, as large as one of `files`; without it, all batches have the same files."""
    measured: list[TimedBatch] = field(default_factory=list)
    cpu: list[Cpu] = field(default_factory=list)
    """The CPU time of each round without its first batch."""

    def round(self, spark: Any, batches: int) -> float:
        """One stream over `batches` batches; the median seconds of all but the first."""
        self.world.link(self._files_of(batches))
        events = events_from_files(spark, self.world.events, format="parquet", files_per_batch=len(self.files))
        if self.by_rows:
            events = events.select("*")  # any DataFrame
        stream = _null_stream if self.world.subscriptions is None else _engine_stream
        sink = MeteredSink(self._sink())
        query = stream(spark, events, self.world, self.tuning, sink)
        assert sink.first_done is not None
        self.cpu.append(Cpu(*(after - before for after, before in zip(cpu_now(), sink.first_done, strict=True))))
        entries = {entry.batch: entry for entry in batches_of(self.world.checkpoint)}
        per_batch = sum(pq.read_metadata(file).num_rows for file in self.files)
        done = [
            TimedBatch(per_batch, p.durationMs["triggerExecution"] / 1e3, entries.get(p.batchId))
            for p in query.recentProgress
            if "addBatch" in p.durationMs  # the others only looked for new files
        ]
        self.measured += done[1:]
        return median([batch.seconds for batch in done[1:]])

    def turn(self, name: str, spark: Any, batches: int, report: Progress) -> Callable[[], float]:
        """A function for `interleave` that runs a round whenever it is called."""

        def run_round() -> float:
            report(name)
            return self.round(spark, batches)

        return run_round

    def cpu_s(self) -> float:
        """That of all rounds; never 0, since what is too short to be counted takes some time all the same."""
        return max(TICK_S, sum(cpu.java_s + cpu.python_s for cpu in self.cpu))

    def forget(self) -> None:
        """Leave out what was measured so far: it was a round to warm up."""
        self.measured.clear()
        self.cpu.clear()

    def _files_of(self, batches: int) -> list[Path]:
        if self.draw is None:
            return self.files * batches
        return [self.draw(self.world.linked + number) for number in range(len(self.files) * batches)]

    def _sink(self) -> Sink:
        if not self.to_parquet:
            return Noop()
        folder = str(self.world.root / f"matches-{self.world.linked}")
        if self.by_rows:
            return Function(lambda frame, batch_id: frame.write.parquet(f"{folder}/batch={batch_id}"))
        return Parquet(folder, roll_s=0)  # as the other one: a folder for each batch


def _engine_stream(spark: Any, events: Any, world: PipelineWorld, tuning: Tuning, sink: Sink) -> Any:
    with Engine(spark, contract=world.contract, tuning=tuning, checkpoint=world.checkpoint) as engine:
        run = engine.start(events=events, sink=sink, aggregates=Noop(), available_now=True)
        run.wait()
    return run.query


def _null_stream(spark: Any, events: Any, world: PipelineWorld, tuning: Tuning, sink: Sink) -> Any:
    checkpoint = Checkpoint(world.checkpoint, world.contract, tuning)
    storage, manifest = checkpoint.storage, checkpoint.manifest
    checkpoint.close()
    conformed = conform_events(events)
    stream = combine(conformed, None)
    source = Stream(OffsetLog(storage.uri("spark")), arrow_schema(conformed), None, None)

    def run_batch(frame: Any, batch_id: int) -> None:
        with source.batch(frame, batch_id) as batch:
            state = StoredBatch(storage, batch_id, manifest)
            task = BatchTask(
                state,
                world.contract,
                tuning,
                batch_id,
                manifest.now_us,
                batch.columns,
                time.thread_time,
                batch.events.name_task,
            )
            handed_on = exchange(batch.events, task).map(_hand_on(task.events), task.events.append(SUB_IDS))
            sink.write(SparkRows(handed_on.native()).add_constant("version", 0), batch_id)

    writer = stream.writeStream.foreachBatch(run_batch).option("checkpointLocation", storage.uri("spark"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _hand_on(events: pa.Schema) -> Body:
    """Unpack; every event goes out with one subscription, the same for all."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for parcel in unpack_parcels(batch, events):
                count = len(parcel.events)
                offsets, ids = np.arange(count + 1, dtype=np.int32), np.zeros(count, np.int64)
                lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=SUB_IDS.type)
                yield parcel.events.append_column(SUB_IDS, lists)

    return run
