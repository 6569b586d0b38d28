"""The workload of `workload/tweets.py` as a Spark stream, replayed exactly from its offsets.

An offset is the id of the next post, and a row depends on its id alone, so a batch that runs again after a
crash holds the same rows, whatever its partitions. Subscriptions are not streamed from here.

    spark.dataSource.register(TweetsSource)
    posts = spark.readStream.format("geoswarm-tweets").options(country="US", rows_per_batch=500_000).load()

Options are the fields of `Tweets` (bounds as "xmin,ymin,xmax,ymax") and those of `Pace`.
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
from pyspark.sql.types import DoubleType, LongType, StructField, StructType, TimestampType

from geoswarm.errors import SettingsError
from geoswarm.workload.tweets import ID_MAX, Tweets

NAME = "geoswarm-tweets"

READ_ROWS = 65_536
"""Rows per Arrow batch: 2 MB, which stays in the processor's cache on its way to the socket."""

SCHEMA = StructType(
    [
        StructField("event_id", LongType(), nullable=False),
        StructField("ts", TimestampType(), nullable=False),
        StructField("x", DoubleType(), nullable=False),
        StructField("y", DoubleType(), nullable=False),
    ]
)


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
                raise SettingsError(f"{key} of {NAME} is {value}: give {least} or more")


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
    spark.dataSource.register(TweetsSource)
    pace = Pace(rows_per_batch, rows_total, partitions, paced)
    return spark.readStream.format(NAME).options(**to_options(workload, pace)).load()


def to_options(workload: Tweets, pace: Pace) -> dict[str, str]:
    values = dataclasses.asdict(workload) | dataclasses.asdict(pace)
    values["bounds"] = ",".join(repr(v) for v in workload.bounds)
    return {key: str(value) for key, value in values.items() if value is not None}


def from_options(options: Mapping[str, str]) -> tuple[Tweets, Pace]:
    """Spark hands options over as text, and their names in lower case."""
    unknown = sorted(set(options) - set(_PARSERS))
    if unknown:
        raise SettingsError(f"{NAME} has no option {', '.join(unknown)}: it has {', '.join(sorted(_PARSERS))}")
    values: dict[str, Any] = {}
    for key, text in options.items():
        try:
            values[key] = _PARSERS[key](text)
        except (ValueError, KeyError) as wrong:
            raise SettingsError(f"option {key} of {NAME} is {text!r}, which cannot be read ({wrong})") from wrong
    pace_keys = {f.name for f in dataclasses.fields(Pace)}
    return (
        Tweets(**{k: v for k, v in values.items() if k not in pace_keys}),
        Pace(**{k: v for k, v in values.items() if k in pace_keys}),
    )


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
    "rows_per_batch": int,
    "rows_total": int,
    "partitions": int,
    "paced": lambda text: {"true": True, "false": False}[text.lower()],
}


class TweetsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "TweetsReader":  # noqa: N802 - Spark's name
        return TweetsReader(*from_options(self.options))


@dataclass
class IdRange(InputPartition):
    first_id: int
    count: int


class TweetsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process beside the driver while the query runs; `read` runs in the workers."""

    def __init__(self, workload: Tweets, pace: Pace, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.workload = workload
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
            raise SettingsError(f"availableNow never ends on {NAME} without rows_total: set that option")

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        next_id = start["next_id"]
        end_id = min(self._available(next_id), self.rows_total)
        if isinstance(limit, ReadMaxRows):
            end_id = min(end_id, next_id + limit.max_rows)
        elif isinstance(limit, ReadAllAvailable) and end_id == ID_MAX:
            raise SettingsError(f"reading all of {NAME} at once never ends: set rows_total, or another trigger")
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
