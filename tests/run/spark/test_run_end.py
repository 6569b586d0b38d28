"""A run on Spark tells its end whether all went well, here with a query that is made up."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from geoswarm.errors import StreamError
from geoswarm.run.spark.query import SparkRun


def failed() -> StreamingQueryException:
    return StreamingQueryException(message="the source is gone")


def run_of(told: list[bool], **query: Any) -> SparkRun:
    run, made = SparkRun(told.append), SimpleNamespace(lastProgress=None, stop=lambda: None, exception=lambda: None)
    made.status = {"isTriggerActive": False, "isDataAvailable": False}
    vars(made).update(query)
    run.query = made  # type: ignore[assignment]
    return run


def test_a_stream_that_is_done_or_stopped_has_ended_well() -> None:
    told: list[bool] = []
    run = run_of(told, isActive=False, awaitTermination=lambda timeout: True)
    assert run.wait()
    run.stop()
    assert told == [True, True]


def test_a_batch_that_a_stop_cuts_off_is_no_failure() -> None:
    told: list[bool] = []

    def stop() -> None:
        vars(run.query).update(isActive=False, exception=failed)

    run = run_of(told, isActive=True, stop=stop)
    run.stop()
    assert told == [True]


def test_a_stream_that_has_failed_has_not_ended_well_by_being_stopped_later() -> None:
    told: list[bool] = []

    def wait(timeout: Any) -> bool:
        raise failed()

    run = run_of(told, isActive=False, awaitTermination=wait, exception=failed)
    with pytest.raises(StreamError, match="the source is gone"):
        run.wait()
    run.stop()
    assert told == [False, False]
