"""Prepared polygons are kept from one call to the next, and forgotten when there are too many."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import shapely

from core.shapes.drawn import blobs
from geoswarm.core.shapes import prepared
from geoswarm.core.shapes.shapes import Geometries, of_polygons


def are_the_same(some: Geometries, others: Geometries) -> bool:
    """Whether they are the very same objects: equal ones are equal to `==`, too."""
    return all(one is other for one, other in zip(some, others, strict=True))


def test_a_polygon_that_is_asked_for_again_is_the_same_object() -> None:
    polygons = blobs(np.random.default_rng(1), 6, 20)
    shapes = of_polygons(polygons)
    first = shapes.prepared_polygons(np.array([1, 3]))
    again = shapes.prepared_polygons(np.array([0, 1, 3]))
    assert are_the_same(again[1:], first)
    assert again[1] is first[0]
    assert shapely.is_prepared(again).all()
    assert shapely.equals(again, polygons[[0, 1, 3]]).all()


def test_beyond_the_limit_those_that_were_used_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    polygons = blobs(np.random.default_rng(2), 5, 20)
    shapes = of_polygons(polygons)
    counts = shapes.vertex_counts()
    monkeypatch.setattr(prepared, "KEPT_VERTICES_MAX", int(2 * counts.max()))
    one = shapes.prepared_polygons(np.array([0]))[0]
    two = shapes.prepared_polygons(np.array([0, 1]))[1]
    assert shapes.prepared_polygons(np.array([0]))[0] is one
    assert shapely.equals(shapes.prepared_polygons(np.array([2])), polygons[[2]]).all()
    assert shapes.prepared_polygons(np.array([1]))[0] is not two
    assert shapely.equals(shapes.prepared_polygons(np.arange(5)), polygons).all()  # too many to be kept


def test_threads_do_not_share_a_prepared_polygon() -> None:
    polygons = blobs(np.random.default_rng(4), 4, 20)
    shapes = of_polygons(polygons)
    mine = shapes.prepared_polygons(np.arange(4))
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(shapes.prepared_polygons, np.arange(4)).result()
    assert not any(one is other for one, other in zip(mine, theirs, strict=True))
    assert shapely.is_prepared(theirs).all()
    assert shapely.equals(theirs, polygons).all()
    assert are_the_same(shapes.prepared_polygons(np.arange(4)), mine)
    assert shapes.prepared_polygons(np.array([2]))[0] is mine[2]


def test_what_a_thread_kept_that_has_ended_is_for_the_next_one() -> None:
    shapes = of_polygons(blobs(np.random.default_rng(5), 2, 20))
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(shapes.prepared_polygons, np.arange(2)).result()
    assert are_the_same(shapes.prepared_polygons(np.arange(2)), theirs)


def test_what_is_kept_does_not_travel_to_another_process() -> None:
    shapes = of_polygons(blobs(np.random.default_rng(3), 50, 200))
    size = len(pickle.dumps(shapes))
    shapes.prepared_polygons(np.arange(50))
    assert len(pickle.dumps(shapes)) == size
    assert shapely.equals(pickle.loads(pickle.dumps(shapes)).polygons(), shapes.polygons()).all()


def test_all_shapes_of_a_process_share_what_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    one, two = (of_polygons(blobs(np.random.default_rng(seed), 4, 20)) for seed in (6, 7))
    monkeypatch.setattr(prepared, "KEPT_VERTICES_MAX", int(one.vertex_counts().sum() + two.vertex_counts().min()))
    held = one.prepared_polygons(np.arange(4))
    theirs = two.prepared_polygons(np.arange(4))
    assert are_the_same(one.prepared_polygons(np.arange(4)), held)
    assert not are_the_same(two.prepared_polygons(np.arange(4)), theirs)
    del one
    again = two.prepared_polygons(np.arange(2))
    assert are_the_same(two.prepared_polygons(np.arange(2)), again)
