"""Shapes for tests: rough blobs, with holes, of several parts; and the points where mistakes would show."""

import numpy as np
import shapely

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.shapes.shapes import Geometries
from geoswarm.core.space.grid import Grid

WORLD = Grid(-180.0, -90.0, 180.0, 90.0, columns=100, rows=100)


def ring(rng: np.random.Generator, vertices: int, x: float, y: float, radius: float) -> Floats:
    turns = (np.arange(vertices) + rng.uniform(0.1, 0.9, vertices)) * 2 * np.pi / vertices
    reach = radius * (1 + 0.3 * np.sin(5 * turns) + 0.2 * rng.uniform(-1, 1, vertices))
    return np.column_stack([x + reach * np.cos(turns), y + reach * np.sin(turns)])


def blob(rng: np.random.Generator, vertices: int, x: float, y: float, radius: float) -> shapely.Geometry:
    return shapely.polygons(ring(rng, vertices, x, y, radius))


def blobs(rng: np.random.Generator, count: int, vertices: int = 40, radius: float = 2.0) -> Geometries:
    """A third are plain, a third have a hole, a third have two parts."""
    made = []
    for i in range(count):
        x, y = rng.uniform(-60, 60, 2)
        shape = blob(rng, vertices, x, y, radius)
        if i % 3 == 1:
            shape = shapely.difference(shape, blob(rng, 12, x, y, radius / 4))
        if i % 3 == 2:
            shape = shapely.union(shape, blob(rng, vertices, x + 5 * radius, y, radius))
        made.append(shape)
    return np.array(made, object)


def probe_points(rng: np.random.Generator, polygon: shapely.Geometry, step: float) -> Floats:
    """Inside and out, on vertices, on edges, a hair beside them, and on the corners and sides of cells."""
    x0, y0, x1, y1 = shapely.bounds(polygon)
    anywhere = rng.uniform((x0 - 1, y0 - 1), (x1 + 1, y1 + 1), (200, 2))
    vertices = shapely.get_coordinates(polygon)
    halves = (vertices[1:] + vertices[:-1]) / 2
    beside = np.nextafter(vertices, rng.uniform(-180, 180, vertices.shape))
    level = np.column_stack([rng.uniform(x0 - 1, x1 + 1, len(vertices)), vertices[:, 1]])
    corners = np.round(anywhere / step) * step
    sides = np.column_stack([corners[:, 0], anywhere[:, 1]])
    points = np.vstack([anywhere, vertices, halves, beside, level, corners, sides])
    found: Floats = np.clip(points, (-180, -90), (180, 90))
    return found
