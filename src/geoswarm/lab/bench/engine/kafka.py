"""Events from Kafka and matches to Kafka: messages parsed and sent by tasks, beside Spark's parser and writer.

A real broker (`lab/crash/broker.py`) and the engine share the machine. Every turn reads the whole topic anew, in a few
batches. What is compared is CPU time, of the driver, the virtual machine and the workers, without the broker.

    bytes_vs_parsed     values that tasks parse, against Spark's from_json; the matches are discarded
    sent_vs_spark       matches into a topic, sent by the tasks, against Spark's writer
    operations_vs_kept  operations beside the events: read from their topic, against searching for them in the rows of
                        the batch, which are kept meanwhile
"""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract
from geoswarm.lab.bench.kit.contest import PIPELINE_EXECUTORS
from geoswarm.lab.bench.kit.density import tweets_for
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, median, ratio
from geoswarm.lab.bench.kit.process_tree import split_cpu_s
from geoswarm.lab.bench.kit.sessions import APP, MASTER
from geoswarm.lab.crash.broker import BROKER_JARS, Broker
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.json_writing import json_rows
from geoswarm.run.kafka_client import import_client
from geoswarm.run.rows import Rows
from geoswarm.run.sinks import KEYS, Kafka, Noop, Sink
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.jars import kafka_conf, resolve
from geoswarm.run.spark.session import build_session
from geoswarm.run.spark.sources import events_from_kafka, operations_from_kafka

EVENTS, OPERATIONS, MATCHES = "events", "operations", "matches"
PARTITIONS = 4
STANDING = "subscriptions.parquet"
BYTES, PARSED, SENT, BY_SPARK = "bytes", "parsed by Spark", "bytes, sent by tasks", "bytes, sent by Spark"
OWN_TOPIC, KEPT = "operations from their topic", "operations from kept rows"


@dataclass(frozen=True)
class KafkaSizes:
    subscriptions: int
    events: int
    batches: int
    operations: int
    """In all batches."""
    rounds: int


SIZES = {
    Scale.SMALL: KafkaSizes(100_000, 400_000, 3, 2_000, 2),
    Scale.FULL: KafkaSizes(1_000_000, 2_000_000, 8, 20_000, 5),
}


class SparkWriter(Kafka):
    def write(self, matches: Rows, batch_id: int) -> None:
        rows: Any = matches
        rows.write_kafka_by_spark(KEYS, self.options, {"geoswarm-batch": str(batch_id)})


class KafkaRun(NamedTuple):
    """One pipeline over the whole topic."""

    parsed_by_spark: bool = False
    sink: Callable[[str], Sink] = lambda bootstrap: Noop()
    operations: str = ""
    """Where they come from, if there are any."""


RUNS = {
    BYTES: KafkaRun(),
    PARSED: KafkaRun(parsed_by_spark=True),
    SENT: KafkaRun(sink=lambda bootstrap: Kafka(bootstrap, MATCHES)),
    BY_SPARK: KafkaRun(sink=lambda bootstrap: SparkWriter(bootstrap, MATCHES)),
    OWN_TOPIC: KafkaRun(operations=OWN_TOPIC),
    KEPT: KafkaRun(operations=KEPT),
}


def measure(sizes: KafkaSizes, seed: int, report: Progress) -> Result:
    report("starting Kafka and Spark")
    jars = resolve(BROKER_JARS)
    spark = build_session(MASTER, APP, conf=kafka_conf(stand_in=True))
    with Broker(jars) as broker, tempfile.TemporaryDirectory() as folder:
        workload = tweets_for(sizes.subscriptions, 1.0, seed)
        report("filling the topics")
        _fill_topic(broker, workload, sizes)
        pq.write_table(pa.table(workload.subscriptions(0, sizes.subscriptions)), Path(folder) / STANDING)
        stage = _Stage(spark, broker, workload, sizes, Path(folder))
        for name in (BYTES, PARSED):
            report(f"{name}: warming up")
            stage.turn(RUNS[name], [])
        batch_s: dict[str, list[float]] = {name: [] for name in RUNS}
        turns = {name: partial(stage.turn, run, batch_s[name]) for name, run in RUNS.items()}
        report("the pipelines in turn")
        cpu_s = interleave(turns, sizes.rounds, np.random.default_rng(seed))
    spark.stop()
    rows = [
        {"pipeline": name, "cpu_us_per_event": 1e6 * median(cpu) / sizes.events, "batch_s": median(batch_s[name])}
        for name, cpu in cpu_s.items()
    ]
    summary = {
        "bytes_vs_parsed": ratio(cpu_s[PARSED], cpu_s[BYTES]),
        "sent_vs_spark": ratio(cpu_s[BY_SPARK], cpu_s[SENT]),
        "operations_vs_kept": ratio(cpu_s[KEPT], cpu_s[OWN_TOPIC]),
        "events_per_s": sizes.events / sizes.batches / median(batch_s[BYTES]),
        "events_per_s_sent": sizes.events / sizes.batches / median(batch_s[SENT]),
    }
    return Result(rows, summary, {"events": sizes.events, "batches": sizes.batches})


class _Stage(NamedTuple):
    """What all turns share."""

    spark: Any
    broker: Broker
    workload: Tweets
    sizes: KafkaSizes
    folder: Path

    def turn(self, run: KafkaRun, batch_s: list[float]) -> float:
        """The CPU seconds of a pipeline over the whole topic; `batch_s` gets the time of a batch, without the first."""
        bootstrap, sizes = self.broker.bootstrap, self.sizes
        cpu_s = self._cpu_s()
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as checkpoint,
            Engine(self.spark, Contract(executors=PIPELINE_EXECUTORS), checkpoint=checkpoint) as engine,
        ):
            engine.load(str(self.folder / STANDING))
            limit = {"maxOffsetsPerTrigger": str(sizes.events // sizes.batches)}
            events = events_from_kafka(self.spark, bootstrap, EVENTS, extra="text string", options=limit)
            given: dict[str, Any] = {"events": events.select("*") if run.parsed_by_spark else events}
            if run.operations:
                limit = {"maxOffsetsPerTrigger": str(sizes.operations // sizes.batches)}
                asked = operations_from_kafka(self.spark, bootstrap, OPERATIONS, options=limit)
                given["operations"] = asked.select("*") if run.operations == KEPT else asked
            started = engine.start(sink=run.sink(bootstrap), available_now=True, **given)
            started.wait()
            query: Any = started.query
            times = [p["durationMs"]["triggerExecution"] / 1e3 for p in query.recentProgress if p["numInputRows"]]
        batch_s.append(median(times[1:] or times))
        return self._cpu_s() - cpu_s

    def _cpu_s(self) -> float:
        assert self.broker.pid is not None
        return sum(split_cpu_s(os.getpid(), "")) - sum(split_cpu_s(self.broker.pid, ""))


def _fill_topic(broker: Broker, workload: Tweets, sizes: KafkaSizes) -> None:
    for topic in (EVENTS, OPERATIONS, MATCHES):
        broker.create_topic(topic, PARTITIONS)
    events = workload.events(0, sizes.events)
    text = pa.array([f"post {n} of a stream of posts" for n in range(len(events))])
    messages = json_rows(events.append_column("text", text)).to_pylist()
    box = {"op": "register", "xmin": 0.0, "ymin": 0.0, "xmax": 0.01, "ymax": 0.01}
    asked = [json.dumps(box | {"sub_id": 10**12 + n}).encode() for n in range(sizes.operations)]
    producer = import_client().Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    for topic, values in ((EVENTS, messages), (OPERATIONS, asked)):
        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
    producer.flush()
