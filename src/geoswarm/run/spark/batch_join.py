"""The batch join: find which point of a table lies in which region of a file, in one Spark job.

    pairs = join(points, "districts.geojson", x="lon", y="lat")

The same index and matcher as the stream's, and no exchange: every worker maps the whole index, so points are matched
where they are read, and only pairs leave. A crowded city is no straggler, because it is spread over the splits of the
input as it came. Where the input is sorted by place it is not, and Spark's own levelling of many splits over few cores
must do. Parquet files are read by the tasks themselves (`table_files.py`). Distributor §4; docs/results.md has what an
exchange would cost.
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.batches import cuts, gather, row_bytes, xy
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.shapes.points import Predicate, check_predicate
from geoswarm.core.space.grid import Grid
from geoswarm.errors import SchemaError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.match import match
from geoswarm.flow.merge import OUTPUT_BYTES_MAX
from geoswarm.flow.validate import validate_events
from geoswarm.model import GEOMETRY
from geoswarm.run.spark.join_index import REGION_COLUMN, build_index, names_of
from geoswarm.run.spark.session import check_encrypted
from geoswarm.run.spark.table_files import map_files
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.key_source import KeySource

PLACE = ("_geoswarm_x", "_geoswarm_y")
"""Columns that carry the place to workers, if the points' own cannot; an area is in the first."""
ROWS_AT_ONCE = 524_288
"""Points that a worker sorts and matches together; with an eighth of them the search takes half as long again."""


def join(
    points: DataFrame,
    regions: str | pa.Table,
    *,
    x: str = "x",
    y: str = "y",
    geometry: str | None = None,
    predicate: Predicate = "intersects",
    columns: Sequence[str] | None = None,
    region_id: str | None = None,
    contract: Contract | None = None,
    folder: str | None = None,
) -> DataFrame:
    """Every row of `points` beside each region that has it, in the new column `region`: the region's id, as it is in
    the file. `regions` is a GeoParquet or GeoJSON file, or a table with `geometry` and ids (`region_id` names the
    column). Rows without a place, or with one outside `contract.bounds`, meet nothing. With `geometry`, the column of
    that name has areas (WKB, WKT, GeoJSON) instead of `x` and `y`; `predicate` is how a region must lie to them.
    `columns` are those of the points that are wanted beside `region`, if not all: the fewer, the faster. `folder` is
    where the index goes, until Python ends: workers on other machines must reach it."""
    joined = JoinedPairs(
        points,
        regions,
        x=x,
        y=y,
        geometry=geometry,
        predicate=predicate,
        columns=columns,
        region_id=region_id,
        contract=contract,
        folder=folder,
    )
    atexit.register(joined.close)
    return joined.pairs


class JoinedPairs:
    """The pairs, and the index that finds them, which exists until it is closed."""

    def __init__(
        self,
        points: DataFrame,
        regions: str | pa.Table,
        *,
        x: str = "x",
        y: str = "y",
        geometry: str | None = None,
        predicate: Predicate = "intersects",
        columns: Sequence[str] | None = None,
        region_id: str | None = None,
        contract: Contract | None = None,
        folder: str | None = None,
    ) -> None:
        check_predicate(predicate)
        place = (x, y) if geometry is None else (geometry,)
        wanted = list(points.columns if columns is None else columns)
        missing = [name for name in (*place, *wanted) if name not in points.columns]
        if missing or REGION_COLUMN in wanted:
            problem = f"no columns {', '.join(missing)}" if missing else f"a column {REGION_COLUMN}, made here as well"
            raise SchemaError(
                f"points have {problem}, of {', '.join(points.columns)}: rename some, or give x and y, or geometry"
            )
        if KeySource.from_environment():
            check_encrypted(points.sparkSession)
        grid, tuning = Grid.of(contract or Contract()), Tuning()
        self._home = tempfile.mkdtemp(prefix="geoswarm-join-", dir=folder)
        try:
            index, names = build_index(self._home, regions, region_id, predicate, grid, tuning)
        except BaseException:
            self.close()
            raise
        self.regions = len(names)
        self.refused = self.regions - index.manifest.subs
        named = LongType() if pa.types.is_integer(names.type) else StringType()
        pairs = StructType([*(points.schema[name] for name in wanted), StructField(REGION_COLUMN, named)])
        matcher = _Matcher(index, grid, tuning, place, len(wanted))
        read = [*wanted, *(name for name in place if name not in wanted)]
        by_tasks = map_files(points, read, matcher.run, pairs) if _are_doubles(points, place) else None
        self.pairs = by_tasks or _columns_to_send(points, place, wanted).mapInArrow(matcher.run, pairs)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> "JoinedPairs":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def rehearse(points: pa.Table, regions: pa.Table, place: tuple[str, ...]) -> int:
    """What the driver and a worker do for a join, in this process and without Spark. Returns the number of pairs."""
    grid, tuning = Grid.of(Contract()), Tuning()
    with tempfile.TemporaryDirectory(prefix="geoswarm-join-") as home:
        index, _ = build_index(home, regions, None, "intersects", grid, tuning)
        batches = points.select([*points.column_names, *place]).rename_columns(
            [*points.column_names, *PLACE[: len(place)]]
        )
        matcher = _Matcher(index, grid, tuning, place, len(points.column_names))
        return sum(len(pairs) for pairs in matcher.run(iter(batches.to_batches())))


def _columns_to_send(points: DataFrame, place: tuple[str, ...], wanted: Sequence[str]) -> DataFrame:
    """The input of workers: the columns of the result, then the place."""
    columns = [F.col(f"`{name}`") for name in wanted]
    if len(place) == 1:
        columns.append(F.col(f"`{place[0]}`").cast("binary").alias(PLACE[0]))
    elif not (_are_doubles(points, place) and all(name in wanted for name in place)):
        columns += [F.col(f"`{name}`").cast("double").alias(axis) for name, axis in zip(place, PLACE, strict=True)]
    return points.select(*columns)


def _are_doubles(points: DataFrame, place: tuple[str, ...]) -> bool:
    return len(place) == 2 and all(isinstance(points.schema[name].dataType, DoubleType) for name in place)


@dataclass(frozen=True)
class _Matcher:
    """Matches a split of the points in a worker."""

    index: StoredBatch
    grid: Grid
    tuning: Tuning
    place: tuple[str, ...]
    own: int
    """Columns of the points that are in the result."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        segments, names = list(self.index.segments().values()), names_of(self.index.storage)
        tuning = self.tuning
        for batch in gather(batches, ROWS_AT_ONCE):
            events = self._in_order(self._areas(batch) if len(self.place) == 1 else self._points(batch))
            batch = batch.select(range(self.own))
            sizes = row_bytes(batch)
            for met in match(
                events,
                segments,
                self.grid,
                self.index.manifest.now_us,
                rows_max=tuning.match_rows_max,
                pairs_max=tuning.match_pairs_max,
            ):
                rows = np.repeat(met.events["event_id"].to_numpy(), np.diff(met.offsets))
                for first, end in cuts(sizes[rows], OUTPUT_BYTES_MAX):
                    own = batch.take(pa.array(rows[first:end]))
                    yield own.append_column(REGION_COLUMN, names.take(pa.array(met.subs[first:end])))

    def _points(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The points within the bounds, numbered by their rows."""
        place = PLACE if PLACE[0] in batch.schema.names else self.place
        x, y = (_numbers(batch[name]) for name in place)
        grid = self.grid
        inside = (x >= grid.xmin) & (x <= grid.xmax) & (y >= grid.ymin) & (y <= grid.ymax)  # false for NaN, too
        rows = np.flatnonzero(inside)
        return pa.record_batch({"event_id": rows, "x": x[rows], "y": y[rows]})

    def _areas(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same for areas; one that cannot be parsed matches nothing."""
        column = batch[PLACE[0]]
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        nowhere = pa.nulls(len(rows), pa.float64())
        times = pa.array(np.zeros(len(rows), "M8[us]")).cast(pa.timestamp("us", "UTC"))
        asked = column.take(pa.array(rows)).cast(pa.binary())  # from large types, if Spark is set to use them
        events = {"event_id": rows, "ts": times, "x": nowhere, "y": nowhere, GEOMETRY.name: asked}
        return validate_events(pa.record_batch(events), self.grid, DeadLetters("event", 0), marks=True)

    def _in_order(self, events: pa.RecordBatch) -> pa.RecordBatch:
        return events.take(pa.array(sort_order(codes_of(*xy(events), frame_of(self.grid)), CODE_MAX)))


def _numbers(column: pa.Array) -> Floats:
    numbers: Floats = column.to_numpy(zero_copy_only=False)  # a null becomes NaN
    return numbers
