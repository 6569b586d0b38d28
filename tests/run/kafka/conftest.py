"""A real broker and Spark's connector as fixtures. They skip where the jars cannot be fetched, only there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from geoswarm.errors import MachineError
from geoswarm.lab.crash.broker import BROKER_JARS, Broker
from geoswarm.run.spark.jars import kafka_conf, resolve


@pytest.fixture(scope="session")
def kafka_jars() -> list[Path]:
    """The broker's."""
    try:
        return resolve(BROKER_JARS)
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def connector_conf() -> dict[str, str]:
    """What a session needs for Kafka; the stand-in serves where a repository lacks the newest Spark."""
    try:
        return kafka_conf(stand_in=True)
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def broker(kafka_jars: list[Path]) -> Iterator[Broker]:
    with Broker(kafka_jars) as running:
        yield running
