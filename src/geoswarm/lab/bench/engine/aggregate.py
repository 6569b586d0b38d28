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
    busiest_none       the same without such a subscription: what the plans leave, and what is left of the noise
    busiest_once, busiest_none_once    the same of single turns, with all the noise of tasks of 10 to 20 ms

Two cores serve eight executors, and other processes besides. So the same batches are run several times, each time from
the same checkpoint and with its plans, and what an executor took for a batch is the least of these turns:
neighbours only add. `kit/engine_race.py` does so, too.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

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
HEAVY, HEAVY_EVENTS, NOBODY_HEAVY = "a heavy count", "a heavy count(1000)", "no heavy count"
HEAVY_SHARE = 0.1
"""Of all matches."""
SETTLING, SETTLED = Tuning(round_s=1.0), Tuning(round_s=86_400.0)
"""Plans of space and of keys are redrawn with every batch or two, or never."""
Work = dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
"""For each batch, the CPU time of matching and of keyed state, by executor."""


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
    """Of the streams with a heavy subscription, until their plans have settled."""
    heavy_turns: int
    """How often the round after these is run."""


SIZES = {
    Scale.SMALL: AggregateSizes(100_000, 20_000.0, 2_000.0, 125_000, 2, 6, 2, 2, 3),
    Scale.FULL: AggregateSizes(1_000_000, 200_000.0, 20_000.0, 125_000, 4, 8, 9, 4, 6),
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
        heavy = _busiest(root, sizes, replay, seed, spark, report)
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
        "busiest": heavy[HEAVY]["busiest"],
        "busiest_state": heavy[HEAVY]["busiest_state"],
        "busiest_count_n": heavy[HEAVY_EVENTS]["busiest"],
        "busiest_none": heavy[NOBODY_HEAVY]["busiest"],
        "busiest_once": heavy[HEAVY]["busiest_once"],
        "busiest_none_once": heavy[NOBODY_HEAVY]["busiest_once"],
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
    root: Path, sizes: AggregateSizes, files: _Files, seed: int, spark: Any, report: Progress
) -> dict[str, dict[str, Any]]:
    """Counts of which one has HEAVY_SHARE of all matches, or none has: the busiest executor over the mean."""
    worlds = {
        name: _settled_world(root / name, said, sizes, files, seed, spark, report)
        for name, said in ((NOBODY_HEAVY, None), (HEAVY, COUNTS), (HEAVY_EVENTS, COUNTS_EVENTS))
    }
    taken = {name: list[Work]() for name in worlds}

    def turn(name: str) -> float:
        report(f"{name}, turn {len(taken[name]) + 1}")
        taken[name].append(_work_of_round(worlds[name], sizes, files, spark))
        return 0.0

    turns = {name: partial(turn, name) for name in worlds}
    interleave(turns, sizes.heavy_turns, np.random.default_rng(seed))
    return {name: _shares(found) for name, found in taken.items()}


def _settled_world(
    root: Path,
    said: dict[str, str] | None,
    sizes: AggregateSizes,
    files: _Files,
    seed: int,
    spark: Any,
    report: Progress,
) -> PipelineWorld:
    """A world with a heavy subscription that asks for `said`, if any, after some rounds."""
    report(f"loading {sizes.subscriptions:,} subscriptions for {root.name}")
    world = load_world(root, sizes.subscriptions, 1.0, seed, spark, COUNTS)
    if said is not None:
        with Engine(spark, contract=world.contract, checkpoint=world.checkpoint) as engine:
            strip = _strip(files.workload, HEAVY_SHARE / (1 - HEAVY_SHARE))  # of the events, which have a match each
            engine.subscribe(sizes.subscriptions, strip, aggregate=said["aggregate"], window=said["window"])
    turn = _contestant(world, sizes, files, SETTLING).turn(root.name, spark, sizes.batches, report)
    for _ in range(sizes.heavy_rounds):
        turn()
    return world


def _work_of_round(world: PipelineWorld, sizes: AggregateSizes, files: _Files, spark: Any) -> Work:
    """What the next round takes, without its first batch. Afterwards the world is as if it had not been."""
    saved, again = world.root / "saved", replace(world)
    shutil.copytree(world.checkpoint, saved)
    contestant = _contestant(again, sizes, files, SETTLED)
    contestant.round(spark, sizes.batches)
    state = {entry.batch: entry.executors for entry in keyed_batches(world.checkpoint)}
    shutil.rmtree(world.checkpoint)
    saved.rename(world.checkpoint)
    for number in range(world.linked, again.linked):
        (Path(world.events) / f"{number:06d}.parquet").unlink()
    found = Work()
    for entry in (batch.entry for batch in contestant.measured if batch.entry is not None):
        loads = state[entry.batch]
        keyed_us = [float(loads[e].cpu_us) if e in loads else 0.0 for e in range(PIPELINE_EXECUTORS)]
        found[entry.batch] = np.array(executors_cpu_us(entry, PIPELINE_EXECUTORS)), np.array(keyed_us)
    return found


def _shares(turns: Sequence[Work]) -> dict[str, float]:
    """The busiest executor over the mean, of the least of all turns, and of one turn alone."""
    least = [
        [np.min([turn[batch][part] for turn in turns], axis=0) for part in range(2)]
        for batch in sorted(set.intersection(*map(set, turns)))
    ]
    whole = [_over_mean(matching + keyed) for matching, keyed in least]
    once = [_over_mean(matching + keyed) for turn in turns for matching, keyed in turn.values()]
    state = median([_over_mean(keyed) for _, keyed in least])
    return {"busiest": median(whole), "busiest_max": max(whole), "busiest_state": state, "busiest_once": median(once)}


def _over_mean(work_us: NDArray[np.float64]) -> float:
    return float(work_us.max() * len(work_us) / work_us.sum())


def _strip(workload: Tweets, share: float) -> tuple[float, float, float, float]:
    """From pole to pole, with such a share of the events."""
    x = np.asarray(workload.events(0, 200_000).column("x"), np.float64)
    low, high = np.quantile(x, [0.5, 0.5 + share])
    return float(low), -90.0, float(high), 90.0
