"""Subscriptions at rest: how fast they come and go, in bulk and in a stream, what they weigh, how soon they serve.

No Spark: the driver's own work, through `store/checkpoint.py`, on a temporary folder; every figure includes the fsync
that acknowledges it. The wall clock counts here, because the stream waits for it. `many_subscriptions.py` measures as
many as the machine holds.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.grid import Grid
from geoswarm.errors import GeoswarmError
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.route import route
from geoswarm.lab.bench.engine.many_subscriptions import ManySizes, measure_many
from geoswarm.lab.bench.engine.mapped_pages import evict_files, mapped_bytes, unmap_pages
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BULK_ROWS = 1_000_000
"""Rows of one call, as `Engine.load` cuts a file."""
EXECUTORS = 16
NOW_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class SubscriptionSizes:
    subscriptions: int
    stream_subscriptions: int
    """Subscriptions that the stream of operations starts from."""
    streams: tuple[tuple[int, int], ...]
    """Operations per batch, and batches."""
    events: int
    many: ManySizes


SIZES = {
    Scale.SMALL: SubscriptionSizes(
        1_000_000,
        1_000_000,
        ((1_000, 60), (10_000, 200), (100_000, 12)),
        100_000,
        ManySizes(3_000_000, 300_000, events=200_000, turns=3),
    ),
    Scale.FULL: SubscriptionSizes(
        10_000_000,
        10_000_000,
        ((1_000, 200), (10_000, 400), (100_000, 40)),
        500_000,
        ManySizes(100_000_000, 1_000_000, events=500_000, turns=5),
    ),
}
PAUSE_OPERATIONS = 10_000
"""Operations of the batches whose pauses are counted."""


class Taken(NamedTuple):
    wall_s: float
    """The time that the stream waits, with the time of the disk and of other processes in it."""
    cpu_s: float


def measure(sizes: SubscriptionSizes, seed: int, report: Progress) -> Result:
    workload, rows = Tweets(seed=seed), []
    with tempfile.TemporaryDirectory() as folder:
        report("warming up the kernels")
        _warm_store(f"{folder}/warm", workload)
        root = f"{folder}/bulk"
        checkpoint = _open(root)
        bulk_s = _register(checkpoint, workload, sizes.subscriptions, report)
        held = checkpoint.manifest
        _expect(held.subs, sizes.subscriptions, "registered")
        checkpoint.close()
        del checkpoint
        rows += _weigh_mappings(Storage(root), held, workload, sizes.events, report)
        rows += (started := _start(root, workload, report))
        checkpoint = _open(root)
        cancelled = sizes.subscriptions // 2
        cancel_s = _cancel(checkpoint, np.random.default_rng(seed).permutation(sizes.subscriptions)[:cancelled], report)
        _expect(checkpoint.manifest.subs, sizes.subscriptions - cancelled, "left")
        checkpoint.close()
        checkpoint = _open(f"{folder}/stream")
        bulk_s += _register(checkpoint, workload, sizes.stream_subscriptions, report)
        batch, first = 0, 0
        for operations, batches in sizes.streams:
            begin, size = (batch, first), (operations, batches)
            rows.append(_stream_operations(checkpoint, workload, sizes.stream_subscriptions, begin, size, report))
            batch, first = batch + batches, first + operations * batches
        _expect(checkpoint.manifest.subs, sizes.stream_subscriptions, "left")
        checkpoint.close()
        many, figures = measure_many(folder, sizes.many, seed, report)
    rows.insert(0, _row("register in bulk", sizes.subscriptions + sizes.stream_subscriptions, bulk_s))
    rows.insert(1, _row("cancel in bulk", cancelled, cancel_s))
    streams = [row for row in rows if row["what"].startswith("stream")]
    pauses = min(streams, key=lambda row: abs(row["operations_per_batch"] - PAUSE_OPERATIONS))
    share = [row["mapped_bytes_per_subscription"] for row in rows if row["what"].startswith("match by")]
    summary = {
        "bulk_register_per_s": rows[0]["per_s"],
        "bulk_register_per_cpu_s": rows[0]["per_cpu_s"],
        "bulk_cancel_per_s": rows[1]["per_s"],
        "stream_operations_per_s": max(row["per_s"] for row in streams),
        "stream_batch_ms_median": streams[len(streams) // 2]["ms_median"],
        "stream_batch_ms_max": max(row["ms_max"] for row in streams),
        "pause_ms_p99": pauses["ms_p99"],
        "bytes_per_subscription": held.bytes / held.subs,
        "mapped_share_of_one_executor": share[0] / share[1] if share else 1.0,
        "cold_start_s": started[0]["ms_median"] / 1e3,
    } | figures
    config = {
        "subscriptions": sizes.subscriptions,
        "side_share": workload.side_share,
        "grid": [Contract().columns, Contract().rows],
        "bulk_rows": BULK_ROWS,
        "executors": EXECUTORS,
        "bulk_cancel": "half of all, in scrambled order, the rewriting of segments included",
        "stream": "half of the operations register, half cancel; a batch is prepare and finish, merges run beside it",
        "stream_subscriptions": sizes.stream_subscriptions,
        "pause_operations": pauses["operations_per_batch"],
        "100m": f"{sizes.many.most:,} subscriptions",
        "1m": f"{sizes.many.few:,} subscriptions, of which an event meets as many as of the others",
    }
    return Result(rows + many, summary, config)


def _open(root: str) -> Checkpoint:
    return Checkpoint(root, Contract(executors=EXECUTORS), Tuning())


def _register(checkpoint: Checkpoint, workload: Tweets, count: int, report: Progress) -> list[Taken]:
    """The time of each call."""
    taken: list[Taken] = []
    for start in range(0, count, BULK_ROWS):
        report(f"registering in bulk, {start:,} of {count:,}")
        table = pa.table(workload.subscriptions(start, min(BULK_ROWS, count - start)))
        with _clock_into(taken):
            checkpoint.submit(table)
            checkpoint.fold(NOW_US)
    with _clock_into(taken):
        checkpoint.settle(NOW_US)
    return taken


def _cancel(checkpoint: Checkpoint, chosen: Ints, report: Progress) -> list[Taken]:
    taken: list[Taken] = []
    for start in range(0, len(chosen), BULK_ROWS):
        report(f"cancelling in bulk, {start:,} of {len(chosen):,}")
        table = _cancellations(chosen[start : start + BULK_ROWS])
        with _clock_into(taken):
            checkpoint.submit(table)
            checkpoint.fold(NOW_US)
    with _clock_into(taken):
        checkpoint.settle(NOW_US)
    return taken


def _stream_operations(
    checkpoint: Checkpoint,
    workload: Tweets,
    registered: int,
    begin: tuple[int, int],
    size: tuple[int, int],
    report: Progress,
) -> dict[str, Any]:
    (batch, first), (operations, batches) = begin, size
    report(f"streaming {batches} batches of {operations:,} operations")
    taken: list[Taken] = []
    for i in range(batches):
        table = pa.table(workload.operations(first + i * operations, operations, registered))
        with _clock_into(taken):
            checkpoint.prepare(batch + i, lambda t=table: [t], NOW_US)  # type: ignore[misc]
            checkpoint.finish(batch + i)
    row = _row(f"stream, {operations:,} per batch", operations * batches, taken)
    p99_ms = float(np.quantile([each.wall_s for each in taken], 0.99)) * 1e3
    return row | {"operations_per_batch": operations, "ms_p99": round(p99_ms, 1)}


def _weigh_mappings(
    storage: Storage, manifest: Any, workload: Tweets, events: int, report: Progress
) -> list[dict[str, Any]]:
    """The memory that matching maps: all events by one process, and each sixteenth of the world by one of its own."""
    if not Path("/proc/self/smaps").exists():
        return []
    report("weighing what matching touches")
    grid = Grid.of(Contract())
    view = View.open(storage, manifest)
    segments = view.searchables()
    parcels = list(route(workload.events(0, events), uniform(grid, EXECUTORS)))
    touched = {}
    for executor in range(EXECUTORS):
        unmap_pages(view)
        for parcel in parcels:
            if parcel.executor == executor:
                _match_all(parcel.events, segments, grid)
        touched[executor] = mapped_bytes(storage)
    unmap_pages(view)
    for parcel in parcels:
        _match_all(parcel.events, segments, grid)
    whole = mapped_bytes(storage)
    busiest = max(touched.values())
    return [
        {
            "what": f"match by 1 of {EXECUTORS} (busiest)",
            "mapped_bytes_per_subscription": round(busiest / manifest.subs, 1),
        },
        {"what": "match by one process", "mapped_bytes_per_subscription": round(whole / manifest.subs, 1)},
        {"what": "on disk", "mapped_bytes_per_subscription": round(manifest.bytes / manifest.subs, 1)},
    ]


def _start(root: str, workload: Tweets, report: Progress) -> list[dict[str, Any]]:
    """Open the checkpoint and match one batch, with its files out of the page cache, and again with them in it."""
    rows, events = [], workload.events(0, 1_000)
    for name, evicted in (("start, files evicted", True), ("start, files in memory", False)):
        report(name)
        gc.collect()
        if evicted:
            evict_files(Path(root))
        taken: list[Taken] = []
        with _clock_into(taken):
            checkpoint = _open(root)
            view = View.open(checkpoint.storage, checkpoint.manifest)
            segments = view.searchables()
            for parcel in route(events, checkpoint.plan):
                _match_all(parcel.events, segments, checkpoint.grid)
        checkpoint.close()
        rows.append(_row(name, checkpoint.manifest.subs, taken))
    return rows


def _match_all(events: pa.RecordBatch, segments: list[Searchable], grid: Grid) -> None:
    tuning = Tuning()
    for _ in match(events, segments, grid, NOW_US, rows_max=tuning.match_rows_max, pairs_max=tuning.match_pairs_max):
        pass


def _cancellations(ids: Ints) -> pa.Table:
    return pa.table({"op": pa.repeat(pa.scalar("cancel"), len(ids)), "sub_id": pa.array(ids)})


def _warm_store(root: str, workload: Tweets) -> None:
    checkpoint = _open(root)
    _register(checkpoint, workload, 2_000, lambda _: None)
    for batch in range(12):  # enough to merge
        table = pa.table(workload.operations(batch * 100, 100, 2_000))
        checkpoint.prepare(batch, lambda t=table: [t], NOW_US)  # type: ignore[misc]
        checkpoint.finish(batch)
    checkpoint.close()


def _expect(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise GeoswarmError(f"{found} subscriptions are {what} instead of {wanted}: nothing was measured")


@contextmanager
def _clock_into(taken: list[Taken]) -> Iterator[None]:
    began = Taken(time.perf_counter(), time.process_time())
    yield
    taken.append(Taken(time.perf_counter() - began.wall_s, time.process_time() - began.cpu_s))


def _row(what: str, operations: int, taken: list[Taken]) -> dict[str, Any]:
    walls_s = [each.wall_s for each in taken]
    return {
        "what": what,
        "operations": operations,
        "per_s": round(operations / sum(walls_s)),
        "per_cpu_s": round(operations / sum(each.cpu_s for each in taken)),
        "ms_median": round(median(walls_s) * 1e3, 1),
        "ms_max": round(max(walls_s) * 1e3, 1),
    }


def plot(result: Result) -> "Figure":
    rows = {row["what"]: row for row in result.rows}
    drawn, (rates, pauses) = figure(2, width_in=5.6)
    named = [what for what, row in rows.items() if "bulk" in what or what.startswith("stream")]
    rates.barh(named[::-1], [rows[what]["per_s"] / 1e3 for what in named[::-1]])
    rates.set(xlabel="thousand operations per second", title="Register and cancel")
    streams = [what for what in named if what.startswith("stream")]
    places = np.arange(len(streams))
    pauses.bar(places - 0.2, [rows[s]["ms_median"] for s in streams], 0.4, label="median batch")
    pauses.bar(places + 0.2, [rows[s]["ms_max"] for s in streams], 0.4, label="longest")
    pauses.set_xticks(places, [s.split()[1] for s in streams])
    pauses.set(xlabel="operations per batch", ylabel="milliseconds", title="How long the stream waits")
    pauses.legend()
    return drawn
