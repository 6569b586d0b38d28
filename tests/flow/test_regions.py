"""Regions that are polygons and circles, with words and without: operations, segments, merges and the matcher."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoswarm.config import Contract
from geoswarm.core.index.regions import CORE
from geoswarm.run.oracle.oracle import Oracle
from restless import legal_changes
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_keywords, with_shapes, with_texts

CONTRACT = Contract(columns=40, rows=40, executors=3)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_polygons_and_circles_meet_what_is_inside_of_them(tmp_path: Path, seed: int, words: bool) -> None:
    rng, oracle = np.random.default_rng(seed), Oracle(BOUNDS)
    snap = 2.0 if seed % 2 else None  # corners, edges and events on one lattice, so that borders are met
    engine, seen, regions = SteppedEngine(tmp_path, CONTRACT), 0, 0
    for b in range(8):
        storm = with_shapes(rng, operations(rng, 70, ids=60, now_us=10 * b, near=50.0), snap=snap)
        batch = pa.table(events(rng, 300, first_id=1000 * b, snap=snap))
        if words:
            storm, batch = with_keywords(rng, storm), with_texts(rng, batch)
        oracle.operate(storm, 10 * b)
        want = sorted(oracle.match(batch, 10 * b))
        got = engine.batch(b, batch, storm, 10 * b)
        assert sorted(got.pairs) == want, b
        seen += sum(sub in oracle.regions for _, sub in want)
        regions += len(oracle.regions)
        engine.checkpoint.adopt_plan(engine.checkpoint.plan.apply(legal_changes(engine.checkpoint.plan, rng, 3)))
    assert regions > 50
    assert seen > 20
    engine.close()


def test_points_deep_inside_a_region_are_not_tested(tmp_path: Path) -> None:
    engine = SteppedEngine(tmp_path, CONTRACT)
    disc = shapely.Point(10.0, 10.0).buffer(20.0, quad_segs=200)
    row = {"op": "register", "sub_id": 7, "user": "", "geometry": shapely.to_wkb(disc)}
    batch = pa.table(events(np.random.default_rng(1), 2000))
    got = engine.batch(0, batch, pa.Table.from_pylist([row]), 0)
    x, y = (batch[side].to_numpy() for side in ("x", "y"))
    assert len(got.pairs) == np.count_nonzero(shapely.contains_xy(disc, x, y)) > 0
    (held,) = engine.checkpoint._view.segments.values()
    assert held.regions is not None
    entries = np.concatenate([level.entries for level in held.regions.cells.values()])
    assert (entries >= CORE).any()
    assert not held.index, "it is not looked for as a rectangle, too"
    engine.close()


def test_a_region_that_is_replaced_by_a_rectangle_is_forgotten(tmp_path: Path) -> None:
    engine = SteppedEngine(tmp_path, CONTRACT)
    triangle = {"op": "register", "sub_id": 1, "user": "", "geometry": b"POLYGON((0 0, 10 0, 0 10, 0 0))"}
    triangle |= {"keywords": "flood"}
    square = {"op": "replace", "sub_id": 1, "user": "", "xmin": 0.0, "ymin": 0.0, "xmax": 10.0, "ymax": 10.0}
    square |= {"keywords": "flood"}
    point = with_texts(np.random.default_rng(0), events(np.random.default_rng(0), 1))
    point = point.set_column(point.schema.get_field_index("x"), "x", pa.array([9.0]))
    point = point.set_column(point.schema.get_field_index("y"), "y", pa.array([9.0]))
    point = point.set_column(point.schema.get_field_index("text"), "text", pa.array(["flood"]))
    assert engine.batch(0, point, pa.Table.from_pylist([triangle]), 0).pairs == []
    assert len(engine.batch(1, point, pa.Table.from_pylist([square]), 0).pairs) == 1
    engine.close()
