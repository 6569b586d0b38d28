"""Queries over places and words in memory, and how short their sides must be for a post to meet few of them.

Measures nothing by itself. `density.py` does the same for places alone.
"""

import math

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.index.kernels import Records
from geoswarm.core.index.words import build_text, conditions_of
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import compile_expressions
from geoswarm.errors import InputError
from geoswarm.flow.match.match import Searchable, match
from geoswarm.lab.bench.kit.density import STEPS, z_order
from geoswarm.lab.workload.posts import Posts, QueryKind

Q1: QueryKind = "Q1"
SIDES = ("xmin", "ymin", "xmax", "ymax")
SAMPLE_SUBSCRIPTIONS = 200_000
SAMPLE_EVENTS = 50_000
SIDE_FACTOR_MIN = 1e-3


def posts_grid(posts: Posts) -> Grid:
    return Grid.of(Contract(bounds=posts.bounds))


def corners(subscriptions: pa.RecordBatch) -> Floats:
    """(n, 4): xmin, ymin, xmax, ymax."""
    return np.stack([np.asarray(subscriptions.column(side), np.float64) for side in SIDES], axis=1)


def shrink(subscriptions: pa.RecordBatch, factor: float) -> pa.RecordBatch:
    """The same rectangles with shorter sides round the same middle."""
    if factor == 1.0:
        return subscriptions
    rects = corners(subscriptions)
    middle, half = (rects[:, 2:] + rects[:, :2]) / 2, (rects[:, 2:] - rects[:, :2]) * (factor / 2)
    for side, column in zip(SIDES, np.concatenate([middle - half, middle + half], axis=1).T, strict=True):
        at = subscriptions.schema.get_field_index(side)
        subscriptions = subscriptions.set_column(at, subscriptions.schema.field(at), pa.array(column))
    return subscriptions


def text_segment(grid: Grid, subscriptions: pa.RecordBatch) -> Searchable:
    """A segment in memory, in the order that `store/segments/write.py` writes. All subscriptions ask for words."""
    rects = corners(subscriptions)
    order = z_order(grid, np.ascontiguousarray(rects[:, 0]), np.ascontiguousarray(rects[:, 3]))
    words, refused = compile_expressions(subscriptions.column("keywords").take(pa.array(order)))
    if refused or (np.diff(words.conjunctions_offsets) == 0).any():
        raise InputError("some of the queries ask for no words, or badly: only Q1, Q2 and Q3 with words will do")
    ids = subscriptions.column("sub_id").to_numpy()[order]
    records = Records.of(rects[order], ids)
    return Searchable(records, None, build_text(grid, records.rects, ids, words), conditions_of(words))


def sort_by_z(grid: Grid, events: pa.RecordBatch) -> pa.RecordBatch:
    x, y = (np.asarray(events.column(axis), np.float64) for axis in ("x", "y"))
    return events.take(pa.array(z_order(grid, x, y)))


def shrink_factor(posts: Posts, subscriptions: int, matches_per_event: float) -> float:
    """The factor for the sides of Q1 that gives a post so many matches, found on a sample; 1 where it has fewer."""
    sample, grid = min(subscriptions, SAMPLE_SUBSCRIPTIONS), posts_grid(posts)
    wanted, factor = matches_per_event * sample / subscriptions, 1.0
    asked, events = posts.subscriptions(0, sample, Q1), sort_by_z(grid, posts.events(0, SAMPLE_EVENTS))
    for _ in range(STEPS):
        held = text_segment(grid, shrink(asked, factor))
        met = match(events, [held], grid, 0, rows_max=SAMPLE_EVENTS, pairs_max=1 << 24)
        found = sum(len(run.subs) for run in met) / SAMPLE_EVENTS
        factor = min(1.0, max(SIDE_FACTOR_MIN, factor * math.sqrt(wanted / max(found, wanted / 16))))
    return float(f"{factor:.3g}")
