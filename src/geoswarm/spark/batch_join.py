"""The batch door: a table of points and a file of regions in, which point lies in which region out. One Spark job.

    pairs = join(points, "districts.geojson", x="lon", y="lat")

The same route, exchange and matcher as the stream's, on one batch: the points are counted by cell first, and the map is
cut into shares of equal work (`control/balance/per_batch.py`), so that a crowded city is no straggler. Distributor §4.
"""

import atexit
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geoswarm.config import Contract, Tuning
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import first_plan, strategy
from geoswarm.errors import SchemaError
from geoswarm.shapes.files import read_regions
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan
from geoswarm.spark import match, route, schemas
from geoswarm.spark.count import events_of_cell
from geoswarm.spark.pipeline import ARROW
from geoswarm.spark.tasks import BatchTask
from geoswarm.state.checkpoint import Checkpoint

STRATEGY = "per-batch-weighed"
REGION = "region"


def join(
    points: DataFrame,
    regions: str | pa.Table,
    *,
    x: str = "x",
    y: str = "y",
    region_id: str | None = None,
    contract: Contract | None = None,
    folder: str | None = None,
) -> DataFrame:
    """Every row of `points` beside each region that has it, in the new column `region`: the region's id, as it is in
    the file. `regions` is a GeoParquet or GeoJSON file, or a table with `geometry` and ids (`region_id` names the
    column). Rows without a place, or with one outside `contract.bounds`, meet nothing. `folder` is where the index
    goes, until Python ends: workers on other machines must reach it."""
    joined = Joined(points, regions, x=x, y=y, region_id=region_id, contract=contract, folder=folder)
    atexit.register(joined.close)
    return joined.pairs


class Joined:
    """The pairs, and the index that they are found with, which is there until it is closed."""

    def __init__(
        self,
        points: DataFrame,
        regions: str | pa.Table,
        *,
        x: str = "x",
        y: str = "y",
        region_id: str | None = None,
        contract: Contract | None = None,
        folder: str | None = None,
    ) -> None:
        clash = sorted({REGION, *schemas.RESERVED} & set(points.columns))
        missing = [name for name in (x, y) if name not in points.columns]
        if clash or missing:
            said = f"no columns {', '.join(missing)}" if missing else f"columns {', '.join(clash)}, made here as well"
            raise SchemaError(f"points have {said}, of {', '.join(points.columns)}: rename some, or give x and y")
        contract = contract or Contract(executors=2 * points.sparkSession.sparkContext.defaultParallelism)
        tuning = Tuning(strategy=STRATEGY, matches="pairs")
        self._home = tempfile.mkdtemp(prefix="geoswarm-join-", dir=folder)
        try:
            checkpoint = Checkpoint(self._home, contract, tuning, _draw)
            names = _take_in(checkpoint, regions, region_id)
            self.regions = len(names) if names is not None else 0
            self.refused = self.regions - checkpoint.manifest.subs
            found = _matched(_as_events(points, x, y), checkpoint, contract, tuning)
            checkpoint.close()
        except BaseException:
            self.close()
            raise
        self.pairs = _as_given(found, points, names)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> "Joined":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _draw(grid: Grid, executors: int) -> Plan:
    return first_plan(STRATEGY, None, grid, executors)


def _take_in(checkpoint: Checkpoint, regions: str | pa.Table, region_id: str | None) -> pa.Table | None:
    """The regions become subscriptions. Returns what they are called, if that is not their number."""
    now_us = int(time.time() * 1e6)
    if isinstance(regions, str):
        batches = read_regions(Path(regions), id_name=region_id)
    else:
        file = Path(checkpoint.storage.root) / "regions.parquet"
        pq.write_table(regions, file)
        batches = read_regions(file, id_name=region_id)
    names, taken = list[pa.Table](), 0
    for batch in batches:
        table = pa.table(batch)
        numbers = pa.array(np.arange(taken, taken + len(table)))
        known = table["name"] if "name" in table.schema.names else table["sub_id"]
        names.append(pa.table({"sub_id": numbers, REGION: known}))
        rows = pa.table({"op": np.full(len(table), "register"), "sub_id": numbers, "geometry": table["geometry"]})
        checkpoint.take_in(rows, now_us, {})
        taken += len(table)
    return pa.concat_tables(names, promote_options="permissive") if names else None


def _as_events(points: DataFrame, x: str, y: str) -> DataFrame:
    own = F.struct(*(F.col(f"`{name}`") for name in points.columns)).alias("row")
    place = [F.col(f"`{name}`").cast("double").alias(axis) for name, axis in ((x, "x"), (y, "y"))]
    made = [F.lit(0).cast("bigint").alias("event_id"), F.timestamp_micros(F.lit(0)).alias("ts")]
    return points.select(*made, *place, own)


def _matched(events: DataFrame, checkpoint: Checkpoint, contract: Contract, tuning: Tuning) -> DataFrame:
    for key, value in ARROW.items():
        events.sparkSession.conf.set(key, value)
    control = ControlLoop(strategy(STRATEGY), checkpoint.plan, tuning.round_s, checkpoint)

    def replan() -> Plan:
        control.plan_batch(0, events_of_cell(events, checkpoint.grid))
        return control.plan

    manifest = checkpoint.prepare(0, lambda: [], int(time.time() * 1e6), "", replan)
    task = BatchTask(checkpoint.storage, contract, tuning, 0, manifest, schemas.arrow_schema(events))
    return match.matched(route.packed(events, task), events.schema, task)


def _as_given(found: DataFrame, points: DataFrame, names: pa.Table | None) -> DataFrame:
    own = [F.col(f"row.`{name}`") for name in points.columns]
    if names is None:
        return found.select(*own, F.lit(None).cast("bigint").alias(REGION))
    called = points.sparkSession.createDataFrame(names)
    return found.join(F.broadcast(called), "sub_id").select(*own, REGION)
