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

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints, ZCodes, kernel
from geoswarm.core.index.cells import Level
from geoswarm.core.index.kernels import Records, is_live
from geoswarm.core.index.word_kernels import Conditions, TextIndex, find_terms, workspace_for
from geoswarm.core.index.word_tables import as_signed
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


@kernel
def _first_not_below(keys: ZCodes, low: int, high: int, wanted: int) -> int:
    """The first position from `low` on, and before `high`, whose key is not below `wanted`."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def find_boxes(
    boxes: Floats, frame: Floats, level: int, cells: Level, records: Records, now_us: int, before: Ints, most: int
) -> tuple[Ints, Ints]:
    """The live subscriptions of one level whose rectangles meet each box, one box after another, and where those of
    each end. `before` counts what other levels found, up to each box: stops after the box that reaches `most` in all.
    """
    keys, starts, entries, rects = cells.keys, cells.starts, cells.entries, records.rects
    ends, found, n = np.empty(len(boxes), np.int64), np.empty(len(boxes) + 64, np.int64), 0
    for i in range(len(boxes)):
        if i > 0 and before[i - 1] + n >= most:
            return found[:n].copy(), ends[:i].copy()
        x0, y0, x1, y1 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        row0, col0 = row_of(y1, frame) >> level, column_of(x0, frame) >> level
        row1, col1 = row_of(y0, frame) >> level, column_of(x1, frame) >> level
        # Along the curve, the corners are the ends.
        low = _first_not_below(keys, int(np.int64(0)), len(keys), zcode(row0, col0))
        high = _first_not_below(keys, low, len(keys), zcode(row1, col1) + 1)
        wide = col1 - col0 + 1
        by_cell = (row1 - row0 + 1) * wide < high - low
        for k in range((row1 - row0 + 1) * wide if by_cell else high - low):
            if by_cell:
                row, col = row0 + k // wide, col0 + k % wide
                code = zcode(row, col)
                at = _first_not_below(keys, low, high, code)
                if at == high or keys[at] != code:
                    continue
            else:
                at = low + k
                code = as_signed(keys[at])
                row, col = _gather_bits(code >> 1), _gather_bits(code)
                if not (row0 <= row <= row1 and col0 <= col <= col1):
                    continue
            for e in range(starts[at], starts[at + 1]):
                s = as_signed(entries[e])
                if not (rects[s, 0] <= x1 and x0 <= rects[s, 2] and rects[s, 1] <= y1 and y0 <= rects[s, 3]):
                    continue
                if max(row0, row_of(rects[s, 3], frame) >> level) != row:
                    continue
                if max(col0, column_of(rects[s, 0], frame) >> level) != col or not is_live(s, records, now_us):
                    continue
                if n == len(found):
                    longer = np.empty(2 * n, np.int64)
                    for h in range(n):
                        longer[h] = found[h]
                    found = longer
                found[n] = s
                n += 1
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
