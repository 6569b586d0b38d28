"""A generated workload as a Spark stream, replayed exactly from its offsets.

An offset is the id of the next post, and a row depends on its id alone, so a batch that runs again after a crash holds
the same rows, whatever its partitions. Subscriptions are not streamed from here. The workloads are in the lab
(`lab/workload/tweets.py` and `lab/workload/posts.py`), above this room: `StreamedWorkload` declares what is needed of
them.

    spark.dataSource.register(source_of(Tweets))
    tweets = spark.readStream.format("geoswarm-tweets").options(country="US", rows_per_batch=500_000).load()

Options are the fields of the workload (bounds as "xmin,ymin,xmax,ymax") and those of `Pace`.
"""

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from geoswarm.errors import SettingsError
from geoswarm.parameters import parameters_of, remedy_for
from geoswarm.run.generated import Offering, Pace, Workload, id_ranges, read_range
from geoswarm.run.spark.daemon import until_hung_up


class StreamedWorkload(Workload, Protocol):
    """A dataclass whose fields are numbers, text and `bounds`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    stream_name: ClassVar[str]
    """The name of the Spark data source."""
    event_schema: ClassVar[pa.Schema]

    @property
    def bounds(self) -> tuple[float, float, float, float]: ...


W = TypeVar("W", bound=StreamedWorkload)


def tweets_stream(
    spark: SparkSession,
    workload: StreamedWorkload,
    *,
    rows_per_batch: int,
    rows_total: int | None = None,
    partitions: int = 2,
    paced: bool = False,
) -> DataFrame:
    """The posts of `workload` as a streaming DataFrame (event_id, ts, x, y)."""
    return workload_stream(spark, workload, Pace(rows_per_batch, rows_total, partitions, paced))


def posts_stream(
    spark: SparkSession,
    workload: StreamedWorkload,
    *,
    rows_per_batch: int,
    rows_total: int | None = None,
    partitions: int = 2,
    paced: bool = False,
) -> DataFrame:
    """The same with their text (event_id, ts, x, y, text)."""
    return workload_stream(spark, workload, Pace(rows_per_batch, rows_total, partitions, paced))


def workload_stream(spark: SparkSession, workload: StreamedWorkload, pace: Pace) -> DataFrame:
    """The events of a workload as a streaming DataFrame."""
    spark.dataSource.register(source_of(type(workload)))
    return spark.readStream.format(workload.stream_name).options(**to_options(workload, pace)).load()


def to_options(workload: StreamedWorkload, pace: Pace) -> dict[str, str]:
    values = {p.name: getattr(workload, p.name) for p in parameters_of(type(workload))} | dataclasses.asdict(pace)
    values["bounds"] = ",".join(repr(v) for v in workload.bounds)
    return {key: str(value) for key, value in values.items() if value is not None}


def from_options(options: Mapping[str, str], kind: type[W]) -> tuple[W, Pace]:
    """Parse Spark's options, which are text, with names in lower case."""
    known = {p.name.lower(): p for p in (*parameters_of(kind), *parameters_of(Pace))}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise SettingsError(f"{kind.stream_name} has no option {', '.join(unknown)}: it has {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for key, text in options.items():
        try:
            values[known[key].name] = _bounds(text) if key == "bounds" else _parse(known[key].annotation, text)
        except ValueError as wrong:
            raise SettingsError(
                f"option {key} of {kind.stream_name} is {text!r}, which cannot be read ({wrong})"
            ) from wrong
    pace_keys = {parameter.name for parameter in parameters_of(Pace)}
    return (
        kind(**{k: v for k, v in values.items() if k not in pace_keys}),
        Pace(**{k: v for k, v in values.items() if k in pace_keys}),
    )


def _parse(annotation: Any, text: str) -> Any:
    try:
        return TypeAdapter(annotation).validate_strings(text)
    except ValidationError as why:
        raise ValueError(remedy_for(why.errors()[0])) from None


def _bounds(text: str) -> tuple[float, ...]:
    values = tuple(float(v) for v in text.split(","))
    if len(values) != 4:
        raise ValueError("expected xmin,ymin,xmax,ymax")
    return values


PLANNERS = ("pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read")
"""Programs of the processes that plan a source. Spark does not start them by our daemon, and keeps them for a while."""


def _let_planners_end_quietly() -> None:
    """In such a process: when the JVM hangs up, end as our own workers do (`daemon.py`), without a traceback."""
    for name in PLANNERS:
        planner: Any = sys.modules.get(name)
        if planner is not None and planner.main.__module__ == name:
            planner.main = until_hung_up(planner.main)  # looked up anew for each call


class WorkloadSource(DataSource):
    kind: type[StreamedWorkload]

    @classmethod
    def name(cls) -> str:
        return cls.kind.stream_name

    def schema(self) -> StructType:
        _let_planners_end_quietly()
        return from_arrow_schema(self.kind.event_schema)

    def streamReader(self, schema: StructType) -> "WorkloadReader":  # noqa: N802 - Spark's name
        _let_planners_end_quietly()
        return WorkloadReader(*from_options(self.options, self.kind))


def source_of(kind: type[StreamedWorkload]) -> type[WorkloadSource]:
    """The data source of one kind of workload."""
    return type(f"{kind.__name__}Source", (WorkloadSource,), {"kind": kind})


@dataclass
class IdRange(InputPartition):
    first_id: int
    count: int


class WorkloadReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process beside the driver while the query runs; `read` runs in the workers."""

    def __init__(self, workload: StreamedWorkload, pace: Pace, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.workload, self.name = workload, workload.stream_name
        self.pace = pace
        self._offering = Offering(workload, pace, clock_s)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next_id": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.pace.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self.pace.rows_total is None:
            raise SettingsError(f"availableNow never ends on {self.name} without rows_total: set that option")

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        next_id = start["next_id"]
        end_id = self._offering.end_id(next_id)
        if isinstance(limit, ReadMaxRows):
            end_id = min(end_id, next_id + limit.max_rows)
        elif isinstance(limit, ReadAllAvailable) and end_id == self.workload.id_max:
            raise SettingsError(f"reading all of {self.name} at once never ends: set rows_total, or another trigger")
        return {"next_id": max(end_id, next_id)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[IdRange]:
        count = end["next_id"] - start["next_id"]
        return [IdRange(*piece) for piece in id_ranges(start["next_id"], count, self.pace.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdRange)
        yield from read_range(self.workload, partition.first_id, partition.count)

    def stop(self) -> None:
        """Spark calls this where the process ends. If that is because the JVM has hung up, there is nobody to report it
        to: the process would fail at that, and print a traceback."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)
