"""The loop that tests the entries listed for the words of an event. `core/index/word_kernels.py` finds the lists.

    13 lists ──box──► 56 of 160 entries ──signature──► 50 hits, and a few doubts ──rectangle, terms──► a hit

Whether an entry passes cannot be predicted, so no branch depends on it: each is written where the next one will be
written if it has not passed. Only doubts take branches. PS2Stream §IV-D.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Bytes, Ints, Packed, inner, kernel
from geoswarm.core.arrays.prefetch import prefetch
from geoswarm.core.index.cell_boxes import GUARDS, ONES, point_of, steps_x, steps_y
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, is_live
from geoswarm.core.index.word_checks import (
    ALL,
    SIGNATURE_BITS,
    SIGNATURE_SLOTS,
    conjunction_place,
    signature_slot,
)
from geoswarm.core.index.word_kernels import (
    BLOCK_EVENTS,
    Conditions,
    TextIndex,
    Workspace,
    block_end,
    find_lists,
    find_terms,
    workspace_for,
)
from geoswarm.core.index.word_tables import LOW, as_signed, as_unsigned
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens

PORTION_ENTRIES = 4096
"""Entries that are tested together, if one event has no more: what passes stays in the nearest cache."""
ROWS_AHEAD = np.uint64(24)
"""How many hits before its turn the row of an alternative is asked for: doubts make the processor guess wrong, and it
then forgets what it has begun to read."""
_32 = np.uint64(32)


class Said(NamedTuple):
    """The words of the event at hand; all zero between events."""

    signature: Bytes
    terms: Hashes
    """A bit for each term of the segment."""


class Passed(NamedTuple):
    """Entries whose boxes have the point of their event; the room for ROWS_AHEAD more is read, but means nothing."""

    sums: Packed
    """Of entry and point, as in `core/index/cell_boxes.py`."""
    ends: Ints
    """By event of a block."""
    here: Packed
    """The event at hand, as seen from its cell at each level."""


@kernel
def passed_for(entries: int, index: TextIndex) -> Passed:
    sums, here = np.empty(entries + as_signed(ROWS_AHEAD), np.uint64), np.empty(len(index.levels), np.uint64)
    return Passed(sums, np.empty(BLOCK_EVENTS, np.int64), here)


@inner
def is_satisfied(conjunction: int, terms: Hashes, conditions: Conditions) -> bool:
    for t in range(conditions.terms_offsets[conjunction], conditions.terms_offsets[conjunction + 1]):
        term = as_signed(conditions.terms[t])
        is_banned = term < 0
        term = ~term if is_banned else term
        if ((terms[term >> 6] >> np.uint64(term & 63)) & np.uint64(1) == np.uint64(0)) != is_banned:
            return False
    return True


@inner
def is_first(ordinal: int, place: int, terms: Hashes, conditions: Conditions) -> bool:
    """Whether this conjunction of the subscription is satisfied, and none before it."""
    first = conditions.conjunctions_offsets[ordinal]
    if not is_satisfied(first + place, terms, conditions):
        return False
    for c in range(first, first + place):  # noqa: SIM110 - numba has no all()
        if is_satisfied(c, terms, conditions):
            return False
    return True


@inner
def count_slots(check: int, signature: Bytes) -> int:
    """How many of the two slots of a check the event has."""
    one, two = check & (SIGNATURE_SLOTS - 1), (check >> SIGNATURE_BITS) & (SIGNATURE_SLOTS - 1)
    return as_signed(signature[as_unsigned(one)]) + as_signed(signature[as_unsigned(two)])


@inner
def portion_of(first: int, count: int, workspace: Workspace) -> tuple[int, int]:
    """The end of the events of a block, from `first` on, that have PORTION_ENTRIES entries together, and one at least;
    and how many entries they have."""
    end, entries = first, as_signed(0)
    f = workspace.lists_ends[first - 1] if first else 0
    while end < count:
        more = entries
        for k in range(f, workspace.lists_ends[end]):
            more += workspace.ends[k] - workspace.begins[k]
        if more > PORTION_ENTRIES and end > first:
            break
        f, end, entries = workspace.lists_ends[end], end + 1, more
    return end, entries


@inner
def test_boxes(first: int, end: int, turn: Points, index: TextIndex, workspace: Workspace, passed: Passed) -> int:
    """The number of entries of some events of a block that pass. An entry is written before it is tested, and the next
    one overwrites it if it has not passed."""
    count, guards, f = as_unsigned(0), np.uint64(GUARDS), workspace.lists_ends[first - 1] if first else 0
    for i in range(first, end):
        column, row = steps_x(turn.x[i], index.frame), steps_y(turn.y[i], index.frame)
        for k in range(len(index.levels)):
            passed.here[k] = point_of(column, row, index.levels[k])
        while f < workspace.lists_ends[i]:
            point = passed.here[as_unsigned(workspace.ranks[f])]
            for e in range(as_unsigned(workspace.begins[f]), as_unsigned(workspace.ends[f])):
                total = index.packed[e] + point
                passed.sums[count] = total
                count += as_unsigned(total & guards == guards)
            f += 1
        passed.ends[i] = count
    return as_signed(count)


@inner
def keep_hits(
    first: int,
    end: int,
    turn: Points,
    index: TextIndex,
    conditions: Conditions,
    records: Records,
    now_us: int,
    workspace: Workspace,
    said: Said,
    passed: Passed,
    hits: Hits,
    n: int,
) -> int:
    """Write those that passed and are hits, from hit `n` on; returns how many hits there are then."""
    rects, guards, ones = records.rects, np.uint64(GUARDS), np.uint64(ONES)
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    at, begin, j = as_unsigned(n), as_unsigned(0), workspace.terms_ends[first - 1] if first else 0
    for i in range(first, end):
        for t in range(as_unsigned(j), as_unsigned(workspace.terms_ends[i])):
            said.signature[signature_slot(workspace.scatters[t])] = 1
            said.terms[workspace.terms[t] >> 6] |= np.uint64(1) << np.uint64(workspace.terms[t] & 63)
        doubts = begin
        for h in range(begin, as_unsigned(passed.ends[i])):
            total = passed.sums[h]
            prefetch(index.alternatives, (passed.sums[h + ROWS_AHEAD] >> _32, 0))
            row, on_side = total >> _32, (total - ones) & guards != guards
            check = as_signed(index.alternatives[row, 1] & LOW)
            slots = count_slots(check, said.signature)
            sure = (not on_side) & (check < ALL) & (slots == 0) & all_live
            hits.subs[at] = index.alternatives[row, 0]
            passed.sums[doubts] = total
            ordinal, doubtful = index.alternatives[row, 1] >> _32, (not sure) & ((check < ALL) | (slots == 2))
            prefetch(rects, (ordinal * as_unsigned(on_side), 0))
            prefetch(conditions.conjunctions_offsets, ordinal * as_unsigned(doubtful))
            at += as_unsigned(sure)
            doubts += as_unsigned(doubtful)
        for d in range(begin, doubts):
            row, on_side = passed.sums[d] >> _32, (passed.sums[d] - ones) & guards != guards
            s, check = index.alternatives[row, 1] >> _32, as_signed(index.alternatives[row, 1] & LOW)
            r, x, y = s * as_unsigned(on_side), turn.x[i], turn.y[i]
            hit = (not on_side) | ((rects[r, 0] <= x) & (x <= rects[r, 2]) & (rects[r, 1] <= y) & (y <= rects[r, 3]))
            if hit and (check >= ALL or count_slots(check, said.signature) > 0):
                hit = is_first(as_signed(s), conjunction_place(check), said.terms, conditions)
            if hit and not all_live:
                hit = is_live(as_signed(s), records, now_us)
            hits.subs[at] = index.alternatives[row, 0]
            at += as_unsigned(hit)
        for t in range(as_unsigned(j), as_unsigned(workspace.terms_ends[i])):
            said.signature[signature_slot(workspace.scatters[t])] = 0
            said.terms[workspace.terms[t] >> 6] = 0
        hits.ends[i] = at
        begin, j = as_unsigned(passed.ends[i]), workspace.terms_ends[i]
    return as_signed(at)


@kernel
def match_text(
    points: Points,
    tokens: Tokens,
    index: TextIndex,
    conditions: Conditions,
    records: Records,
    now_us: int,
    probe: Bools,
    hits: Hits,
    done: SearchProgress,
) -> SearchProgress:
    """Look up the words of every event, and test the entries listed for them. Like `match_cells`, it continues from
    `done` and stops where the room might not suffice. A subscription is found in the list of the first conjunction that
    the event satisfies, so executors that divide the terms report it once."""
    workspace, passed = workspace_for(tokens, index), passed_for(PORTION_ENTRIES, index)
    said = Said(np.zeros(SIGNATURE_SLOTS, np.uint8), np.zeros((len(conditions.words.begins) >> 6) + 1, np.uint64))
    n, begin, wanted = done.hits, done.points, as_signed(0)
    while begin < len(points.codes) and wanted == 0:
        to = block_end(begin, tokens)
        find_terms(begin, to, tokens, index, conditions.words, probe, workspace)
        find_lists(begin, to, points, index, workspace)
        turn = Points(points.codes[begin:to], points.x[begin:to], points.y[begin:to])
        turn_hits = Hits(hits.ends[begin:to], hits.subs)
        i = int(np.int64(0))
        while i < to - begin:
            end, entries = portion_of(i, to - begin, workspace)
            if entries + as_signed(ROWS_AHEAD) > len(passed.sums):
                passed = passed_for(2 * entries, index)
            count = test_boxes(i, end, turn, index, workspace, passed)
            if n + count > len(hits.subs):
                wanted = n + count
                break
            n = keep_hits(i, end, turn, index, conditions, records, now_us, workspace, said, passed, turn_hits, n)
            i = end
        begin += i
    return SearchProgress(begin, n, int(wanted))
