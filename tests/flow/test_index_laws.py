"""Every index of a segment finds what the oracle finds: rectangles, words, regions, and the one that areas look into.

An index is a field of `Searchable` that is not about each subscription by itself; a new one is found by existing, and
asks for a line in `ASKED`. `store/` builds segments from operations; here they are built by hand, from the index alone.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Bools, Floats
from geoswarm.core.index.cells import CellIndex, build
from geoswarm.core.index.kernels import Records
from geoswarm.core.index.regions import Regions, build_regions
from geoswarm.core.index.searchable import RestIndex, Searchable
from geoswarm.core.index.words import build_text, conditions_of
from geoswarm.core.shapes.shapes import of_polygons
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import compile_expressions
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.match import match
from geoswarm.flow.merge import as_pairs
from geoswarm.flow.route import route
from geoswarm.flow.validate import conform_operations, validate_events, validate_operations
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.store.segments.open import segment_in_memory
from worlds import BOUNDS, WORDS, events, rectangles, with_areas, with_demands, with_facts, with_texts

GRID = Grid(*BOUNDS, columns=20, rows=20)
SUBSCRIPTIONS, EVENTS = 90, 150


class Request(NamedTuple):
    """The kinds of subscriptions and events that need an index."""

    words: float = 0.0
    """The share of subscriptions that ask for words,"""
    shapes: float = 0.0
    """and of those whose region is a polygon."""
    areas: bool = False
    demands: float = 0.0
    """The share of subscriptions with a condition on columns, and of those that name objects."""


ASKED = {
    "rectangles": Request(),
    "text": Request(words=0.6),
    "regions": Request(words=0.3, shapes=0.6),
    "rest": Request(words=0.4, shapes=0.4, areas=True),
    "demands": Request(demands=0.3),
}
OF_EACH = {"records", "conditions"}
"""What is known of each subscription: nothing is found there."""


def index_of_chosen(rects: Floats, chosen: Bools) -> CellIndex:
    ordinals = np.flatnonzero(chosen)
    return build(GRID, rects[chosen]).renumber(ordinals)


def subscriptions(rng: np.random.Generator, asked: Request) -> tuple[Searchable, pa.Table]:
    """A segment, and the operations that would have made it."""
    rects, n = rectangles(rng, SUBSCRIPTIONS), SUBSCRIPTIONS
    has_words, has_shape = rng.random(n) < asked.words, rng.random(n) < asked.shapes
    has_shape &= rects[:, 2] - rects[:, 0] < 170  # a longer edge would be taken to go the other way round
    joints = rng.choice([" AND ", " OR "], n)
    keywords = [
        joint.join(rng.choice(WORDS, 2, replace=False)) if has else None
        for has, joint in zip(has_words, joints, strict=True)
    ]
    words, refused = compile_expressions(pa.array(keywords, pa.string()))
    assert not refused
    triangles = [shapely.Polygon([(x0, y0), (x1, y0), (x0, y1)]) for x0, y0, x1, y1 in rects]
    regions = None
    if has_shape.any():
        ordinals = np.flatnonzero(has_shape)
        shapes = of_polygons(np.array(triangles)[has_shape])
        cells = build_regions(GRID, shapes, ~has_words[has_shape])
        regions = Regions(shapes, ordinals.astype(np.uint32), cells, np.flatnonzero(has_words[has_shape]))
    ids = np.arange(n) * 10
    segment = Searchable(
        Records.of(rects, ids),
        index_of_chosen(rects, ~has_words & ~has_shape),
        build_text(GRID, rects, ids, words) if has_words.any() else None,
        conditions_of(words) if has_words.any() else None,
        regions,
        RestIndex(),
    )
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), rects.T, strict=True))
    geometry = [shapely.to_wkb(triangle) if has else None for triangle, has in zip(triangles, has_shape, strict=True)]
    rows = {"op": ["register"] * n, "sub_id": ids, "user": [""] * n} | sides
    drawn = {"geometry": pa.array(geometry, pa.binary()), "keywords": pa.array(keywords, pa.string())}
    return segment, pa.table(rows | {"expires": pa.nulls(n, pa.timestamp("us"))} | drawn)


def read_segment(operations: pa.Table) -> Searchable:
    """The segment that the engine makes of the operations that it takes."""
    (rows,) = conform_operations(operations).combine_chunks().to_batches()
    read = validate_operations(rows, GRID, 0, DeadLetters("operation", 0))
    return segment_in_memory(GRID, read.subs(np.flatnonzero(read.fit))).searchable()


def test_every_index_of_a_segment_is_asked() -> None:
    assert set(Searchable._fields) - OF_EACH == set(ASKED), "say in ASKED what needs the new index"


@pytest.mark.parametrize("index", ASKED)
@pytest.mark.parametrize("seed", range(8))
def test_every_index_finds_what_the_oracle_finds(index: str, seed: int) -> None:
    rng, oracle, asked = np.random.default_rng((seed, 3)), Oracle(BOUNDS), ASKED[index]
    segment, operations = subscriptions(rng, asked)
    if asked.demands:
        operations = with_demands(rng, operations, asked.demands)
        segment = read_segment(operations)
        assert segment.demands is not None
    oracle.operate(operations, 0)
    batch = with_facts(rng, with_texts(rng, events(rng, EVENTS)))
    batch = with_areas(rng, batch) if asked.areas else batch
    want = sorted(oracle.match(batch, 0))
    valid = validate_events(batch.combine_chunks().to_batches()[0], GRID, DeadLetters("event", 0), marks=True)
    got = [
        pair
        for parcel in route(valid, uniform(GRID, 3))
        for met in match(parcel.events, [segment], GRID, 0, rows_max=50, pairs_max=1000)
        for pair in pairs_of(pa.table(rows) for rows in as_pairs(met))
    ]
    assert sorted(got) == want
    assert len(want) > 20
