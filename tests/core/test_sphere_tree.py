"""The tree finds the nearest points: those that are found by measuring all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.index.sphere_tree import build_tree, nearest_rows
from geoswarm.core.shapes.circle import METRES_MAX, distance_m, distances_to_boxes_m
from geoswarm.core.space.grid import Grid

WORLD = Grid(-180.0, -90.0, 180.0, 90.0, 1000, 1000)
EDGES = st.sampled_from([-180.0, 180.0, 179.9999999, -179.9999999, -90.0, 90.0, 0.0])
PLACES = st.tuples(EDGES | st.floats(-180, 180), EDGES.map(lambda v: v / 2) | st.floats(-90, 90))


def check(points: Floats, place: tuple[float, float], k: int, within_m: float, seed: int = 0) -> int:
    """Returns how many were found."""
    points = points[sort_order(codes_of(points[:, 0].copy(), points[:, 1].copy(), frame_of(WORLD)), CODE_MAX)]
    ranks = np.random.default_rng(seed).permutation(len(points))
    tree = build_tree(points[:, 0], points[:, 1], ranks)
    rows, metres = nearest_rows(tree, *place, k, within_m)
    all_m = np.array([distance_m(*place, x, y) for x, y in points.tolist()])
    want = np.lexsort((ranks, all_m))
    want = want[all_m[want] <= within_m][:k]
    assert rows.tolist() == want.tolist()
    assert metres.tolist() == all_m[want].tolist()
    return len(want)


@given(st.lists(PLACES, min_size=1, max_size=60), PLACES, st.integers(1, 70), st.floats(1.0, METRES_MAX))
def test_the_nearest_are_those_that_measuring_all_finds(
    points: list[tuple[float, float]], place: tuple[float, float], k: int, within_m: float
) -> None:
    check(np.array(points, np.float64), place, k, within_m)
    check(np.array(points, np.float64), place, k, METRES_MAX)


@pytest.mark.parametrize("seed", range(6))
def test_many_points_in_crowds_at_the_edges_and_at_one_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 3000
    crowd = rng.uniform((-180, -90), (180, 90), (20, 2))[rng.integers(0, 20, n)] + rng.normal(0, 0.01, (n, 2))
    lattice = np.round(rng.uniform((-180, -90), (180, 90), (n, 2)))  # with many at one distance, and at one place
    polar = np.stack(
        [rng.uniform(-180, 180, n), np.copysign(90 - rng.exponential(1e-3, n), rng.normal(size=n))], axis=1
    )
    points = np.concatenate([crowd, lattice, polar]).clip((-180, -90), (180, 90))
    found = 0
    for place in [
        (180.0, 0.0),
        (-180.0, 0.5),
        (7.0, 90.0),
        (7.0, -90.0),
        (0.0, 0.0),
        (-13.5, 44.5),
        *crowd[:5].tolist(),
    ]:
        k = int(rng.choice([1, 10, 300, 2000]))
        found += check(points, tuple(place), k, float(rng.choice([METRES_MAX, 1e6])), seed)
    assert found > 300


@given(PLACES, PLACES, PLACES, st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_no_point_of_a_box_is_nearer_than_the_box(
    place: tuple[float, float], one: tuple[float, float], two: tuple[float, float], part: tuple[float, float]
) -> None:
    low, high = np.minimum(one, two), np.maximum(one, two)
    point = np.clip(low + np.array(part) * (high - low), low, high)
    (box_m,) = distances_to_boxes_m(*place, np.concatenate([low, high]).reshape(1, 4)).tolist()
    assert distance_m(*place, *point.tolist()) >= box_m - 1.0
