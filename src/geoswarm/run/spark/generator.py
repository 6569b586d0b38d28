"""The workloads of `lab/workload/tweets.py` and `lab/workload/posts.py` as Spark streams, replayed exactly from their
offsets.

An offset is the id of the next post, and a row depends on its id alone, so a batch that runs again after a
crash holds the same rows, whatever its partitions. Subscriptions are not streamed from here.

    spark.dataSource.register(TweetsSource)
    tweets = spark.readStream.format("geoswarm-tweets").options(country="US", rows_per_batch=500_000).load()

Options are the fields of `Tweets` or `Posts` (bounds as "xmin,ymin,xmax,ymax") and those of `Pace`.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from geoswarm.errors import SettingsError
from geoswarm.lab.workload.posts import Posts
from geoswarm.lab.workload.tweets import ID_MAX, Tweets

Workload = Tweets | Posts

NAMES: dict[type[Workload], str] = {Tweets: "geoswarm-tweets", Posts: "geoswarm-posts"}

READ_ROWS = 65_536
"""Rows per Arrow batch: 2 MB of tweets, which stay in the processor's cache on their way to the socket."""

SCHEMA = StructType(
    [
        StructField("event_id", LongType(), nullable=False),
        StructField("ts", TimestampType(), nullable=False),
        StructField("x", DoubleType(), nullable=False),
        StructField("y", DoubleType(), nullable=False),
    ]
)
SCHEMAS = {Tweets: SCHEMA, Posts: StructType([*SCHEMA.fields, StructField("text", StringType(), nullable=False)])}


@dataclass(frozen=True)
class Pace:
    """How fast the posts are offered, and how many."""

    rows_per_batch: int = 500_000
    """Most rows admitted to one micro-batch."""
    rows_total: int | None = None
    """The stream ends here; None: never."""
    partitions: int = 2
    """Input partitions, and so tasks, of a micro-batch."""
    paced: bool = False
    """Offer no more than events_per_s × the seconds since this run of the query began."""

    def __post_init__(self) -> None:
        for key, least in (("rows_per_batch", 1), ("rows_total", 0), ("partitions", 1)):
            value = getattr(self, key)
            if value is not None and value < least:
                raise SettingsError(f"{key} of the generator is {value}: give {least} or more")


def tweets_stream(
    spark: SparkSession,
    workload: Tweets,
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
    workload: Posts,
    *,
    rows_per_batch: int,
    rows_total: int | None = None,
    partitions: int = 2,
    paced: bool = False,
) -> DataFrame:
    """The same with what they say (event_id, ts, x, y, text)."""
    return workload_stream(spark, workload, Pace(rows_per_batch, rows_total, partitions, paced))


def workload_stream(spark: SparkSession, workload: Workload, pace: Pace) -> DataFrame:
    """The events of a workload as a streaming DataFrame."""
    spark.dataSource.register(PostsSource if isinstance(workload, Posts) else TweetsSource)
    return spark.readStream.format(NAMES[type(workload)]).options(**to_options(workload, pace)).load()


def to_options(workload: Workload, pace: Pace) -> dict[str, str]:
    values = {key: getattr(workload, key) for key in _parameters(type(workload))} | dataclasses.asdict(pace)
    values["bounds"] = ",".join(repr(v) for v in workload.bounds)
    return {key: str(value) for key, value in values.items() if value is not None}


def from_options(options: Mapping[str, str], kind: type[Workload] = Tweets) -> tuple[Workload, Pace]:
    """Spark hands options over as text, and their names in lower case."""
    pace_keys = {f.name for f in dataclasses.fields(Pace)}
    known = pace_keys | set(_parameters(kind))
    unknown = sorted(set(options) - known)
    if unknown:
        raise SettingsError(f"{NAMES[kind]} has no option {', '.join(unknown)}: it has {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for key, text in options.items():
        try:
            values[key] = _PARSERS[key](text)
        except (ValueError, KeyError) as wrong:
            raise SettingsError(f"option {key} of {NAMES[kind]} is {text!r}, which cannot be read ({wrong})") from wrong
    return (
        kind(**{k: v for k, v in values.items() if k not in pace_keys}),
        Pace(**{k: v for k, v in values.items() if k in pace_keys}),
    )


def _parameters(kind: type[Workload]) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.init]


def _bounds(text: str) -> tuple[float, ...]:
    values = tuple(float(v) for v in text.split(","))
    if len(values) != 4:
        raise ValueError("expected xmin,ymin,xmax,ymax")
    return values


_PARSERS: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "bounds": _bounds,
    "country": str,
    "events_per_s": float,
    "start_s": float,
    "side_share": float,
    "background_share": float,
    "burst_share": float,
    "users": int,
    "words": int,
    "regional_share": float,
    "exponent": float,
    "shift": float,
    "text_only_share": float,
    "space_only_share": float,
    "rows_per_batch": int,
    "rows_total": int,
    "partitions": int,
    "paced": lambda text: {"true": True, "false": False}[text.lower()],
}


class TweetsSource(DataSource):
    kind: type[Workload] = Tweets

    @classmethod
    def name(cls) -> str:
        return NAMES[cls.kind]

    def schema(self) -> StructType:
        return SCHEMAS[self.kind]

    def streamReader(self, schema: StructType) -> "WorkloadReader":  # noqa: N802 - Spark's name
        return WorkloadReader(*from_options(self.options, self.kind))


class PostsSource(TweetsSource):
    kind = Posts


@dataclass
class IdRange(InputPartition):
    first_id: int
    count: int


class WorkloadReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process beside the driver while the query runs; `read` runs in the workers."""

    def __init__(self, workload: Workload, pace: Pace, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.workload, self.name = workload, NAMES[type(workload)]
        self.pace = pace
        self.clock_s = clock_s
        self.rows_total = ID_MAX if pace.rows_total is None else pace.rows_total
        self.began: tuple[float, int] | None = None  # (clock, first id) of this run of the query

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next_id": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.pace.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self.pace.rows_total is None:
            raise SettingsError(f"availableNow never ends on {self.name} without rows_total: set that option")

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        next_id = start["next_id"]
        end_id = min(self._available(next_id), self.rows_total)
        if isinstance(limit, ReadMaxRows):
            end_id = min(end_id, next_id + limit.max_rows)
        elif isinstance(limit, ReadAllAvailable) and end_id == ID_MAX:
            raise SettingsError(f"reading all of {self.name} at once never ends: set rows_total, or another trigger")
        return {"next_id": max(end_id, next_id)}

    def _available(self, next_id: int) -> int:
        if not self.pace.paced:
            return ID_MAX
        now_s = self.clock_s()
        if self.began is None:
            self.began = (now_s, next_id)
        began_s, first_id = self.began
        return first_id + int((now_s - began_s) * self.workload.events_per_s)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[IdRange]:
        first_id, count = start["next_id"], end["next_id"] - start["next_id"]
        pieces = min(self.pace.partitions, count)
        cuts = [first_id + count * i // pieces for i in range(pieces + 1)] if pieces else []
        return [IdRange(a, b - a) for a, b in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdRange)
        end_id = partition.first_id + partition.count
        for first_id in range(partition.first_id, end_id, READ_ROWS):
            yield self.workload.events(first_id, min(READ_ROWS, end_id - first_id))
