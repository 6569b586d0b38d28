"""Rows with the same shape are found, and only those; what is asked of them is asked once, and answered for each."""

from typing import Any

import numpy as np
import pytest
import shapely

from core.shapes.drawn import blobs
from geoswarm.core.shapes.areas import areas_in
from geoswarm.core.shapes.inside import places
from geoswarm.core.shapes.points import points_in
from geoswarm.core.shapes.shapes import Shapes, concatenate_shapes, no_shapes, of_circles, of_polygons

SEEDS = range(6)


def obviously_first(shapes: Shapes) -> list[int]:
    """By writing each row out."""
    rows = [shapes.take(np.array([row])) for row in range(len(shapes))]
    written = [tuple(array.tobytes() for array in row.to_arrays().values()) for row in rows]
    return [written.index(each) for each in written]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_has_the_first_one_of_its_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = concatenate_shapes(
        [of_polygons(blobs(rng, 8, 12)), of_circles(rng.uniform(1, 5, (4, 3))), no_shapes(2), no_shapes(1)]
    )
    shapes = drawn.take(rng.integers(0, len(drawn), 60))
    assert shapes.firsts_alike(np.arange(60)).tolist() == obviously_first(shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_any_order_all_rows_of_a_shape_have_one_that_stands_for_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = of_polygons(blobs(rng, 5, 12)).take(rng.integers(0, 5, 40))
    wanted = obviously_first(shapes)
    for part in np.split(rng.permutation(40), 4):  # some rows are known by then, and some are not
        shapes.firsts_alike(part)
    found = shapes.firsts_alike(np.arange(40)).tolist()
    assert len(set(found)) == len(set(wanted)) == len(set(zip(found, wanted, strict=True)))


def test_shapes_that_differ_in_one_vertex_only_are_not_the_same() -> None:
    ring = shapely.get_coordinates(shapely.Point(0, 0).buffer(1.0, quad_segs=8))
    moved = []
    for vertex in range(1, len(ring) - 1):
        moved.append(ring.copy())
        moved[-1][vertex] *= 1.001
    shapes = of_polygons(shapely.polygons(np.array([ring, *moved])))
    assert shapes.firsts_alike(np.arange(len(shapes))).tolist() == list(range(len(shapes)))


def test_the_same_vertices_in_other_rings_are_another_shape() -> None:
    one, two = [(0, 0), (9, 0), (9, 9), (0, 0)], [(5, 1), (6, 1), (6, 2), (5, 1)]
    hole = shapely.Polygon(one, [two])
    island = shapely.MultiPolygon([shapely.Polygon(one), shapely.Polygon([(p[0], p[1]) for p in two])])
    shapes = of_polygons(np.array([hole, island, hole], object))
    assert shapes.firsts_alike(np.arange(3)).tolist() == [0, 1, 0]


def test_circles_with_other_radii_are_others() -> None:
    shapes = of_circles(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 4.0], [1.0, 2.0, 3.0]]))
    assert shapes.firsts_alike(np.arange(3)).tolist() == [0, 1, 0]


def test_many_that_are_hard_to_tell_apart_are_not_taken_for_one_another() -> None:
    start = shapely.get_coordinates(shapely.Point(0, 0).buffer(1.0, quad_segs=8))
    rings = np.tile(start, (400, 1, 1))
    rings[:, 2] *= np.repeat(np.linspace(1.0, 1.2, 200), 2)[:, None]  # no hash has this vertex, and each is there twice
    shapes = of_polygons(shapely.polygons(rings))
    firsts = shapes.firsts_alike(np.arange(400))
    assert (rings[firsts] == rings).all()
    assert len(set(firsts.tolist())) < 400


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("predicate", ["intersects", "contains", "within", "covers"])
def test_copies_of_regions_are_met_as_shapely_says(seed: int, predicate: Any) -> None:
    rng = np.random.default_rng(seed)
    regions, published = blobs(rng, 6, 14, radius=15.0), blobs(rng, 9, 10, radius=9.0)
    copies = rng.integers(0, 6, 50)
    shapes, events = of_polygons(regions[copies]), of_polygons(published)
    every_event, every_copy = (side.ravel() for side in np.indices((9, 50)))
    found = areas_in(shapes, events, every_event, every_copy, predicate)
    assert found.tolist() == getattr(shapely, predicate)(regions[copies][every_copy], published[every_event]).tolist()
    if predicate == "intersects":
        assert 0 < found.sum() < len(found)
    x, y = rng.uniform(-80, 80, (2, 30))
    shuffled = rng.permutation(30 * 50)
    each_point, each_copy = (side.ravel()[shuffled] for side in np.indices((30, 50)))
    inside = points_in(shapes, x, y, each_point, each_copy, predicate)
    wanted = getattr(shapely, predicate)(regions[copies][each_copy], shapely.points(x, y)[each_point])
    assert inside.tolist() == wanted.tolist()


def test_what_is_asked_of_a_hundred_copies_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def ask_geos(one: Any, two: Any) -> Any:
        asked.append(len(one))
        return intersects(one, two)

    def test_points(x: Any, y: Any, numbers: Any, *rest: Any) -> Any:
        asked.append(len(numbers))
        return places(x, y, numbers, *rest)

    intersects = shapely.intersects
    monkeypatch.setattr(shapely, "intersects", ask_geos)
    monkeypatch.setattr("geoswarm.core.shapes.points.places", test_points)
    drawn = of_polygons(blobs(np.random.default_rng(0), 1, 12))
    shapes, owners = drawn.take(np.zeros(100, np.int64)), np.zeros(100, np.int64)
    assert areas_in(shapes, drawn, owners, np.arange(100)).all()
    middle = np.array(drawn.xy[:-1].mean(axis=0))
    points_in(shapes, middle[:1], middle[1:], owners, np.arange(100))
    assert asked == [1, 1]
