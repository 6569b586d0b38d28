"""How large subscriptions must be for an event to match a wanted number of them.

Measures nothing by itself: benchmarks that hold matches per event steady while the subscriptions grow ask here.
"""

import math
from functools import lru_cache

import numpy as np

from geoswarm.config import Contract
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, build, codes_of, frame_of
from geoswarm.core.index.kernels import Records
from geoswarm.core.space.grid import Grid
from geoswarm.flow.match.match import Searchable, match
from geoswarm.lab.workload.tweets import Tweets

SAMPLE_SUBSCRIPTIONS = 100_000
SAMPLE_EVENTS = 100_000
STEPS = 4
"""Matches grow less than with the square of the side, because cities are small: each step corrects what is left."""

SIDE_SHARE_MAX = 0.5


@lru_cache(maxsize=64)
def tweets_for(subscriptions: int, matches_per_event: float, seed: int) -> Tweets:
    """The workload whose rectangles are as large as it takes, found on a sample."""
    sample = min(subscriptions, SAMPLE_SUBSCRIPTIONS)
    wanted = matches_per_event * sample / subscriptions
    side_share = min(SIDE_SHARE_MAX, 0.0016 * math.sqrt(wanted * 15_000 / sample))
    for _ in range(STEPS):
        found = matches_of(Tweets(seed=seed, side_share=side_share), sample)
        side_share = min(SIDE_SHARE_MAX, side_share * math.sqrt(wanted / max(found, wanted / 16)))
    return Tweets(seed=seed, side_share=float(f"{side_share:.3g}"))


def matches_of(workload: Tweets, subscriptions: int, events: int = SAMPLE_EVENTS) -> float:
    """Mean matches of an event against the first `subscriptions` of the workload."""
    grid = Grid.of(Contract())
    drawn = workload.events(0, events)
    x, y = (np.asarray(drawn.column(axis), np.float64) for axis in ("x", "y"))
    ordered = drawn.take(z_order(grid, x, y))
    held = segment_of(grid, rectangles_of(workload, subscriptions))
    met = match(ordered, [held], grid, 0, rows_max=events, pairs_max=1 << 24)
    return sum(len(run.subs) for run in met) / events


def rectangles_of(workload: Tweets, subscriptions: int) -> Floats:
    """(n, 4): xmin, ymin, xmax, ymax."""
    rows = workload.subscriptions(0, subscriptions)
    return np.stack([np.asarray(rows.column(side), np.float64) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)


def z_order(grid: Grid, x: Floats, y: Floats) -> Ints:
    """The order in which `match` wants its points."""
    return sort_order(codes_of(x, y, frame_of(grid)), CODE_MAX)


def segment_of(grid: Grid, rects: Floats) -> Searchable:
    """A segment in memory, in the order that `store/segments/write.py` writes; ids are the rows of `rects`."""
    order = z_order(grid, np.ascontiguousarray(rects[:, 0]), np.ascontiguousarray(rects[:, 3]))
    ordered = rects[order]
    return Searchable(Records.of(ordered, order), build(grid, ordered))
