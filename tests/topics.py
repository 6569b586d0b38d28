"""Reads whole topics, for tests of what was sent."""

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from geoswarm.lab.crash.broker import Broker


def messages_of(broker: Broker, topic: str, partitions: int) -> list[Any]:
    """All messages of a topic."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "t", "enable.auto.commit": False}
    consumer = Consumer(settings)
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    wanted = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    consumer.assign(places)
    found: list[Any] = []
    while len(found) < wanted:
        found += consumer.consume(wanted - len(found), timeout=10)
    consumer.close()
    return found
