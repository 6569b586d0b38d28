"""A small stream from a file, whose JVM writes the archive of Spark's classes as it ends (`class_archive.py`)."""

import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from geoswarm.model import EVENT
from geoswarm.run.sinks import Memory
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session
from geoswarm.run.spark.sources import events_from_files


def main() -> None:
    spark = build_session("local[2]")
    with tempfile.TemporaryDirectory(prefix="geoswarm-warm-") as folder:
        row = {"event_id": 1, "ts": 0, "x": 1.0, "y": 1.0}
        pq.write_table(pa.Table.from_pylist([row], schema=EVENT), f"{folder}/events.parquet")
        with Engine(spark, checkpoint=f"{folder}/state") as engine:
            engine.subscribe(1, (0.0, 0.0, 2.0, 2.0))
            engine.start(
                events=events_from_files(spark, f"{folder}/*.parquet"), sink=(matches := Memory()), available_now=True
            ).wait()
        assert len(matches.table()) == 1
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends, and writes
    gateway.proc.wait()


if __name__ == "__main__":
    main()
