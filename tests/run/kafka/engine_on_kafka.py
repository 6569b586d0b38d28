"""The engine from topic to topic until it is killed; test_kafka.py runs it as a process.

Arguments: the address of the broker, the checkpoint, the session's settings, the sink's options and what the messages
of events are as JSON.
"""

import json
import sys

from geoswarm.config import Contract
from geoswarm.run import sinks
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session


def main(bootstrap: str, checkpoint: str, conf: str, options: str, given: str = "null") -> None:
    spark = build_session("local[2]", "geoswarm-on-kafka", conf=json.loads(conf))
    names = {"event_id": "trip.id", "ts": "at", "x": "lng", "y": "lat", "text": "note"}
    said = json.loads(given) or {"columns": names, "ts_unit": "us"}
    end = said.pop("topics", "")
    asked = {"format": said.get("format")}
    events = sources.events_from_kafka(
        spark, bootstrap, f"events{end}", options={"maxOffsetsPerTrigger": "100"}, **said
    )
    operations = sources.operations_from_kafka(spark, bootstrap, f"operations{end}", **asked)
    engine = Engine(spark, Contract(columns=100, rows=100, executors=4), checkpoint=checkpoint)
    sink = sinks.Kafka(bootstrap, f"matches{end}", json.loads(options))
    engine.start(events=events, operations=operations, sink=sink).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
