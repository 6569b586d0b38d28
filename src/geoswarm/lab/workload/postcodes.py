"""Great Britain as the Distributor paper sees it: where collisions happen, in which postcode sector, district and area.

Real, where the files are at hand (`GEOSWARM_DATA` names their folder, as for `real_posts.py`); else made up: towns are
where they are, and a nested map of as many polygons, of like sizes and vertex counts, lies over them. What is published
and asked for is drawn in `collisions.py`. Distributor §4.3.

Real polygons of neighbours were simplified one by one and overlap by some metres; those that are made up share their
borders to the last bit: an area is its districts, and a district its sectors.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.shapes.shapes import Geometries
from geoswarm.errors import InputError, MachineError
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE
from geoswarm.lab.workload.tiling import wiggly_cells
from geoswarm.lab.workload.tweets import Tweets

BOUNDS: Bounds = (-8.8, 49.7, 2.2, 61.0)
"""The bounds of all places and polygons, real or made up."""
COLLISIONS, SECTORS, DISTRICTS, AREAS = "collisions", "sectors", "districts", "areas"
LEVELS = (SECTORS, DISTRICTS, AREAS)
FILES = {
    COLLISIONS: "points_uk_collisions.parquet",
    SECTORS: "poly_uk_postcode_sectors.parquet",
    AREAS: "poly_uk_postcode_areas.parquet",
}
PLACES = 140_000
SECTORS_MADE, SECTORS_PER_DISTRICT, DISTRICTS_PER_AREA = 10_000, 3.8, 24.0
"""The real ones are 10,756 in 2,843 in 120."""
SECTORS_MIN = 200

RURAL_SHARE, RURAL_DEG = 0.35, 0.2
"""The share of sectors that lie outside a town, and how far from it."""
APART_DEG = 0.005
"""The distance between the seeds of two sectors: half a kilometre."""
SEA_DEG = 0.22
"""The distance from any sector's seed at which the sea begins."""
IRELAND: Bounds = (-8.8, 53.9, -5.4, 55.4)
"""Northern Ireland, which GeoNames has in the same country, and neither collisions nor postcodes include."""


@dataclass(frozen=True, eq=False)
class Britain:
    places: Floats
    """(n, 2): x and y of collisions that lie in a polygon of every level."""
    polygons: tuple[Geometries, Geometries, Geometries]
    """The polygons of sectors, of districts and of areas."""
    homes: Ints
    """(n, 3): the polygon of each place and level; the first, if several overlap."""
    source: Literal["real", "made"]


def britain(folder: Path | None = None, *, seed: int = 0) -> Britain:
    """The real Britain if its files are in `folder`, or in the one that `GEOSWARM_DATA` names; else one made up from
    the seed. Its `source` is which of the two it is."""
    named = os.environ.get(FOLDER_VARIABLE)
    where = folder or (Path(named) if named else None)
    if where and all((where / file).is_file() for file in FILES.values()):
        return real_britain(where)
    return make_britain(seed)


@lru_cache(maxsize=2)
def real_britain(folder: Path) -> Britain:
    """Read the files, in about three seconds. Districts are unions of their sectors: AB10 6 is in AB10."""
    missing = [file for file in FILES.values() if not (folder / file).is_file()]
    if missing:
        raise MachineError(f"there is no {missing[0]} in {folder}: put it there, or set {FOLDER_VARIABLE}")
    rows = pq.read_table(folder / FILES[COLLISIONS], columns=["lon", "lat"])
    places = np.stack([column.to_numpy() for column in rows.columns], axis=1)
    names, sectors = _read(folder / FILES[SECTORS])
    _, areas = _read(folder / FILES[AREAS])
    _, district = np.unique([name.split(" ")[0] for name in names], return_inverse=True)
    districts = _split_by_group(sectors, district.astype(np.int64))
    joined = np.array([shapely.union_all(group) for group in districts], object)
    return _with_homes(places, (sectors, joined, areas), "real")


@lru_cache(maxsize=4)
def make_britain(seed: int = 0, *, places: int = PLACES, sectors: int = SECTORS_MADE) -> Britain:
    """A made-up Britain; the same seed and sizes make the same one."""
    if places < 1 or sectors < SECTORS_MIN:
        raise InputError(f"no Britain has {places} collisions in {sectors} sectors: give at least 1 in {SECTORS_MIN}")
    rng = np.random.default_rng([seed, sectors])
    land = _land_seeds(seed, sectors, rng)
    district = _nearest_of(land, max(1, round(sectors / SECTORS_PER_DISTRICT)), rng)
    centres = _means(land, district)
    area = _nearest_of(centres, max(1, round(len(centres) / DISTRICTS_PER_AREA)), rng)[district]
    sea = _sea_seeds(land, rng)
    groups = np.vstack([np.stack([district, area], axis=1), np.full((len(sea), 2), -1)])
    cells = wiggly_cells(np.vstack([land, sea]), groups, rng)
    inside = shapely.contains_properly(shapely.box(*BOUNDS), cells)
    cells, district, area = cells[inside], district[inside], area[inside]
    districts, areas = (
        np.array([shapely.coverage_union_all(group) for group in _split_by_group(cells, group_of)], object)
        for group_of in (district, area)
    )
    return _with_homes(_crowd(2 * seed, places), (cells, districts, areas), "made")


def _read(path: Path) -> tuple[list[str], Geometries]:
    rows = pq.read_table(path, columns=["id", "geometry"])
    return rows["id"].to_pylist(), shapely.from_wkb(rows["geometry"].to_numpy())


def _split_by_group(polygons: Geometries, group: Ints) -> Sequence[Geometries]:
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return np.split(polygons[order], cuts)


def _with_homes(
    places: Floats, polygons: tuple[Geometries, Geometries, Geometries], source: Literal["real", "made"]
) -> Britain:
    homes = np.full((len(places), len(LEVELS)), -1, np.int64)
    points = shapely.points(places)
    for level, of_level in enumerate(polygons):
        place, home = shapely.STRtree(of_level).query(points, predicate="intersects")
        order = np.lexsort((home, place))[::-1]  # so that the first is written last
        homes[place[order], level] = home[order]
    housed = (homes >= 0).all(axis=1)
    return Britain(places[housed], polygons, homes[housed], source)


def _crowd(seed: int, count: int) -> Floats:
    """Points distributed as people are: towns by their size, many near the centre."""
    people = Tweets(
        seed=seed,
        bounds=(BOUNDS[0] + 0.1, BOUNDS[1] + 0.1, BOUNDS[2] - 0.1, BOUNDS[3] - 0.1),
        country="GB",
        background_share=0.0,
        burst_share=0.0,
    )
    points = people.events(0, count + count // 4 + 100)
    xy = np.stack([points["x"].to_numpy(), points["y"].to_numpy()], axis=1)
    return xy[~_in_ireland(xy)][:count]


def _in_ireland(xy: Floats) -> Bools:
    xmin, ymin, xmax, ymax = IRELAND
    inside: Bools = (xy[:, 0] > xmin) & (xy[:, 0] < xmax) & (xy[:, 1] > ymin) & (xy[:, 1] < ymax)
    return inside


def _land_seeds(seed: int, count: int, rng: np.random.Generator) -> Floats:
    """Seeds distributed as people are, some of them wider, no two close together."""
    drawn = _crowd(2 * seed + 1, 8 * count)
    rural = rng.random(len(drawn)) < RURAL_SHARE
    drawn[rural] += rng.normal(0.0, RURAL_DEG, (int(rural.sum()), 2)) * (1.6, 1.0)
    drawn = drawn[~_in_ireland(drawn)]
    cells = np.round(drawn / APART_DEG)
    _, first = np.unique(cells, axis=0, return_index=True)
    chosen = np.sort(first)[:count]
    seeds: Floats = (cells[chosen] + rng.uniform(-0.3, 0.3, (len(chosen), 2))) * APART_DEG
    return seeds


def _sea_seeds(land: Floats, rng: np.random.Generator) -> Floats:
    """Seeds all round the land, also beyond the bounds, so that the cells of the land are bounded."""
    step = SEA_DEG / 2
    x, y = (np.arange(low - 1.5, high + 1.5, step) for low, high in zip(BOUNDS[:2], BOUNDS[2:], strict=True))
    sea = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    sea += rng.uniform(-0.3, 0.3, sea.shape) * step  # no four on a circle
    _, away = shapely.STRtree(shapely.points(land)).query_nearest(
        shapely.points(sea), return_distance=True, all_matches=False
    )
    far: Floats = sea[away > SEA_DEG]
    return far


def _nearest_of(seeds: Floats, count: int, rng: np.random.Generator) -> Ints:
    """For each seed, the nearest of `count` seeds that are chosen as centres."""
    centres = rng.choice(seeds, min(count, len(seeds)), replace=False)
    nearest: Ints = shapely.STRtree(shapely.points(centres)).nearest(shapely.points(seeds)).astype(np.int64)
    return nearest


def _means(points: Floats, group: Ints) -> Floats:
    sizes = np.bincount(group)
    sums = (np.bincount(group, points[:, axis]) for axis in range(2))
    return np.stack([total / sizes for total in sums], axis=1)
