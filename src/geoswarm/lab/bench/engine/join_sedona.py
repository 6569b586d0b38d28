"""Apache Sedona as a rival of `bench join`, in a process and an environment of its own, which has no geoswarm.

Run as a file by `join.py`. Two ways, of which the benchmark keeps the faster: the polygons broadcast as an index, or
both sides divided by a KDB-tree, as Sedona's documentation of its optimizer describes them.
"""

import importlib
import json
import sys
import time
from typing import Any

ANSWER = "SELECT count(*) pairs, bit_xor(xxhash64(id, region)) checksum FROM ({pairs})"
JOIN = "SELECT {hint} id, region FROM points, regions WHERE ST_Intersects(shape, place)"
PARTITIONS = 32
"""Partitions of a join that is divided: several for each core, so that a crowded city is no straggler."""


def main() -> None:
    asked = json.loads(sys.argv[1])
    context: Any = importlib.import_module("sedona.spark").SedonaContext
    conf = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.sedona.core.serde.SedonaKryoRegistrator",
    }
    builder = context.builder().master(asked["master"]).appName("geoswarm-bench-join")
    for key, value in (conf | asked["conf"]).items():
        builder = builder.config(key, value)
    spark = context.create(builder.getOrCreate())
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("sedona.join.gridtype", "kdbtree")
    spark.conf.set("sedona.join.numpartition", str(PARTITIONS))
    if asked["rival"] == "sedona-divided":
        spark.conf.set("sedona.join.autoBroadcastJoinThreshold", "-1")
    for points, regions in asked["joins"]:
        print("begins", flush=True)  # as `join_rivals.py` prints it
        began_s = time.perf_counter()
        spark.read.parquet(points).selectExpr("id", "ST_Point(x, y) place").createOrReplaceTempView("points")
        polygons = spark.read.parquet(regions).selectExpr("id region", "ST_GeomFromWKB(geometry) shape")
        polygons.createOrReplaceTempView("regions")
        hint = "/*+ BROADCAST(regions) */" if asked["rival"] == "sedona-broadcast" else ""
        answer = spark.sql(ANSWER.format(pairs=JOIN.format(hint=hint))).first()
        took_s = time.perf_counter() - began_s
        print(json.dumps({"seconds": took_s, **answer.asDict()}), flush=True)


if __name__ == "__main__":
    main()
