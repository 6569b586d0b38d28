"""Covers: every point of a shape lies in one of its cells, and core cells hold nothing else."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely

from core.shapes.drawn import WORLD, blobs, probe_points
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.index.cells import codes_of, frame_of
from geoswarm.core.shapes.cover import COVER_CELLS_MAX, Cover, cover
from geoswarm.core.shapes.points import points_in
from geoswarm.core.shapes.shapes import concatenate_shapes, no_shapes, of_circles, of_polygons
from geoswarm.core.space.grid import Grid

STEP = 360 / 65536  # the side of a cell at level 0, which is exact in binary


def count_cells(found: Cover, shape: int, x: Floats, y: Floats, frame: Floats) -> tuple[Ints, Ints]:
    """How many cells of a shape each point lies in, and in how many core cells."""
    codes = codes_of(np.ascontiguousarray(x), np.ascontiguousarray(y), frame)
    cells, core = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
    for c in range(found.starts[shape], found.starts[shape + 1]):
        here = codes >> np.uint32(2 * found.levels[c]) == found.codes[c]
        cells += here
        core += here & found.core[c]
    return cells, core


@pytest.mark.parametrize("radius", [0.004, 0.05, 2.0, 11.0])
def test_a_point_of_a_polygon_lies_in_one_of_its_cells_and_core_cells_hold_no_others(radius: float) -> None:
    rng = np.random.default_rng(int(radius * 1000))
    polygons, frame = blobs(rng, 6, 30, radius), frame_of(WORLD)
    found = cover(of_polygons(polygons), frame)
    assert np.diff(found.starts).max() <= COVER_CELLS_MAX
    for i, polygon in enumerate(polygons):
        xy = probe_points(rng, polygon, STEP)
        cells, core = count_cells(found, i, xy[:, 0], xy[:, 1], frame)
        inside = shapely.intersects_xy(polygon, xy[:, 0], xy[:, 1])
        assert inside.any()
        assert (cells[inside] == 1).all()
        assert shapely.contains_xy(polygon, xy[:, 0], xy[:, 1])[core > 0].all()
        assert cells.max() == 1


@pytest.mark.parametrize("cells_max", [4, 16, 64])
def test_core_cells_lie_in_the_polygon_as_boxes(cells_max: int) -> None:
    rng = np.random.default_rng(2)
    polygons, frame = blobs(rng, 9, 30, 2.0), frame_of(WORLD)
    found = cover(of_polygons(polygons), frame, cells_max)
    assert np.diff(found.starts).max() <= cells_max
    shape = np.repeat(np.arange(9), np.diff(found.starts))
    boxed = np.array([box_of(level, code, WORLD) for level, code in zip(found.levels, found.codes, strict=True)])
    assert shapely.covers(polygons[shape], boxed)[found.core].all()
    assert shapely.intersects(polygons[shape], boxed)[~found.core].mean() > 0.9
    assert found.core.any() or cells_max < 64


def box_of(level: int, code: int, grid: Grid) -> shapely.Geometry:
    row = column = 0
    for bit in range(16):
        column |= (int(code) >> (2 * bit) & 1) << bit
        row |= (int(code) >> (2 * bit + 1) & 1) << bit
    width, height = (grid.xmax - grid.xmin) * 2.0**level / 65536, (grid.ymax - grid.ymin) * 2.0**level / 65536
    x, y = grid.xmin + column * width, grid.ymax - row * height
    return shapely.box(x, y - height, x + width, y)


def test_a_polygon_whose_sides_are_the_sides_of_cells_loses_no_corner() -> None:
    frame = frame_of(WORLD)
    square = shapely.box(16 * STEP, 8 * STEP, 32 * STEP, 24 * STEP)
    found = cover(of_polygons(np.array([square])), frame)
    x, y = (part.ravel() for part in np.meshgrid(np.linspace(15, 33, 37) * STEP, np.linspace(7, 25, 73) * STEP))
    cells, core = count_cells(found, 0, x, y, frame)
    inside = shapely.intersects_xy(square, x, y)
    assert (cells[inside] == 1).all()
    assert not core[~inside].any()
    assert core.any()


def test_the_world_as_a_polygon_is_covered_to_its_last_corner() -> None:
    grid = Grid(-0.1, 0.3, 0.7, 1.1, columns=7, rows=7)  # sides that floats cannot hold
    frame = frame_of(grid)
    found = cover(of_polygons(np.array([shapely.box(-0.1, 0.3, 0.7, 1.1)])), frame)
    x, y = (part.ravel() for part in np.meshgrid(np.linspace(-0.1, 0.7, 50), np.linspace(0.3, 1.1, 50)))
    cells, core = count_cells(found, 0, x, y, frame)
    assert (cells == 1).all()
    assert core.any()


@pytest.mark.parametrize("islands", [3, 55, 62, 70, 500])
def test_islands_far_apart_are_all_covered(islands: int) -> None:
    rng, frame = np.random.default_rng(islands), frame_of(WORLD)
    x, y = rng.uniform(-170, 170, islands), rng.uniform(-80, 80, islands)
    land = shapely.multipolygons(shapely.box(x, y, x + 1e-6, y + 1e-6))
    found = cover(of_polygons(np.array([land, land])), frame)
    assert np.diff(found.starts).max() <= COVER_CELLS_MAX
    for shape in (0, 1):
        assert (count_cells(found, shape, x, y, frame)[0] == 1).all()


def test_circles_are_covered_over_the_poles_and_the_antimeridian() -> None:
    rng = np.random.default_rng(4)
    circles = np.array(
        [
            [13.4, 52.5, 800.0],
            [179.99, 10.0, 5e4],
            [0.0, 89.9, 3e5],
            [20.0, -70.0, 4e6],
            [5.0, 5.0, 2e7],
            [7.0, 1.0, 3.0],
        ]
    )
    shapes, frame = concatenate_shapes([of_circles(circles), no_shapes(1)]), frame_of(WORLD)
    found = cover(shapes, frame)
    assert found.starts[-1] == found.starts[-2]
    for i, (lon, lat, metres) in enumerate(circles):
        reach = np.degrees(min(metres, 2e7) / 6371008.8) * 1.2
        y = np.clip(lat + rng.uniform(-reach, reach, 5000), -90, 90)
        x = (lon + rng.uniform(-reach, reach, 5000) / np.maximum(np.cos(np.radians(y)), 0.01) + 540) % 360 - 180
        every = np.arange(5000)
        inside = points_in(shapes, x, y, every, np.full(5000, i))
        cells, core = count_cells(found, i, x, y, frame)
        assert inside.any()
        assert (cells[inside] == 1).all()
        assert inside[core > 0].all()
        assert cells.max() == 1
        assert core.any() == (i in (0, 1, 3, 4))  # a tiny one, and the wide rows at a pole, are all boundary


def test_british_postcode_sectors_find_their_collisions_as_shapely_does(data_folder: Path) -> None:
    files = data_folder / "poly_uk_postcode_sectors.parquet", data_folder / "points_uk_collisions.parquet"
    if not all(file.is_file() for file in files):
        pytest.skip(f"no {files[0].name} or {files[1].name} in {data_folder}")
    sectors = shapely.from_wkb(pq.read_table(files[0])["geometry"].to_numpy()[::7])
    table = pq.read_table(files[1])
    x, y = (table[name].to_numpy()[::40].copy() for name in ("lon", "lat"))
    frame, shapes = frame_of(WORLD), of_polygons(sectors)
    found = cover(shapes, frame)
    codes = codes_of(x, y, frame)
    shape, pairs, sure = np.repeat(np.arange(len(sectors)), np.diff(found.starts)), [], []
    for level in np.unique(found.levels):
        here = np.flatnonzero(found.levels == level)
        here = here[np.argsort(found.codes[here])]
        keys, asked = found.codes[here], codes >> np.uint32(2 * level)
        low, high = np.searchsorted(keys, asked, "left"), np.searchsorted(keys, asked, "right")
        points = np.repeat(np.arange(len(x)), high - low)
        entries = here[np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)]).astype(np.int64)]
        pairs.append(np.column_stack([points, shape[entries]]))
        sure.append(found.core[entries])
    met, certain = np.concatenate(pairs), np.concatenate(sure)
    test = points_in(shapes, x, y, met[:, 0], met[:, 1])
    assert test[certain].all()
    got = set(map(tuple, met[test].tolist()))
    at, region = shapely.STRtree(shapely.points(x, y)).query(sectors, predicate="intersects")[::-1]
    assert len(got) > 100
    assert got == set(zip(at.tolist(), region.tolist(), strict=True))
    assert len(met) == len(set(map(tuple, met.tolist())))
