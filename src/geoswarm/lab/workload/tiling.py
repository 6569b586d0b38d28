"""A map of wiggly cells that leave no gap: Voronoi cells of given seeds, whose borders are bent for both sides at once.

`postcodes.py` decides where seeds lie and what they belong to.

          a          A border a-b between the seeds s and t may be bent anywhere within the kite a s b t. Kites of
        / | \\        different borders meet at their rims only, and a bent border is a curve over the straight one,
       s  |  t       as far from it as the kite allows. So cells stay simple, and no two overlap.
        \\ | /
          b
"""

import numpy as np
import numpy.typing as npt
import shapely

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.shapes.shapes import Geometries

Planes = npt.NDArray[np.complex128]  # x + iy: to turn and stretch is to multiply

BENDS = 16
"""Pieces of the most detailed border: halved four times, each middle moved by half as much as the one before."""
PIECES = (8, 16, 4)
"""Pieces of a border within a group, between two groups, and between two groups of groups. Real borders of postcode
areas are drawn more coarsely than those of districts, so that an area has but twice the vertices of a district."""
REACH_OF_KITE, REACH_OF_BORDER = 0.9, 0.25
"""How far a border is bent at most, as a share of the kite there, and of the border's own length."""
SHORT = 1e-6
"""A border of this length or less, in the seeds' unit, stays straight: rounding would decide its bends."""


def wiggly_cells(seeds: Floats, groups: Ints, rng: np.random.Generator) -> Geometries:
    """The cell of each seed that has a group, in order. `groups` has two columns, the group and the group of groups; -1
    in both is outside, which only gives cells a rim: they must not reach the outermost seeds' cells."""
    voronoi = shapely.voronoi_polygons(shapely.multipoints(seeds), ordered=True)
    xy, cell = shapely.get_coordinates(shapely.get_parts(voronoi), return_index=True)
    corners, number = np.unique(np.ascontiguousarray(xy).view(np.complex128).ravel(), return_inverse=True)
    # Each step of a ring is a border, passed in one of its two directions.
    step = np.flatnonzero((cell[1:] == cell[:-1]) & (number[1:] != number[:-1]) & (groups[cell[:-1], 0] >= 0))
    begin, end, side = number[step], number[step + 1], cell[step]
    low, high = np.minimum(begin, end), np.maximum(begin, end)
    keys, border = np.unique(low * len(corners) + high, return_inverse=True)
    low, high = np.divmod(keys, len(corners))
    one = np.empty(len(keys), np.int64)
    one[border] = side  # of its cells, one within a group
    pieces = _pieces(border, side, len(keys), groups)
    pieces[np.abs(corners[high] - corners[low]) < SHORT] = 1
    lines = _bend(corners[low], corners[high], seeds[one].view(np.complex128).ravel(), rng)
    lengths = pieces[border]
    first = np.cumsum(lengths) - lengths
    along = (np.arange(lengths.sum()) - np.repeat(first, lengths)) * np.repeat(BENDS // lengths, lengths)
    along = np.where(np.repeat(begin > end, lengths), BENDS - along, along)
    vertices = lines[np.repeat(border, lengths), along]
    ring = np.unique(np.repeat(side, lengths), return_inverse=True)[1]
    return shapely.polygons(shapely.linearrings(vertices.real, vertices.imag, indices=ring))  # type: ignore[no-any-return]


def _pieces(border: Ints, side: Ints, borders: int, groups: Ints) -> Ints:
    """The number of pieces of each border, by what it divides. A coast has as many as a border between groups."""
    lowest, highest = np.full((borders, 2), np.iinfo(np.int64).max), np.full((borders, 2), -1)
    np.minimum.at(lowest, border, groups[side])
    np.maximum.at(highest, border, groups[side])
    parts = (lowest != highest).sum(axis=1)
    parts[np.bincount(border, minlength=borders) == 1] = 1
    pieces: Ints = np.array(PIECES)[parts]
    return pieces


def _bend(a: Planes, b: Planes, seed: Planes, rng: np.random.Generator) -> Planes:
    """(borders, BENDS + 1), from a to b. The bends lie under a concave curve, and so do the straight
    pieces between them."""
    u = np.linspace(0.0, 1.0, BENDS + 1)
    length = np.abs(b - a)[:, None]
    foot = ((seed - a) / (b - a))[:, None]  # real: how far along the border the seed is; imag: how far from it
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(foot.real > 0, u / foot.real, np.inf)
        fall = np.where(foot.real < 1, (1 - u) / (1 - foot.real), np.inf)
    kite = np.abs(foot.imag) * np.minimum(rise, fall)
    reach = np.where(length < SHORT, 0.0, np.minimum(REACH_OF_KITE * kite, REACH_OF_BORDER))
    noise = np.zeros((len(a), BENDS + 1))
    step, size = BENDS, 1.0
    while step > 1:
        half = step // 2
        middles = (noise[:, :-1:step] + noise[:, step::step]) / 2
        noise[:, half::step] = middles + rng.uniform(-size, size, middles.shape)
        step, size = half, size / 2
    lines: Planes = a[:, None] + (b - a)[:, None] * (u + 0.5j * noise * reach)
    lines[:, 0], lines[:, -1] = a, b  # to the last bit: other borders end there
    return lines
