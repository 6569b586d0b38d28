"""The loop that tests the entries listed for the words of an event. `core/index/word_kernels.py` finds the lists.

    13 lists ──box──► 56 of 160 entries ──signature──► 51 hits, and now and then a doubt ──rectangle, terms──► a hit

PS2Stream §IV-D.
"""

import numpy as np

from geoswarm.core.arrays.jit import Bools, kernel
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress, is_live
from geoswarm.core.index.word_boxes import (
    ALL,
    GUARDS,
    ONES,
    SIGNATURE_BITS,
    SIGNATURE_SLOTS,
    conjunction_place,
    point_of,
    signature_slot,
    steps_x,
    steps_y,
)
from geoswarm.core.index.word_kernels import Conditions, TextIndex, block_end, find_lists, find_terms, workspace_for
from geoswarm.core.index.word_tables import LOW, as_signed, as_unsigned
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens


@kernel
def is_satisfied(conjunction: int, seen: Hashes, conditions: Conditions) -> bool:
    for t in range(conditions.terms_offsets[conjunction], conditions.terms_offsets[conjunction + 1]):
        term = as_signed(conditions.terms[t])
        if (seen[term >> 6] >> np.uint64(term & 63)) & np.uint64(1) == np.uint64(0):
            return False
    return True


@kernel
def is_first(ordinal: int, place: int, seen: Hashes, conditions: Conditions) -> bool:
    """Whether this conjunction of the subscription is satisfied, and none before it."""
    first = conditions.conjunctions_offsets[ordinal]
    if not is_satisfied(first + place, seen, conditions):
        return False
    for c in range(first, first + place):  # noqa: SIM110 - numba has no all()
        if is_satisfied(c, seen, conditions):
            return False
    return True


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
    entries, rects = index.boxed, records.rects
    all_live = len(records.dead) == 0 and len(records.expires_us) == 0
    workspace, levels = workspace_for(tokens, index), len(index.levels)
    seen = np.zeros((len(conditions.words.begins) >> 6) + 1, np.uint64)
    signature = np.zeros(SIGNATURE_SLOTS, np.uint8)
    here = np.empty(levels, np.uint64)
    near, found = np.empty(1024, np.uint64), np.empty(1024, np.uint64)
    n, i, wanted = done.hits, done.points, np.int64(0)
    while i < len(points.codes) and wanted == 0:
        begin, end = i, block_end(i, tokens)
        find_terms(begin, end, tokens, index, conditions.words, probe, workspace)
        find_lists(begin, end, points, index, workspace)
        while i < end:
            b = i - begin
            first, last = (workspace.lists_ends[b - 1] if b else 0), workspace.lists_ends[b]
            candidates = np.int64(0)
            for f in range(first, last):
                candidates += workspace.ends[f] - workspace.begins[f]
            if n + candidates > len(hits.subs):
                wanted = n + candidates
                break
            if candidates > len(near):
                near, found = np.empty(2 * candidates, np.uint64), np.empty(2 * candidates, np.uint64)
            x, y = points.x[i], points.y[i]
            column, row = steps_x(x, index.frame), steps_y(y, index.frame)
            for k in range(levels):
                here[k] = point_of(column, row, index.levels[k])
            passed = as_unsigned(0)
            for f in range(first, last):
                point = here[workspace.ranks[f]]
                for e in range(as_unsigned(workspace.begins[f]), as_unsigned(workspace.ends[f])):
                    rest = point - entries[e, 0]
                    found[passed], near[passed] = e, rest
                    passed += as_unsigned(rest & GUARDS == GUARDS)
            if passed:
                for j in range(workspace.terms_ends[b - 1] if b else 0, workspace.terms_ends[b]):
                    signature[signature_slot(workspace.scatters[j])] = 1
                    seen[workspace.terms[j] >> 6] |= np.uint64(1) << np.uint64(workspace.terms[j] & 63)
                for h in range(passed):
                    e = found[h]
                    s, check = entries[e, 1] & LOW, as_signed(entries[e, 1] >> np.uint64(32))
                    hits.subs[as_unsigned(n)] = records.ids[s]
                    slots = signature[as_unsigned(check & (SIGNATURE_SLOTS - 1))]
                    slots += signature[as_unsigned((check >> SIGNATURE_BITS) & (SIGNATURE_SLOTS - 1))]
                    inside = (near[h] - ONES) & GUARDS == GUARDS
                    hit = True
                    if not (inside & (slots == 0) & (check < ALL)):
                        hit = check < ALL or slots == 2
                        if hit and not inside:
                            hit = (rects[s, 0] <= x) & (x <= rects[s, 2]) & (rects[s, 1] <= y) & (y <= rects[s, 3])
                        if hit and (check >= ALL or slots > 0):
                            hit = is_first(as_signed(s), conjunction_place(check), seen, conditions)
                    if hit and not all_live:
                        hit = is_live(as_signed(s), records, now_us)
                    n += hit
                for j in range(workspace.terms_ends[b - 1] if b else 0, workspace.terms_ends[b]):
                    signature[signature_slot(workspace.scatters[j])] = 0
                    seen[workspace.terms[j] >> 6] = 0
            hits.ends[i] = n
            i += 1
    return SearchProgress(i, n, int(wanted))
