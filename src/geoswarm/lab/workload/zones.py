"""Regions to join points with: districts that tile a country, and small zones that crowd where people are.

They are generated; `store/region_files.py` reads files of regions. Both kinds follow the places of `tweets.py`, so a
crowded city gets many points, many zones and small districts. Sizes as in Distributor §4.3: a few thousand districts
with some hundred vertices, or many fences with few.

    district   a cell round one of many places, its borders crooked; neighbours share theirs to the last bit
    zone       a blob round a place: its radius swings with the angle, so it never crosses itself
"""

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.tweets import Tweets

Geometries = npt.NDArray[np.object_]
HALVINGS = 6
"""Halvings of a border between two corners: 64 pieces, so about 380 vertices round a district of six sides."""
CROOKED_SHARE = 0.06
"""How far the middle of a border is moved, as a share of its length; half as much at each halving."""
ZONE_KM = 0.4
"""The median radius of a zone; one in forty is four times as large."""
ZONE_SPREAD = 0.7
ZONE_KM_MIN, ZONE_KM_MAX = 0.05, 10.0
ZONE_VERTICES = (20, 200)
WAVES = 5
"""Waves of a zone's outline, with falling height: together less than its radius."""
KM_PER_DEGREE = 111.2


def districts(places: Tweets, count: int) -> pa.Table:
    """`count` regions that cover the bounds once, small where places are dense, as `id` and `geometry` (WKB)."""
    rng = np.random.default_rng([places.seed, count, 1])
    x, y = centres(places, count, rng)
    world = shapely.box(*places.bounds)
    cells = shapely.get_parts(shapely.voronoi_polygons(shapely.multipoints(np.stack([x, y], axis=1)), extend_to=world))
    cells = shapely.intersection(cells, world)
    return _table(_bend_borders(cells, places.bounds, rng))


def zones(places: Tweets, count: int) -> pa.Table:
    """`count` blobs of 20 to 200 vertices, as `id` and `geometry` (WKB)."""
    rng = np.random.default_rng([places.seed, count, 2])
    x, y = centres(places, count, rng)
    km = np.clip(ZONE_KM * np.exp(ZONE_SPREAD * rng.standard_normal(count)), ZONE_KM_MIN, ZONE_KM_MAX)
    vertices = rng.integers(ZONE_VERTICES[0], ZONE_VERTICES[1] + 1, count)
    heights = rng.uniform(0.0, 0.5, (count, WAVES)) / 2.0 ** np.arange(WAVES)  # their sum is below 1
    phases = rng.uniform(0.0, math.tau, (count, WAVES))
    owner = np.repeat(np.arange(count), vertices)
    ends = np.cumsum(vertices)
    angle = math.tau * (np.arange(ends[-1]) - np.repeat(ends - vertices, vertices)) / vertices[owner]
    radius = np.ones(len(angle))
    for wave in range(WAVES):
        radius += heights[owner, wave] * np.cos((wave + 2) * angle + phases[owner, wave])
    radius *= km[owner] / KM_PER_DEGREE
    widened = 1.0 / np.maximum(np.cos(np.radians(y)), 0.2)
    xmin, ymin, xmax, ymax = places.bounds
    # Pressed flat against the edge of the world, a blob remains one.
    outline = np.stack(
        [
            np.clip(x[owner] + radius * widened[owner] * np.cos(angle), xmin, xmax),
            np.clip(y[owner] + radius * np.sin(angle), ymin, ymax),
        ],
        axis=1,
    )
    return _table(shapely.polygons(shapely.linearrings(outline, indices=owner)))


def centres(places: Tweets, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Distinct places of this world's subscriptions, a little inside its bounds."""
    rows = places.subscriptions(int(rng.integers(1 << 40)), count)
    low, high = (np.array(places.bounds)[side] for side in ([0, 1], [2, 3]))
    margin = (high - low) * 1e-3
    mid = [(rows[f"{axis}min"].to_numpy() + rows[f"{axis}max"].to_numpy()) / 2 for axis in "xy"]
    x, y = (np.clip(mid[k], low[k] + margin[k], high[k] - margin[k]) for k in (0, 1))
    # Two of one place would be one district.
    return x + rng.uniform(-1e-6, 1e-6, count), y + rng.uniform(-1e-6, 1e-6, count)


def _bend_borders(cells: Geometries, bounds: Bounds, rng: np.random.Generator) -> Geometries:
    """Bend each border the same way for both of its cells; the edge of the world stays straight."""
    rings, owner = shapely.get_coordinates(shapely.get_exterior_ring(cells), return_index=True)
    same = owner[1:] == owner[:-1]
    begin, end = rings[:-1][same], rings[1:][same]
    owner = owner[1:][same]
    flipped = (begin[:, 0] > end[:, 0]) | ((begin[:, 0] == end[:, 0]) & (begin[:, 1] > end[:, 1]))
    borders = np.where(flipped[:, None], np.hstack([end, begin]), np.hstack([begin, end]))
    unique, number = np.unique(borders, axis=0, return_inverse=True)
    bent = _bend(unique, _on_edge(unique, bounds), rng)[number.reshape(-1)]
    bent[flipped] = bent[flipped, ::-1]
    steps = bent[:, :-1]  # the last point of a border is the first of the next
    outline = shapely.linearrings(steps.reshape(-1, 2), indices=np.repeat(owner, steps.shape[1]))
    made = shapely.polygons(outline)
    # Where two sides meet at a sharp angle their bends may cross: such a district keeps its straight borders.
    return np.where(shapely.is_valid(made), made, cells)


def _bend(borders: Floats, straight: npt.NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """(n, 2^HALVINGS + 1, 2): each halving moves the middles sideways by chance."""
    lines = np.stack([borders[:, :2], borders[:, 2:]], axis=1)
    across = (lines[:, 1] - lines[:, 0])[:, ::-1] * [-1.0, 1.0]
    across[straight] = 0.0
    for halving in range(HALVINGS):
        middles = (lines[:, :-1] + lines[:, 1:]) / 2
        sideways = rng.uniform(-1.0, 1.0, middles.shape[:2]) * CROOKED_SHARE / 2.0**halving
        middles += sideways[:, :, None] * across[:, None, :]
        woven = np.empty((len(lines), 2 * lines.shape[1] - 1, 2))
        woven[:, ::2], woven[:, 1::2] = lines, middles
        lines = woven
    return lines


def _on_edge(borders: Floats, bounds: Bounds) -> npt.NDArray[np.bool_]:
    on = np.zeros(len(borders), np.bool_)
    for axis, value in ((0, bounds[0]), (1, bounds[1]), (0, bounds[2]), (1, bounds[3])):
        on |= (borders[:, axis] == value) & (borders[:, axis + 2] == value)
    return on


def _table(polygons: Geometries) -> pa.Table:
    ids: Ints = np.arange(len(polygons), dtype=np.int64)
    return pa.table({"id": ids, "geometry": pa.array(shapely.to_wkb(polygons), pa.binary())})
