"""The pipelines and modes of the Distributor paper on the real engine, one after the other over the same streams.

Measures for others (`skew.py`, `course.py`, `fig8.py`). Every publication is validated, routed, exchanged and matched
by Spark; what a batch would take on sixteen machines is projected from the CPU time that its tasks report.
Routing, and packing subscriptions that travel, is shared out among the machines; then the batch ends with its costliest
executor (`kit/projection.py`). Left out: the network, starting tasks, and the merger, which is the same for all
modes of a pipeline. The network would be dearest for the joins at the stream.

Time goes on by batches: each is a round (D, 10 s in Table 1). The first batch, in which workers map the segments and
make what they keep of them, is not counted; the batches before a redistribution are. Distributor §4.4 to §4.6.

    collisions ──► level plan: 16 executors of 16 partitions ──► 3 are hot ──► `skew` of the stream is theirs
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoswarm.config import Contract, Tuning
from geoswarm.control.outcome import RoundEntry
from geoswarm.control.registry import first_plan
from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.index.kernels import Records
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError
from geoswarm.flow.rivals.shares import home_slots
from geoswarm.lab.bench.kit.batch_log import batches, rounds
from geoswarm.lab.bench.kit.projection import makespan_us
from geoswarm.lab.workload.collisions import Collisions
from geoswarm.lab.workload.postcodes import BOUNDS, Britain
from geoswarm.lab.workload.skew import Hot, hot_executors, resample
from geoswarm.run.sinks import Noop
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.store import plans
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage

MACHINES = 16
CELLS_PER_SIDE = 1000
ROUND_S = 10.0
POOL = 40_000
"""Publications that a stream for RIhPS is chosen from."""
WARM_BATCHES = 1
HASHED = "rihps"
INDEXED = "spis"
PIPELINES = ("sps", INDEXED, HASHED, "risps")
STATIC, LOAD, DATA, AUTO = "distributor-static", "distributor", "distributor-data", "distributor-auto"


class Mode(NamedTuple):
    strategy: str
    join_at: str

    @property
    def name(self) -> str:
        return f"{NAMES[self.strategy]} {'STAL' if self.join_at == 'static' else 'STRL'}"


DEFAULT = "auto"
NAMES = {STATIC: "Static", LOAD: "Dynamic LB", DATA: "Dynamic DB", AUTO: "Auto", DEFAULT: "Default"}
"""The paper's names; `distributor-auto` and `auto`, the engine's default, are ours."""
MODES = tuple(Mode(strategy, side) for strategy in (LOAD, DATA, STATIC) for side in ("static", "stream"))
OURS, BASE, BEST = Mode(LOAD, "static"), Mode(STATIC, "static"), Mode(DEFAULT, "static")


class CollisionSizes(NamedTuple):
    subscriptions: int
    batch_events: int
    batches: int
    """Batches of a run, the first included."""


@dataclass(frozen=True)
class CostedBatch:
    """One batch under one mode."""

    events: int
    makespan_s: float
    """The time of routing, and then of the costliest executor."""
    route_s: float
    """What one machine takes to route its share."""
    mean_s: float
    """The mean over executors: what perfect balance would take."""
    mldc: float
    """The maximum load distance coefficient, from the CPU time of the executors in this batch alone."""
    plan_epoch: int
    costs_us: Mapping[int, float]
    """CPU time of matching, by the partition's place in the plan."""
    owners: Sequence[int]
    """The executors of the partitions, in order."""


class PlannedEntry(NamedTuple):
    """A batch of the journal, with its plan."""

    entry: BatchEntry
    partition_ids: list[int]
    owners: list[int]
    """The executors of the partitions, both in the order of the plan. A strategy that takes over draws the same
    partitions, but gives them new ids: places in the plan are the same."""
    is_spread: bool = False
    """Whether several executors share a partition."""


class CollisionRuns:
    """One country and its subscriptions, loaded once; each run begins with a copy of the checkpoint."""

    def __init__(self, spark: Any, country: Britain, sizes: CollisionSizes, seed: int, root: Path) -> None:
        self._spark, self._sizes, self._seed, self._root = spark, sizes, seed, root
        self.collisions = Collisions(country, seed=seed, events_per_s=sizes.batch_events / ROUND_S)
        self.sample = Sample(country.places, np.empty((0, 4)))
        self._contract = Contract(bounds=BOUNDS, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE, executors=MACHINES)
        self.plan: Plan = first_plan(LOAD, self.sample, Grid.of(self._contract), MACHINES)
        self.hot: Hot = hot_executors(self.plan, country.places, np.random.default_rng(seed))
        rows = pa.table(self.collisions.subscriptions(0, sizes.subscriptions))
        pq.write_table(rows, root / "subscriptions.parquet")
        self.loaded = root / "loaded"
        with self._engine(self.loaded, {"strategy": LOAD}) as engine:  # its runs go on with `plan`; others take over
            engine.load(str(root / "subscriptions.parquet"))

    def run(self, pipeline: str, mode: Mode, skew: float) -> tuple[list[CostedBatch], list[RoundEntry]]:
        """All batches with the first, and the rounds that ended with each but the first."""
        planned, decided = self.entries(pipeline, mode, skew)
        return [cost_batch(one) for one in planned], decided

    def entries(self, pipeline: str, mode: Mode, skew: float) -> tuple[list[PlannedEntry], list[RoundEntry]]:
        """The batches and rounds of a run as the journal has them."""
        checkpoint = self._root / "run"
        shutil.copytree(self.loaded, checkpoint)
        try:
            self._start(checkpoint, pipeline, mode, self._stream(pipeline, skew))
            storage = Storage(str(checkpoint))
            planned = [_with_plan(storage, entry) for entry in batches(checkpoint)]
            decided = rounds(checkpoint)
        finally:
            shutil.rmtree(checkpoint)
        if not all(one.entry.matches for one in planned) or len(planned) != self._sizes.batches:
            raise InputError(
                f"{mode.name} of {pipeline} matched nothing in some of {len(planned)} batches of {self._sizes.batches}:"
                " draw more subscriptions"
            )
        return planned, decided

    def _start(self, checkpoint: Path, pipeline: str, mode: Mode, folder: Path) -> None:
        named = {"strategy": mode.strategy, "pipeline": pipeline, "join_at": mode.join_at}
        with self._engine(checkpoint, named) as engine:
            events = sources.events_from_files(self._spark, str(folder), format="parquet", files_per_batch=1)
            engine.start(events=events, sink=Noop(), available_now=True).wait()

    def _engine(self, checkpoint: Path, named: dict[str, str]) -> Engine:
        """Its time begins with the stream, and a batch is a round."""
        # What is measured are tasks, also where batches are small.
        tuning = Tuning.model_validate(named | {"round_s": ROUND_S, "driver_bytes_max": 0})
        ticks = count(self.collisions.start_s, ROUND_S)
        return Engine(
            self._spark,
            self._contract,
            tuning,
            checkpoint=str(checkpoint),
            sample=self.sample,
            clock=lambda: float(next(ticks)),
        )

    def _stream(self, pipeline: str, skew: float) -> Path:
        hashed = pipeline == HASHED
        folder = self._root / f"events-{'hash' if hashed else 'space'}-{skew}"
        if not folder.exists():
            folder.mkdir()
            for batch in range(self._sizes.batches):
                first, events = batch * self._sizes.batch_events, self._sizes.batch_events
                if hashed:
                    rows = self._draw_hashed(first, events, skew)
                else:
                    rows = self.collisions.publications(first, events, hot=self.hot, share=skew)
                pq.write_table(pa.table(rows), folder / f"{batch:05d}.parquet")
        return folder

    def _draw_hashed(self, first: int, events: int, skew: float) -> pa.RecordBatch:
        pool, hot_shares, loads = self._pool
        drawn = resample(hot_shares, skew, events, np.random.default_rng((self._seed, first)), loads=loads)
        return self.collisions.replay(pool, drawn.rows, first)

    @cached_property
    def _pool(self) -> tuple[pa.RecordBatch, Floats, Floats]:
        """Publications, how much of each falls to who is hot where ids are hashed, and how many candidates it has."""
        rows = self.collisions.subscriptions(0, self._sizes.subscriptions)
        pool = self.collisions.publications(0, POOL)
        rects = shapely.bounds(shapely.from_wkb(rows.column("geometry").to_numpy(zero_copy_only=False)))
        records = Records.of(rects, rows.column("sub_id").to_numpy())
        owners = self.plan.executor_of_slot[home_slots(records, self.plan, HASHED)]
        return pool, *hot_loads(_boxes(pool), rects, np.isin(owners, self.hot.executors))


def hot_loads(boxes: Floats, rects: Floats, are_hot: Any) -> tuple[Floats, Floats]:
    """For each publication, by the rectangle round it: the share of hot ones among those it may match, and how many it
    may match."""
    row, met = shapely.STRtree(shapely.box(*rects.T)).query(shapely.box(*boxes.T))
    loads = np.bincount(row, minlength=len(boxes)).astype(np.float64)
    hot = np.bincount(row, weights=are_hot[met], minlength=len(boxes))
    return hot / np.maximum(loads, 1.0), loads


def _boxes(publications: pa.RecordBatch) -> Floats:
    x, y = (publications.column(name).to_numpy() for name in ("x", "y"))
    boxes = np.stack([x, y, x, y], axis=1)
    geometry = publications.column("geometry")
    areas: Ints = np.flatnonzero(np.asarray(geometry.is_valid()))
    boxes[areas] = shapely.bounds(shapely.from_wkb(geometry.take(pa.array(areas)).to_numpy(zero_copy_only=False)))
    return boxes


def _with_plan(storage: Storage, entry: BatchEntry) -> PlannedEntry:
    partitions = plans.at(storage, entry.plan_epoch).partitions
    shared = any(len(p.turns) > 1 for p in partitions)
    return PlannedEntry(entry, [p.id for p in partitions], [p.executor for p in partitions], shared)


def cost_batch(planned: PlannedEntry) -> CostedBatch:
    entry, ids = planned.entry, planned.partition_ids
    route_s = entry.route_cpu_us / MACHINES * 1e-6
    if planned.is_spread:  # what each executor has taken, as if it were a partition of its own
        spent_us = {executor: float(load.cpu_us) for executor, load in entry.executors.items()}
        return project_costs(entry.events_in, entry.plan_epoch, route_s, spent_us, range(MACHINES))
    costs_us = {ids.index(i): float(load.cpu_us) for i, load in entry.partitions.items()}
    return project_costs(entry.events_in, entry.plan_epoch, route_s, costs_us, planned.owners)


def project_costs(
    events: int, plan_epoch: int, route_s: float, costs_us: Mapping[int, float], owners: Sequence[int]
) -> CostedBatch:
    """A batch with these costs under a plan."""
    match_us = np.zeros(MACHINES)
    for partition, cost_us in costs_us.items():
        match_us[owners[partition]] += cost_us
    worst_s, mean_s = makespan_us(match_us.tolist(), MACHINES) * 1e-6, float(match_us.mean()) * 1e-6
    mldc = worst_s / mean_s - 1.0 if mean_s else 0.0
    return CostedBatch(events, route_s + worst_s, route_s, mean_s, mldc, plan_epoch, costs_us, owners)


def at_common_costs(runs: Sequence[Sequence[CostedBatch]]) -> list[list[CostedBatch]]:
    """The same runs, of one stream through one pipeline, joined at one side, with the noise taken out: a partition does
    the same work in a batch whoever has it, so that it has one cost for all, the median of what was measured."""
    common = []
    for same in zip(*runs, strict=True):
        partitions = sorted({partition for batch in same for partition in batch.costs_us})
        costs_us = {i: float(np.median([batch.costs_us.get(i, 0.0) for batch in same])) for i in partitions}
        route_s = float(np.median([batch.route_s for batch in same]))
        common.append([project_costs(b.events, b.plan_epoch, route_s, costs_us, b.owners) for b in same])
    return [list(run) for run in zip(*common, strict=True)]


def publications_per_s(run: Sequence[CostedBatch]) -> float:
    """Publications per second over the whole run but for the first batches."""
    counted = run[WARM_BATCHES:]
    return sum(batch.events for batch in counted) / sum(batch.makespan_s for batch in counted)


def latency_s(run: Sequence[CostedBatch]) -> float:
    """Mean over publications. Batches of one size follow one another, as they do where publications wait in a queue: on
    average one waits for half of the batch before its own, in which it came, and then for the whole of its own. That
    before the first counts as if it had been as long as the first."""
    own = run[WARM_BATCHES:]
    waits = [0.5 * before.makespan_s + batch.makespan_s for before, batch in zip([own[0], *own], own, strict=False)]
    return float(np.average(waits, weights=[batch.events for batch in own]))
