"""End-to-end events/s with up to 5 million keyword subscriptions, beside the same pipeline without matching.

The posts are those of the US and the queries PS2Stream's Q1 (`lab/workload/posts.py`): squares of 1 to 50 km, up to
three keywords. How many of them a post meets grows with their number, and so does the work; `vs_null` is taken with the
queries as they are. Beside it stand the same queries with shorter sides, and those of the whole world. The null
pipeline, the race and its rounds are those of `pipeline.py`; here its source has a text, too. PS2Stream §VI-B, Fig. 6.
"""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.control.registry import first_plan
from geoswarm.control.strategy import Sample
from geoswarm.lab.bench.engine.pipeline import pipeline_row, short_count
from geoswarm.lab.bench.kit.contest import PIPELINE_EXECUTORS, PipelineContestant, PipelineWorld
from geoswarm.lab.bench.kit.files import sample_of
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, ratio
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.sessions import APP, MASTER
from geoswarm.lab.bench.kit.text_density import Q1, shrink, shrink_factor
from geoswarm.lab.workload.posts import Posts
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session
from geoswarm.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTRY = "US"
PAPER_TUPLES_PER_S = (160_659, 267_415)
"""4 dispatchers and 8 workers on a cluster of 32 instances, changes of queries included: 5 M queries Q1 by grid
partitioning, 10 M queries Q2 by metric-based partitioning (PS2Stream §VI-B, Fig. 6)."""
TUNING = Tuning(strategy="ps2-kd-tree")
"""Both pipelines keep the same plan, drawn from a sample, for the whole race."""
SAMPLE = 50_000


@dataclass(frozen=True)
class TextPipelineSizes:
    subscriptions: tuple[int, ...]
    """The claim is made at the first."""
    file_events: int
    files: int
    """Files of a batch."""
    batches: int
    """Batches of a round, the first of which is not counted."""
    rounds: int
    densities: tuple[float, ...] = (1.0, 10.0)
    """Matches per event of the queries with shorter sides."""
    world: bool = True
    """Whether posts and queries of the whole world are measured, too."""
    warm_up: bool = True
    """A round that is not counted."""


SIZES = {
    Scale.SMALL: TextPipelineSizes((100_000,), 60_000, 2, 3, 2, densities=(1.0,), world=False),
    Scale.FULL: TextPipelineSizes((1_000_000, 5_000_000), 125_000, 4, 6, 5),
}


@dataclass(frozen=True)
class TextCase:
    """One set of subscriptions."""

    name: str
    posts: Posts
    subscriptions: int
    side_factor: float = 1.0

    @property
    def null(self) -> str:
        return "null, world" if self.posts.country is None else "null"


def measure(sizes: TextPipelineSizes, seed: int, report: Progress) -> Result:
    report("starting Spark")
    spark = build_session(MASTER, APP)
    report("finding the sides for each density")
    cases = _cases(sizes, seed)
    with tempfile.TemporaryDirectory() as folder:
        loads: dict[str, dict[str, Any]] = {}
        contestants = _text_contestants(Path(folder), cases, sizes, spark, report, loads)
        turns = {name: c.turn(name, spark, sizes.batches, report) for name, c in contestants.items()}
        for name in ("null", cases[0].name) if sizes.warm_up else ():
            turns[name]()
            contestants[name].forget()
        seconds = interleave(turns, sizes.rounds, np.random.default_rng(seed))
    rows = [pipeline_row(name, contestant) | loads.get(name, {}) for name, contestant in contestants.items()]
    by_name = {row["pipeline"]: row for row in rows}
    own, largest = cases[0].name, max(cases, key=lambda case: case.subscriptions).name
    vs_null = {c.name: ratio(seconds[c.null], seconds[c.name]) for c in cases}
    for name, share in vs_null.items():
        by_name[name]["vs_null"] = round(share, 3)
    summary = {
        "vs_null": vs_null[own],
        "events_per_s": by_name[own]["events_per_s"],
        "events_per_s_null": by_name["null"]["events_per_s"],
        "matches_per_event": by_name[own]["matches_per_event"],
        "matches_per_s": by_name[own]["matches_per_s"],
        "vs_paper": by_name[largest]["events_per_s"] / PAPER_TUPLES_PER_S[0],
        "register_per_s": by_name[own]["register_per_s"],
        "bytes_per_subscription": by_name[own]["bytes_per_subscription"],
    }
    summary |= {f"vs_null_{c.name.split(', ')[1]}".replace(" ", "_"): vs_null[c.name] for c in cases[1:]}
    null_cpu, own_cpu = (by_name[n]["java_cpu_ns"] + by_name[n]["python_cpu_ns"] for n in ("null", own))
    if null_cpu:  # not every system reports it
        summary["vs_null_cpu"] = null_cpu / own_cpu
    config = {
        "master": MASTER,
        "workload": f"posts and Q1 of {COUNTRY}; `world`: of the whole world",
        "vs_null": f"taken at {by_name[own]['matches_per_event']} matches per event, the workload's own",
        "paper": f"{PAPER_TUPLES_PER_S[0]} to {PAPER_TUPLES_PER_S[1]} tuples/s on 32 instances, PS2Stream Fig. 6",
        "vs_paper": f"{largest} beside {PAPER_TUPLES_PER_S[0]} tuples/s of 5 M queries Q1",
        "strategy": TUNING.strategy,
        "rounds": sizes.rounds,
        "batches_per_round": sizes.batches,
        "side_factors": {case.name: case.side_factor for case in cases},
    }
    return Result(rows, summary, config)


def _cases(sizes: TextPipelineSizes, seed: int) -> list[TextCase]:
    here, claim = Posts(seed=seed, country=COUNTRY), sizes.subscriptions[0]
    cases = [TextCase(f"{short_count(claim)} subscriptions", here, claim)]
    cases += [
        TextCase(f"{short_count(claim)}, at {d:g}", here, claim, shrink_factor(here, claim, d)) for d in sizes.densities
    ]
    if sizes.world:
        cases.append(TextCase(f"{short_count(claim)}, world", Posts(seed=seed), claim))
    return cases + [TextCase(f"{short_count(n)}, {short_count(n)}", here, n) for n in sizes.subscriptions[1:]]


def _text_contestants(
    root: Path,
    cases: list[TextCase],
    sizes: TextPipelineSizes,
    spark: Any,
    report: Progress,
    loads: dict[str, dict[str, Any]],
) -> dict[str, PipelineContestant]:
    found: dict[str, PipelineContestant] = {}
    files: dict[str, list[Path]] = {}
    for i, case in enumerate(cases):
        if case.null not in found:
            files[case.null] = _post_files(root / f"source-{i}", case.posts, sizes)
            found[case.null] = PipelineContestant(_null_text_world(root / f"null-{i}", case), files[case.null], TUNING)
        report(f"loading {case.subscriptions:,} subscriptions: {case.name}")
        world, loads[case.name] = _load_text_world(root / f"world-{i}", case, spark)
        found[case.name] = PipelineContestant(world, files[case.null], TUNING)
    return found


def _post_files(folder: Path, posts: Posts, sizes: TextPipelineSizes) -> list[Path]:
    folder.mkdir()
    files = [folder / f"{i:04d}.parquet" for i in range(sizes.files)]
    for i, file in enumerate(files):
        pq.write_table(pa.Table.from_batches([posts.events(i * sizes.file_events, sizes.file_events)]), file)
    return files


def _world(root: Path, case: TextCase, subscriptions: int | None) -> PipelineWorld:
    (root / "events").mkdir(parents=True)
    return PipelineWorld(root, subscriptions, contract=Contract(bounds=case.posts.bounds, executors=PIPELINE_EXECUTORS))


def _null_text_world(root: Path, case: TextCase) -> PipelineWorld:
    world = _world(root, case, None)
    draw = partial(first_plan, TUNING.strategy, _plan_sample(case))
    checkpoint = Checkpoint(world.checkpoint, world.contract, TUNING, draw)
    checkpoint.prepare(0, lambda: [], 0)  # the plan that all its batches are routed by
    checkpoint.close()
    return world


def _plan_sample(case: TextCase) -> Sample:
    """The sample is the same for all cases of a map, so that all have the same plan."""
    return sample_of(case.posts.events(0, SAMPLE), case.posts.subscriptions(0, SAMPLE, Q1), words=True)


def _load_text_world(root: Path, case: TextCase, spark: Any) -> tuple[PipelineWorld, dict[str, Any]]:
    world, file = _world(root, case, case.subscriptions), root / "subscriptions.parquet"
    with pq.ParquetWriter(file, case.posts.subscriptions(0, 0).schema) as writer:
        for start in range(0, case.subscriptions, 1_000_000):
            rows = case.posts.subscriptions(start, min(1_000_000, case.subscriptions - start), Q1)
            writer.write_batch(shrink(rows, case.side_factor))
    with Engine(
        spark, contract=world.contract, tuning=TUNING, checkpoint=world.checkpoint, sample=_plan_sample(case)
    ) as engine:
        began_s = time.process_time()
        loaded = engine.load(str(file))
        cpu_s, held = time.process_time() - began_s, engine.status()
    return world, {
        "register_per_s": round(loaded.registered / loaded.seconds),
        "register_per_cpu_s": round(loaded.registered / cpu_s),
        "bytes_per_subscription": round(held["subscription_bytes"] / held["subscriptions"], 1),
    }


def plot(result: Result) -> "Figure":
    rows = [row for row in result.rows if not row["pipeline"].startswith("null")]
    drawn, (rates, shares) = figure(2, width_in=6.2)
    labels = [f"{row['pipeline']}\n{row['matches_per_event']:.3g} matches" for row in rows]
    rates.barh(labels[::-1], [row["events_per_s"] / 1e3 for row in rows[::-1]], color=PALETTE[0], height=0.6)
    low, high = (v / 1e3 for v in PAPER_TUPLES_PER_S)
    rates.axvspan(low, high, color=PALETTE[1], alpha=0.3)
    rates.annotate(" paper, 32 instances", (low, 0.96), xycoords=("data", "axes fraction"), va="top", fontsize=10)
    rates.set(xlabel="thousand events per second on two cores", title="Posts against keywords in places")
    shares.barh(labels[::-1], [row["vs_null"] for row in rows[::-1]], color=PALETTE[2], height=0.6)
    shares.axvline(0.4, color=PALETTE[3], linestyle="--", marker="")
    shares.set(xlabel="share of the null pipeline's events per second", title="Beside the null pipeline")
    return drawn
