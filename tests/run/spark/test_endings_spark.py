"""Subscriptions begin and end on Spark as on the local engine: with tasks of their own, and through a crash."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.model import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = gs.Contract(columns=20, rows=20, executors=3)
TUNING = gs.Tuning(matches="alerts", object_ttl_s=15.0, driver_bytes_max=0)
BOX = (0.0, 0.0, 2.0, 2.0)


def fixes(first: int, *names: str) -> pa.Table:
    """An event inside the box at each second from the first one on, of these objects."""
    at = list(range(first, first + len(names)))
    ones = [1.0] * len(names)
    times = pa.array([1_000_000 * second for second in at]).cast(TIMESTAMP)
    return pa.table({"event_id": at, "ts": times, "x": ones, "y": ones, "object_id": list(names)})


class Dies(gs.sinks.Memory):
    """Fails at batch 1, after it has written it, as if the process had ended there."""

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        if batch_id == 1:
            raise RuntimeError("the process ended")


def test_beginnings_and_endings_on_spark(spark: "SparkSession", tmp_path: Path) -> None:
    state, sink, died = str(tmp_path / "state"), gs.sinks.Memory(), Dies()
    tables = [fixes(0, "van", "bus", "car"), fixes(3, "bus", "bus", "car", "bus"), fixes(7, "bus", "bus")]
    for number, target in ((0, sink), (1, died), (1, sink), (2, sink)):
        worlds.write_files(tmp_path / "events", tables[: number + 1])
        clock = partial(float, 12 * number)
        with gs.Engine(spark, WORLD, TUNING, checkpoint=state, clock=clock) as engine:
            if number == 0:
                engine.subscribe(1, BOX, max_events=5, notify="ended", user="ana")
                engine.subscribe(2, BOX, on="exit", notify="ended")
            elif target is died:
                engine.subscribe(3, BOX, on="exit", notify="initial")
            events = gs.sources.events_from_files(spark, str(tmp_path / "events"))
            run = engine.start(events=events, sink=target, available_now=True)
            if target is died:
                with pytest.raises(Exception, match="the process ended"):
                    run.wait()
            else:
                run.wait()
    names = ("sub_id", "object_id", "event_id", "transition", "ended_reason")
    rows = sorted(zip(*(sink.table()[name].to_pylist() for name in names), strict=True), key=str)
    assert sorted(zip(*(died.batches[1][name].to_pylist() for name in names), strict=True), key=str) == sorted(
        zip(*(sink.batches[1][name].to_pylist() for name in names), strict=True), key=str
    )
    inside = [("van", 0), ("bus", 1), ("car", 2), ("bus", 3), ("bus", 4)]
    want: list[tuple[Any, ...]] = [(1, name, event, "inside", None) for name, event in inside]
    want += [(1, None, None, "ended", "max_events"), (2, "van", None, "ended", "silent")]
    want += [(3, name, None, "initial", None) for name in ("van", "bus", "car")]
    assert rows == sorted(want, key=str)
