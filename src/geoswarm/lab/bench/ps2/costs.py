"""PS2Stream Definition 1: c1 to c4 of its load model, and what dividing terms and Spark's exchange cost.

No other code reads its result; the defaults of `control/layout/load_model.py` are what it once gave, and `C1_US` there
is its c1 by the number of subscriptions.
All stages run as they do in the engine, one after the other and without Spark; what its exchange takes is measured
apart.

    c1               (matching all subscriptions - matching a quarter of them) / entries more of lists that are met
    c2               (all stages with 8 shares of the terms - with 2) / visits more
    divided_event    all stages with 2 shares - with none, but for the visits
    c3, c4           a batch of registrations, and of cancellations, in the store
    c3_entry         c3 by the lists (block, term) that a subscription is entered into
    exchange         CPU of all processes: (sending every parcel 8 times through Spark - sending it 2 times) / rows more
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import Tuning
from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import Place, plan_of
from geoswarm.control.layout.terms import by_load
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.tokens import tokenize
from geoswarm.errors import InputError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import PACKED, pack_parcels, unpack_parcels
from geoswarm.flow.match.match import Searchable, TermShare, match
from geoswarm.flow.merge import as_arrays, join_rows
from geoswarm.flow.route import route
from geoswarm.flow.route_terms import route_terms, travel_schema
from geoswarm.flow.stages.task import Body
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median
from geoswarm.lab.bench.kit.process_tree import Watch
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.posts import Posts, QueryKind
from geoswarm.run.spark.rows import SparkRows
from geoswarm.store.manifest import EMPTY, Manifest
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import Churn, Store, View

TASKS, EXECUTORS = 2, 8
SENDINGS = (2, 8)
REPEATS = 3
"""Repetitions of each search, of which the fastest counts: other work on the machine only ever adds."""
MEASURED = ("c1_check", "c2_event", "c3_insertion", "c4_deletion", "divided_event", "c3_entry")
SHARES = (2, 8)
"""Numbers of shares into which terms are divided, to see what more visits cost."""
SAMPLE = 20_000
"""Events, and subscriptions, by which they are divided."""
COUNTRIES = ("US", "GB")
QUERY_SETS: tuple[QueryKind, ...] = ("Q1", "Q2")
CELLS_PER_SIDE = 1000


class LoadModelSizes(NamedTuple):
    rows: int
    """Posts, and as many queries."""
    most: int
    """Queries for c1 in a large index; `c1_most_us`."""


SIZES = {Scale.SMALL: LoadModelSizes(50_000, 200_000), Scale.FULL: LoadModelSizes(300_000, 1_200_000)}
MOST_EVENTS = 40_000
"""Posts for c1 in a large index, where each has hundreds of matches."""


def measure(sizes: LoadModelSizes, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for country in COUNTRIES:
        for queries in QUERY_SETS:
            report(f"{country} {queries}")
            posts = Posts(seed=seed, country=country)
            grid = Grid(*posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)
            events, asked = posts.events(0, sizes.rows), posts.subscriptions(0, sizes.rows, queries=queries)
            with tempfile.TemporaryDirectory() as folder:
                costs = measure_costs(folder, grid, events, asked, time.process_time)
            report(f"{country} {queries}, {sizes.most} subscriptions")
            asked, some = posts.subscriptions(0, sizes.most, queries=queries), events.slice(0, MOST_EVENTS)
            with tempfile.TemporaryDirectory() as folder:
                c1_most = measure_c1(folder, grid, some, asked, time.process_time)
            rows.append({"country": country, "queries": queries, **vars(costs), "c1_most": c1_most})
    summary = {f"{name}_us": median([row[name] for row in rows]) for name in (*MEASURED, "c1_most")}
    report("Spark's exchange")
    with bench_session() as spark:
        summary["exchange_us"] = exchange_us(spark, Posts(seed=seed, country="US").events(0, sizes.rows))
    return Result(rows, summary, {**sizes._asdict(), "cells_per_side": CELLS_PER_SIDE})


def exchange_us(spark: Any, events: pa.RecordBatch) -> float:
    """What a row that is packed already costs: from Python to Java, written, read, and back."""
    grid = Grid(*Posts().bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)
    parcels = pack_parcels(route(events, uniform(grid, EXECUTORS)))
    taken_s: dict[int, list[float]] = {times: [] for times in SENDINGS}
    with Watch(os.getpid()) as watch:
        for _ in range(REPEATS + 1):  # one more, to warm up
            for times in SENDINGS:
                watch.restart()
                sent = SparkRows(spark.range(0, TASKS, 1, TASKS)).map(_sending(parcels, times), PACKED)
                sent.exchange(EXECUTORS).map(_count_rows, pa.schema([("rows", pa.int64())])).to_arrow()
                taken_s[times].append(watch.read()[0])
    few, many = (min(taken_s[times][1:]) for times in SENDINGS)
    return 1e6 * max(many - few, 0.0) / ((SENDINGS[1] - SENDINGS[0]) * TASKS * len(events))


def _sending(parcels: pa.RecordBatch, times: int) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(times * len(batch)):
                yield parcels

    return run


def _count_rows(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(len(batch) for batch in batches)]})


def measure_costs(
    folder: str, grid: Grid, events: pa.RecordBatch, registrations: pa.RecordBatch, clock: Callable[[], float]
) -> Costs:
    """`events` have a text, `registrations` are of `columns.OPERATION`; some ten thousand of each. `folder` is empty,
    and `clock` gives seconds."""
    sample = _text_sample(grid, events, registrations)
    if not sample.checks.sum():
        raise InputError(
            f"{len(events)} events meet no list of {len(registrations)} subscriptions: give more, from the same places"
        )
    counts = TermCounts.empty()
    counts.add(tokenize(events.column("text")))  # so that lists are under the words that the sample takes to be rarest
    store = Store(Storage(folder), grid, Tuning(), counts)
    packed = pack_parcels(route(events, uniform(grid, 1)))
    _apply(store, EMPTY, registrations.slice(0, 1), clock)  # compiles the kernels
    quarter = registrations.slice(0, len(registrations) // 4)
    part = _segments(store, _apply(store, _empty_manifest(1), quarter, clock).manifest)
    full = _apply(store, _empty_manifest(2), registrations, clock)
    cancels = registrations.set_column(0, OPERATION.field("op"), pa.array(["cancel"] * len(registrations)))
    ended = _apply(store, replace(full.manifest, version=3), cancels, clock)
    segments = _segments(store, full.manifest)
    part_s, all_s = (_searching_s(packed, events.schema, some, grid, clock) for some in (part, segments))
    more = int(sample.checks.sum()) - int(_text_sample(grid, events, quarter).checks.sum())
    entries = max(1, sample.entries)
    few, many = (_all_stages(events, _by_terms(sample, shares), segments, clock) for shares in SHARES)
    whole = _all_stages(events, uniform(grid, 1), segments, clock)
    visit_s = max(many.taken_s - few.taken_s, 0.0) / max(1, many.copies - few.copies)
    return Costs(
        c1_check=1e6 * max(all_s - part_s, 0.0) / max(1, more),
        c2_event=1e6 * visit_s,
        c3_insertion=1e6 * full.taken_s / len(registrations),
        c4_deletion=1e6 * ended.taken_s / len(registrations),
        divided_event=1e6 * max(few.taken_s - few.copies * visit_s - whole.taken_s, 0.0) / len(events),
        c3_entry=1e6 * full.taken_s / entries,
    )


def measure_c1(
    folder: str, grid: Grid, events: pa.RecordBatch, registrations: pa.RecordBatch, clock: Callable[[], float]
) -> float:
    """c1 between a quarter of the registrations and all, in microseconds."""
    counts = TermCounts.empty()
    counts.add(tokenize(events.column("text")))
    store = Store(Storage(folder), grid, Tuning(), counts)
    packed = pack_parcels(route(events, uniform(grid, 1)))
    taken_s, checks = [], []
    for version, count in ((1, len(registrations) // 4), (2, len(registrations))):
        some = registrations.slice(0, count)
        segments = _segments(store, _apply(store, _empty_manifest(version), some, clock).manifest)
        taken_s.append(_searching_s(packed, events.schema, segments, grid, clock))
        checks.append(int(_text_sample(grid, events, some).checks.sum()))
    return 1e6 * max(taken_s[1] - taken_s[0], 0.0) / max(1, checks[1] - checks[0])


class _Stages(NamedTuple):
    taken_s: float
    copies: int


def _by_terms(sample: TextSample, shares: int) -> Plan:
    whole = Unit.whole(sample.of_events(np.arange(min(SAMPLE, sample.events))))
    place = Place(whole.box, tuple(range(shares)), by_load(whole, shares, COSTS))
    return plan_of(shares, sample, [place])


def _all_stages(events: pa.RecordBatch, plan: Plan, segments: list[Searchable], clock: Callable[[], float]) -> _Stages:
    """route, pack, unpack, match, and merge where terms are divided."""
    limits, copies, times_s = Tuning(), 0, []
    for _ in range(REPEATS + 1):  # one more, to warm up
        began_s = clock()
        if plan.siblings:
            sent = route_terms(events, plan, segments, 0)
            packed, copies = pack_parcels(sent.parcels), sent.copies
        else:
            packed = pack_parcels(route(events, plan))
        rows: list[pa.RecordBatch] = []
        for parcel in unpack_parcels(packed, travel_schema(events.schema) if plan.siblings else events.schema):
            for met in match(
                parcel.events,
                segments,
                plan.grid,
                0,
                rows_max=limits.match_rows_max,
                pairs_max=limits.match_pairs_max,
                terms=TermShare.of(plan, parcel.partition),
            ):
                rows += as_arrays(met)
        if plan.siblings and rows:
            join_rows(rows)
        times_s.append(clock() - began_s)
    return _Stages(min(times_s[1:]), copies)


def _text_sample(grid: Grid, events: pa.RecordBatch, registrations: pa.RecordBatch) -> TextSample:
    points = np.stack([np.asarray(events.column(side)) for side in ("x", "y")], axis=1)
    rects = np.stack([np.asarray(registrations.column(side)) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)
    return TextSample.of(grid, points, rects, events.column("text"), registrations.column("keywords"))


class _Applied:
    def __init__(self, manifest: Manifest, taken_s: float) -> None:
        self.manifest, self.taken_s = manifest, taken_s


def _apply(store: Store, draft: Manifest, operations: pa.RecordBatch, clock: Callable[[], float]) -> _Applied:
    view = View.open(store.storage, draft)
    began_s = clock()
    manifest, after = store.apply(draft, view, operations, DeadLetters("operation", 0), Churn())
    manifest = store.write_beside(manifest, after, view)
    store.storage.make_durable(manifest.files_since(draft))
    return _Applied(manifest, clock() - began_s)


def _empty_manifest(version: int) -> Manifest:
    """Nothing is in it yet; versions keep their files apart."""
    return replace(EMPTY, version=version)


def _segments(store: Store, manifest: Manifest) -> list[Searchable]:
    view = View.open(store.storage, manifest)
    return [held.searchable(view.dead[name]) for name, held in view.segments.items()]


def _searching_s(
    packed: pa.RecordBatch, schema: pa.Schema, segments: list[Searchable], grid: Grid, clock: Callable[[], float]
) -> float:
    limits = Tuning()
    times_s = []
    for _ in range(REPEATS + 1):  # one more, to warm up
        began_s = clock()
        for parcel in unpack_parcels(packed, schema):
            for _ in match(
                parcel.events, segments, grid, 0, rows_max=limits.match_rows_max, pairs_max=limits.match_pairs_max
            ):
                pass
        times_s.append(clock() - began_s)
    return min(times_s[1:])
