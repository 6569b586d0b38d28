"""The seven layouts of PS2Stream, and samples to draw them from."""

import numpy as np
import pyarrow as pa

from geoswarm.control.balance.layouts import Layout
from geoswarm.control.layout.by_frequency import by_frequency
from geoswarm.control.layout.by_hypergraph import by_hypergraph
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.grid_cells import grid_cells
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.r_tree import r_tree
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.lab.workload.posts import Posts, QueryKind
from worlds import BOUNDS, expression, rectangles, sentence

PURE: list[Layout] = [grid_cells, kd_tree, r_tree, by_frequency, by_hypergraph, by_metric]
LAYOUTS: list[Layout] = [*PURE, hybrid]
NAMES = [layout.__name__ for layout in LAYOUTS]  # type: ignore[attr-defined]
WORLD = Grid(*BOUNDS, columns=30, rows=20)


class RandomSample:
    """A random world of events with texts and subscriptions with keywords."""

    def __init__(self, seed: int, events: int = 80, queries: int = 60, words_share: float = 0.8) -> None:
        rng = np.random.default_rng(seed)
        self.points: Floats = np.stack([rng.uniform(-180, 180, events), rng.uniform(-90, 90, events)], axis=1)
        self.rects = rectangles(rng, queries)
        self.texts = pa.array([sentence(rng) for _ in range(events)], pa.string())
        asks = rng.random(queries) < words_share
        self.keywords = pa.array([expression(rng) if ask else None for ask in asks], pa.string())
        self.sample = TextSample.of(WORLD, self.points, self.rects, self.texts, self.keywords)


def posts(queries: QueryKind, count: int, country: str = "GB") -> TextSample:
    stream = Posts(seed=1, country=country)
    said, asked = stream.events(0, count), stream.subscriptions(0, count, queries)
    points = np.stack([np.asarray(said.column(side)) for side in ("x", "y")], axis=1)
    rects = np.stack([np.asarray(asked.column(side)) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)
    grid = Grid(*stream.bounds, columns=1000, rows=1000)
    return TextSample.of(grid, points, rects, said.column("text"), asked.column("keywords"))
