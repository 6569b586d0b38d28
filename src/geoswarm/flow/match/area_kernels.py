"""The loops that find the rectangles that an area's rectangle meets, and those whose words the event has.

Arrays only; `areas.py` makes the exact test. A subscription is entered in several cells of a level
(`core/index/cells.py`), and a large rectangle visits many, so both meet in several. Only the top left cell that they
share reports them:

    ┌───┬───┬───┐
    │ a │ a │   │      area a, subscription s: four cells have a, four have s, and the one cell
    ├───┼───┼───┤      that is the first of both, row by row and column by column, is marked
    │ a │▓a▓│ s │
    ├───┼───┼───┤
    │   │ s │ s │
    └───┴───┴───┘
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, Ordinals, inner, kernel
from geoswarm.core.index.cells import BLOCK_LOG2, BLOCK_SIDE, GROUP_LOG2, CellIndex
from geoswarm.core.index.kernels import Records, is_live
from geoswarm.core.index.word_kernels import Conditions, TextIndex, find_terms, workspace_for
from geoswarm.core.index.word_tables import as_signed, is_taken, rank
from geoswarm.core.space.grid import column_of, row_of, zcode
from geoswarm.core.text.tokens import Tokens
from geoswarm.flow.match.word_match import is_satisfied


@kernel
def _gather_bits(v: int) -> int:
    """0a0b0c0d -> abcd: the column of a Z-order code, and the row of the code shifted by one bit."""
    v &= 0x55555555
    v = (v | (v >> 1)) & 0x33333333
    v = (v | (v >> 2)) & 0x0F0F0F0F
    v = (v | (v >> 4)) & 0x00FF00FF
    return (v | (v >> 8)) & 0x0000FFFF


@inner
def _first_not_below(blocks: Ordinals, low: int, high: int, wanted: int) -> int:
    """The first position from `low` on, and before `high`, whose block is not below `wanted`."""
    while low < high:
        middle = (low + high) // 2
        if blocks[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


class CellRange(NamedTuple):
    """The cells of one level that a box meets, rows and columns included, and the blocks of the index that may have
    some of them."""

    row0: int
    col0: int
    row1: int
    col1: int
    low: int
    high: int


@kernel
def cell_range(box: Floats, k: int, cells: CellIndex) -> CellRange:
    level, frame = cells.levels[k], cells.frame
    row0, col0 = row_of(box[3], frame) >> level, column_of(box[0], frame) >> level
    row1, col1 = row_of(box[1], frame) >> level, column_of(box[2], frame) >> level
    first, end = cells.level_starts[k] << GROUP_LOG2, cells.level_starts[k + 1] << GROUP_LOG2
    # Along the curve, the corners are the ends.
    low = _first_not_below(cells.blocks, first, end, zcode(row0, col0) >> BLOCK_LOG2)
    high = _first_not_below(cells.blocks, low, end, (zcode(row1, col1) >> BLOCK_LOG2) + 1)
    return CellRange(row0, col0, row1, col1, low, high)


@kernel
def _append(found: Ints, n: int, ordinal: int) -> Ints:
    if n == len(found):
        longer = np.empty(2 * n, np.int64)
        longer[:n] = found
        found = longer
    found[n] = ordinal
    return found


@kernel
def search_block(
    at: int, box: Floats, k: int, met: CellRange, cells: CellIndex, records: Records, now_us: int, found: Ints, n: int
) -> tuple[Ints, int]:
    """Append the live subscriptions of those cells of a block that a box meets."""
    level, frame, rects = cells.levels[k], cells.frame, records.rects
    code = as_signed(cells.blocks[at]) << BLOCK_LOG2
    row0, col0 = _gather_bits(code >> 1), _gather_bits(code)
    for row in range(max(met.row0, row0), min(met.row1, row0 + BLOCK_SIDE - 1) + 1):
        for col in range(max(met.col0, col0), min(met.col1, col0 + BLOCK_SIDE - 1) + 1):
            place = at << BLOCK_LOG2 | zcode(row, col) & 63
            if not is_taken(cells.bits, place):
                continue
            cell = rank(cells.bits, place)
            for e in range(cells.starts[cell], cells.starts[cell + 1]):
                s = as_signed(cells.entries[e] >> np.uint64(32))
                if not (rects[s, 0] <= box[2] and box[0] <= rects[s, 2]):
                    continue
                if not (rects[s, 1] <= box[3] and box[1] <= rects[s, 3]):
                    continue
                if max(met.row0, row_of(rects[s, 3], frame) >> level) != row:
                    continue
                if max(met.col0, column_of(rects[s, 0], frame) >> level) != col or not is_live(s, records, now_us):
                    continue
                found = _append(found, n, s)
                n += 1
    return found, n


@kernel
def find_boxes(
    boxes: Floats, cells: CellIndex, records: Records, now_us: int, before: Ints, most: int
) -> tuple[Ints, Ints]:
    """The live subscriptions whose rectangles meet each box, one box after another, and where those of each end.
    `before` counts what other searches found, up to each box: stops after the box that reaches `most` in all."""
    ends, found, n = np.empty(len(boxes), np.int64), np.empty(len(boxes) + 64, np.int64), int(np.int64(0))
    for i in range(len(boxes)):
        if i > 0 and before[i - 1] + n >= most:
            return found[:n].copy(), ends[:i].copy()
        for k in range(len(cells.levels)):
            met = cell_range(boxes[i], k, cells)
            row0, col0, row1, col1 = met.row0 >> 3, met.col0 >> 3, met.row1 >> 3, met.col1 >> 3
            wide = col1 - col0 + 1
            by_place = (row1 - row0 + 1) * wide < met.high - met.low
            for b in range((row1 - row0 + 1) * wide if by_place else met.high - met.low):
                at = met.low + b
                if by_place:
                    block = zcode(row0 + b // wide, col0 + b % wide)
                    at = _first_not_below(cells.blocks, met.low, met.high, block)
                    if at == met.high or cells.blocks[at] != block:
                        continue
                found, n = search_block(at, boxes[i], k, met, cells, records, now_us, found, n)
        ends[i] = n
    return found[:n].copy(), ends


@kernel
def are_satisfied(tokens: Tokens, index: TextIndex, conditions: Conditions, said_by: Ints, ordinals: Ints) -> Bools:
    """Whether the text has the words of the subscription, for each pair (text said_by[i], subscription ordinals[i]);
    texts ascend."""
    answers = np.zeros(len(ordinals), np.bool_)
    workspace, every = workspace_for(tokens, index), np.empty(0, np.bool_)
    seen = np.zeros((len(conditions.words.begins) >> 6) + 1, np.uint64)
    i = 0
    while i < len(ordinals):
        text = said_by[i]
        find_terms(text, text + 1, tokens, index, conditions.words, every, workspace)
        for j in range(workspace.terms_ends[0]):
            seen[workspace.terms[j] >> 6] |= np.uint64(1) << np.uint64(workspace.terms[j] & 63)
        while i < len(ordinals) and said_by[i] == text:
            first = conditions.conjunctions_offsets[ordinals[i]]
            for c in range(first, conditions.conjunctions_offsets[ordinals[i] + 1]):
                if is_satisfied(c, seen, conditions):
                    answers[i] = True
                    break
            i += 1
        for j in range(workspace.terms_ends[0]):
            seen[workspace.terms[j] >> 6] = 0
    return answers
