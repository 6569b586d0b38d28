"""The index of a segment, from its records alone, as arrays of a file and back.

cells_...       the cells of `core/index/cells.py`, of plain rectangles that ask for no words
text_...        the lists of `core/index/words.py`, of all that ask for words
region_0_...    the cells of `core/index/regions.py`, of shapes that ask for no words
listed_...      the lists of `core/index/lists.py`, of all that name objects, or want a value in a column; they are in
                none of the others
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.buffers import rows_of
from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Array, Floats, Ordinals
from geoswarm.core.index.cells import CellIndex, build
from geoswarm.core.index.demands import UNLISTED, Demands, Lists
from geoswarm.core.index.lists import Listing, build_lists, list_demands
from geoswarm.core.index.merge_cells import merge_cells
from geoswarm.core.index.regions import WITHIN, Level, RegionCells, Regions, build_regions
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.index.words import build_text
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attribute_kind import Arrays
from geoswarm.core.subscriptions.attributes import KEYWORDS, OBJECTS, REGION, WHERE
from geoswarm.core.subscriptions.keywords import RARITY, asks_for_none
from geoswarm.core.subscriptions.kinds import text_arrays, text_of
from geoswarm.errors import CorruptState

STEP_ROWS = 4_000_000
CELLS, TEXT, REGION_CELLS, LISTED_ARRAYS = "cells_", "text_", "region_", "listed_"
"""The prefixes of the names of such arrays."""


def derive_index(grid: Grid, records: Arrays) -> Arrays:
    regions, words = REGION.open(records), KEYWORDS.open(records)
    rects = regions.rects
    listing = _listing_of(records)
    if words is None and regions.shapes is None and listing is None:
        return _named(CELLS, _build_in_steps(grid, rects))
    plain = np.ones(len(rects), np.bool_) if words is None else asks_for_none(words)
    arrays: Arrays = {}
    listed = np.zeros(len(rects), np.bool_) if listing is None else listing.how != UNLISTED
    plain &= ~listed
    if words is not None:
        arrays |= _named(TEXT, build_text(grid, rects, records["ids"], words.blank(listed), records[RARITY]))
    if listing is not None:
        arrays |= _named(LISTED_ARRAYS, build_lists(grid, rects, listing)) | {f"{LISTED_ARRAYS}how": listing.how}
        arrays |= text_arrays(f"{LISTED_ARRAYS}words", listing.vocabulary)
        arrays |= text_arrays(f"{LISTED_ARRAYS}columns", pa.array(listing.columns, pa.string()))
    if regions.shapes is not None:
        for_points = plain[regions.shaped]
        if len(regions.predicates):
            for_points &= regions.predicates != WITHIN
        cells = build_regions(grid, regions.shapes, for_points)
        for level, keys in cells.items():
            arrays |= _named(f"{REGION_CELLS}{level}_", keys)
        plain[regions.shaped] = False
    chosen = np.flatnonzero(plain)
    return arrays | _named(CELLS, build(grid, rects[chosen]).renumber(chosen))


def _listing_of(records: Arrays) -> Listing | None:
    conditions, objects = WHERE.open(records), OBJECTS.open(records)
    return list_demands(conditions.codes, conditions.names, objects, len(records["ids"]))


def _build_in_steps(grid: Grid, rects: Floats) -> CellIndex:
    """`build` takes some 200 bytes for each rectangle, and an index that is rebuilt may have tens of millions."""
    if len(rects) <= STEP_ROWS:
        return build(grid, rects)
    starts = range(0, len(rects), STEP_ROWS)
    parts = [build(grid, rects[start : start + STEP_ROWS]) for start in starts]
    places = [np.arange(start, min(start + STEP_ROWS, len(rects)), dtype=np.uint32) for start in starts]
    fields: dict[str, Any] = {field: np.concatenate(list(pieces)) for field, pieces in merge_cells(parts, places)}
    return CellIndex(**fields)


def merge_indexes(parts: Sequence[CellIndex], places: Sequence[Ordinals]) -> ArrayPieces:
    """The index of a segment that is merged from segments of plain rectangles, from their indexes."""
    return ((f"{CELLS}{field}", pieces) for field, pieces in merge_cells(parts, places))


def read_cells(name: str, index: Arrays) -> CellIndex | None:
    """The index of rectangles; None if no subscription is a rectangle without words."""
    cells = CellIndex(*_parts(name, index, CELLS, CellIndex._fields))
    return cells if len(cells.levels) else None


def read_text_index(name: str, records: Arrays, index: Arrays) -> TextIndex | None:
    """The index of words; None if no subscription asks for words."""
    return TextIndex(*_parts(name, index, TEXT, TextIndex._fields)) if RARITY in records else None


def read_demands(name: str, records: Arrays, index: Arrays) -> Demands | None:
    """What is asked for beyond places and words; None: nothing."""
    conditions, objects, lists = WHERE.open(records), OBJECTS.open(records), None
    if f"{LISTED_ARRAYS}how" in index:
        found = TextIndex(*_parts(name, index, LISTED_ARRAYS, TextIndex._fields))
        columns = tuple(text_of(f"{LISTED_ARRAYS}columns", index).to_pylist())
        lists = Lists(found, rows_of(text_of(f"{LISTED_ARRAYS}words", index)), columns, index[f"{LISTED_ARRAYS}how"])
    elif objects is not None:
        raise _is_old(name)
    return Demands.of(conditions.codes, conditions.names, objects, len(records["ids"]), lists)


def _parts(name: str, index: Arrays, prefix: str, fields: Sequence[str]) -> list[Array]:
    parts = [f"{prefix}{field}" for field in fields]
    if any(part not in index for part in parts):
        raise _is_old(name)
    return [index[part] for part in parts]


def _is_old(name: str) -> CorruptState:
    return CorruptState(f"the index of segment {name} is of an older version of geoswarm: start the engine again")


def read_regions_index(records: Arrays, index: Arrays) -> Regions | None:
    """The index of regions; None if every region is its rectangle."""
    regions, words = REGION.open(records), KEYWORDS.open(records)
    if regions.shapes is None:
        return None
    by_lists = np.zeros(len(records["ids"]), np.bool_) if words is None else ~asks_for_none(words)
    if f"{LISTED_ARRAYS}how" in index:
        by_lists = by_lists | (index[f"{LISTED_ARRAYS}how"] != UNLISTED)
    worded = np.flatnonzero(by_lists[regions.shaped])
    worded = worded[np.argsort(records["ids"][regions.shaped[worded]], kind="stable")]
    return Regions(regions.shapes, regions.shaped, _region_cells(index), worded, regions.predicates)


def _region_cells(index: Arrays) -> RegionCells:
    names = [name.removeprefix(REGION_CELLS) for name in index if name.startswith(REGION_CELLS)]
    levels = sorted({int(name.split("_")[0]) for name in names})
    return {k: Level(*(index[f"{REGION_CELLS}{k}_{field}"] for field in Level._fields)) for k in levels}


def _named(prefix: str, parts: CellIndex | TextIndex | Level) -> Arrays:
    return {f"{prefix}{field}": array for field, array in parts._asdict().items()}
