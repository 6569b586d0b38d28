"""The service times of a virtual machine, and how they are measured on the real matcher.

Queues and plans are in `cluster.py`. The time of one event on the executor that serves it is

    base_us + met_us × (queries that meet the event's grid cell) + index_us × log2(1 + queries in the executor's index)

In SWARM's cost model (§3) a point pays for all Q(p) queries of its partition. Neither its R*-trees nor the cell index
of `flow/match` work like that: an index tests only queries near the point, so the queries that meet its cell are what
grows with the load, and the size of the index matters only through its depth and the caches. The middle term makes a
crowded place expensive for any owner; only the last term is less for an executor with fewer queries, and it is the cost
of `replicated`. The strategies still get N·Q·R from TrioStat, as in the engine, so their estimate may be wrong here in
the same way as there.

`calibrate` fits the three coefficients to `flow/match` on this machine; it reads the thread's CPU clock, so it is
called by a benchmark and never within a simulated world. Where the defaults below come from:

    met_us, index_us   the fit on a 2-core x86 server under little load, parcels of 10 000 events, 5 repeats, two
                       seeds: 3.04 ns both, 1.41 ns both; no point is further than 18 % from it. Runs of more than
                       about 7 M matches, as of 10 000 events and 2 M queries, take twice as long a query
    base_us            `HOP_US`, from pipeline throughputs; the fit itself has no constant to speak of
    count_us           the same again: a batch that is counted before the exchange is read once more
    register_us        `subscriptions` benchmark: 838 000 a second in bulk
    route_us           a round figure: source, validate and route, half of the null pipeline's CPU time an event
    task_us            CPU time of Spark and its workers, 352 tasks with a Python stage against 22: 6 to 10 ms, median 9
    move_us            0 by design of the engine, whose rebalance copies no query; cold caches are left out
    MOVE_US_STORM      what the paper's machines do with a moved query: as much as registering it, at either end
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.arrays.least_squares import fit_nonnegative
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, build, codes_of, frame_of
from geoswarm.core.index.kernels import Records
from geoswarm.core.space.grid import Grid
from geoswarm.core.stats.density import Density
from geoswarm.flow.exchange import pack_parcels, unpack_parcels
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.merge import as_arrays
from geoswarm.flow.route import Parcel
from geoswarm.model import EVENT
from geoswarm.run.sim.workloads import CalmStream

HOP_US = 0.3
"""The time of a `mapInArrow` per row: 2 cores carry 3.7 M rows/s through the exchange, 2.4 M rows/s with one added."""
REGISTER_US = 1.2
MOVE_US_STORM = REGISTER_US


@dataclass(frozen=True)
class Service:
    """Microseconds of CPU on one machine."""

    base_us: float = HOP_US
    met_us: float = 0.00304
    index_us: float = 0.00141
    route_us: float = 0.5
    """Per event on a router."""
    register_us: float = REGISTER_US
    """Per query and executor that must index it; the same for a cancellation."""
    move_us: float = 0.0
    """Per query that changes its executor, for giver and taker. The engine copies none; SWARM's own machines send and
    index each again."""

    task_us: float = 9_000.0
    """Per Spark task with a Python stage, beyond the one that each machine always runs for a batch."""
    count_us: float = HOP_US
    """Per event whose cell is counted before the exchange."""

    def event_s(self, met: Ints, indexed: float | Floats) -> Floats:
        """Seconds per event, from the queries that meet its cell and those in the index that it is looked up in."""
        us: Floats = self.base_us + self.met_us * met + self.index_us * np.log2(1.0 + np.asarray(indexed, np.float64))
        return us * 1e-6


class Measurement(NamedTuple):
    """One point of the calibration."""

    indexed: int
    met: float
    """The mean number of queries that meet the cell of an event."""
    event_us: float


def measure_service(
    workload: CalmStream, grid: Grid, subscriptions: int, map_share: float, events: int, repeats: int
) -> Measurement:
    """CPU per event of one executor that owns the middle `map_share` of the columns of the map: its parcel unpacked,
    matched, and its matches put into rows, best of `repeats`."""
    width = grid.xmax - grid.xmin
    low, high = grid.xmin + width * (0.5 - map_share / 2), grid.xmin + width * (0.5 + map_share / 2)
    rows = workload.subscriptions(0, subscriptions)
    rects = np.stack([np.asarray(rows.column(side), np.float64) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)
    rects = rects[(rects[:, 2] >= low) & (rects[:, 0] <= high)]
    order = sort_order(codes_of(_column(rects, 0), _column(rects, 3), frame_of(grid)), CODE_MAX)
    rects = rects[order]
    index = Searchable(Records.of(rects, np.arange(len(rects))), build(grid, rects))

    drawn = workload.events(0, int(events * 4 / map_share))
    x = drawn.column("x").to_numpy()
    drawn = drawn.take(pa.array(np.flatnonzero((x >= low) & (x <= high))[:events]))
    x, y = drawn.column("x").to_numpy(), drawn.column("y").to_numpy()
    drawn = drawn.take(pa.array(sort_order(codes_of(x, y, frame_of(grid)), CODE_MAX)))
    parcel = pack_parcels(iter([Parcel(0, 0, drawn)]))

    density = Density(grid)
    density.add(grid.cover(*(_column(rects, i) for i in range(4))))
    met = density.of_cells()[grid.locate(x, y)].mean()
    best_s = math.inf
    for _ in range(repeats):
        began_s = time.thread_time()
        for received in unpack_parcels(parcel, EVENT):
            for run in match(received.events, [index], grid, 0, rows_max=262_144, pairs_max=8_000_000):
                as_arrays(run)
        best_s = min(best_s, time.thread_time() - began_s)
    return Measurement(len(rects), float(met), best_s / len(drawn) * 1e6)


def calibrate(
    workload: CalmStream,
    grid: Grid,
    sizes: Iterable[int] = (30_000, 100_000, 300_000, 1_000_000),
    map_shares: Iterable[float] = (1.0, 0.2, 0.04),
    *,
    events: int = 10_000,
    repeats: int = 3,
) -> tuple[Service, list[Measurement]]:
    """The service times of this machine, and the points they were fitted to."""
    shares = list(map_shares)
    points = [measure_service(workload, grid, n, share, events, repeats) for n in sizes for share in shares]
    kernels = fit(points)
    return replace(kernels, base_us=HOP_US + kernels.base_us), points


def fit(points: list[Measurement]) -> Service:
    """Least squares of the relative errors, no term below zero."""
    terms = np.array([[1.0, p.met, math.log2(1.0 + p.indexed)] for p in points])
    taken = np.array([p.event_us for p in points])
    base_us, met_us, index_us = fit_nonnegative(terms / taken[:, None], np.ones(len(points))).tolist()
    return Service(base_us=base_us, met_us=met_us, index_us=index_us)


def _column(rects: Floats, i: int) -> Floats:
    return np.ascontiguousarray(rects[:, i])
