"""One rival of `bench join`, in a process of its own: geoswarm's own join, and a broadcast STRtree in a UDF.

Started by `join.py`; Sedona is in `join_sedona.py`, because its environment has no geoswarm. Both give the pairs as
(id, region), and what is asked of them is their number and one checksum over all.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import geoswarm as gs
from geoswarm.run.spark.session import build_session

BEGINS = "begins"
"""Said before each join, so that whoever measures knows."""
ANSWER = ("count(*) pairs", "bit_xor(xxhash64(id, region)) checksum")


def by_geoswarm(spark: Any, points: str, regions: str) -> Any:
    return gs.join(spark.read.parquet(points), regions, columns=["id"])


def by_udf(spark: Any, points: str, regions: str) -> Any:
    shared = spark.sparkContext.broadcast(pq.read_table(regions))
    rows = spark.read.parquet(points).select("id", "x", "y")
    return rows.mapInArrow(Udf(regions, shared).run, "id long, region long")


RIVALS: dict[str, Callable[[Any, str, str], Any]] = {"geoswarm": by_geoswarm, "udf": by_udf}


class Forest:
    """The polygons of one join, in a worker: the tree over their rectangles, and each of them prepared."""

    def __init__(self, table: pa.Table) -> None:
        self.ids: npt.NDArray[np.int64] = table["id"].to_numpy()
        self.polygons = shapely.from_wkb(table["geometry"].to_numpy())
        self.tree = shapely.STRtree(self.polygons)
        shapely.prepare(self.polygons)

    def pairs(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`STRtree.query` with a predicate would prepare the points and test them against plain polygons; this way
        round the polygons are the prepared ones, which is several times as fast."""
        x, y = batch["x"].to_numpy(), batch["y"].to_numpy()
        rows, found = self.tree.query(shapely.points(x, y))
        inside = shapely.intersects_xy(self.polygons[found], x[rows], y[rows])
        ids = batch["id"].to_numpy()
        return pa.record_batch({"id": ids[rows[inside]], "region": self.ids[found[inside]]})


_grown: dict[str, Forest] = {}


class Udf:
    """What goes to the workers. The forest is grown once in each, whichever tasks come to it."""

    def __init__(self, name: str, shared: Any) -> None:
        self._name, self._shared = name, shared

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._name not in _grown:
            _grown.clear()
            _grown[self._name] = Forest(self._shared.value)
        for batch in batches:
            yield _grown[self._name].pairs(batch)


def main() -> None:
    asked = json.loads(sys.argv[1])
    join = RIVALS[asked["rival"]]
    spark = build_session(asked["master"], "geoswarm-bench-join", conf=asked["conf"])
    for points, regions in asked["joins"]:
        print(BEGINS, flush=True)
        began_s = time.perf_counter()
        answer = join(spark, points, regions).selectExpr(*ANSWER).first()
        took_s = time.perf_counter() - began_s
        print(json.dumps({"seconds": took_s, **answer.asDict()}), flush=True)


if __name__ == "__main__":
    main()
