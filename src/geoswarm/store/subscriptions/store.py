"""Apply operations: make the next version of the subscriptions.

New subscriptions go into a small segment of their own (a delta); cancelled ones are marked in a bitmap. Segments are
merged beside the stream (`store/merging/`).

    version 7   [ base ████████ ] [ delta ██ ]               bitmap 7
    register    [ base ████████ ] [ delta ██ ] [ delta █ ]   bitmap 7
    cancel      [ base ███x████ ] [ delta ██ ] [ delta █ ]   bitmap 9
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from geoswarm.config import SubIdKind, Tuning
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.arrays.jit import Bools, Bytes, Ints
from geoswarm.core.index.kernels import NONE_DEAD
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.aggregate import state_keys
from geoswarm.core.subscriptions.attributes import AGGREGATE, BIRTH, CANCEL, COUNTED_FROM, MAX_EVENTS, REGION
from geoswarm.core.subscriptions.id_texts import ID_TEXT, are_strange
from geoswarm.core.subscriptions.kinds import LONG_AGO_US
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.operations import operation_codes
from geoswarm.flow.validate import ValidatedOperations, validate_operations
from geoswarm.guard.door import Removal
from geoswarm.model import CANCELLED
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.dead_bits import mark
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SEGMENTS_FOLDER
from geoswarm.store.segments.write import write_segment
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.churn import Churn
from geoswarm.store.subscriptions.door_protocol import Door
from geoswarm.store.subscriptions.ends import write_ends
from geoswarm.store.subscriptions.pasts import write_pasts
from geoswarm.store.subscriptions.reached import Reached
from geoswarm.store.subscriptions.replay import GONE, UNCHANGED, OperationsById, goes_on, group_by_id, replay
from geoswarm.store.subscriptions.view import View, find_live


@dataclass(frozen=True)
class Store:
    """Makes versions. The files of a new version are written when it is returned, but not yet durable; its bitmaps are
    written by `write_beside`, once for all steps, and its manifest by the checkpoint."""

    storage: Storage
    grid: Grid
    tuning: Tuning
    counts: TermCounts
    """How common terms are in the stream, for the index of new segments; a restart counts from zero."""
    stream: AggregateStream | None = None
    """The running stream, for subscriptions with an aggregate; None: none runs."""
    ids: SubIdKind = "integer"

    def apply(
        self,
        draft: Manifest,
        view: View,
        operations: pa.RecordBatch,
        dead: DeadLetters,
        churn: Churn,
        door: Door | None = None,
        *,
        is_trusted: bool = False,
    ) -> tuple[Manifest, View]:
        """`draft` already has the version, token and time of the next version; `view` shows its segments. Trusted
        operations are not shown to the `door`, and count as no user's change: they have no birth."""
        asks = door is not None and not is_trusted
        if door is not None and asks:
            operations = door.enter(operations, draft.now_us, dead)
        validated = validate_operations(operations, self.grid, draft.now_us, dead, self.tuning.window, self.stream)
        if ID_TEXT in validated.rows.schema.names:
            validated = _without_strange_ids(validated, view, draft.now_us, dead)
        rows, fit = validated.rows, validated.fit
        if door is not None and asks:
            fit = door.admit(validated, view, draft.now_us, dead)
        chosen = np.flatnonzero(fit)
        grouped = group_by_id(np.asarray(rows.column("sub_id").fill_null(0), np.int64)[chosen], chosen)
        found = find_live(view, grouped.ids, draft.now_us)
        is_live = found[0] >= 0
        outcome = replay(grouped, operation_codes(rows.column("op")), is_live)
        _file(rows, outcome.duplicates, dead, "duplicate", "subscription {sub_id} exists: send replace")
        _file(rows, outcome.unknown, dead, "unknown-id", "subscription {sub_id} does not exist")
        final = outcome.final
        newcomers = np.flatnonzero(~is_live & (final >= 0))
        newcomers = newcomers[np.argsort(final[newcomers])]  # in the order of arrival
        freed = int(np.count_nonzero(is_live & (final == GONE)))
        refused = newcomers[max(0, self.tuning.subscriptions_max - draft.subs + freed) :]
        limit = f"all {self.tuning.subscriptions_max} places are taken: cancel some, or raise subscriptions_max"
        full = final[refused]
        _file(rows, full, dead, "full", limit)
        final[refused] = UNCHANGED
        if door is not None and asks:
            door.done(full, draft.now_us)
        ended, born = is_live & (final != UNCHANGED), final >= 0
        began = self._begin_counting(draft, view, validated, grouped, is_live)
        if ended.any():
            view = view.with_ended(found[:, is_live & (final == GONE)], CANCELLED, draft.now_us)
            draft, view = self._end(draft, view, found[:, ended], churn, door)
        if born.any():
            subs = validated.subs(final[born])
            subs.values[BIRTH.name] = np.full(len(subs), draft.now_us if asks else LONG_AGO_US)
            subs.values[AGGREGATE.name] = subs[AGGREGATE].since(began[born])
            subs.values[COUNTED_FROM.name] = np.where(subs[MAX_EVENTS] > 0, draft.version, 0)
            churn.came.append(subs[REGION].rects)
            if door is not None:
                door.came(subs)
            draft, view = self._add(draft, view.with_pasts(view.pasts.born(subs)).with_begun(subs), subs)
        return draft, view

    def _begin_counting(
        self, draft: Manifest, view: View, validated: ValidatedOperations, grouped: OperationsById, is_live: Bools
    ) -> Ints:
        """The version in which the counting of each id that is registered or replaced began: this one, unless it goes
        on with what was counted."""
        counts, began = validated[AGGREGATE], np.full(len(grouped.ids), draft.version)
        if counts.counts_any():
            before = view.aggregates(grouped.ids, draft.now_us)
            ops = operation_codes(validated.rows.column("op"))
            same = goes_on(grouped, ops, is_live, *state_keys(counts, before))
            began[same] = before.began[same]
        return began

    def remove(self, draft: Manifest, view: View, removal: Removal, churn: Churn, door: Door) -> tuple[Manifest, View]:
        """Cancel subscriptions of some users. As `apply`, it needs a version of its own."""
        found = view.find_for_removal(removal, draft.now_us)
        view = view.with_ended(found, CANCELLED, draft.now_us)
        return self._end(draft, view, found, churn, door) if found.size else (draft, view)

    def end_reached(
        self, draft: Manifest, view: View, reached: Reached, live_us: int, churn: Churn, door: Door | None
    ) -> tuple[Manifest, View]:
        """End those that have had their `max_events`, which the batch has told them: also if they have ended otherwise
        since they were live at `live_us`. What was replaced meanwhile goes on. As `apply`, it needs a version of its
        own."""
        view = view.without_ended(reached.ids)
        _, counted_from = view.limits(reached.ids, live_us)
        chosen = reached.ids[counted_from == reached.counted_from]
        return self._end(draft, view, find_live(view, chosen, live_us), churn, door) if len(chosen) else (draft, view)

    def write_beside(self, draft: Manifest, view: View, before: View) -> Manifest:
        """Write the bitmaps of a version, who waits for the past and who has ended, unless they are those of the
        version before, whose files it names."""
        stem = f"{draft.version:012d}-{draft.token[:8]}"
        if view.pasts is not before.pasts:
            draft = replace(draft, pasts=write_pasts(self.storage, stem, view.pasts))
        if view.ends is not before.ends or view.begun is not before.begun:
            draft = replace(draft, ends=write_ends(self.storage, stem, view.ends, view.begun))
        if all(before.dead.get(name, NONE_DEAD) is bits for name, bits in view.dead.items()):
            return draft
        name = f"{stem}.dead"
        bitmaps = {of: bits for of, bits in view.dead.items() if len(bits)}
        self.storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}", bitmaps, durable=False)
        return replace(draft, tombstones=name)

    def _add(self, draft: Manifest, view: View, subs: Subs) -> tuple[Manifest, View]:
        name = f"{draft.version:012d}-{draft.token[:8]}"
        share_max = self.tuning.dead_share_max
        entry = write_segment(self.storage, self.grid, name, subs, share_max, self.counts, durable=False)
        held = open_segment(self.storage, name)
        return replace(draft, segments=(*draft.segments, entry)), view.with_segment(name, held)

    def _end(self, draft: Manifest, view: View, found: Ints, churn: Churn, door: Door | None) -> tuple[Manifest, View]:
        churn.went.append(view.rects_at(found))
        if len(view.pasts.ids):
            view = view.with_pasts(view.pasts.without(view.ids_at(found)))
        if len(view.begun):
            view = view.without_begun(view.ids_at(found))
        if door is not None:
            door.went(view, found)
        return self._mark_dead(draft, view, found)

    def _mark_dead(self, draft: Manifest, view: View, found: Ints) -> tuple[Manifest, View]:
        """Mark the subscriptions at some places as cancelled, in copies of the bitmaps."""
        fresh, entries = dict[str, Bytes](), list(draft.segments)
        for number in np.unique(found[0]):
            entry = entries[number]
            before = view.dead[entry.name]
            bits = before.copy() if len(before) else np.zeros((entry.subs + 7) // 8, np.uint8)
            ordinals = found[1, found[0] == number]
            entries[number] = entry.without(mark(bits, ordinals), view.segments[entry.name], ordinals)
            fresh[entry.name] = bits
        return replace(draft, segments=tuple(entries)), view.with_dead(fresh)


def _without_strange_ids(
    validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters
) -> ValidatedOperations:
    """The same without operations on an id whose number another text has (`core/subscriptions/id_texts.py`)."""
    rows, chosen = validated.rows, np.flatnonzero(validated.fit)
    numbers = np.asarray(rows.column("sub_id").take(pa.array(chosen)), np.int64)
    ids = np.unique(numbers)
    live = view.id_texts(ids, now_us)
    strange = chosen[are_strange(numbers, rows.column(ID_TEXT).take(pa.array(chosen)), ids, live)]
    if not len(strange):
        return validated
    cancels = operation_codes(rows.column("op"))[strange] == CANCEL
    _file(rows, strange[cancels], dead, "unknown-id", "subscription {sub_id} does not exist")
    detail = "the id {sub_id} has the number of another subscription, which one in 2^63 has: give it another id"
    _file(rows, strange[~cancels], dead, "id-taken", detail)
    fit = validated.fit.copy()
    fit[strange] = False
    return replace(validated, fit=fit)


def _file(rows: pa.RecordBatch, numbers: Ints, dead: DeadLetters, reason: str, detail: str) -> None:
    """Make some rows dead letters."""
    chosen = np.zeros(len(rows), np.bool_)
    chosen[numbers] = True
    dead.add(rows, chosen, reason, detail)
