"""Apply operations: make the next version of the subscriptions.

New subscriptions go into a small segment of their own (a delta); cancelled ones are marked in a bitmap; when deltas are
many, or a segment is mostly dead, segments are merged (`merge.py`).

    version 7   [ base ████████ ] [ delta ██ ]               bitmap 7
    register    [ base ████████ ] [ delta ██ ] [ delta █ ]   bitmap 7
    cancel      [ base ███x████ ] [ delta ██ ] [ delta █ ]   bitmap 9
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from geoswarm.config import Tuning
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import BIRTH, ON, REGION
from geoswarm.core.subscriptions.kinds import LONG_AGO_US
from geoswarm.core.subscriptions.subs import Subs, concatenate_subs
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.operations import operation_codes
from geoswarm.flow.validate import validate_operations
from geoswarm.guard.door import Removal
from geoswarm.model import INSIDE
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.dead_bits import mark
from geoswarm.store.segments.segment import SEGMENTS_FOLDER
from geoswarm.store.segments.write import write_segment
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.churn import Churn
from geoswarm.store.subscriptions.door_protocol import Door
from geoswarm.store.subscriptions.merge import segments_to_merge
from geoswarm.store.subscriptions.replay import GONE, UNCHANGED, group_by_id, replay
from geoswarm.store.subscriptions.view import View, find_live


@dataclass(frozen=True)
class Store:
    """Makes versions. The files of a new version are on disk when it is returned; its manifest is not."""

    storage: Storage
    grid: Grid
    tuning: Tuning
    counts: TermCounts
    """How common terms are in the stream, for the index of new segments; a restart counts from zero."""

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
    ) -> Manifest:
        """`draft` already has the version, token and time of the next version; `view` shows its segments. Trusted
        operations are not shown to the `door`, and count as no user's change: they have no birth."""
        asks = door is not None and not is_trusted
        if door is not None and asks:
            operations = door.enter(operations, draft.now_us, dead)
        validated = validate_operations(operations, self.grid, draft.now_us, dead)
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
        if ended.any():
            draft = self._end(draft, view, found[:, ended], churn, door)
        if born.any():
            subs = validated.subs(final[born])
            subs.values[BIRTH.name] = np.full(len(subs), draft.now_us if asks else LONG_AGO_US)
            churn.came.append(subs[REGION].rects)
            if door is not None:
                door.came(subs)
            draft = self._add(draft, "", subs)
        return draft

    def remove(self, draft: Manifest, view: View, removal: Removal, churn: Churn, door: Door) -> Manifest:
        """Cancel subscriptions of some users. As `apply`, it needs a version of its own."""
        found = view.find_for_removal(removal, draft.now_us)
        return self._end(draft, view, found, churn, door) if found.size else draft

    def compact(self, draft: Manifest, view: View) -> Manifest:
        """Merge the segments that `segments_to_merge` names, without cancelled and expired subscriptions."""
        names = segments_to_merge(draft.segments, draft.now_us, self.tuning)
        if not names:
            return draft
        merged = {name: view.segments[name] for name in names}
        parts = [held.subs(np.flatnonzero(held.live(view.dead[n], draft.now_us))) for n, held in merged.items()]
        draft = replace(draft, segments=tuple(e for e in draft.segments if e.name not in names))
        subs = concatenate_subs(parts)
        return self._add(draft, "-m", subs) if len(subs) else draft

    def _add(self, draft: Manifest, suffix: str, subs: Subs) -> Manifest:
        name = f"{draft.version:012d}-{draft.token[:8]}{suffix}"
        entry = write_segment(self.storage, self.grid, name, subs, self.tuning.dead_share_max, self.counts)
        return replace(draft, segments=(*draft.segments, entry))

    def _end(self, draft: Manifest, view: View, found: Ints, churn: Churn, door: Door | None) -> Manifest:
        churn.went.append(view.rects_at(found))
        if door is not None:
            door.went(view, found)
        return self._mark_dead(draft, view, found)

    def _mark_dead(self, draft: Manifest, view: View, found: Ints) -> Manifest:
        """Mark the subscriptions at some places as cancelled, in copies of the bitmaps."""
        bitmaps = {name: bits for name, bits in view.dead.items() if len(bits)}
        entries = list(draft.segments)
        for number in np.unique(found[0]):
            entry = entries[number]
            before = bitmaps.get(entry.name)
            bits = before.copy() if before is not None else np.zeros((entry.subs + 7) // 8, np.uint8)
            ordinals = found[1, found[0] == number]
            fresh = mark(bits, ordinals)
            asking = 0
            if entry.transitions:
                asking = int(np.count_nonzero(ON.read(view.segments[entry.name][ON], ordinals) != INSIDE))
            entries[number] = replace(entry, dead=entry.dead + fresh, transitions=entry.transitions - asking)
            bitmaps[entry.name] = bits
        name = f"{draft.version:012d}-{draft.token[:8]}.dead"
        self.storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}", bitmaps)
        return replace(draft, segments=tuple(entries), tombstones=name)


def _file(rows: pa.RecordBatch, numbers: Ints, dead: DeadLetters, reason: str, detail: str) -> None:
    """Make some rows dead letters."""
    chosen = np.zeros(len(rows), np.bool_)
    chosen[numbers] = True
    dead.add(rows, chosen, reason, detail)
