"""What events and operations with transitions must look like, told before the stream starts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from geoswarm.config import Contract
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SchemaError
from geoswarm.model import ENTER, INSIDE
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.schemas import arrow_schema, conform_events, conform_operations
from geoswarm.store.subscriptions import View

EVENT = "0L event_id, current_timestamp() ts, 1.0D x, 2.0D y"


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[Engine]:
    with Engine(spark, Contract(columns=10, rows=10, executors=2), checkpoint=str(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(("value", "kind"), [("'bus 7'", "string"), ("7L", "int64"), ("7S", "int16")])
def test_an_object_has_a_number_or_a_name(spark: SparkSession, value: str, kind: str) -> None:
    events = conform_events(spark.sql(f"select {EVENT}, {value} object_id"))
    assert str(arrow_schema(events).field("object_id").type) == kind


@pytest.mark.parametrize(("value", "kind"), [("7.0D", "double"), ("7.0", "decimal"), ("true", "bool")])
def test_an_object_of_any_other_type_is_an_error_before_the_stream_starts(
    spark: SparkSession, value: str, kind: str
) -> None:
    with pytest.raises(SchemaError, match=f"column object_id of events is {kind}.*wanted is an integer, a string"):
        conform_events(spark.sql(f"select {EVENT}, {value} object_id"))


def test_operations_say_what_they_are_on_or_leave_it_out(spark: SparkSession) -> None:
    plain = conform_operations(spark.sql("select 'cancel' op, 1L sub_id"))
    assert plain.columns == OPERATION.names
    assert plain.first()["on"] is None  # type: ignore[index]
    said = conform_operations(spark.sql("select 'register' op, 1L sub_id, 'enter' `on`"))
    assert said.first()["on"] == "enter"  # type: ignore[index]
    with pytest.raises(SchemaError, match="column on of operations is int, wanted is string"):
        conform_operations(spark.sql("select 'register' op, 1L sub_id, 5 `on`"))


def test_a_subscription_that_can_never_match_is_refused_at_once(engine: Engine) -> None:
    box = (0.0, 0.0, 1.0, 1.0)
    with pytest.raises(InputError, match="subscription 1 is on 'left': send inside, enter, exit, cross or dwell"):
        engine.subscribe(1, box, on="left")
    engine.subscribe(1, box, on="enter")
    engine.subscribe(2, box, on="dwell(2.5)")
    engine.subscribe(3, box)
    held = engine._checkpoint
    rules = View.open(held.storage, held.manifest).follow_rules(np.arange(4), 0)
    assert rules.on.tolist() == [INSIDE, ENTER, 2_500_000, INSIDE]
