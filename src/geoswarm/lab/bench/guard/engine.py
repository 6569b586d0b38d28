"""The attack on the real engine, shortened: no attack, unguarded and guarded, projected to 22 machines.

Beside `guard_fig6_18.py`, which is simulated. Spark routes, exchanges and matches every event here, users' operations
come as a stream, and Guard is the one that users turn on. A batch is a round of 15 s; the attack starts when the
cluster has settled, and goes on to the end. What a batch would take on 22 machines is projected from the CPU time of
its tasks (`engine_race.py`), the router's shared by all; applying operations is the driver's, and is told beside it.

All three see the same events and the same wishes of their users. `unguarded_loss` and `guarded_loss` are over the
batches from the attack's start to the end, against the same batches without an attack; `settled_..._loss` over the last
third, when all attackers should be blocked. `blocked_s` is from the attack's start until the last of them is.
`prepare_...` is the time that the stream waits for its operations, in the median batch of the attack.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.guard.limits import GuardSettings
from geoswarm.lab.bench.guard.outcomes import ATTACK, CALM, GUARDED, KEYS
from geoswarm.lab.bench.guard.timeline import BURST_SHARE, NORMAL_PER_S
from geoswarm.lab.bench.kit.engine_race import ROUND_S, makespan_us, nowhere
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.swarm.timeline import CELLS_PER_SIDE, US
from geoswarm.lab.workload.attack import Attackers, Extra
from geoswarm.lab.workload.crowds import NormalUsers
from geoswarm.lab.workload.traffic import Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.session import build_session
from geoswarm.store import journal
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASTER = "local[2]"
MACHINES = 22
STRATEGY = "swarm-measured"
RACED = (CALM, ATTACK, GUARDED)


class Sizes(NamedTuple):
    queries: int
    """With the attackers', who have a tenth."""
    rate_per_s: float
    """Changes of all attackers together, and nearly as many of all others."""
    batch_events: int
    settles: int
    """Batches before the attack."""
    attacked: int
    cells_per_side: int = CELLS_PER_SIDE

    @property
    def attack_s(self) -> float:
        return self.settles * ROUND_S


SIZES = {
    Scale.SMALL: Sizes(100_000, 60.0, 20_000, 8, 20),
    Scale.FULL: Sizes(1_000_000, 600.0, 240_000, 14, 30),
}


class Lap(NamedTuple):
    """One batch."""

    events: int
    makespan_s: float
    mean_s: float
    subscriptions: int
    refused: int
    prepare_s: float
    plan_epoch: int

    @property
    def events_per_s(self) -> float:
        return self.events / self.makespan_s


class Run(NamedTuple):
    laps: list[Lap]
    blocked_s: dict[str, float]
    """Since the attack's start."""


def run(scale: Scale, seed: int, report: Progress) -> Result:
    report("starting Spark")
    spark = build_session(MASTER, "geoswarm-bench")
    try:
        return measure(spark, SIZES[scale], seed, report)
    finally:
        spark.stop()


def measure(spark: Any, sizes: Sizes, seed: int, report: Progress) -> Result:
    runs = {}
    for kind in RACED:
        report(f"{kind}: writing the stream")
        with tempfile.TemporaryDirectory() as folder:
            traffic = traffic_of(sizes, seed, attacked=kind != CALM)
            _write(traffic, sizes, Path(folder))
            report(f"{kind}: {sizes.settles + sizes.attacked} batches")
            runs[kind] = _run(spark, traffic, sizes, seed, kind == GUARDED, Path(folder))
    rows = [row for kind, one in runs.items() for row in _rows(kind, one, sizes)]
    config = {**sizes._asdict(), "machines": MACHINES, "strategy": STRATEGY, "round_s": ROUND_S}
    return Result(rows, summary_of(runs, sizes), config)


def traffic_of(sizes: Sizes, seed: int, *, attacked: bool) -> Traffic:
    stream = Tweets(
        seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S, burst_share=BURST_SHARE
    )
    theirs, pace = sizes.queries // 10, NORMAL_PER_S * sizes.queries / 1_000_000
    normal = NormalUsers(stream, queries=sizes.queries - theirs, changes_per_s=pace)
    if attacked:
        party = Attackers(stream, queries=theirs, changes_per_s=sizes.rate_per_s, start_s=sizes.attack_s)
        return Traffic(stream, (normal, party))
    return Traffic(stream, (normal, Extra(normal, theirs, 0.0, sizes.attack_s)))


def _write(traffic: Traffic, sizes: Sizes, root: Path) -> None:
    for folder in ("events", "operations"):
        (root / folder).mkdir()
    pq.write_table(pa.table(traffic.standing()), root / "subscriptions.parquet")
    for batch in range(sizes.settles + sizes.attacked):
        rows = traffic.events(batch * sizes.batch_events, sizes.batch_events)
        changes = traffic.operations(batch * ROUND_S, (batch + 1) * ROUND_S)
        pq.write_table(pa.table(rows), root / "events" / f"{batch:05d}.parquet")
        pq.write_table(pa.table(changes), root / "operations" / f"{batch:05d}.parquet")


def _run(spark: Any, traffic: Traffic, sizes: Sizes, seed: int, guarded: bool, root: Path) -> Run:
    checkpoint = root / "state"
    side = sizes.cells_per_side
    contract = Contract(bounds=traffic.tweets.bounds, columns=side, rows=side, executors=MACHINES)
    ticks = count(traffic.tweets.start_s, ROUND_S)  # a batch is a round
    with Engine(
        spark,
        contract,
        Tuning(strategy=STRATEGY, round_s=ROUND_S),
        checkpoint=str(checkpoint),
        guard=GuardSettings(seed=seed) if guarded else None,
        clock=lambda: float(next(ticks)),
    ) as engine:
        engine.load(str(root / "subscriptions.parquet"))
        engine.start(
            events=sources.events_from_files(spark, str(root / "events"), format="parquet", files_per_batch=1),
            operations=sources.operations_from_files(
                spark, str(root / "operations"), format="parquet", files_per_batch=1
            ),
            sink=nowhere,
            available_now=True,
        ).wait()
    storage = Storage(str(checkpoint))
    batches = list(journal.read(storage, "batch"))
    began_s = batches[sizes.settles]["now_us"] * 1e-6
    blocked = {
        user: entry["now_us"] * 1e-6 - began_s for entry in journal.read(storage, "guard") for user in entry["blocked"]
    }
    shutil.rmtree(checkpoint)
    return Run([_lap(entry) for entry in batches], blocked)


def _lap(entry: dict[str, Any]) -> Lap:
    tasks_us = [float(load[3]) for _, load in sorted(entry["executors"].items(), key=lambda item: int(item[0]))]
    route_s = entry["route_cpu_us"] / MACHINES * 1e-6
    return Lap(
        events=entry["events_in"],
        makespan_s=route_s + makespan_us(tasks_us, MACHINES) * 1e-6,
        mean_s=route_s + sum(tasks_us) / MACHINES * 1e-6,
        subscriptions=entry["subscriptions"],
        refused=entry["operations_refused"],
        prepare_s=entry["prepare_s"],
        plan_epoch=entry["plan_epoch"],
    )


def _rows(kind: str, one: Run, sizes: Sizes) -> Iterator[dict[str, Any]]:
    for number, lap in enumerate(one.laps):
        at_s = number * ROUND_S - sizes.attack_s
        yield {
            "kind": kind,
            "s": at_s,
            "events_per_s": lap.events_per_s,
            "max_over_mean": lap.makespan_s / lap.mean_s,
            "subscriptions": lap.subscriptions,
            "refused": lap.refused,
            "blocked": sum(blocked_s <= at_s for blocked_s in one.blocked_s.values()),
            "plan": lap.plan_epoch,
            "prepare_ms": lap.prepare_s * 1e3,
        }


def summary_of(runs: dict[str, Run], sizes: Sizes) -> dict[str, float]:
    summary: dict[str, float] = {}
    late = sizes.settles + 2 * sizes.attacked // 3
    for kind in (ATTACK, GUARDED):
        for prefix, since in (("", sizes.settles), ("settled_", late)):
            rates = [rate_of(runs[one].laps[since:]) for one in (kind, CALM)]
            summary[f"{prefix}{KEYS[kind]}_loss"] = 1 - rates[0] / rates[1]
    blocked_s = runs[GUARDED].blocked_s
    summary["blocked"] = float(len(blocked_s))
    summary["false_blocks"] = float(sum(not user.startswith("attacker") for user in blocked_s))
    if blocked_s:
        summary["blocked_s"] = max(blocked_s.values())
    for kind, one in runs.items():
        name = "calm" if kind == CALM else KEYS[kind]
        summary[f"prepare_ms_{name}"] = median([lap.prepare_s for lap in one.laps[sizes.settles :]]) * 1e3
    return summary


def rate_of(laps: Sequence[Lap]) -> float:
    return sum(lap.events for lap in laps) / sum(lap.makespan_s for lap in laps)


def plot(result: Result) -> "Figure":
    drawn, (panel,) = figure(width_in=8.0, height_in=4.8)
    for kind in RACED:
        rows = [row for row in result.rows if row["kind"] == kind]
        panel.plot(
            [row["s"] / 60 for row in rows],
            [row["events_per_s"] / 1e3 for row in rows],
            label=kind,
            markevery=4,
            linewidth=3.0 if kind == GUARDED else 1.6,
        )
    panel.axvline(0.0, linestyle=":", color="black", linewidth=1.2, marker="")
    panel.set(
        title="An attack on the real engine, projected to 22 machines",
        xlabel="minutes since the attack began",
        ylabel="thousand events/s",
        ylim=(0, None),
    )
    panel.legend()
    return drawn
