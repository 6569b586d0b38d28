"""Thesis Fig. 6.18 on the real engine: no attack, unguarded and guarded, shortened, projected to 22 machines.

Fig. 6.18 itself is simulated. Spark routes, exchanges and matches every event here, users' operations come as a stream,
and Guard is the one that users turn on. A batch is a round of 15 s; the attack starts when the cluster has settled, and
goes on to the end. What a batch would take on 22 machines is projected from the CPU time of its tasks
(`kit/projection.py`), with routing shared out among all; applying operations is the driver's, and is reported apart.

All three see the same events and the same wishes of their users. `unguarded_loss` and `guarded_loss` are over the
batches from the attack's start to the end, against the same batches without an attack; `settled_..._loss` over the last
third, when all attackers should be blocked. `blocked_s` is from the attack's start until the last of them is.
`prepare_...` is the time that the stream waits for its operations, in the median batch of the attack.
"""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.guard.limits import GuardSettings
from geoswarm.lab.bench.guard.half_hours import BURST_SHARE, NORMAL_PER_S
from geoswarm.lab.bench.guard.outcomes import ATTACK, CALM, GUARDED, KEYS
from geoswarm.lab.bench.kit.batch_log import batches, blocked_users
from geoswarm.lab.bench.kit.engine_race import ROUND_S
from geoswarm.lab.bench.kit.files import run_files, write_batches
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.projection import ProjectedBatch, project
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.bench.swarm.fig12_to_16 import CELLS_PER_SIDE
from geoswarm.lab.workload.attack import Attackers, Extra
from geoswarm.lab.workload.crowds import NormalUsers
from geoswarm.lab.workload.traffic import Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.spark.engine import Engine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MACHINES = 22
STRATEGY = "swarm-measured"
RACED = (CALM, ATTACK, GUARDED)


class GuardEngineSizes(NamedTuple):
    queries: int
    """All queries, of which the attackers have a tenth."""
    rate_per_s: float
    """Changes of all attackers together, and nearly as many of all others."""
    batch_events: int
    settles: int
    """Batches before the attack."""
    attacked: int
    cells_per_side: int = CELLS_PER_SIDE
    warms: int = 8
    """Batches of the run that warms Spark up, less one."""

    @property
    def attack_s(self) -> float:
        return self.settles * ROUND_S


SIZES = {
    Scale.SMALL: GuardEngineSizes(100_000, 60.0, 20_000, 8, 20),
    Scale.FULL: GuardEngineSizes(1_000_000, 600.0, 240_000, 14, 30),
}


class AttackRun(NamedTuple):
    batches: list[ProjectedBatch]
    blocked_s: dict[str, float]
    """When each user was blocked, since the attack's start."""


def measure(sizes: GuardEngineSizes, seed: int, report: Progress, given: Any = None) -> Result:
    """`given` is a Spark session that stays open."""
    runs = {}
    report("starting Spark")
    with bench_session(given) as spark:
        report("a run that warms Spark up")  # its time is in the CPU time of tasks, and whoever is first would pay
        _run_kind(spark, CALM, sizes._replace(settles=sizes.warms, attacked=1), seed)
        for kind in RACED:
            report(f"{kind}: {sizes.settles + sizes.attacked} batches")
            runs[kind] = _run_kind(spark, kind, sizes, seed)
    rows = [row for kind, one in runs.items() for row in _rows(kind, one, sizes)]
    config = {**sizes._asdict(), "machines": MACHINES, "strategy": STRATEGY, "round_s": ROUND_S}
    return Result(rows, loss_summary(runs, sizes), config)


def _run_kind(spark: Any, kind: str, sizes: GuardEngineSizes, seed: int) -> AttackRun:
    with tempfile.TemporaryDirectory() as folder:
        traffic = attack_traffic(sizes, seed, attacked=kind != CALM)
        _write_attack(traffic, sizes, Path(folder))
        return _run_engine(spark, traffic, sizes, seed, kind == GUARDED, Path(folder))


def attack_traffic(sizes: GuardEngineSizes, seed: int, *, attacked: bool) -> Traffic:
    stream = Tweets(
        seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S, burst_share=BURST_SHARE
    )
    theirs, pace = sizes.queries // 10, NORMAL_PER_S * sizes.queries / 1_000_000
    normal = NormalUsers(stream, queries=sizes.queries - theirs, changes_per_s=pace)
    if attacked:
        party = Attackers(stream, queries=theirs, changes_per_s=sizes.rate_per_s, start_s=sizes.attack_s)
        return Traffic(stream, (normal, party))
    return Traffic(stream, (normal, Extra(normal, theirs, 0.0, sizes.attack_s)))


def _write_attack(traffic: Traffic, sizes: GuardEngineSizes, root: Path) -> None:
    numbers = range(sizes.settles + sizes.attacked)
    pq.write_table(pa.table(traffic.standing()), root / "subscriptions.parquet")
    write_batches(root / "events", (traffic.events(n * sizes.batch_events, sizes.batch_events) for n in numbers))
    write_batches(root / "operations", (traffic.operations(n * ROUND_S, (n + 1) * ROUND_S) for n in numbers))


def _run_engine(
    spark: Any, traffic: Traffic, sizes: GuardEngineSizes, seed: int, guarded: bool, root: Path
) -> AttackRun:
    checkpoint, side = str(root / "state"), sizes.cells_per_side
    contract = Contract(bounds=traffic.tweets.bounds, columns=side, rows=side, executors=MACHINES)
    ticks = count(traffic.tweets.start_s, ROUND_S)  # a batch is a round
    with Engine(
        spark,
        contract,
        Tuning(strategy=STRATEGY, round_s=ROUND_S, driver_bytes_max=0),  # tasks are measured
        checkpoint=checkpoint,
        guard=GuardSettings(seed=seed) if guarded else None,
        clock=lambda: float(next(ticks)),
    ) as engine:
        engine.load(str(root / "subscriptions.parquet"))
        run_files(engine, spark, root)
    found = batches(checkpoint)
    began_s = found[sizes.settles].now_s
    blocked = {user: at_s - began_s for user, at_s in blocked_users(checkpoint).items()}
    return AttackRun([project(entry, MACHINES) for entry in found], blocked)


def _rows(kind: str, one: AttackRun, sizes: GuardEngineSizes) -> Iterator[dict[str, Any]]:
    for number, batch in enumerate(one.batches):
        at_s = number * ROUND_S - sizes.attack_s
        yield {
            "kind": kind,
            "s": at_s,
            "events_per_s": batch.events / batch.makespan_s,
            "max_over_mean": batch.makespan_s / batch.mean_s,
            "subscriptions": batch.entry.subscriptions,
            "refused": batch.entry.operations_refused,
            "blocked": sum(blocked_s <= at_s for blocked_s in one.blocked_s.values()),
            "plan": batch.entry.plan_epoch,
            "prepare_ms": batch.entry.prepare_s * 1e3,
        }


def loss_summary(runs: dict[str, AttackRun], sizes: GuardEngineSizes) -> dict[str, float]:
    summary: dict[str, float] = {}
    late = sizes.settles + 2 * sizes.attacked // 3
    for kind in (ATTACK, GUARDED):
        for prefix, since in (("", sizes.settles), ("settled_", late)):
            rates = [event_rate(runs[one].batches[since:]) for one in (kind, CALM)]
            summary[f"{prefix}{KEYS[kind]}_loss"] = 1 - rates[0] / rates[1]
    blocked_s = runs[GUARDED].blocked_s
    summary["blocked"] = float(len(blocked_s))
    summary["false_blocks"] = float(sum(not user.startswith("attacker") for user in blocked_s))
    if blocked_s:
        summary["blocked_s"] = max(blocked_s.values())
    for kind, one in runs.items():
        name = "calm" if kind == CALM else KEYS[kind]
        summary[f"prepare_ms_{name}"] = median([batch.entry.prepare_s for batch in one.batches[sizes.settles :]]) * 1e3
    return summary


def event_rate(run: Sequence[ProjectedBatch]) -> float:
    return sum(batch.events for batch in run) / sum(batch.makespan_s for batch in run)


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
