"""The index of a segment, from its records alone, as arrays of a file and back.

0_keys ...      the levels of `core/index/cells.py`, of plain rectangles that ask for no words
text_...        the lists of `core/index/words.py`, of all that ask for words
region_0_...    the cells of `core/index/regions.py`, of shapes that ask for no words
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Floats, Ordinals
from geoswarm.core.index.cells import CellIndex, Level, build
from geoswarm.core.index.merge_cells import merge_levels
from geoswarm.core.index.regions import WITHIN, Regions, build_regions
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.index.words import build_text
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attribute_kind import Arrays
from geoswarm.core.subscriptions.attributes import KEYWORDS, REGION
from geoswarm.core.subscriptions.keywords import RARITY, asks_for_none
from geoswarm.errors import CorruptState

STEP_ROWS = 4_000_000
TEXT, REGION_CELLS = "text_", "region_"
"""The prefixes of the names of such arrays."""


def derive_index(grid: Grid, records: Arrays) -> Arrays:
    regions, words = REGION.open(records), KEYWORDS.open(records)
    rects = regions.rects
    if words is None and regions.shapes is None:
        return _level_arrays(_build_in_steps(grid, rects))
    plain = np.ones(len(rects), np.bool_) if words is None else asks_for_none(words)
    arrays: Arrays = {}
    if words is not None:
        text = build_text(grid, rects, words, records[RARITY])
        arrays |= {f"{TEXT}{part}": array for part, array in text._asdict().items()}
    if regions.shapes is not None:
        for_points = plain[regions.shaped]
        if len(regions.predicates):
            for_points &= regions.predicates != WITHIN
        cells = build_regions(grid, regions.shapes, for_points)
        arrays |= {f"{REGION_CELLS}{name}": array for name, array in _level_arrays(cells).items()}
        plain[regions.shaped] = False
    chosen = np.flatnonzero(plain)
    levels = {level: found.renumber(chosen) for level, found in build(grid, rects[chosen]).items()}
    return arrays | _level_arrays(levels)


def _build_in_steps(grid: Grid, rects: Floats) -> CellIndex:
    """`build` takes some 200 bytes for each rectangle, and an index that is rebuilt may have tens of millions."""
    if len(rects) <= STEP_ROWS:
        return build(grid, rects)
    starts = range(0, len(rects), STEP_ROWS)
    parts = [build(grid, rects[start : start + STEP_ROWS]) for start in starts]
    places = [np.arange(start, min(start + STEP_ROWS, len(rects)), dtype=np.uint32) for start in starts]
    index: dict[int, dict[str, Any]] = {}
    for level, field, pieces in merge_levels(parts, places):
        index.setdefault(level, {})[field] = np.concatenate(list(pieces))
    return {level: Level(**fields) for level, fields in index.items()}


def merge_indexes(parts: Sequence[CellIndex], places: Sequence[Ordinals]) -> ArrayPieces:
    """The index of a segment that is merged from segments of plain rectangles, from their indexes."""
    return ((f"{level}_{field}", pieces) for level, field, pieces in merge_levels(parts, places))


def read_levels(index: Arrays) -> CellIndex:
    levels = sorted({int(name.split("_")[0]) for name in index if not name.startswith((TEXT, REGION_CELLS))})
    return {level: Level(*(index[f"{level}_{field}"] for field in Level._fields)) for level in levels}


def read_text_index(name: str, records: Arrays, index: Arrays) -> TextIndex | None:
    """The index of words; None if no subscription asks for words."""
    if RARITY not in records:
        return None
    parts = [f"{TEXT}{part}" for part in TextIndex._fields]
    if any(part not in index for part in parts):
        raise CorruptState(f"the index of segment {name} is of an older version of geoswarm: start the engine again")
    return TextIndex(*(index[part] for part in parts))


def read_regions_index(records: Arrays, index: Arrays) -> Regions | None:
    """The index of regions; None if every region is its rectangle."""
    regions, words = REGION.open(records), KEYWORDS.open(records)
    if regions.shapes is None:
        return None
    cells = {name.removeprefix(REGION_CELLS): array for name, array in index.items() if name.startswith(REGION_CELLS)}
    worded = np.empty(0, np.int64) if words is None else np.flatnonzero(~asks_for_none(words)[regions.shaped])
    worded = worded[np.argsort(records["ids"][regions.shaped[worded]], kind="stable")]
    return Regions(regions.shapes, regions.shaped, read_levels(cells), worded, regions.predicates)


def _level_arrays(index: CellIndex) -> Arrays:
    return {f"{level}_{field}": array for level, cells in index.items() for field, array in cells._asdict().items()}
