"""`geoswarm join`: files of points and regions in, a folder of pairs out. `run/spark/batch_join.py` does it."""

import time
from pathlib import Path
from typing import Any, cast

from geoswarm.core.shapes.points import Predicate, check_predicate
from geoswarm.errors import InputError, SettingsError

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def join_files(
    points: Path,
    regions: Path,
    output: Path,
    *,
    x: str,
    y: str,
    geometry: str | None = None,
    predicate: str = "intersects",
    region_id: str | None,
    master: str,
) -> dict[str, Any]:
    began_s = time.perf_counter()
    kind = _format(points)
    if output.exists():
        raise SettingsError(f"{output} exists: name a new folder, or remove it")
    if not regions.is_file():
        raise InputError(f"no file {regions}: name a GeoParquet or GeoJSON file of regions")
    check_predicate(predicate)
    from geoswarm.run.spark.batch_join import JoinedPairs
    from geoswarm.run.spark.session import build_session

    spark = build_session(master, "geoswarm-join")
    reader = spark.read.option("header", True).option("inferSchema", True)
    rows = reader.format(kind).load(str(points))
    asked = cast(Predicate, predicate)
    with JoinedPairs(rows, str(regions), x=x, y=y, geometry=geometry, predicate=asked, region_id=region_id) as joined:
        joined.pairs.write.parquet(str(output))
        pairs = spark.read.parquet(str(output)).count()
        result = {"pairs": pairs, "points": rows.count(), "regions": joined.regions, "refused": joined.refused}
    return result | {"seconds": time.perf_counter() - began_s}


def _format(points: Path) -> str:
    if not points.exists():
        raise InputError(f"there is no {points}: name a file or folder of points")
    files = [points] if points.is_file() else [file for file in points.rglob("*") if file.suffix in FORMATS]
    kinds = {FORMATS.get(file.suffix, "") for file in files}
    if len(kinds) != 1 or "" in kinds:
        raise InputError(f"cannot tell how {points} is to be read: use files of one kind, {', '.join(sorted(FORMATS))}")
    return kinds.pop()
