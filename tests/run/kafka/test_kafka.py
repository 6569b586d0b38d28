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
def engine(
    broker: Broker, checkpoint: Path, conf: dict[str, str], given: Any = None, **options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of its own, in a process group of its own; killed with its JVM at the end, if not before. `options` are
    those of the sink, `given` what is said of the events."""
    path = os.pathsep.join([str(Path(geoswarm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with (checkpoint.parent / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                broker.bootstrap,
                str(checkpoint),
                json.dumps(conf),
                json.dumps(options),
                json.dumps(given),
            ],
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


def as_a_producer_names_them(table: pa.Table) -> list[dict[str, Any]]:
    """Events as messages of a topic that was not made for geoswarm."""
    times = table["ts"].cast(pa.int64()).to_pylist()
    return [
        {"trip": {"id": row["event_id"], "fare": 3.5}, "at": at, "lng": row["x"], "lat": row["y"], "note": row["text"]}
        for row, at in zip(table.to_pylist(), times, strict=True)
    ]


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
    consumer: Consumer,
    into: list[Match],
    wanted: set[tuple[int, int]],
    process: Any,
    batches: dict[int, set[bytes]],
    *,
    part: float = 1.0,
) -> None:
    """Read until `part` of the wanted pairs have come. `batches` gets the names of the batches of each version."""
    give_up_s = time.monotonic() + PHASE_S_MAX
    while len({pair[:2] for pair in into} & wanted) < part * len(wanted):
        assert process.poll() is None, "the driver ended by itself"
        assert time.monotonic() < give_up_s, f"{len(into)} matches of {len(wanted)} came"
        message = consumer.poll(1.0)
        if message is None:
            continue
        row = json.loads(message.value() or b"{}")
        headers: dict[str, Any] = dict(message.headers() or ())
        assert headers["geoswarm-version"] == str(row["version"]).encode()
        batches.setdefault(row["version"], set()).add(headers["geoswarm-batch"] + headers["geoswarm-checkpoint"])
        assert message.key() == str(row["event_id"]).encode()
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
        phases.append((rows_of(storm), as_a_producer_names_them(batch)))
    assert min(len(pairs) for pairs in want) > 250
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["matches"])
    got: list[Match] = []
    batches: dict[int, set[bytes]] = {}
    produce(broker, "operations", phases[0][0], "sub_id")
    produce(broker, "events", [*phases[0][1], "{broken"], "at")
    with engine(broker, checkpoint, connector_conf) as process:
        drain(consumer, got, want[0], process, batches, part=0.3)
    only_java_knows = {"kafka.max.block.ms": "60000"}
    with engine(broker, checkpoint, connector_conf, **only_java_knows) as process:
        drain(consumer, got, want[0], process, batches)
        produce(broker, "operations", phases[1][0], "sub_id")
        time.sleep(2)  # operations and events travel by different topics: let the first arrive first
        produce(broker, "events", phases[1][1], "at")
        drain(consumer, got, want[0] | want[1], process, batches)
    consumer.close()
    # Kafka is not transactional: a batch cut short by the kill comes again, under the same key.
    assert {match[:2] for match in got} == want[0] | want[1]
    assert len(set(got)) == len(want[0] | want[1])
    assert all(len(names) == 1 for names in batches.values()), "a batch that comes again has the name that it had"
    log = (tmp_path / "driver.log").read_text()
    assert "Spark writes to Kafka" in log, "the second driver has a setting that Java alone knows"
    assert "Spark reads the operations" not in log
    letters = pa.concat_tables(dead_files.read(Storage(str(checkpoint)))).to_pylist()
    assert [letter["row"] for letter in letters if letter["kind"] == "event"] == ["{broken"]


@pytest.mark.cluster
def test_features_without_ids_come_out_with_ids_of_their_places(
    broker: Broker, connector_conf: dict[str, str], tmp_path: Path
) -> None:
    """Messages in GeoJSON, of events and operations; further properties travel, too; the ids are those of partition and
    offset."""
    for topic in ("events", "operations", "matches"):
        broker.create_topic(f"{topic}-of-features", partitions=2)
    xs = np.random.default_rng(2).uniform(-5, 5, 60).tolist()
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [x, 1.0]},
            "properties": {"ts": "2026-01-01T00:00:00Z", "number": n},
        }
        for n, x in enumerate(xs)
    ]
    square = [[[-9.0, -9.0], [9.0, -9.0], [9.0, 9.0], [-9.0, 9.0], [-9.0, -9.0]]]
    region = {"type": "Feature", "id": 1, "geometry": {"type": "Polygon", "coordinates": square}}
    produce(broker, "operations-of-features", [region | {"properties": {"op": "register"}}, "7"], "id")
    produce(broker, "events-of-features", [*features, '{"type": "Feature"}'], "type")
    placed: dict[int, Any] = {}
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "places", "auto.offset.reset": "earliest"})
    reader.subscribe(["events-of-features"])
    give_up_s = time.monotonic() + PHASE_S_MAX
    while len(placed) < 61 and time.monotonic() < give_up_s:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            placed[((message.partition() or 0) << 47) + (message.offset() or 0)] = json.loads(message.value() or b"{}")
    reader.close()
    want = {place: row["properties"]["number"] for place, row in placed.items() if "properties" in row}
    given = {"format": "geojson", "event_id": "made", "extra": "all", "topics": "-of-features"}
    got: dict[int, int] = {}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "found", "auto.offset.reset": "earliest"})
    consumer.subscribe(["matches-of-features"])
    with engine(broker, tmp_path / "state", connector_conf, given) as process:
        while len(got) < 60:
            assert process.poll() is None, "the driver ended by itself"
            assert time.monotonic() < give_up_s, f"{len(got)} matches came"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                row = json.loads(message.value() or b"{}")
                got[row["event_id"]] = json.loads(row["extra"])["number"]
                assert row["x"] == xs[got[row["event_id"]]]
    consumer.close()
    assert got == want
    letters = pa.concat_tables(dead_files.read(Storage(str(tmp_path / "state")))).to_pylist()
    assert ["no message in geojson" in letter["row"] for letter in letters] == [True] * 2
