"""End-to-end events/s with 0 to 10 million subscriptions, beside the same pipeline without matching.

Everything runs on `local[2]` in one Spark session. The null pipeline (`kit/contest.py`) has the same source (Parquet
files), validation, route, pack, exchange and sink, by rows of Spark, and keeps no checkpoint, reports or journal of
ours. `kernel.py` measures the matching alone.

    vs_null, vs_null_parquet    events/s against the null pipeline, discarded or into Parquet, one match per event
    small_batch_vs_null         seconds of a batch of few events, of those of the null pipeline
    dense_vs_before             17 matches per event into Parquet, against the same engine by rows of Spark

    round 1    null │ 0 │ 10 k │ ... │ 1 M rows │ ...       each a stream over the same files, in a new order
    round 2    10 k │ 1 M rows │ ... │ null │ ...           its first batch, which maps segments, is left out
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Tuning
from geoswarm.lab.bench.kit.contest import PIPELINE_EXECUTORS, PipelineContestant, PipelineWorld
from geoswarm.lab.bench.kit.density import tweets_for
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, median, ratio
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.sessions import APP, MASTER
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session
from geoswarm.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPARSE, DENSE, CROWDED = 1.0, 17.0, 100.0
"""Matches per event."""


@dataclass(frozen=True)
class PipelineSizes:
    subscriptions: tuple[int, ...]
    claim_at: int
    """Subscriptions of the variants: rows, pairs, more matches, small batches."""
    file_events: int
    files: int
    """Files of a batch; one where an event has many matches."""
    batches: int
    """Batches of a round, the first of which is not counted."""
    rounds: int
    small_events: int
    """Events of a small batch, whose latency is the cost of a batch itself."""
    warm_up: bool = True
    """A round that is not counted: the virtual machine compiles what it runs often."""


SIZES = {
    Scale.SMALL: PipelineSizes((0, 1_000_000), 1_000_000, 125_000, 4, 3, 2, 1_000),
    Scale.FULL: PipelineSizes((0, 10_000, 100_000, 1_000_000, 10_000_000), 1_000_000, 125_000, 4, 6, 5, 1_000),
}


def measure(sizes: PipelineSizes, seed: int, report: Progress) -> Result:
    report("starting Spark")
    spark = build_session(MASTER, APP)
    with tempfile.TemporaryDirectory() as folder:
        contestants = _contestants(Path(folder), sizes, seed, spark, report)
        turns = {name: c.turn(name, spark, sizes.batches, report) for name, c in contestants.items()}
        for name in ("null", _name(sizes.claim_at)) if sizes.warm_up else ():
            turns[name]()
            contestants[name].forget()
        seconds = interleave(turns, sizes.rounds, np.random.default_rng(seed))
    rows = [pipeline_row(name, contestant) for name, contestant in contestants.items()]
    by_name = {row["pipeline"]: row for row in rows}
    claim = _name(sizes.claim_at)
    summary = {
        "vs_null": ratio(seconds["null"], seconds[claim]),
        "packed_vs_rows": ratio(seconds[f"{claim}, row exchange"], seconds[claim]),
        "arrays_vs_pairs": ratio(seconds[f"{claim}, dense, pairs"], seconds[f"{claim}, dense"]),
        "matches_per_s_100": by_name[f"{claim}, crowded"]["matches_per_s"],
        "events_per_s_1m": by_name[claim]["events_per_s"],
        "events_per_s_null": by_name["null"]["events_per_s"],
        "small_batch_s": by_name[f"{claim}, small batches"]["batch_s"],
        "small_batch_s_null": by_name["null, small batches"]["batch_s"],
        "small_batch_vs_null": ratio(seconds[f"{claim}, small batches"], seconds["null, small batches"]),
        "vs_null_parquet": ratio(seconds["null, Parquet"], seconds[f"{claim}, Parquet"]),
        "dense_vs_before": ratio(seconds[f"{claim}, dense, Parquet by rows"], seconds[f"{claim}, dense, Parquet"]),
    }
    null_cpu = by_name["null"]["java_cpu_ns"] + by_name["null"]["python_cpu_ns"]
    if null_cpu:  # not every system reports it
        summary["vs_null_cpu"] = null_cpu / (by_name[claim]["java_cpu_ns"] + by_name[claim]["python_cpu_ns"])
    config = {
        "master": MASTER,
        "executors": PIPELINE_EXECUTORS,
        "claims_at_subscriptions": sizes.claim_at,
        "rounds": sizes.rounds,
        "batches_per_round": sizes.batches,
        "seconds": "of a batch from trigger to commit, median; the first batch of a stream is left out",
        "side_share": {f"{n} at {d:g}": tweets_for(n, d, seed).side_share for n, d in _worlds(sizes) if n},
    }
    return Result(rows, summary, config)


def _name(subscriptions: int) -> str:
    return f"{subscriptions:,} subscriptions"


def _worlds(sizes: PipelineSizes) -> list[tuple[int, float]]:
    return [*((n, SPARSE) for n in sizes.subscriptions), (sizes.claim_at, DENSE), (sizes.claim_at, CROWDED)]


def _contestants(
    root: Path, sizes: PipelineSizes, seed: int, spark: Any, report: Progress
) -> dict[str, PipelineContestant]:
    files = _event_files(root, sizes, seed)
    many, one, small = files[: sizes.files], files[:1], files[-1:]
    null = _null_world(root / "null")
    worlds = {}
    for subscriptions, density in _worlds(sizes):
        report(f"loading {subscriptions:,} subscriptions, {density:g} matches per event")
        name = f"{subscriptions}-{density:g}"
        worlds[subscriptions, density] = load_world(root / name, subscriptions, density, seed, spark)
    claim, full = _name(sizes.claim_at), worlds[sizes.claim_at, SPARSE]
    dense, crowded = worlds[sizes.claim_at, DENSE], worlds[sizes.claim_at, CROWDED]
    found = {"null": PipelineContestant(null, many)}
    found |= {_name(n): PipelineContestant(worlds[n, SPARSE], many) for n in sizes.subscriptions}
    found |= {
        f"{claim}, row exchange": PipelineContestant(full, many, Tuning(exchange="rows")),
        f"{claim}, dense": PipelineContestant(dense, one),
        f"{claim}, dense, pairs": PipelineContestant(dense, one, Tuning(matches="pairs")),
        f"{claim}, crowded": PipelineContestant(crowded, one),
        "null, small batches": PipelineContestant(null, small),
        f"{claim}, small batches": PipelineContestant(full, small),
        "null, Parquet": PipelineContestant(null, many, to_parquet=True),
        f"{claim}, Parquet": PipelineContestant(full, many, to_parquet=True),
        f"{claim}, dense, Parquet": PipelineContestant(dense, many, to_parquet=True),
        f"{claim}, dense, Parquet by rows": PipelineContestant(dense, many, to_parquet=True, by_rows=True),
    }
    return found


def _event_files(root: Path, sizes: PipelineSizes, seed: int) -> list[Path]:
    """Files of equal length, and a small one at the end."""
    (root / "source").mkdir()
    lengths = [*[sizes.file_events] * sizes.files, sizes.small_events]
    files = []
    for i, length in enumerate(lengths):
        files.append(root / "source" / f"{i:04d}.parquet")
        events = Tweets(seed=seed).events(i * sizes.file_events, length)
        pq.write_table(pa.Table.from_batches([events]), files[-1])
    return files


def _null_world(root: Path) -> PipelineWorld:
    (root / "events").mkdir(parents=True)
    world = PipelineWorld(root, None)
    checkpoint = Checkpoint(world.checkpoint, world.contract, Tuning())
    checkpoint.prepare(0, lambda: [], 0)  # the plan that all its batches are routed by
    checkpoint.close()
    return world


def load_world(
    root: Path, subscriptions: int, density: float, seed: int, spark: Any, asked: Mapping[str, str] | None = None
) -> PipelineWorld:
    """`asked` are columns of subscriptions in which all of them have the same."""
    (root / "events").mkdir(parents=True)
    world = PipelineWorld(root, subscriptions, density)
    if subscriptions:
        workload = tweets_for(subscriptions, density, seed)
        file = root / "subscriptions.parquet"
        with pq.ParquetWriter(file, workload.subscriptions(0, 0).schema) as writer:
            for start in range(0, subscriptions, 1_000_000):
                rows = workload.subscriptions(start, min(1_000_000, subscriptions - start))
                for name, value in (asked or {}).items():
                    place = rows.schema.get_field_index(name)
                    rows = rows.set_column(place, rows.schema.field(name), pa.repeat(value, len(rows)))
                writer.write_batch(rows)
        with Engine(spark, world.contract, checkpoint=world.checkpoint) as engine:
            engine.load(str(file))
    return world


def pipeline_row(name: str, contestant: PipelineContestant) -> dict[str, Any]:
    batches = contestant.measured
    row: dict[str, Any] = {
        "pipeline": name,
        "subscriptions": contestant.world.subscriptions,
        "batch_events": batches[0].events,
        "events_per_s": round(median([batch.events / batch.seconds for batch in batches])),
        "batch_s": round(median([batch.seconds for batch in batches]), 3),
        "java_cpu_ns": round(sum(cpu.java_s for cpu in contestant.cpu) * 1e9 / sum(b.events for b in batches)),
        "python_cpu_ns": round(sum(cpu.python_s for cpu in contestant.cpu) * 1e9 / sum(b.events for b in batches)),
    }
    if contestant.world.subscriptions is not None:
        reports = [batch.entry for batch in batches if batch.entry is not None]
        loads = [load for report in reports for load in report.partitions.values()]
        events, matches = sum(load.events for load in loads), sum(load.matches for load in loads)
        row |= {
            "matches_per_event": round(matches / events, 2),
            "matched_share": round(sum(load.matched for load in loads) / events, 2),
            "matches_per_s": round(row["events_per_s"] * matches / events),
            "route_cpu_ns": round(sum(report.route_cpu_us for report in reports) * 1e3 / events),
            "match_cpu_ns": round(sum(load.cpu_us for load in loads) * 1e3 / events),
        }
    return row


def plot(result: Result) -> "Figure":
    rows = {row["pipeline"]: row for row in result.rows}
    drawn, (growth, variants) = figure(2, width_in=6.2)
    plain = [row for row in result.rows if row["pipeline"].endswith("subscriptions")]
    labels = [short_count(row["subscriptions"]) for row in plain]
    growth.bar(labels, [row["events_per_s"] / 1e6 for row in plain], color=PALETTE[0], width=0.6)
    growth.axhline(rows["null"]["events_per_s"] / 1e6, color=PALETTE[3], linestyle="--", marker="")
    growth.annotate(
        "null pipeline",
        (0.99, rows["null"]["events_per_s"] / 1e6),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        color=PALETTE[3],
    )
    growth.set(xlabel="subscriptions, about one match per event", ylabel="million events per second")
    growth.set_title("Events per second, end to end")
    claim = result.config["claims_at_subscriptions"]
    others = [name for name in rows if name.startswith(_name(claim)) and "small" not in name]
    names = [name.removeprefix(_name(claim)).removeprefix(", ") or "as configured" for name in others]
    variants.barh(names[::-1], [rows[name]["events_per_s"] / 1e6 for name in others[::-1]], color=PALETTE[2])
    for place, name in enumerate(others[::-1]):
        per_event = rows[name]["matches_per_event"]
        variants.annotate(
            f" {per_event:.0f} per event", (rows[name]["events_per_s"] / 1e6, place), va="center", fontsize=10
        )
    variants.set(
        xlabel="million events per second; matches beside the bars",
        title=f"Variants at {short_count(claim)} subscriptions",
    )
    variants.margins(x=0.25)
    return drawn


def short_count(count: int) -> str:
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1_000} k" if count >= 1_000 else str(count)
