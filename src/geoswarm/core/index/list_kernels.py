"""The loops over lists by value (`lists.py`): they write the entries of subscriptions, and find them for an event.

    value ──hash──► upper half: the list in a cell's table ──box──► entry ──lower half, bytes──► a hit

Cells, tables and boxes are those of the index of words (`word_kernels.py`), without its dictionary: a value is not
looked up among all values, since everything that belongs to a cell lies together, and the next event is near. Values
may share a hash, so the bytes of each hit are compared.

    alternative   ordinal 64, lower half of the hash 32 | value 32
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.jit import Ints, Ordinals, Packed, ZCodes, inner, kernel
from geoswarm.core.arrays.prefetch import prefetch
from geoswarm.core.index.cell_boxes import GUARDS, ONES, STEPS_LOG2, point_of, side_of, steps_x, steps_y
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, is_live
from geoswarm.core.index.word_kernels import (
    TextIndex,
    Workspace,
    block_end,
    find_lists,
    workspace_for,
)
from geoswarm.core.index.word_tables import LOW, as_signed, as_unsigned
from geoswarm.core.space.grid import zcode
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens

PORTION_ENTRIES = 4096
"""Room for entries of a block; with more, longer arrays are made."""
_32 = np.uint64(32)


class Passed(NamedTuple):
    """Entries that have passed the tests so far."""

    sums: Packed
    """Of entry and point, as in `cell_boxes.py`."""
    owners: Ints
    tokens: Ints
    ordinals: Ints
    values: Ints


@kernel
def passed_for(room: int) -> Passed:
    return Passed(
        np.empty(room, np.uint64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )


@kernel
def enter_values(
    levels: Ints, sides: Ints, hashes: Hashes, count: int
) -> tuple[Ordinals, ZCodes, Ordinals, Ordinals, Ordinals]:
    """Of each of `count` entries its level, cell and scattered value, its box, and the row that it is of. Rows have a
    level and sides in steps."""
    heights, codes = np.empty(count, np.uint32), np.empty(count, np.uint32)
    scatters, boxes, rows = np.empty(count, np.uint32), np.empty(count, np.uint32), np.empty(count, np.uint32)
    n = 0
    for i in range(len(levels)):
        level, shift = levels[i], STEPS_LOG2 + levels[i]
        left, upper, right, lower = sides[i, 0], sides[i, 1], sides[i, 2], sides[i, 3]
        for row in range(upper >> shift, (lower >> shift) + 1):
            below = side_of(upper, lower, row, level)
            for col in range(left >> shift, (right >> shift) + 1):
                heights[n], codes[n], scatters[n] = level, zcode(row, col), hashes[i] >> _32
                boxes[n], rows[n] = side_of(left, right, col, level) << 16 | below, i
                n += 1
    return heights, codes, scatters, boxes, rows


@inner
def take_values(begin: int, end: int, tokens: Tokens, index: TextIndex, workspace: Workspace) -> None:
    """Write the values of a block of events into the workspace, as the index of words does with terms."""
    every, known = 0, 0
    for k in range(len(index.levels)):
        every |= 1 << index.levels[k]
    for i in range(begin, end):
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            workspace.tokens[known], workspace.scatters[known] = t, as_signed(tokens.hashes[t] >> _32)
            workspace.heights[known] = every
            known += 1
        workspace.terms_ends[i - begin] = known
        workspace.anywhere[i - begin] = every if tokens.offsets[i + 1] > tokens.offsets[i] else 0


@inner
def test_boxes(begin: int, end: int, points: Points, index: TextIndex, workspace: Workspace, passed: Passed) -> int:
    """The number of entries, of the lists of a block, whose boxes have the point of their event. An entry is written
    before it is tested, and the next one overwrites it if it has not passed."""
    count, guards, f = as_unsigned(0), np.uint64(GUARDS), 0
    for i in range(begin, end):
        column, row = steps_x(points.x[i], index.frame), steps_y(points.y[i], index.frame)
        while f < workspace.lists_ends[i - begin]:
            point = point_of(column, row, index.levels[workspace.ranks[f]])
            for e in range(as_unsigned(workspace.begins[f]), as_unsigned(workspace.ends[f])):
                total = index.packed[e] + point
                passed.sums[count], passed.owners[count] = total, i
                passed.tokens[count] = workspace.tokens[workspace.asked[f]]
                prefetch(index.alternatives, (total >> _32, 0))
                count += as_unsigned(total & guards == guards)
            f += 1
    return as_signed(count)


@inner
def test_hashes(count: int, tokens: Tokens, index: TextIndex, words: ByteRows, records: Records, passed: Passed) -> int:
    """The number of those whose value has the hash of the token; what is needed next is on its way then."""
    kept = as_unsigned(0)
    for h in range(as_unsigned(count)):
        row, t = passed.sums[h] >> _32, passed.tokens[h]
        check = index.alternatives[row, 1]
        passed.sums[kept], passed.owners[kept], passed.tokens[kept] = passed.sums[h], passed.owners[h], t
        passed.ordinals[kept], passed.values[kept] = as_signed(index.alternatives[row, 0]), as_signed(check & LOW)
        prefetch(words.begins, passed.values[kept])
        prefetch(words.ends, passed.values[kept])
        kept += as_unsigned(check >> _32 == tokens.hashes[t] & LOW)
    for k in range(kept):
        prefetch(words.data, words.begins[passed.values[k]])
        prefetch(records.rects, (passed.ordinals[k], 0))
    return as_signed(kept)


@inner
def is_said(value: int, t: int, tokens: Tokens, words: ByteRows) -> bool:
    """Whether a token has the bytes of a value."""
    begin, size = words.begins[value], words.ends[value] - words.begins[value]
    b, start = 0, tokens.starts[t]
    if tokens.ends[t] - start != size:
        return False
    while b < size and words.data[begin + b] == tokens.folded[start + b]:
        b += 1
    return bool(b == size)


@kernel
def match_values(
    points: Points,
    tokens: Tokens,
    index: TextIndex,
    words: ByteRows,
    records: Records,
    now_us: int,
    hits: Hits,
    done: SearchProgress,
) -> SearchProgress:
    """Look up the values of every event, and test the entries listed for them: the hits are ordinals. Like
    `match_cells`, it continues from `done` and stops where the room might not suffice."""
    workspace, passed = workspace_for(tokens, index), passed_for(PORTION_ENTRIES)
    n, begin, wanted = done.hits, done.points, as_signed(0)
    rects, guards, ones = records.rects, np.uint64(GUARDS), np.uint64(ONES)
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    while begin < len(points.codes):
        to = block_end(begin, tokens)
        take_values(begin, to, tokens, index, workspace)
        find_lists(begin, to, points, index, workspace)
        entries = 0
        for f in range(workspace.lists_ends[to - begin - 1]):
            entries += workspace.ends[f] - workspace.begins[f]
        if entries >= len(passed.sums):
            passed = passed_for(2 * entries)
        kept = test_hashes(
            test_boxes(begin, to, points, index, workspace, passed), tokens, index, words, records, passed
        )
        if n + kept > len(hits.subs):
            wanted = n + kept
            break
        i = begin
        for h in range(kept):
            s, x, y = passed.ordinals[h], points.x[passed.owners[h]], points.y[passed.owners[h]]
            while i < passed.owners[h]:
                hits.ends[i] = n
                i += 1
            on_side = (passed.sums[h] - ones) & guards != guards
            hit = (not on_side) or (rects[s, 0] <= x <= rects[s, 2] and rects[s, 1] <= y <= rects[s, 3])
            if hit and is_said(passed.values[h], passed.tokens[h], tokens, words):
                hits.subs[n] = s
                n += as_signed(all_live or is_live(s, records, now_us))
        hits.ends[i:to] = n
        begin = to
    return SearchProgress(begin, n, wanted)
