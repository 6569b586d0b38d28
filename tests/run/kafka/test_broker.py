"""The test broker is real, keeps to loopback, survives a crash, leaves nothing. `test_kafka.py` has Spark on it."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from geoswarm.errors import MachineError
from geoswarm.lab.crash.broker import Broker

MESSAGES = 1000


def produce(broker: Broker, topic: str, numbers: range) -> None:
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for n in numbers:
        word = str(n).encode()
        producer.produce(topic, word, key=word, on_delivery=lambda e, _: refused.append(e) if e else None)
    assert producer.flush(30) == 0
    assert not refused


def consume(broker: Broker, topic: str, count: int) -> list[int]:
    """The topic until `count` messages came, or 30 s passed without one; then a second more, for surplus."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got: list[int] = []
    try:
        while True:
            message = consumer.poll(30 if len(got) < count else 1)
            if message is None:
                return got
            assert message.error() is None, message.error()
            got.append(int(message.value() or b""))
    finally:
        consumer.close()


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex}"
    broker.create_topic(name, partitions=3)
    return name


@pytest.mark.cluster
def test_a_topic_that_does_not_exist_is_an_error(broker: Broker) -> None:
    # A consumer's look is what would make the topic, if the broker made topics by itself.
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "allow.auto.create.topics": True})
    try:
        seen = consumer.list_topics("nobody-made-me", timeout=10).topics["nobody-made-me"]
        assert seen.error is not None
        assert seen.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert "nobody-made-me" not in consumer.list_topics(timeout=10).topics
    finally:
        consumer.close()


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_the_broker_listens_on_loopback_only(broker: Broker) -> None:
    assert broker.pid is not None
    sockets = {str(f.readlink()) for f in Path(f"/proc/{broker.pid}/fd").iterdir() if f.is_symlink()}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:  # 0A: listening
                listening.append(words[1].split(":")[0])
    assert len(listening) == 2  # broker and controller
    # 127.0.0.1, little end first; Java asks for it as an IPv4 address inside IPv6
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.cluster
def test_messages_outlive_a_killed_broker_and_a_stopped_one_leaves_nothing(kafka_jars: list[Path]) -> None:
    with Broker(kafka_jars) as broker:
        folder, first = broker.folder, broker.pid
        broker.create_topic("t")
        produce(broker, "t", range(100))
        address = broker.bootstrap
        broker.kill()
        assert not Path(f"/proc/{first}").exists()
        broker.start()
        assert broker.bootstrap == address
        last = broker.pid
        assert last not in (None, first)
        assert consume(broker, "t", 100) == list(range(100))
    assert broker.pid is None
    assert not folder.exists()
    assert not Path(f"/proc/{last}").exists()


@pytest.mark.cluster
def test_a_broker_goes_even_if_the_test_fails_and_its_log_is_shown(kafka_jars: list[Path]) -> None:
    broker = Broker(kafka_jars)

    def failing_test() -> None:
        with broker:
            assert broker.pid is None, "a failed assertion"

    with pytest.raises(AssertionError, match="a failed assertion") as failed:
        failing_test()
    assert broker.pid is None
    assert not broker.folder.exists()
    assert "Kafka Server started" in failed.value.__notes__[0]


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"kafka\.tools\.StorageTool"), Broker([tmp_path / "missing.jar"]):
        pass


@pytest.mark.cluster
def test_a_topic_cannot_be_made_twice(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaException, match="already exists"):
        broker.create_topic(topic)
