"""Read a topic with Spark, as a batch and as a stream, and write one; test_broker.py runs it as a process.

A session takes the connector's jars only as it starts, and the other tests share a session without them.
Arguments: the address of the broker, the topic to read, the topic to write, the session's settings as JSON.
"""

import json
import sys
import tempfile

from pyspark.sql import DataFrame

from geoswarm.run.spark.session import build_session


def main(bootstrap: str, source: str, target: str, conf: str) -> None:
    spark = build_session("local[2]", "kafka-round-trip", conf=json.loads(conf))
    where = {"kafka.bootstrap.servers": bootstrap}
    read = {**where, "subscribe": source, "startingOffsets": "earliest"}
    batches: list[list[int]] = []

    def numbers(rows: DataFrame) -> list[int]:
        return [row.n for row in rows.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").collect()]

    def take(rows: DataFrame, _: int) -> None:
        batches.append(numbers(rows))

    try:
        rows = spark.read.format("kafka").options(**read).load()
        at_once = numbers(rows)
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = spark.readStream.format("kafka").options(**read, maxOffsetsPerTrigger="300").load()
            query = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
            query.trigger(availableNow=True).start().awaitTermination()
        rows.selectExpr("key", "value").write.format("kafka").options(**where, topic=target).save()
        print(json.dumps({"batch": at_once, "stream": batches}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
