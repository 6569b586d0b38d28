"""Kafka without the JVM, through confluent-kafka (`pip install geoswarm[kafka]`): its settings, and messages by offset.

Options are those of Spark's Kafka source and sink: what begins with "kafka." is a setting of the client. Most settings
have the same name for Java's client and for this one (librdkafka); with those that only Java's knows, Spark must do.
`kafka_sending.py` sends.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from geoswarm.errors import SettingsError, StreamError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

PREFIX = "kafka."
SILENCE_S_MAX = 20.0
"""Seconds without any message, after which reading is given up: a broker answers within one."""
MESSAGES_AT_ONCE = 10_000


class MessageRange(NamedTuple):
    """Consecutive messages of a partition of a topic, from one offset up to the one before `end`."""

    topic: str
    partition: int
    first: int
    end: int


def client_settings(options: Mapping[str, str]) -> dict[str, Any]:
    return {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}


def import_client() -> Any:
    """The package; raises SettingsError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as why:
        raise SettingsError(
            "Kafka without Spark needs the package confluent-kafka: pip install 'geoswarm[kafka]'"
        ) from why
    return confluent_kafka


def read_ranges(options: Mapping[str, str], ranges: Sequence[MessageRange]) -> pa.Array:
    """The values of the messages, range after range. Raises SettingsError where the client cannot be used, StreamError
    where messages do not come."""
    kafka = import_client()
    settings = {
        "isolation.level": "read_uncommitted",  # as Java's client has it
        **client_settings(options),
        "group.id": f"geoswarm-{uuid.uuid4()}",  # it joins no group, but must name one
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    try:
        consumer = kafka.Consumer(settings)
    except kafka.KafkaException as why:
        raise SettingsError(f"the Kafka client does not take these settings: {why.args[0].str()}") from why
    try:
        consumer.assign([kafka.TopicPartition(r.topic, r.partition, r.first) for r in ranges])
        found = _consume(consumer, ranges, kafka.KafkaError._PARTITION_EOF)
    finally:
        consumer.close()
    return pa.array([value for values in found.values() for value in values], pa.binary())


def _consume(
    consumer: "Consumer", ranges: Sequence[MessageRange], end_of_partition: int
) -> dict[tuple[str, int], list[bytes | None]]:
    """The values by topic and partition. Offsets need not be all there: transactions and compaction leave gaps, also
    at the end of a range. A partition that ends before the range does has lost messages, or a broker that was just
    started does not show them yet."""
    found: dict[tuple[str, int], list[bytes | None]] = {(r.topic, r.partition): [] for r in ranges}
    missing = {(r.topic, r.partition): r.end for r in ranges}
    heard_s = time.monotonic()
    while missing:
        messages = consumer.consume(MESSAGES_AT_ONCE, timeout=0.1)
        if any(message.error() is None for message in messages):
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > SILENCE_S_MAX:
            ends = ", ".join(f"{topic}[{partition}] up to {end}" for (topic, partition), end in missing.items())
            raise StreamError(
                f"Kafka gave no message of {ends} for {SILENCE_S_MAX:.0f} s: see whether the broker runs, whether its "
                "address is right, and whether it still has these messages"
            )
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            error, offset = message.error(), message.offset() or 0
            if error is not None and error.code() != end_of_partition:
                raise StreamError(f"Kafka cannot give the messages of {place[0]}[{place[1]}]: {error.str()}")
            if place not in missing:
                continue
            if error is None and offset < missing[place]:
                found[place].append(message.value())
            following = offset if error is not None else offset + 1  # the end of a partition has the next offset
            if following >= missing[place]:
                del missing[place]
    return found
