"""Kafka without Spark: matches sent by the local engine, messages read by their offsets, brokers that are away."""

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.errors import SettingsError, StreamError
from geoswarm.lab.crash.broker import Broker
from geoswarm.run import kafka_client
from geoswarm.run.json_writing import json_rows
from geoswarm.run.kafka_client import MessageRange, read_ranges
from geoswarm.run.offsets import OffsetLog
from topics import messages_of
from worlds import BOUNDS, events


def start(checkpoint: Path, table: pa.Table, sink: gs.sinks.Kafka) -> None:
    with gs.LocalEngine(Contract(executors=3), checkpoint=str(checkpoint)) as engine:
        engine.subscribe(7, BOUNDS)
        engine.start(events=gs.local.from_tables(table, table), sink=sink, available_now=True).wait()


@pytest.mark.cluster
def test_the_local_engine_sends_each_match_with_its_key_and_the_name_of_its_batch(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("local", partitions=2)
    table = pa.table(events(np.random.default_rng(1), 50, first_id=0))
    table = table.append_column("text", pa.array([f'post "{i}"\n' for i in range(50)]))
    start(tmp_path / "state", table, gs.sinks.Kafka(broker.bootstrap, "local"))
    found = messages_of(broker, "local", 2)
    rows = [json.loads(message.value()) for message in found]
    assert sorted(row["event_id"] for row in rows) == sorted([*range(50), *range(50)])
    assert all(row["sub_ids"] == [7] and row["text"] == f'post "{row["event_id"]}"\n' for row in rows)
    assert [message.key().decode() for message in found] == [str(row["event_id"]) for row in rows]
    headers = [dict(message.headers()) for message in found]
    assert {h["geoswarm-batch"] for h in headers} == {b"0", b"1"}
    assert len({h["geoswarm-checkpoint"] for h in headers}) == 1
    assert [h["geoswarm-version"].decode() for h in headers] == [str(row["version"]) for row in rows]
    assert len({(m.key(), m.partition()) for m in found}) == 50, "messages of one key are in one partition"


@pytest.mark.cluster
def test_messages_are_read_by_their_offsets_also_where_some_are_missing(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("ranges", partitions=2)
    sending = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
    producer = Producer(sending)
    producer.init_transactions()
    for number in range(0, 20, 2):  # each transaction leaves a gap behind its messages
        producer.begin_transaction()
        for partition in range(2):
            for n in (number, number + 1):
                producer.produce("ranges", None if n == 5 else f"{partition}-{n}".encode(), partition=partition)
        producer.commit_transaction()
    for batch, end in enumerate(({"0": 9, "1": 4}, {"0": 30, "1": 12})):
        for name, line in ((f"offsets/{batch}", json.dumps({"ranges": end})), ("sources/1/0", '{"ranges":{"0":1}}')):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"v1\n{{}}\n-\n{line}" if name[0] == "o" else f"\0v1\n{line}")
    log, options = OffsetLog(str(tmp_path)), {"kafka.bootstrap.servers": broker.bootstrap}
    first, second = log.ranges(0, -1), log.ranges(1, -1)
    assert first == [MessageRange("ranges", 0, 1, 9), MessageRange("ranges", 1, 0, 4)]
    assert second == [MessageRange("ranges", 0, 9, 30), MessageRange("ranges", 1, 4, 12)]
    assert read_ranges(options, first).to_pylist() == [
        *(b"0-1", b"0-2", b"0-3", b"0-4", None),
        *(b"1-0", b"1-1", b"1-2"),
    ]
    assert read_ranges(options, second).to_pylist() == [
        *(f"0-{n}".encode() for n in range(6, 20)),
        *(b"1-3", b"1-4", None, b"1-6", b"1-7"),
    ]
    assert log.ranges(2, -1) is None, "a batch that is not in the log"
    with pytest.raises(StreamError, match=r"cannot give the messages of ranges\[0\]"):
        read_ranges(options, [MessageRange("ranges", 0, 1000, 1001)])
    with pytest.raises(SettingsError, match="does not take these settings"):
        read_ranges(options | {"kafka.sasl.jaas.config": "for Java alone"}, first)


@pytest.mark.cluster
def test_messages_that_the_broker_has_lost_are_an_error_and_not_a_gap(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("short")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(3):
        producer.produce("short", str(n))
    assert producer.flush(30) == 0
    monkeypatch.setattr(kafka_client, "SILENCE_S_MAX", 2.0)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    with pytest.raises(StreamError, match=r"no message of short\[0\] up to 5 for 2 s: .* still has these messages"):
        read_ranges(options, [MessageRange("short", 0, 0, 5)])

    def send_the_rest() -> None:
        producer.produce("short", "3")
        producer.produce("short", "4")
        producer.flush(30)

    late = threading.Timer(1.0, send_the_rest)
    late.start()
    assert read_ranges(options, [MessageRange("short", 0, 0, 5)]).to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    late.join()


def test_a_broker_that_is_away_is_an_error_soon(tmp_path: Path) -> None:
    table = pa.table(events(np.random.default_rng(1), 5, first_id=0))
    away = gs.sinks.Kafka("127.0.0.1:1", "matches", {"kafka.delivery.timeout.ms": "300"})
    with pytest.raises(StreamError, match=r"127.0.0.1:1 did not take .* topic matches: .*timed out.* broker runs"):
        start(tmp_path / "state", table, away)


def test_without_the_client_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    table = pa.table(events(np.random.default_rng(1), 5, first_id=0))
    with pytest.raises(SettingsError, match=r"pip install 'geoswarm\[kafka\]'"):
        start(tmp_path / "state", table, gs.sinks.Kafka("127.0.0.1:1", "other", {"kafka.acks": "1"}))


def test_rows_are_json_whatever_they_hold() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {"n": 1, "x": 1.5, "text": 'a "b" \\ \n\x01é', "ids": [1, None], "words": ["a", '"'], "in": {"u": 1}},
            {"n": None, "x": float("nan"), "text": "", "ids": [], "words": None, "in": None},
            {"n": 2**62, "x": float("-inf"), "text": None, "ids": None, "words": [], "in": {"u": None}},
        ]
    )
    for part in (batch, batch.slice(1), batch.slice(2, 0)):
        want = [{k: v for k, v in row.items() if v is not None} for row in part.to_pylist()]
        for row in want:
            row["x"] = {"nan": "NaN", "-inf": "-Infinity"}.get(str(row["x"]), row["x"])
            if row.get("in") == {"u": None}:
                row["in"] = {}
        assert [json.loads(text) for text in json_rows(part).to_pylist()] == want
