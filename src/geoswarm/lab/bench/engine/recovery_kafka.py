"""Seconds from SIGKILL to the next committed batch from Kafka to Kafka, and what was lost or sent again.

The engine (`lab/crash/kafka_victim.py`) reads events and operations from a real broker and sends its matches there. At
a random moment its driver or one of its Python workers is killed; a dead engine is started again from its checkpoint. A
batch that was cut short comes again. Then a message is there twice, but under the same name: event, version, and the
batch and checkpoint in its headers. `recovery.py` has files instead.

    lost        pairs of the oracle's of which no message came
    wrong       pairs that the oracle does not have
    repeated    pairs that came under more than one name: 0, or a reader could not drop what comes again
    sent_again  messages that came again under the same name
"""

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.errors import StreamError
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.crash.broker import BROKER_JARS, Broker
from geoswarm.lab.crash.kafka_victim import EVENTS, EVENTS_PER_BATCH, MATCHES, OPERATIONS, SETTINGS
from geoswarm.lab.crash.kill import KAFKA_PROGRAM, Victim
from geoswarm.lab.crash.scenario import CONTRACT
from geoswarm.run.json_writing import json_rows
from geoswarm.run.kafka_client import import_client
from geoswarm.run.oracle.oracle import brute_force
from geoswarm.run.oracle.outputs import Pair
from geoswarm.run.spark.jars import kafka_conf, resolve

LOCAL = "local[2]"
PARTITIONS = 2
BATCHES_PER_KILL = 12
RUNNING_S = 2.0
"""A kill comes this long or less after a commit."""
SILENCE_S_MAX = 10.0
SUBSCRIPTIONS = 200


@dataclass(frozen=True)
class KafkaKills:
    kills: tuple[str, ...]


SIZES = {
    Scale.SMALL: KafkaKills(("driver", "worker")),
    Scale.FULL: KafkaKills(("driver", "worker", "driver", "driver", "worker") * 4),
}


class Name(NamedTuple):
    """What a message says of itself, by which a reader drops what comes again."""

    version: int
    batch: bytes
    checkpoint: bytes


class _World:
    """The topics, and the pairs that must come of them."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._kafka, self._bootstrap = import_client(), broker.bootstrap
        self._producer = self._kafka.Producer({"bootstrap.servers": broker.bootstrap})
        self._events = 0
        self.pairs: set[Pair] = set()
        for topic in (EVENTS, OPERATIONS, MATCHES):
            broker.create_topic(topic, PARTITIONS)
        corner = self._points(SUBSCRIPTIONS) * 0.8
        self._rects = np.concatenate([corner, corner + self._rng.uniform(1, 8, (SUBSCRIPTIONS, 2))], axis=1)
        sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), self._rects.T, strict=True))
        ids = np.arange(SUBSCRIPTIONS)
        self._send(OPERATIONS, pa.record_batch({"op": ["register"] * SUBSCRIPTIONS, "sub_id": ids, **sides}))

    def extend(self, batches: int) -> None:
        count = batches * EVENTS_PER_BATCH
        points, ids = self._points(count), np.arange(self._events, self._events + count)
        ts = pa.array(ids * 1_000_000).cast(pa.timestamp("us", "UTC"))
        self._send(EVENTS, pa.record_batch({"event_id": ids, "ts": ts, "x": points[:, 0], "y": points[:, 1]}))
        found = brute_force(points[:, 0], points[:, 1], self._rects, np.arange(SUBSCRIPTIONS))
        self.pairs |= {(self._events + row, sub) for row, sub in found}
        self._events += count

    def _points(self, count: int) -> Any:
        xmin, ymin, xmax, ymax = CONTRACT.bounds
        return self._rng.uniform((xmin, ymin), (xmax, ymax), (count, 2))

    def _send(self, topic: str, rows: pa.RecordBatch) -> None:
        for number, value in enumerate(json_rows(rows).to_pylist()):
            self._producer.produce(topic, value, partition=number % PARTITIONS)
        self._producer.flush()

    def came(self) -> dict[Pair, list[Name]]:
        """The pairs in the messages sent so far, each as often as it came."""
        consumer = self._kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": "recovery"})
        places = [self._kafka.TopicPartition(MATCHES, number, 0) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(place, timeout=SILENCE_S_MAX)[1] for place in places)
        consumer.assign(places)
        found: dict[Pair, list[Name]] = {}
        while left:
            messages = consumer.consume(left, timeout=SILENCE_S_MAX)
            if not messages:
                raise StreamError(f"{left} messages of the topic {MATCHES} did not come")
            left -= len(messages)
            for message in messages:
                row, headers = json.loads(message.value()), dict(message.headers())
                name = Name(row["version"], headers["geoswarm-batch"], headers["geoswarm-checkpoint"])
                for sub in row["sub_ids"]:
                    found.setdefault((row["event_id"], sub), []).append(name)
        consumer.close()
        return found


def measure(sizes: KafkaKills, seed: int, report: Progress) -> Result:
    report("starting Kafka")
    rng = np.random.default_rng(seed)
    jars, conf = resolve(BROKER_JARS), kafka_conf(stand_in=True)
    with Broker(jars) as broker, tempfile.TemporaryDirectory(prefix="geoswarm-recovery-") as folder:
        world = _World(broker, seed)
        world.extend(BATCHES_PER_KILL * len(sizes.kills))
        (Path(folder) / SETTINGS).write_text(json.dumps({"bootstrap": broker.bootstrap, "conf": conf}))
        with Victim(Path(folder), LOCAL, program=KAFKA_PROGRAM) as victim:
            victim.start()
            rows = [_kill(victim, kind, world, rng, report) for kind in sizes.kills]
            report("the rest of the stream")
            victim.until_done()
        came = world.came()
    names = [set(of_pair) for of_pair in came.values()]
    summary = {
        "kills": len(rows),
        "lost": len(world.pairs - came.keys()),
        "wrong": len(came.keys() - world.pairs),
        "repeated": sum(len(of_pair) - 1 for of_pair in names),
        "sent_again": sum(map(len, came.values())) - sum(map(len, names)),
        "recovery_s_median": median([row["recovery_s"] for row in rows]),
    }
    return Result(rows, summary, {"pairs": len(world.pairs), "events_per_batch": EVENTS_PER_BATCH})


def _kill(victim: Victim, kind: str, world: _World, rng: np.random.Generator, report: Progress) -> dict[str, Any]:
    before = victim.commits()
    _wait_for_kafka(victim, lambda: victim.commits() > before and victim.is_alive, world)
    time.sleep(rng.uniform(0, RUNNING_S))
    _wait_for_kafka(victim, lambda: victim.kill(kind, rng) > 0, world)
    killed_s, commits, starts = time.monotonic(), victim.commits(), victim.starts
    report(f"killed {kind} after batch {commits - 1}")
    _wait_for_kafka(victim, lambda: victim.commits() > commits, world)
    recovery_s = time.monotonic() - killed_s
    return {"killed": kind, "after_batch": commits - 1, "starts": victim.starts - starts, "recovery_s": recovery_s}


def _wait_for_kafka(victim: Victim, condition: Callable[[], bool], world: _World) -> None:
    """The engine is started again when it dies, and given more events when it has done all."""
    while not victim.until(condition, "the next committed batch"):
        world.extend(BATCHES_PER_KILL)
        victim.start()
