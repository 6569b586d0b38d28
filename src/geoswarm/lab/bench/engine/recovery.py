"""Seconds from SIGKILL to the next committed batch, and what was lost or repeated over all kills.

The engine runs one scenario (`lab/crash/scenario.py`) as a process of its own. At a random moment its driver (Python
and JVM), one of its Python workers or one of its executor JVMs is killed; a dead engine is started again from its
checkpoint, as a supervisor would. At the end the whole output is set beside the oracle's, pair by pair.

Events are kept for queries about the past meanwhile (`docs/past.md`): old ones expire, files are merged. At the end the
queries of `lab/crash/kept.py` are asked.

    kept_lost     events that they should find and do not; kept_wrong: that they find and should not

Half of the subscriptions on `inside` count instead of reporting matches (`docs/aggregates.md`), and their answers are
compared, too (`lab/crash/counted.py`): `answers_lost`, `answers_repeated`, `answers_wrong`.

The matches go into a Parquet folder that is rolled up, a Delta table, or a folder for each batch.

The plan moves meanwhile, with a round for every batch; some starts take another strategy than the one before, and some
kills wait for the moment when a new plan is on disk and no batch has been given it yet. A run whose plan was to move
and did not proves nothing, and is an error.

In `local` mode Spark never tries a task again, so a killed worker ends the engine; on a cluster Spark replaces
workers and executors by itself. Some kills hit an engine that is still starting from the kill before.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.config import WindowSettings
from geoswarm.errors import StreamError
from geoswarm.lab.bench.kit.batch_log import batches
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.plots import MARKERS, PALETTE, figure
from geoswarm.lab.crash.counted import compare_answers
from geoswarm.lab.crash.kept import compare_kept
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import Scenario, compare
from geoswarm.lab.crash.victim import ANSWERS
from geoswarm.store.journal.entries import BatchEntry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTER = "local-cluster[2,1,1024]"
EARLY = "driver, starting"
"""A driver killed before it has recovered from the kill before."""

PLANNED = "driver, new plan"
"""A driver killed when it has written a plan that no batch has been given. Only for `swarm-measured`: others draw no
plan, or use it at once."""

LOCAL = "local[2]"
STILL, MEASURED, PER_BATCH = "static-uniform", "swarm-measured", "per-batch"


class KillTrial(NamedTuple):
    """One checkpoint from the first batch to the last."""

    master: str
    strategies: tuple[str, ...]
    """One for each start, in turn."""
    kills: tuple[str, ...]
    sink: str
    """Where the matches go (`lab/crash/victim.py`)."""


SIZES: dict[Scale, list[KillTrial]] = {
    Scale.SMALL: [
        KillTrial(LOCAL, (MEASURED, STILL, PER_BATCH), (PLANNED, "driver"), "rolled"),
        KillTrial(LOCAL, (MEASURED, PER_BATCH), ("driver", "worker"), "delta"),
    ],
    Scale.FULL: [
        KillTrial(LOCAL, (STILL,), ("driver", EARLY, "worker", "driver"), "rolled"),
        KillTrial(LOCAL, (MEASURED,), (PLANNED, "driver", EARLY, "worker", PLANNED, "driver"), "delta"),
        KillTrial(LOCAL, (PER_BATCH,), ("driver", EARLY, "worker", "driver"), "parquet"),
        KillTrial(
            LOCAL, (MEASURED, STILL, PER_BATCH, MEASURED, PER_BATCH), (PLANNED, "driver", "worker", "driver"), "rolled"
        ),
        KillTrial(CLUSTER, (MEASURED,), ("executor", "worker", PLANNED, "executor", "executor"), "delta"),
        KillTrial(CLUSTER, (MEASURED, PER_BATCH), (PLANNED, "executor", "worker", "executor", "driver"), "rolled"),
    ],
}
"""Two kills fit into three quarters of a minute: a start of Spark takes ten seconds of it."""

FILES_PER_KILL = 4
WINDOW, QUERIES = WindowSettings(keep="20 min"), 30
"""By the scenario's clock 20 batches, of which three become one at a time."""
RUNNING_S = 2.0
"""A kill comes this long or less after a commit: a batch takes a fraction of it."""
STARTING_S = 8.0
"""A kill that hits a start comes this long or less after it: Spark, the checkpoint, the batch that is run again."""


@dataclass
class _GrowingScenario:
    scenario: Scenario
    folder: Path
    files: int = 0

    def extend(self, files: int) -> None:
        self.scenario.write(self.folder, range(self.files, self.files + files))
        self.files += files


def measure(trials: list[KillTrial], seed: int, report: Progress) -> Result:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    totals = {"lost": 0, "repeated": 0, "wrong": 0, "pairs": 0, "batches": 0}
    kept, given, plans = Counter[str](), Counter[str](), 0
    for number, trial in enumerate(trials):
        with tempfile.TemporaryDirectory(prefix="geoswarm-recovery-") as folder:
            world = _GrowingScenario(Scenario(seed * len(trials) + number, counts=True), Path(folder))
            world.extend(FILES_PER_KILL * len(trial.kills))
            options = ("--sink", trial.sink, "--counts", "--keep", WINDOW.keep)
            with Victim(world.folder, trial.master, *options, strategies=trial.strategies) as victim:
                victim.start()
                rows += _kill_all(victim, trial, world, rng, report)
                report(f"{_trial_name(trial)}: the rest of the stream")
                victim.until_done()
                entries = batches(victim.checkpoint)
                verdict = compare(world.scenario, victim.checkpoint, victim.output)
                past = compare_kept(world.scenario, victim.checkpoint, WINDOW, QUERIES)
                answers = compare_answers(world.scenario, victim.checkpoint, victim.home / ANSWERS)
        if verdict.differences:
            raise StreamError(
                f"after {len(trial.kills)} kills of {_trial_name(trial)}: {'; '.join(verdict.differences[:5])}"
            )
        for key in totals:
            totals[key] += getattr(verdict, key)
        for key, number in past._asdict().items():
            kept[key] += number
        for key, number in answers._asdict().items():
            given[key] += number
        plans += _plans_of(trial, entries)
    seconds = [row["recovery_s"] for row in rows if row["recovery_s"] is not None]
    summary = {
        "kills": len(rows),
        "lost": totals["lost"],
        "repeated": totals["repeated"],
        "wrong": totals["wrong"],
        "kept_lost": kept["lost"],
        "kept_wrong": kept["wrong"],
        "answers_lost": given["lost"],
        "answers_repeated": given["repeated"],
        "answers_wrong": given["wrong"],
        "plans": plans,
        "recovery_s_median": median(seconds),
        "recovery_s_max": max(seconds),
    }
    config = {
        "trials": [trial._asdict() for trial in trials],
        "batches": totals["batches"],
        "pairs": totals["pairs"],
        "kept_events": kept["events"],
        "answers": given["answers"],
        "events_per_batch": Scenario(seed).events_per_file,
    }
    return Result(rows, summary, config)


def _plans_of(trial: KillTrial, entries: list[BatchEntry]) -> int:
    """How many plans routed batches."""
    epochs = {entry.batch: entry.plan_epoch for entry in entries}
    plans = len(set(epochs.values()))
    moving = set(trial.strategies) - {STILL}
    if moving and plans < max(3, len(epochs) // 8):
        raise StreamError(
            f"{_trial_name(trial)} drew {plans} plans for {len(epochs)} batches: nothing moved, nothing is shown"
        )
    return plans


def _trial_name(trial: KillTrial) -> str:
    return f"{', '.join(trial.strategies)} on {trial.master} into {trial.sink}"


def _kill_all(
    victim: Victim, trial: KillTrial, world: _GrowingScenario, rng: np.random.Generator, report: Progress
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i, kind in enumerate(trial.kills):
        if kind == EARLY:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            _wait_until(victim, lambda: victim.commits() > 0 and victim.is_alive, world)
            time.sleep(rng.uniform(0, RUNNING_S))
        # there may be none between two workers, or when the files have run out
        _wait_until(victim, lambda kind=kind: _killed(victim, kind, rng), world)  # type: ignore[misc]
        killed_s = time.monotonic()
        commits, starts = victim.commits(), victim.starts
        row: dict[str, Any] = {"master": trial.master, "strategy": victim.strategy, "killed": kind}
        row["sink"] = trial.sink
        row["after_batch"] = commits - 1
        if i + 1 < len(trial.kills) and trial.kills[i + 1] == EARLY:
            victim.start()
            row |= {"starts": 1, "recovery_s": None}
        else:
            _wait_until(victim, lambda commits=commits: victim.commits() > commits, world)  # type: ignore[misc]
            row |= {"starts": victim.starts - starts, "recovery_s": time.monotonic() - killed_s}
        rows.append(row)
        report(f"{_trial_name(trial)}: killed {kind}, {i + 1} of {len(trial.kills)}")
    return rows


def _killed(victim: Victim, kind: str, rng: np.random.Generator) -> bool:
    if kind == PLANNED and not victim.has_unused_plan():
        return False
    return victim.kill(kind.split(",")[0], rng) > 0


def _wait_until(victim: Victim, condition: Callable[[], bool], world: _GrowingScenario) -> None:
    """The engine is started again when it dies, and handed more files when it has run out of them."""
    while not victim.until(condition, "the next committed batch"):
        world.extend(FILES_PER_KILL)
        victim.start()


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    kinds = list(dict.fromkeys(f"{row['killed']}\n{row['master'].split('[')[0]}" for row in result.rows))
    for i, kind in enumerate(kinds):
        name, mode = kind.split("\n")
        seconds = [
            row["recovery_s"]
            for row in result.rows
            if row["killed"] == name and row["master"].split("[")[0] == mode and row["recovery_s"] is not None
        ]
        spread = np.linspace(-0.12, 0.12, len(seconds)) if len(seconds) > 1 else np.zeros(len(seconds))
        style: dict[str, Any] = {"marker": MARKERS[i % len(MARKERS)], "color": PALETTE[i % len(PALETTE)]}
        axes.plot(i + spread, seconds, linestyle="none", **style)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds to the next committed batch")
    kills, lost, repeated = (int(result.summary[key]) for key in ("kills", "lost", "repeated"))
    axes.set_title(f"{kills} kills: {lost} matches lost, {repeated} repeated")
    return drawn
