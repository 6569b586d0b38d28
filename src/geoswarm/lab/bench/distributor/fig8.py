"""Distributor Fig. 8: what a redistribution takes over the size of the static side, and what moving it would take.

The paper moves the partitions' subscriptions to their new executors, sPS at skew 0.7. Here they rest in segments that
every worker maps (`docs/distributor.md`), so a redistribution is a new plan. All as CPU time, in ms:

    both    `plan_ms`: the strategy's decision, writing the plan, reading it in a worker
    ours    `lists_ms`: every partition asks for its list under the new plan, and finds the one that was made before
    paper   `moved_ms`: pack the subscriptions of every partition that moves, read them, and make the list of sPS;
            `moved_indexed_ms`: or the index of sPIS. Of the busiest sender and then of the busiest receiver

`stream_waits_ms` is ours on the wall clock, with the disk. The load that is decided on is that of the real engine's
batches. The network is left out: `moved_mb` says what it would carry. `batch_cpu_after` is the CPU time of all tasks in
the first batch under the new plan over that in the second: 1 where nothing has to be made anew. `static_side_vs_moved`
is the largest ratio of `lists_ms` to `moved_ms`: what the static side's size costs here, of what it costs there.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.control.coordinator import Coordinator
from geoswarm.control.registry import strategy
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError
from geoswarm.flow.exchange import pack_parcels
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.rivals.shares import DividedSegment, PartitionSubs, divide_segment
from geoswarm.flow.rivals.static_side import WIRE, SubscriptionList, subscription_parcels
from geoswarm.lab.bench.distributor.race import (
    LOAD,
    MACHINES,
    OURS,
    WARM_BATCHES,
    CollisionRuns,
    CollisionSizes,
    cost_batch,
)
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, cpu_s, median
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.postcodes import Britain, britain
from geoswarm.store import manifest, plans
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIPELINE, SKEW = "sps", 0.7
BATCHES = WARM_BATCHES + 3
"""One that is decided on, and two under the new plan."""
REPEATS = 5


class StaticSideSizes(NamedTuple):
    subscriptions: tuple[int, ...]
    batch_events: int
    """More than M of the strategy, so that the first round may redistribute."""


SIZES = {
    Scale.SMALL: StaticSideSizes((500, 2000), 4000),
    Scale.FULL: StaticSideSizes((1000, 3000, 10_000, 30_000, 100_000), 4000),
}


class Shipment(NamedTuple):
    bytes: int
    list_ms: float
    index_ms: float


def measure(sizes: StaticSideSizes, seed: int, report: Progress) -> Result:
    report("starting Spark")
    with bench_session() as spark:
        return measure_redistribution(spark, britain(), sizes, seed, report)


def measure_redistribution(spark: Any, country: Britain, sides: StaticSideSizes, seed: int, report: Progress) -> Result:
    rows = []
    for count in sides.subscriptions:
        report(f"{count:,} subscriptions")
        with tempfile.TemporaryDirectory() as folder:
            stage = CollisionRuns(
                spark, country, CollisionSizes(count, sides.batch_events, BATCHES), seed, Path(folder)
            )
            rows.append(_row(stage, count, Path(folder)))
    config = {"sides": sides._asdict(), "skew": SKEW, "machines": MACHINES, "country": country.source}
    first, last = rows[0], rows[-1]
    summary = {
        "plan_ms_max": max(row["plan_ms"] for row in rows),
        "lists_ms_max": max(row["lists_ms"] for row in rows),
        "stream_waits_ms_max": max(row["stream_waits_ms"] for row in rows),
        "moved_ms_max": max(row["moved_ms"] for row in rows),
        "moved_indexed_ms_max": max(row["moved_indexed_ms"] for row in rows),
        "static_side_vs_moved": max(row["lists_ms"] / row["moved_ms"] for row in rows),
        "ours_largest_vs_smallest": _ours_ms(last) / _ours_ms(first),
        "moved_largest_vs_smallest": last["moved_ms"] / first["moved_ms"],
    }
    return Result(rows, summary, config)


def _ours_ms(row: dict[str, Any]) -> float:
    return float(row["plan_ms"] + row["lists_ms"])


def _row(stage: CollisionRuns, count: int, root: Path) -> dict[str, Any]:
    batches, rounds = stage.entries(PIPELINE, OURS, SKEW)
    if not rounds[0].applied:
        raise InputError(f"with {count} subscriptions: {rounds[0].decision}: give a batch more events")
    storage = Storage(str(stage.loaded))
    head = manifest.newest(storage)
    segments = View.open(storage, head).searchables()
    shares = [divide_segment(segment, stage.plan, PIPELINE) for segment in segments]
    load = LoadReport(dict(batches[WARM_BATCHES].entry.partitions), dict(batches[WARM_BATCHES].entry.executors))
    plan_ms, lists_ms, waits_ms, after = list[float](), list[float](), list[float](), stage.plan
    for repeat in range(REPEATS):
        began_s, began_cpu_s = time.perf_counter(), cpu_s()
        after = _redistribute(stage.plan, load, Storage(str(root / f"plans-{repeat}")))
        planned_cpu_s = cpu_s()
        _look_up(after, shares, segments)
        plan_ms.append((planned_cpu_s - began_cpu_s) * 1e3)
        lists_ms.append((cpu_s() - planned_cpu_s) * 1e3)
        waits_ms.append((time.perf_counter() - began_s) * 1e3)
    moved = [slot for slot, p in enumerate(after.partitions) if p.executor != stage.plan.partitions[slot].executor]
    sent = [shipment(stage.plan, after, moved, shares, segments, head.now_us) for _ in range(REPEATS)]
    cpu = [batch.mean_s + batch.route_s for batch in map(cost_batch, batches)]
    return {
        "subscriptions": count,
        "moves": len(moved),
        "plan_ms": median(plan_ms),
        "lists_ms": median(lists_ms),
        "stream_waits_ms": median(waits_ms),
        "moved_mb": sent[0].bytes / 1e6,
        "moved_ms": median([one.list_ms for one in sent]),
        "moved_indexed_ms": median([one.index_ms for one in sent]),
        "mldc_before": cost_batch(batches[WARM_BATCHES]).mldc,
        "mldc_after": cost_batch(batches[-1]).mldc,
        "batch_cpu_after": cpu[-2] / cpu[-1],
        "prepare_ms_after": batches[-2].entry.prepare_s * 1e3,
        "prepare_ms_later": batches[-1].entry.prepare_s * 1e3,
    }


def _redistribute(plan: Plan, load: LoadReport, storage: Storage) -> Plan:
    """The plan that is decided, written, and read by a worker."""
    outcome = Coordinator(strategy(LOAD)).close_round(plan, load, {}, 0.0)
    if outcome.plan is None:
        raise InputError(f"the same load was answered otherwise: {outcome.entry.why}; report it")
    return plans.read(storage, outcome.plan.epoch, plans.write(storage, outcome.plan))


def _look_up(plan: Plan, shares: Sequence[DividedSegment], segments: Sequence[Searchable]) -> None:
    """What each partition has, as every task asks for it: slices of lists that are there."""
    for slot in range(len(plan.partitions)):
        for share, segment in zip(shares, segments, strict=True):
            share.of(slot, segment)


def shipment(
    before: Plan,
    after: Plan,
    moved: Sequence[int],
    shares: Sequence[DividedSegment],
    segments: Sequence[Searchable],
    now_us: int,
) -> Shipment:
    """What it would take to move the subscriptions of these partitions; machines work side by side."""
    sending, listing, indexing = np.zeros(before.executors), np.zeros(after.executors), np.zeros(after.executors)
    carried = 0
    for slot in moved:
        sender, receiver = before.partitions[slot].executor, after.partitions[slot].executor
        began_s = cpu_s()
        own = [share.of(slot, segment) for share, segment in zip(shares, segments, strict=True)]
        payloads = [
            pack_parcels(iter([p])).column("payload")[0].as_buffer()
            for p in subscription_parcels(own, before, slot, now_us)
        ]
        sending[sender] += cpu_s() - began_s
        carried += sum(payload.size for payload in payloads)
        began_s = cpu_s()
        listed = SubscriptionList.concatenate(
            [SubscriptionList.from_batch(pa.ipc.read_record_batch(p, WIRE)) for p in payloads]
        )
        read_s = cpu_s() - began_s
        began_s = cpu_s()
        PartitionSubs.whole(listed.searchable())
        listing[receiver] += read_s + cpu_s() - began_s
        began_s = cpu_s()
        listed.build_index(after.grid)
        indexing[receiver] += read_s + cpu_s() - began_s
    sent_s = sending.max()
    return Shipment(carried, float(sent_s + listing.max()) * 1e3, float(sent_s + indexing.max()) * 1e3)


def plot(result: Result) -> "Figure":
    drawn, (lines,) = figure(width_in=8.0, height_in=5.0)
    sizes = [row["subscriptions"] for row in result.rows]
    lines.plot(sizes, [_ours_ms(row) for row in result.rows], label="a new plan (ours)", linewidth=3.0)
    lines.plot(sizes, [row["lists_ms"] for row in result.rows], ":", label="of it, for the static side")
    for key, label in (("moved_ms", "the same, and moving lists (sPS)"), ("moved_indexed_ms", "and indexing (sPIS)")):
        lines.plot(sizes, [row["plan_ms"] + row[key] for row in result.rows], label=label)
    lines.set(
        title="Redistribution over the static side (Distributor Fig. 8)",
        xlabel="subscriptions",
        ylabel="ms of CPU time, without the network",
        xscale="log",
        yscale="log",
    )
    lines.legend()
    return drawn
