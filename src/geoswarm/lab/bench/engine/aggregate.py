"""What counting costs: subscriptions with a sliding count beside the same ones that report matches; and one of them
that has a tenth of all matches.

Two streams on `local[2]`, Parquet files in, `noop` out, take turns round by round, as in `pipeline.py`. Event time goes
on from file to file, so windows end and answers are given in batches that are measured. Only some batches give answers,
so figures are of all batches together, and not of the median one.

    vs_matching        events/s with counts, of those that report matches, by the wall clock
    vs_matching_cpu    the same by the CPU time of all processes
    vs_matching_replay, vs_matching_replay_cpu    where event time goes on ten times as fast, as when a file of old
                       events is read: nearly every event is the first of its subscription in a minute
    answers_per_event, answers_per_event_replay   rows given, of events; answers: in all measured batches
    state_bytes        of the open windows, at the end, on disk; state_rows: panes
    busiest            the busiest executor over the mean when one subscription has a tenth of all matches: CPU time of
                       matching, counting and keyed state, median of batches; busiest_state: of keyed state alone
    busiest_count_n    the same if it asks for count(1000), whose events must be put in order one by one
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Tuning
from geoswarm.lab.bench.engine.pipeline import load_world, pipeline_row
from geoswarm.lab.bench.kit.batch_log import executors_cpu_us, keyed_batches
from geoswarm.lab.bench.kit.contest import PIPELINE_EXECUTORS, PipelineContestant, PipelineWorld
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, median
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.spark.engine import Engine

COUNTS = {"aggregate": "count", "window": "sliding(300 s, 60 s)"}
COUNTS_EVENTS = {"aggregate": "count", "window": "count(1000)"}
MATCHING, COUNTING, REPLAYING = "matches", "sliding counts", "sliding counts, replay"
HEAVY_SHARE = 0.1
"""Of all matches."""
ROUND_S = 1.0
"""Plans of space and of keys are redrawn with every batch or two."""


@dataclass(frozen=True)
class AggregateSizes:
    subscriptions: int
    events_per_s: float
    """Of event time, which goes faster than the clock if the engine does more; the more events, the fewer answers."""
    replay_per_s: float
    file_events: int
    files: int
    """Files of a batch."""
    batches: int
    """Batches of a round, the first of which is not counted."""
    rounds: int
    heavy_rounds: int
    """Of the streams with a heavy subscription; the first one is for the plans to settle."""


SIZES = {
    Scale.SMALL: AggregateSizes(100_000, 20_000.0, 2_000.0, 125_000, 2, 6, 2, 1),
    Scale.FULL: AggregateSizes(1_000_000, 200_000.0, 20_000.0, 125_000, 4, 8, 9, 4),
}


def measure(sizes: AggregateSizes, seed: int, report: Progress, session: Any = None) -> Result:
    with bench_session(session) as spark, tempfile.TemporaryDirectory() as folder:
        root, files = Path(folder), _Files(Path(folder) / "source", sizes.file_events, sizes.events_per_s, seed)
        replay = _Files(Path(folder) / "replay", sizes.file_events, sizes.replay_per_s, seed)
        report(f"loading {sizes.subscriptions:,} subscriptions three times")
        contestants = {
            name: _contestant(load_world(root / name, sizes.subscriptions, 1.0, seed, spark, said), sizes, read)
            for name, said, read in ((MATCHING, {}, files), (COUNTING, COUNTS, files), (REPLAYING, COUNTS, replay))
        }
        turns = {name: c.turn(name, spark, sizes.batches, report) for name, c in contestants.items()}
        for name, contestant in contestants.items():  # Java compiles what it runs often, and windows fill
            turns[name]()
            contestant.forget()
        interleave(turns, sizes.rounds, np.random.default_rng(seed))
        held = keyed_batches(contestants[COUNTING].world.checkpoint)[-1]
        heavy = {
            name: _busiest(root / name, said, sizes, replay, seed, spark, report)
            for name, said in (("a heavy count", COUNTS), ("a heavy count(1000)", COUNTS_EVENTS))
        }
    rows = [pipeline_row(name, contestant) for name, contestant in contestants.items()]
    rows += [{"pipeline": name, **found} for name, found in heavy.items()]
    cpu_s = {name: sum(cpu.java_s + cpu.python_s for cpu in c.cpu) for name, c in contestants.items()}
    given = {name: [b.entry.answers for b in c.measured if b.entry is not None] for name, c in contestants.items()}
    events = len(given[COUNTING]) * sizes.files * sizes.file_events
    seconds = {name: sum(batch.seconds for batch in c.measured) for name, c in contestants.items()}
    summary = {
        "vs_matching": seconds[MATCHING] / seconds[COUNTING],
        "vs_matching_cpu": cpu_s[MATCHING] / cpu_s[COUNTING],
        "vs_matching_replay": seconds[MATCHING] / seconds[REPLAYING],
        "vs_matching_replay_cpu": cpu_s[MATCHING] / cpu_s[REPLAYING],
        "answers": sum(given[COUNTING]),
        "answers_per_event": sum(given[COUNTING]) / events,
        "answers_per_event_replay": sum(given[REPLAYING]) / events,
        "answering_batches": sum(answers > 0 for answers in given[COUNTING]),
        "state_rows": held.state_rows,
        "state_bytes": held.state_bytes,
        "busiest": heavy["a heavy count"]["busiest"],
        "busiest_state": heavy["a heavy count"]["busiest_state"],
        "busiest_count_n": heavy["a heavy count(1000)"]["busiest"],
    }
    return Result(rows, summary, {**sizes.__dict__, "executors": PIPELINE_EXECUTORS, "counts": COUNTS})


class _Files:
    """The stream as files, each of which is drawn when it is needed and shared by all."""

    def __init__(self, folder: Path, rows: int, events_per_s: float, seed: int) -> None:
        folder.mkdir()
        self._folder, self._rows = folder, rows
        self.workload = Tweets(seed=seed, events_per_s=events_per_s)

    def draw(self, number: int) -> Path:
        file = self._folder / f"{number:06d}.parquet"
        if not file.exists():
            events = self.workload.events(number * self._rows, self._rows)
            pq.write_table(pa.Table.from_batches([events]), file)
        return file


def _contestant(
    world: PipelineWorld, sizes: AggregateSizes, files: _Files, tuning: Tuning | None = None
) -> PipelineContestant:
    some = [files.draw(number) for number in range(sizes.files)]
    return PipelineContestant(world, some, tuning or Tuning(), draw=files.draw)


def _busiest(
    root: Path,
    said: dict[str, str],
    sizes: AggregateSizes,
    files: _Files,
    seed: int,
    spark: Any,
    report: Progress,
) -> dict[str, Any]:
    """Counts of which one has HEAVY_SHARE of all matches: the busiest executor over the mean."""
    world = load_world(root, sizes.subscriptions, 1.0, seed, spark, COUNTS)
    with Engine(spark, contract=world.contract, checkpoint=world.checkpoint) as engine:
        strip = _strip(files.workload, HEAVY_SHARE / (1 - HEAVY_SHARE))  # of the events, which have a match each
        engine.subscribe(sizes.subscriptions, strip, aggregate=said["aggregate"], window=said["window"])
    contestant = _contestant(world, sizes, files, Tuning(round_s=ROUND_S))
    turn = contestant.turn(root.name, spark, sizes.batches, report)
    turn()
    contestant.forget()
    for _ in range(sizes.heavy_rounds):
        turn()
    state = {entry.batch: entry for entry in keyed_batches(world.checkpoint)}
    whole, keyed = list[float](), list[float]()
    for entry in (batch.entry for batch in contestant.measured if batch.entry is not None):
        loads = state[entry.batch].executors
        state_us = [loads[e].cpu_us if e in loads else 0.0 for e in range(PIPELINE_EXECUTORS)]
        matching_us = executors_cpu_us(entry, PIPELINE_EXECUTORS)
        keyed.append(_over_mean(state_us))
        whole.append(_over_mean([a + b for a, b in zip(matching_us, state_us, strict=True)]))
    return {"busiest": median(whole), "busiest_max": max(whole), "busiest_state": median(keyed)}


def _over_mean(work_us: list[float]) -> float:
    return max(work_us) * len(work_us) / sum(work_us)


def _strip(workload: Tweets, share: float) -> tuple[float, float, float, float]:
    """From pole to pole, with such a share of the events."""
    x = np.asarray(workload.events(0, 200_000).column("x"), np.float64)
    low, high = np.quantile(x, [0.5, 0.5 + share])
    return float(low), -90.0, float(high), 90.0
