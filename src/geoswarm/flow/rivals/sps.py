"""sPS: every event against every subscription of its partition, without an index. Distributor §4.2.

`match/match.py` finds the same with an index (sPIS). This file shows the cost of having none: a kernel compares all
rectangles, and only those that meet are tested further.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints, SubIds, kernel
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.tokens import Tokens, tokenize
from geoswarm.flow.match.facts import Facts
from geoswarm.flow.match.match import MatchRun
from geoswarm.flow.rivals.pairs import (
    EventPlaces,
    are_reported_here,
    gather_matches,
    locate_events,
    regions_hold,
    words_hold,
)
from geoswarm.flow.rivals.shares import PartitionSubs, slot_of_partition
from geoswarm.flow.sound import drop_mark
from geoswarm.model import TEXT

SCAN_ROOM_PER_EVENT = 16
"""Room for pairs of each event in a run; if there are more, runs are shorter."""
SCAN_ROOM_MIN = 65_536


def scan(
    events: pa.RecordBatch,
    shares: Sequence[PartitionSubs],
    plan: Plan,
    partition: int,
    now_us: int,
    *,
    rows_max: int,
    pairs_max: int,
) -> Iterator[MatchRun]:
    """Like `match.match`, for the events of a partition in any order; `shares` are its parts of the segments."""
    places, tokens, slot = locate_events(events, plan.grid), None, slot_of_partition(plan, partition)
    events = drop_mark(events)
    facts = Facts(events)
    if TEXT.name in events.schema.names and any(len(share.terms) for share in shares):
        tokens = tokenize(events.column(TEXT.name))
    start = 0
    while start < len(events):
        end, found = min(start + rows_max, len(events)), list[tuple[Ints, PartitionSubs, Ints]]()
        for share in shares:
            room = len(share.ids) + min(pairs_max, SCAN_ROOM_PER_EVENT * (end - start) + SCAN_ROOM_MIN)
            counts, members = _find_meeting(places.boxes[start:end], share.rects, room)
            end = start + len(counts)
            found.append((start + np.repeat(np.arange(len(counts)), counts), share, members))
        kept = list[tuple[Ints, SubIds]]()
        for rows, share, members in found:
            few = np.searchsorted(rows, end)  # later shares may have had room for fewer events
            rows, members = rows[:few], members[:few]
            if places.areas is not None:
                here = are_reported_here(places, rows, share.rects[members], plan, slot)
                rows, members = rows[here], members[here]
            ordinals = share.ordinals[members]
            if share.segment.demands is not None:
                met = facts.meet(share.segment.demands, rows, ordinals)
                rows, ordinals = rows[met], ordinals[met]
            kept.append(_select_matches(places, tokens, rows, share, ordinals, now_us))
        yield gather_matches(events.slice(start, end - start), [(rows - start, ids) for rows, ids in kept])
        start = end


def _select_matches(
    places: EventPlaces, tokens: Tokens | None, rows: Ints, share: PartitionSubs, ordinals: Ints, now_us: int
) -> tuple[Ints, SubIds]:
    """The pairs that match, of those whose rectangles meet."""
    conditions = share.segment.conditions
    if len(share.terms) and conditions is not None:
        if tokens is not None:
            says = words_hold(rows, ordinals, tokens, conditions, share.terms)
        else:
            says = np.diff(conditions.conjunctions_offsets)[ordinals] == 0
        rows, ordinals = rows[says], ordinals[says]
    holds = regions_hold(places, rows, share.segment, ordinals, now_us)
    return rows[holds], share.segment.records.ids[ordinals[holds]]


@kernel
def _find_meeting(boxes: Floats, rects: Floats, room: int) -> tuple[Ints, Ints]:
    """How many rectangles each box meets, and which, for as many boxes as fit into the room."""
    counts, members = np.empty(len(boxes), np.int64), np.empty(room, np.int64)
    n, i = 0, 0
    while i < len(boxes) and n + len(rects) <= room:
        x0, y0, x1, y1, before = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3], n
        for r in range(len(rects)):
            members[n] = r  # overwritten by the next if it does not meet: no branch depends on the outcome
            n += (rects[r, 0] <= x1) & (x0 <= rects[r, 2]) & (rects[r, 1] <= y1) & (y0 <= rects[r, 3])
        counts[i] = n - before
        i += 1
    return counts[:i], members[:n].copy()
