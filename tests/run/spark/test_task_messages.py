"""Messages that tasks parse are what Spark's own parser makes of them; and rows of a source are computed once."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import geoswarm as gs
from drawn_messages import COLUMNS, DDL, MESSAGES, comparable
from geoswarm.config import Contract, Tuning
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.message_reading import NO_VALUE, VALUE, read_messages
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.spark import sources
from worlds import BOUNDS, events, operations, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def parsed_by_spark(spark: "SparkSession", messages: list[bytes | None]) -> list[dict[str, Any]]:
    frame = spark.createDataFrame([(m,) for m in messages], StructType([StructField(VALUE, BinaryType())]))
    schema = StructType([*StructType.fromDDL(DDL).fields, StructField(MALFORMED, StringType())])  # type: ignore[attr-defined]
    text = F.coalesce(F.col(VALUE).cast("string"), F.lit(NO_VALUE))
    parsed = F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED})
    return comparable(frame.coalesce(1).select(parsed.alias("row")).select("row.*").toArrow().cast(COLUMNS))


def parsed_by_us(messages: list[bytes | None]) -> list[dict[str, Any]]:
    return comparable(pa.Table.from_batches([read_messages(pa.array(messages, pa.binary()), COLUMNS)]))


def is_json(message: bytes | None) -> bool:
    try:
        json.loads(message or b"")
    except ValueError:
        return False
    return True


def drawn_messages(count: int) -> list[bytes | None]:
    """All that Hypothesis draws, for one job of Spark's."""
    found: list[bytes | None] = []

    @settings(max_examples=count)
    @given(MESSAGES)
    def collect(message: bytes | None) -> None:
        found.append(message)

    collect()
    return found


SPARK_ALONE_TAKES = re.compile(rb'"[+-]?([0-9]{1,3}|[0-9]{5,})-|"T?[0-9]+:|"day": "[0-9]+"|"ts": -?[0-9]{13}')
"""Years of other than four digits, times without a day, days as a number, seconds that are too many."""


def test_tasks_parse_messages_as_spark_does(spark: "SparkSession") -> None:
    messages, agreed = drawn_messages(1500), 0
    for message, ours, theirs in zip(messages, parsed_by_us(messages), parsed_by_spark(spark, messages), strict=True):
        if ours[MALFORMED] is None:
            assert ours == theirs, message
            agreed += ours != dict.fromkeys(COLUMNS.names)
        elif theirs[MALFORMED] is None:
            assert SPARK_ALONE_TAKES.search(message or b"") or not is_json(message), f"Spark takes {message!r}"
    assert agreed > 200


def test_tasks_are_stricter_than_spark_in_these_cases(spark: "SparkSession") -> None:
    """The list in `json_values.py`."""
    cases: list[bytes | None] = [
        b"{'event_id': 1}",
        b'{"event_id": 1} {"event_id": 2}',
        b'{"event_id": 1} and more',
        b'{"x": -INF}',
        b'{"ts": "10:30"}',
        b'{"ts": "10000-01-01"}',
        b'{"ts": 99999999999999}',
        b'{"day": "1"}',
        b'{"other": ' + b"[" * 700 + b"]" * 700 + b"}",
    ]
    assert [row[MALFORMED] is None for row in parsed_by_spark(spark, cases)] == [True] * len(cases)
    assert [row[MALFORMED] for row in parsed_by_us(cases)] == cases


def counted(frame: "DataFrame", file: Path) -> "DataFrame":
    """The same rows. A line of the file for each time that some of them are computed says how many."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with file.open("a") as lines:
                lines.write(f"{len(batch)}\n")
            yield batch

    count.__module__ = "__main__"  # so that it travels by value
    return frame.mapInArrow(count, frame.schema)


@pytest.mark.parametrize("operations_from", ["files", "rows"])
def test_the_rows_of_a_source_are_computed_once(spark: "SparkSession", tmp_path: Path, operations_from: str) -> None:
    rng, oracle = np.random.default_rng(4), Oracle(BOUNDS)
    came, asked = pa.table(events(rng, 300, first_id=0)), operations(rng, 80, ids=90, now_us=0)
    oracle.operate(asked, 0)
    want = oracle.match(came, 0)
    write_files(tmp_path / "events", [came])
    write_files(tmp_path / "operations", [asked])
    seen, asked_seen = tmp_path / "seen", tmp_path / "asked-seen"
    rows = counted(sources.events_from_files(spark, str(tmp_path / "events")), seen)
    given_operations = sources.operations_from_files(spark, str(tmp_path / "operations"))
    if operations_from == "rows":
        given_operations = counted(given_operations, asked_seen)
    contract, tuning = Contract(executors=2), Tuning(strategy="static-uniform")  # which draws nothing from a sample
    with gs.Engine(spark, contract, tuning, checkpoint=str(tmp_path / "state"), clock=lambda: 0.0) as engine:
        sink = gs.sinks.Memory()
        engine.start(events=rows, operations=given_operations, sink=sink, available_now=True).wait()
    found = [(row["event_id"], sub) for row in sink.table().to_pylist() for sub in row["sub_ids"]]
    assert sorted(found) == sorted(want)
    assert sum(map(int, seen.read_text().split())) == 300
    assert operations_from == "files" or sum(map(int, asked_seen.read_text().split())) == 80
