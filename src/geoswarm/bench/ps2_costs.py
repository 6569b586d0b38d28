"""c1 to c4 of PS2Stream's load model (Definition 1), measured on this machine's matcher and store.

Nothing reads its result but whoever called it; the defaults of `layout/load_model.py` are what it once gave.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.bench.harness import Progress, Result, Scale, median
from geoswarm.config import Tuning
from geoswarm.errors import InputError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack, unpack
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.route import route
from geoswarm.layout.load_model import Costs
from geoswarm.layout.text_sample import TextSample
from geoswarm.layout.uniform import uniform
from geoswarm.model import OPERATION
from geoswarm.space.grid import Grid
from geoswarm.state.manifest import EMPTY, Manifest
from geoswarm.state.storage import Storage
from geoswarm.state.subscriptions import Churn, Store, View
from geoswarm.text.frequencies import TermCounts
from geoswarm.text.tokens import tokenize
from geoswarm.workload.posts import Posts, Queries

REPEATS = 3
"""Of each search, the fastest counts: other work on the machine only ever adds."""
UNHEARD = "geoswarmhearsnothing"
"""A word of nobody's, so that the matcher has something to look for: without any it would not even read the texts."""


COUNTRIES = ("US", "GB")
QUERY_SETS: tuple[Queries, ...] = ("Q1", "Q2")
ROWS = {Scale.SMALL: 50_000, Scale.FULL: 500_000}
CELLS_PER_SIDE = 1000


def run(scale: Scale, seed: int, report: Progress) -> Result:
    rows: list[dict[str, Any]] = []
    for country in COUNTRIES:
        for queries in QUERY_SETS:
            report(f"{country} {queries}")
            posts = Posts(seed=seed, country=country)
            grid = Grid(*posts.bounds, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE)
            events, asked = posts.events(0, ROWS[scale]), posts.subscriptions(0, ROWS[scale], queries=queries)
            with tempfile.TemporaryDirectory() as folder:
                costs = measure_costs(folder, grid, events, asked, time.process_time)
            rows.append({"country": country, "queries": queries, **vars(costs)})
    summary = {f"{name}_us": median([row[name] for row in rows]) for name in vars(Costs())}
    return Result(rows, summary, {"rows": ROWS[scale], "cells_per_side": CELLS_PER_SIDE})


def measure_costs(
    folder: str, grid: Grid, events: pa.RecordBatch, registrations: pa.RecordBatch, clock: Callable[[], float]
) -> Costs:
    """`events` have a text, `registrations` are of `model.OPERATION`; some ten thousand of each. `folder` is empty, and
    `clock` gives seconds."""
    sample = _sample(grid, events, registrations)
    if not sample.checks.sum():
        raise InputError(
            f"{len(events)} events meet no list of {len(registrations)} subscriptions: give more, from the same places"
        )
    counts = TermCounts.empty()
    counts.add(tokenize(events.column("text")))  # so that lists are under the words that the sample takes to be rarest
    store = Store(Storage(folder), grid, Tuning(), counts)
    packed = pack(route(events, uniform(grid, 1)))
    _applied(store, EMPTY, registrations.slice(0, 1), clock)  # compiles the kernels
    silence = _applied(store, _named(1), _silent(registrations.slice(0, 1)), clock)
    full = _applied(store, _named(2), registrations, clock)
    cancels = registrations.set_column(0, OPERATION.field("op"), pa.array(["cancel"] * len(registrations)))
    ended = _applied(store, replace(full.manifest, version=3), cancels, clock)
    handling_s = _searching_s(packed, events.schema, _segments(store, silence.manifest), grid, clock)
    matching_s = _searching_s(packed, events.schema, _segments(store, full.manifest), grid, clock)
    return Costs(
        c1_check=1e6 * max(matching_s - handling_s, 0.0) / int(sample.checks.sum()),
        c2_event=1e6 * handling_s / len(events),
        c3_insertion=1e6 * full.taken_s / len(registrations),
        c4_deletion=1e6 * ended.taken_s / len(registrations),
    )


def _sample(grid: Grid, events: pa.RecordBatch, registrations: pa.RecordBatch) -> TextSample:
    points = np.stack([np.asarray(events.column(side)) for side in ("x", "y")], axis=1)
    rects = np.stack([np.asarray(registrations.column(side)) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)
    return TextSample.of(grid, points, rects, events.column("text"), registrations.column("keywords"))


class _Applied:
    def __init__(self, manifest: Manifest, taken_s: float) -> None:
        self.manifest, self.taken_s = manifest, taken_s


def _applied(store: Store, draft: Manifest, operations: pa.RecordBatch, clock: Callable[[], float]) -> _Applied:
    view = View.open(store.storage, draft)
    began_s = clock()
    manifest = store.apply(draft, view, operations, DeadLetters("operation", 0), Churn())
    return _Applied(manifest, clock() - began_s)


def _named(version: int) -> Manifest:
    """Nothing is in it yet; versions keep their files apart."""
    return replace(EMPTY, version=version)


def _silent(registration: pa.RecordBatch) -> pa.RecordBatch:
    at = registration.schema.get_field_index("keywords")
    return registration.set_column(at, OPERATION.field("keywords"), pa.array([UNHEARD]))


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
        for parcel in unpack(packed, schema):
            for _ in match(
                parcel.events, segments, grid, 0, rows_max=limits.match_rows_max, pairs_max=limits.match_pairs_max
            ):
                pass
        times_s.append(clock() - began_s)
    return min(times_s[1:])
