"""Events and operations in from Kafka, matches out to Kafka, with a SIGKILL in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer

import geoswarm
from geoswarm.lab.crash.broker import Broker
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.store import dead_files
from geoswarm.store.storage import Storage
from worlds import BOUNDS, events, operations

PHASE_S_MAX = 120.0
SCRIPT = Path(__file__).with_name("engine_on_kafka.py")
Match = tuple[int, int, int]  # event, subscription, version


@contextmanager
def engine(broker: Broker, checkpoint: Path, conf: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own, in a process group of its own; killed with its JVM at the end, if not before."""
    path = os.pathsep.join([str(Path(geoswarm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with (checkpoint.parent / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), broker.bootstrap, str(checkpoint), json.dumps(conf)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def produce(broker: Broker, topic: str, rows: Sequence[dict[str, Any] | str], key: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for row in rows:
        text = row if isinstance(row, str) else json.dumps({k: v for k, v in row.items() if v is not None})
        producer.produce(topic, text.encode(), key=str(row[key]) if isinstance(row, dict) else "bad")
    assert producer.flush(30) == 0


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name in ("ts", "expires"):
            if row.get(name) is not None:
                row[name] = row[name].isoformat()
    return rows


def drain(
    consumer: Consumer, into: list[Match], wanted: set[tuple[int, int]], process: Any, *, part: float = 1.0
) -> None:
    """Read until `part` of the wanted pairs have come."""
    give_up_s = time.monotonic() + PHASE_S_MAX
    while len({pair[:2] for pair in into} & wanted) < part * len(wanted):
        assert process.poll() is None, "the driver ended by itself"
        assert time.monotonic() < give_up_s, f"{len(into)} matches of {len(wanted)} came"
        message = consumer.poll(1.0)
        if message is None:
            continue
        row = json.loads(message.value() or b"{}")
        assert row["text"] == f"post {row['event_id']}"
        into.extend((row["event_id"], sub, row["version"]) for sub in row["sub_ids"])


@pytest.mark.cluster
def test_matches_reach_kafka_across_a_kill(broker: Broker, connector_conf: dict[str, str], tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    for topic, partitions in (("events", 2), ("operations", 2), ("matches", 2)):
        broker.create_topic(topic, partitions=partitions)
    oracle, want, checkpoint = Oracle(BOUNDS), [], tmp_path / "state"
    far_future_us = 4_000_000_000_000_000
    phases = []
    for phase in range(2):
        storm = operations(rng, 120, ids=80, now_us=far_future_us)
        batch = pa.table(events(rng, 250, first_id=1000 * phase))
        batch = batch.append_column("text", pa.array([f"post {i}" for i in batch["event_id"].to_pylist()]))
        oracle.operate(storm, 0)
        want.append(oracle.match(batch, 0))
        phases.append((rows_of(storm), rows_of(batch)))
    assert min(len(pairs) for pairs in want) > 250
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["matches"])
    got: list[Match] = []
    produce(broker, "operations", phases[0][0], "sub_id")
    produce(broker, "events", [*phases[0][1], "{broken"], "event_id")
    with engine(broker, checkpoint, connector_conf) as process:
        drain(consumer, got, want[0], process, part=0.3)
    with engine(broker, checkpoint, connector_conf) as process:
        drain(consumer, got, want[0], process)
        produce(broker, "operations", phases[1][0], "sub_id")
        time.sleep(2)  # operations and events travel by different topics: let the first arrive first
        produce(broker, "events", phases[1][1], "event_id")
        drain(consumer, got, want[0] | want[1], process)
    consumer.close()
    # Kafka is not transactional: a batch cut short by the kill comes again, under the same key.
    assert {match[:2] for match in got} == want[0] | want[1]
    assert len(set(got)) == len(want[0] | want[1])
    letters = pa.concat_tables(dead_files.read(Storage(str(checkpoint)))).to_pylist()
    assert [letter["row"] for letter in letters if letter["kind"] == "event"] == ["{broken"]
