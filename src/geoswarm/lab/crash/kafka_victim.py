"""The engine from topic to topic, in a process of its own, made to be killed and started again.

    python -m geoswarm.lab.crash.kafka_victim WORLD --master 'local[2]'

WORLD holds `kafka.json`: the address of the broker, and what Spark's session needs for Kafka. The process ends when it
has done all messages that were there at its start. `lab/bench/engine/recovery_kafka.py` measures it, through `kill.py`.
"""

import argparse
import json
from pathlib import Path

from geoswarm.config import Tuning
from geoswarm.lab.crash import scenario
from geoswarm.lab.crash.processes import show_stacks_when_asked
from geoswarm.run.sinks import Kafka
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session
from geoswarm.run.spark.sources import events_from_kafka, operations_from_kafka

SETTINGS = "kafka.json"
EVENTS, OPERATIONS, MATCHES = "events", "operations", "matches"
EVENTS_PER_BATCH = 300


def process(world: Path, master: str, tuning: Tuning, *, name: str) -> None:
    given = json.loads((world / SETTINGS).read_text())
    bootstrap, checkpoint = given["bootstrap"], world / name / "checkpoint"
    spark = build_session(master, "geoswarm-victim", conf=given["conf"])
    with Engine(spark, scenario.CONTRACT, tuning, checkpoint=str(checkpoint)) as engine:
        limit = {"maxOffsetsPerTrigger": str(EVENTS_PER_BATCH)}
        engine.start(
            events=events_from_kafka(spark, bootstrap, EVENTS, options=limit),
            operations=operations_from_kafka(spark, bootstrap, OPERATIONS),
            sink=Kafka(bootstrap, MATCHES),
            available_now=True,
        ).wait()


def main() -> None:
    show_stacks_when_asked()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("world", type=Path)
    parser.add_argument("--name", default="run")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--strategy", default=scenario.TUNING.strategy)
    given = parser.parse_args()
    tuning = scenario.TUNING.model_copy(update={"strategy": given.strategy})
    process(given.world, given.master, tuning, name=given.name)


if __name__ == "__main__":
    main()
