"""The producer of the benchmark of delays, with a real broker."""

import json
import uuid

import pyarrow as pa
import pytest

from geoswarm.lab.bench.kit import paced
from geoswarm.lab.crash.broker import Broker
from geoswarm.model import EVENT
from geoswarm.run.kafka_client import MessageRange, read_ranges


@pytest.mark.cluster
def test_a_producer_waits_for_a_slow_broker_and_leaves_nothing_unsent(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, count = f"t-{uuid.uuid4().hex}", 2_000
    broker.create_topic(topic)
    monkeypatch.setattr(paced, "UNSENT_MAX", 50)
    times, places = pa.array([0] * count, EVENT.field("ts").type), pa.array([1.5] * count)
    rows = pa.table([pa.array(range(count)), times, places, places], schema=EVENT)
    with paced.into_topic(broker.bootstrap, topic) as send:
        send(rows.slice(0, 1_000), 0)
        send(rows.slice(1_000), 1)
    values = read_ranges({"kafka.bootstrap.servers": broker.bootstrap}, [MessageRange(topic, 0, 0, count)])
    assert [json.loads(value)["event_id"] for value in values.to_pylist()] == list(range(count))
