"""Routes where terms are divided: an event goes to each partition of its place that has a list for one of its terms.

`route.py` handles other plans. Some events go nowhere, because no subscription there asks for their words; some go to
several executors, and `merge.py` joins their rows. PS2Stream §IV-C: H1 is the plan's `TermCut`, H2 is the index itself,
which every worker has (`core/index/words.py`).

    event ── cell ──► rectangle, not divided ───────────────► its partition, if a term is wanted there
                 └──► divided ── each wanted term ── share ─► the partition that has the share
                              ├─ some ask for no words ─────► the partition that has share 0
                              └─ it has a geometry ─────────► that one alone, which searches all terms for it
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import xy
from geoswarm.core.arrays.jit import Bools, Ints, kernel
from geoswarm.core.arrays.radix import sort_order
from geoswarm.core.index.cells import CODE_MAX, codes_of, frame_of
from geoswarm.core.index.kernels import Points
from geoswarm.core.index.words import wanted_tokens
from geoswarm.core.space.holders import Holders, holders
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import Directory, ShareIds, share_of
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens, tokenize
from geoswarm.flow.match.match import Searchable
from geoswarm.flow.route import Parcel, SlotKeys, locate_slots, split_into_parcels
from geoswarm.model import GEOMETRY, TEXT

EVENT_NUMBER, COPIES = pa.field("_event", pa.int64(), nullable=False), pa.field("_copies", pa.int32(), nullable=False)
"""Columns that the merger needs: the unique number of an event, and the number of parcels that it is in."""


def travel_schema(events: pa.Schema) -> pa.Schema:
    """The columns of events that may be in several parcels."""
    return events.append(EVENT_NUMBER).append(COPIES)


class Dispatch(NamedTuple):
    parcels: Iterator[Parcel]
    copies: int
    """Rows beyond the first of each event."""
    dropped: int
    """Events that go nowhere."""


class _Ways(NamedTuple):
    """A plan as the kernel reads it."""

    holders: Holders
    counts: Ints
    listed: Hashes
    shares: ShareIds
    listed_starts: Ints
    directories: Directory
    directory_starts: Ints


def route_terms(
    events: pa.RecordBatch, plan: Plan, segments: Sequence[Searchable], first_event: int, *, every: bool = False
) -> Dispatch:
    """`events` are validated, and numbered from `first_event` on. With `every`, each event goes somewhere."""
    x, y = xy(events)
    slots = locate_slots(x, y, plan.grid.frame, plan.slot_of_cell)
    codes = codes_of(x, y, frame_of(plan.grid))
    order = sort_order(codes, CODE_MAX)
    texts = events.column(TEXT.name) if TEXT.name in events.schema.names else pa.nulls(len(events), pa.string())
    # The index is searched in Z-order; all arrays below are in that order.
    tokens = tokenize(texts.take(pa.array(order)))
    asked = wanted_tokens(Points.of(codes[order], x[order], y[order]), tokens, segments)
    plain = every or any(map(_has_plain, segments))
    whole = np.zeros(len(events), np.bool_)
    if GEOMETRY.name in events.schema.names:
        whole = events.column(GEOMETRY.name).is_valid().to_numpy(zero_copy_only=False)[order]
    places, targets = _targets(slots[order], tokens, asked, plain, whole, _ways(plan))
    rows = order[places]
    copies = np.bincount(rows, minlength=len(events)).astype(np.int32)
    numbers = np.arange(first_event, first_event + len(events))
    columns = [*events.columns, pa.array(numbers), pa.array(copies)]
    travelling = pa.record_batch(columns, schema=travel_schema(events.schema))
    dropped = int(np.count_nonzero(copies == 0))
    return Dispatch(split_into_parcels(travelling, rows, targets, plan), len(rows) - (len(events) - dropped), dropped)


def _has_plain(segment: Searchable) -> bool:
    """Whether some of its subscriptions are not found by words."""
    by_place = segment.rectangles is not None or (segment.regions is not None and bool(segment.regions.cells))
    return by_place or (segment.demands is not None and segment.demands.lists is not None)


def _ways(plan: Plan) -> _Ways:
    cuts = plan.cuts
    return _Ways(
        holders(plan),
        np.array([cut.count for cut in cuts], np.int64),
        np.concatenate([cut.hashes for cut in cuts]),
        np.concatenate([cut.shares for cut in cuts]),
        np.cumsum([0, *(len(cut.hashes) for cut in cuts)]),
        np.concatenate([cut.directory for cut in cuts]),
        np.cumsum([0, *(len(cut.directory) for cut in cuts)]),
    )


@kernel
def _targets(
    slots: SlotKeys, tokens: Tokens, asked: Bools, plain: bool, whole: Bools, ways: _Ways
) -> tuple[Ints, SlotKeys]:
    """(event, slot) for every parcel that an event is in, in the order of events. A `whole` event is in one only."""
    room = len(slots) + len(tokens.hashes)
    places, targets = np.empty(room, np.int64), np.empty(room, np.uint32)
    held = ways.holders
    sent = np.full(len(held.cut_of_slot), -1, np.int64)  # the last event that was sent there
    n = 0
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        cut = held.cut_of_slot[slot]
        begin, end = tokens.offsets[i], tokens.offsets[i + 1]
        if cut < 0:
            if plain or whole[i] or asked[begin:end].any():
                places[n], targets[n] = i, slot
                n += 1
            continue
        owners = held.starts[slot]
        if plain or whole[i]:
            places[n], targets[n] = i, held.slots[owners]
            sent[held.slots[owners]] = i
            n += 1
        if whole[i]:
            continue
        listed = ways.listed[ways.listed_starts[cut] : ways.listed_starts[cut + 1]]
        shares = ways.shares[ways.listed_starts[cut] : ways.listed_starts[cut + 1]]
        directory = ways.directories[ways.directory_starts[cut] : ways.directory_starts[cut + 1]]
        for t in range(begin, end):
            if asked[t]:
                share = np.int64(share_of(tokens.hashes[t], listed, shares, ways.counts[cut], directory))
                target = held.slots[owners + share]
                if sent[target] != i:
                    places[n], targets[n] = i, target
                    sent[target] = i
                    n += 1
    return places[:n].copy(), targets[:n].copy()
