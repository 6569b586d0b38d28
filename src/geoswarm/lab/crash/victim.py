"""The engine on a scenario's files, in a process of its own, made to be killed and started again.

    python -m geoswarm.lab.crash.victim WORLD --master 'local[2]' --strategy swarm-measured --round-s 1

WORLD holds `events/` and `operations/` (`scenario.py`); the checkpoint and the output go beside them. The process ends
when all files are done. `lab/bench/engine/recovery.py` and the tests measure it, through `kill.py`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoswarm.config import AggregateSettings, Tuning, WindowSettings
from geoswarm.control.strategy import Sample, Strategy
from geoswarm.lab.crash import scenario
from geoswarm.lab.crash.processes import show_stacks_when_asked
from geoswarm.run import local
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.sinks import Delta, Parquet, Sink

CONF = {"spark.sql.streaming.minBatchesToRetain": "100000"}
"""The oracle reads from the offset log which files each batch held, so the log is kept for all batches."""
CLUSTER_CONF = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Executors live for seconds here: no time is spent on compiling well."""
IN_PROCESS = "in-process"
"""In place of a master: the local engine, which starts no Spark."""
SINKS: dict[str, Callable[[str], Sink]] = {
    "parquet": lambda path: Parquet(path, roll_s=0),
    "rolled": lambda path: Parquet(path, roll_rows=400),
    "delta": Delta,
}
"""How the output is written: a folder for each batch, several batches in one file, or a Delta table."""


ANSWERS = "answers"
"""The folder of the answers, beside that of the output."""
AGGREGATES = AggregateSettings(lateness_s=scenario.STEP_S, ahead_s=1e7)
"""A batch late; the clock of a scenario may be many files behind its events."""


def process(
    world: Path,
    master: str,
    tuning: Tuning,
    *,
    name: str = "run",
    sink: str = "parquet",
    counts: bool = False,
    later_s: float = 0.0,
    sample: Sample | None = None,
    strategy: Strategy | None = None,
) -> None:
    """Process all files of `world` with the engine, into one of the `SINKS`; `counts`: some subscriptions count, and
    their answers go into a Parquet folder. `later_s` moves the clock forward, as a
    late restart does."""
    home = world / name
    checkpoint, target = home / "checkpoint", SINKS[sink](str(home / "output"))
    events, operations = str(world / "events"), str(world / "operations")
    answers = SINKS["parquet"](str(home / ANSWERS)) if counts else None

    def clock() -> float:
        return scenario.now_s(checkpoint) + later_s

    given: dict[str, Any] = {"sample": sample, "strategy": strategy, "clock": clock}
    if master == IN_PROCESS:
        with LocalEngine(scenario.CONTRACT, tuning, checkpoint=str(checkpoint), **given) as engine:
            engine.start(
                events=local.events_from_files(events, files_per_batch=1),
                operations=local.operations_from_files(operations, files_per_batch=1),
                sink=target,
                aggregates=answers,
                available_now=True,
            ).wait()
        return

    from geoswarm.run.spark.engine import Engine  # imported here, since the local engine starts within a second
    from geoswarm.run.spark.session import build_session
    from geoswarm.run.spark.sources import events_from_files, operations_from_files

    spark = build_session(master, "geoswarm-victim", conf=CONF | (CLUSTER_CONF if "cluster" in master else {}))
    with Engine(spark, scenario.CONTRACT, tuning, checkpoint=str(checkpoint), **given) as on_spark:
        on_spark.start(
            events=events_from_files(spark, events, files_per_batch=1),
            operations=operations_from_files(spark, operations, files_per_batch=1),
            sink=target,
            aggregates=answers,
            available_now=True,
        ).wait()


def main() -> None:
    show_stacks_when_asked()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("world", type=Path)
    parser.add_argument("--name", default="run")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--sink", choices=list(SINKS), default="parquet")
    parser.add_argument("--exchange", choices=["packed", "rows"], default="packed")
    parser.add_argument("--matches", choices=["arrays", "pairs", "alerts"], default="arrays")
    parser.add_argument("--strategy", default=scenario.TUNING.strategy)
    parser.add_argument("--round-s", type=float, default=scenario.STEP_S, help="by the scenario's clock")
    parser.add_argument("--keep", help="keep events for queries: '20 min', by the scenario's clock")
    parser.add_argument("--counts", action="store_true", help="some subscriptions count")
    given = parser.parse_args()
    changes = {name: getattr(given, name) for name in ("exchange", "matches", "strategy", "round_s")}
    window = WindowSettings(keep=given.keep) if given.keep else None
    tuning = scenario.TUNING.model_copy(update={**changes, "window": window, "aggregates": AGGREGATES})
    process(given.world, given.master, tuning, name=given.name, sink=given.sink, counts=given.counts)


if __name__ == "__main__":
    main()
