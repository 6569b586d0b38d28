"""The steps of the tutorial that need Spark or Kafka. Those before them are in `tests/docs/test_tutorial.py`."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from followed_page import Reader, comparable, sections, steps
from geoswarm.lab.crash.broker import Broker

FOUND = sections(Path(__file__).parents[3] / "docs" / "tutorial.md")
TITLES = list(FOUND)
ADDRESS = "localhost:9092"


def follow(reader: Reader, title: str, *, apart: bool = False) -> None:
    done = reader.follow(FOUND[title], apart=apart)
    assert done
    for step, came in done:
        assert comparable(came) == comparable(step.shown), step.code


def test_the_fleet_on_spark_gives_what_the_tutorial_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    follow(Reader(), TITLES[1])
    for remembered in ("state", "alerts"):  # of the run without Java
        (tmp_path / "fleet" / remembered).mkdir()
    follow(Reader(), TITLES[4])


@pytest.mark.cluster
def test_the_fleet_from_kafka_to_kafka_gives_what_the_tutorial_shows(
    broker: Broker, connector_conf: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader({ADDRESS: broker.bootstrap})
    assert any(ADDRESS in step.code for step in steps(FOUND[TITLES[5]]))
    follow(reader, TITLES[1])
    settings = tmp_path / "fleet" / "kafka.toml"
    settings.write_text(settings.read_text().replace(ADDRESS, broker.bootstrap))
    follow(reader, TITLES[5], apart=True)
