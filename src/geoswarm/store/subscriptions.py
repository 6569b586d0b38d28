"""The subscriptions of one version, and how operations make the next version of them.

New subscriptions go into a small segment of their own (a delta); cancelled ones are marked in a bitmap; when
deltas are many, or a segment is mostly dead, segments are merged. Nothing here knows about batches or Spark.

    version 7   [ base ████████ ] [ delta ██ ]               bitmap 7
    register    [ base ████████ ] [ delta ██ ] [ delta █ ]   bitmap 7
    cancel      [ base ███x████ ] [ delta ██ ] [ delta █ ]   bitmap 9

The merge is size-tiered: only segments of like size are merged, so a subscription is rewritten a logarithmic number
of times, and a segment never outgrows `segment_subs_max`, which bounds the pause.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import Tuning
from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, SubIds, kernel
from geoswarm.core.index.kernels import are_live
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import ValidatedOperations, validate_operations
from geoswarm.model import INSIDE, NEVER_US
from geoswarm.store import segment as segments
from geoswarm.store.manifest import Manifest
from geoswarm.store.segment import FOLDER, LONG_AGO_US, NONE_DEAD, Segment, SegmentEntry, Subs
from geoswarm.store.storage import Storage

Verdicts = npt.NDArray[np.int8]
OK, DUPLICATE, UNKNOWN = 0, 1, 2
REGISTER, REPLACE, CANCEL = 0, 1, 2
GONE, UNCHANGED = -1, -2


@dataclass
class View:
    """One version, mapped. Opened segments are kept from one version to the next; `flow/match` reads them."""

    segments: dict[str, Segment]
    dead: dict[str, Bytes]

    @classmethod
    def open(cls, storage: Storage, manifest: Manifest, before: "View | None" = None) -> "View":
        known = before.segments if before else {}
        names = [entry.name for entry in manifest.segments]
        opened = {name: known.get(name) or segments.open_segment(storage, name) for name in names}
        bitmaps = storage.map_arrays(f"{FOLDER}/{manifest.tombstones}") if manifest.tombstones else {}
        return cls(opened, {name: bitmaps.get(name, NONE_DEAD) for name in names})

    def searchables(self) -> list[Searchable]:
        return [held.searchable(self.dead[name]) for name, held in self.segments.items()]

    def on(self, ids: SubIds, now_us: int) -> Ints:
        """What each ascending id is on, as the numbers of `model.py`; INSIDE also where no live subscription has it."""
        codes = np.full(len(ids), INSIDE, np.int64)
        for name, held in self.segments.items():
            asking = held.asking
            if not len(asking.ids):
                continue
            low, high = np.searchsorted(ids, asking.ids[0]), np.searchsorted(ids, asking.ids[-1], "right")
            place = segments.places(asking.ids, ids[low:high])
            found = np.flatnonzero(place >= 0)
            place = place[found]
            alive = are_live(asking.ordinals[place].astype(np.int64), held.records(self.dead[name]), now_us)
            codes[low + found[alive]] = asking.codes[place[alive]]
        return codes

    def users(self, ids: SubIds, now_us: int) -> pa.StringArray:
        """Whose each ascending id is; null where no live subscription has it."""
        names, codes, first = list[pa.StringArray](), np.full(len(ids), -1, np.int64), 0
        places = find_live(self, ids, now_us)
        for number, held in enumerate(self.segments.values()):
            mine = places[0] == number
            codes[mine] = held.user_codes[places[1, mine]].astype(np.int64) + first
            names.append(held.user_names)
            first += len(held.user_names)
        every = pa.concat_arrays(names) if names else pa.array([], pa.string())
        return every.take(pa.array(codes, mask=codes < 0))

    def rects_at(self, places: Ints) -> Floats:
        """Of the subscriptions at (segment number, ordinal), as `find_live` gives them."""
        held = list(self.segments.values())
        parts = [held[n].rects[places[1, places[0] == n]] for n in np.unique(places[0])]
        return np.concatenate(parts) if parts else np.empty((0, 4))

    def live_rects(self, now_us: int) -> Floats:
        parts = [held.rects[held.live(self.dead[name], now_us)] for name, held in self.segments.items()]
        return np.concatenate(parts) if parts else np.empty((0, 4))

    def some_queries(self, most: int, now_us: int) -> tuple[Floats, pa.StringArray]:
        """Rectangles and keywords of at most so many live subscriptions, evenly spread."""
        live = {name: np.flatnonzero(held.live(self.dead[name], now_us)) for name, held in self.segments.items()}
        step = max(1, -(-sum(map(len, live.values())) // most))
        rects, keywords = [np.empty((0, 4))], list[str | None]()
        for name, held in self.segments.items():
            chosen = live[name][::step]
            rects.append(held.rects[chosen])
            keywords += [held.keywords(int(ordinal)) for ordinal in chosen]
        return np.concatenate(rects), pa.array(keywords, pa.string())

    def expired(self, since_us: int, now_us: int) -> Ints:
        """The places of those that were live at `since_us` and are no more, by their expiry alone."""
        parts = [
            _placed(number, held.live(self.dead[name], since_us) & (held.expires_us <= now_us))
            for number, (name, held) in enumerate(self.segments.items())
            if len(held.expires_us)
        ]
        return np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)

    def chosen_for(self, removal: "Removal", now_us: int) -> Ints:
        """The places of the live ones that are to be removed."""
        wanted = pa.array(removal.users, pa.string())
        parts = [np.empty((2, 0), np.int64)]
        for number, (name, held) in enumerate(self.segments.items()):
            theirs = pc.is_in(held.user_names, value_set=wanted).to_numpy(zero_copy_only=False)
            if theirs.any():
                chosen = theirs[held.user_codes] & (held.born_us >= removal.since_us)
                parts.append(_placed(number, chosen & held.live(self.dead[name], now_us)))
        return np.concatenate(parts, axis=1)


@dataclass
class Churn:
    """Rectangles of subscriptions that came into force or left it: what the statistics need to know."""

    came: list[Floats] = field(default_factory=list)
    went: list[Floats] = field(default_factory=list)


class Removal(NamedTuple):
    """What these users registered since a moment."""

    users: list[str]
    since_us: int


class Door(Protocol):
    """Who stands before the store and keeps account of what is in it. `guarding.py` has one."""

    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        """Those that are worth a look; it files the others."""

    def admit(self, validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters) -> Bools:
        """Which of the fit operations may be carried out, by row; it files the others."""

    def done(self, refused: Ints, now_us: int) -> None:
        """They have been carried out, all but these rows."""

    def came(self, subs: Subs) -> None: ...

    def went(self, view: View, places: Ints) -> None: ...


@dataclass(frozen=True)
class Store:
    """Makes versions. Files of a new version are on disk when it is returned; its manifest is not."""

    storage: Storage
    grid: Grid
    tuning: Tuning
    counts: TermCounts
    """How common terms are in the stream, for the lists of new segments; a restart counts anew."""

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
        """`draft` already has the version, token and time of what comes; `view` shows its segments. What is trusted
        passes the `door` unasked, and is nobody's doing: it has no birth."""
        asks = door is not None and not is_trusted
        if door is not None and asks:
            operations = door.enter(operations, draft.now_us, dead)
        validated = validate_operations(operations, self.grid, draft.now_us, dead)
        rows, fit = validated.rows, validated.fit
        if door is not None and asks:
            fit = door.admit(validated, view, draft.now_us, dead)
        chosen = np.flatnonzero(fit)
        ids = np.asarray(rows.column("sub_id").fill_null(0), np.int64)[chosen]
        by_id = np.argsort(ids, kind="stable")
        unique, first = np.unique(ids[by_id], return_index=True)
        rows_by_id = chosen[by_id]
        places = find_live(view, unique, draft.now_us)
        is_live = places[0] >= 0
        verdicts, final = _replay(codes_of_ops(rows.column("op"))[rows_by_id], np.append(first, len(by_id)), is_live)
        _file(rows, rows_by_id[verdicts == DUPLICATE], dead, "duplicate", "subscription {sub_id} exists: send replace")
        _file(rows, rows_by_id[verdicts == UNKNOWN], dead, "unknown-id", "subscription {sub_id} does not exist")
        newcomers = np.flatnonzero(~is_live & (final >= 0))
        newcomers = newcomers[np.argsort(rows_by_id[final[newcomers]])]  # as they came
        freed = int(np.count_nonzero(is_live & (final == GONE)))
        refused = newcomers[max(0, self.tuning.subscriptions_max - draft.subs + freed) :]
        limit = f"all {self.tuning.subscriptions_max} places are taken: cancel some, or raise subscriptions_max"
        full = rows_by_id[final[refused]]
        _file(rows, full, dead, "full", limit)
        final[refused] = UNCHANGED
        if door is not None and asks:
            door.done(full, draft.now_us)
        ended, born = is_live & (final != UNCHANGED), final >= 0
        if ended.any():
            draft = self._end(draft, view, places[:, ended], churn, door)
        if born.any():
            subs = _subs(validated, rows_by_id[final[born]], draft.now_us if asks else LONG_AGO_US)
            churn.came.append(subs.rects)
            if door is not None:
                door.came(subs)
            draft = self._add(draft, "", subs)
        return draft

    def remove(self, draft: Manifest, view: View, removal: Removal, churn: Churn, door: Door) -> Manifest:
        """Cancel what some users have. As `apply`, it wants a version of its own."""
        places = view.chosen_for(removal, draft.now_us)
        return self._end(draft, view, places, churn, door) if places.size else draft

    def compact(self, draft: Manifest, view: View) -> Manifest:
        """Merge what `mergeable` names, without the cancelled and expired. What is live stays the same."""
        names = mergeable(draft.segments, draft.now_us, self.tuning)
        if not names:
            return draft
        parts = [view.segments[n].subs(view.segments[n].live(view.dead[n], draft.now_us)) for n in names]
        draft = replace(draft, segments=tuple(e for e in draft.segments if e.name not in names))
        subs = segments.concatenate(parts)
        return self._add(draft, "-m", subs) if len(subs.ids) else draft

    def _add(self, draft: Manifest, suffix: str, subs: Subs) -> Manifest:
        name = f"{draft.version:012d}-{draft.token[:8]}{suffix}"
        entry = segments.write(self.storage, self.grid, name, subs, self.tuning.dead_share_max, self.counts)
        return replace(draft, segments=(*draft.segments, entry))

    def _end(self, draft: Manifest, view: View, places: Ints, churn: Churn, door: Door | None) -> Manifest:
        churn.went.append(view.rects_at(places))
        if door is not None:
            door.went(view, places)
        return self._bury(draft, view, places)

    def _bury(self, draft: Manifest, view: View, places: Ints) -> Manifest:
        """Mark the subscriptions at `places` as cancelled, in copies of the bitmaps."""
        bitmaps = {name: bits for name, bits in view.dead.items() if len(bits)}
        entries = list(draft.segments)
        for number in np.unique(places[0]):
            entry = entries[number]
            held = bitmaps.get(entry.name)
            bits = held.copy() if held is not None else np.zeros((entry.subs + 7) // 8, np.uint8)
            ordinals = places[1, places[0] == number]
            fresh = segments.mark(bits, ordinals)
            asking = int(np.count_nonzero(view.segments[entry.name].on(ordinals) != INSIDE)) if entry.transitions else 0
            entries[number] = replace(entry, dead=entry.dead + fresh, transitions=entry.transitions - asking)
            bitmaps[entry.name] = bits
        name = f"{draft.version:012d}-{draft.token[:8]}.dead"
        self.storage.write_arrays(f"{FOLDER}/{name}", bitmaps)
        return replace(draft, segments=tuple(entries), tombstones=name)


def mergeable(entries: Sequence[SegmentEntry], now_us: int, tuning: Tuning) -> list[str]:
    """Segments worth rewriting as one, or none. One group at a time, because the stream waits for it: the smallest of
    like size if there are too many, else the largest of those that are mostly dead."""
    small = sorted(entries, key=lambda e: (e.subs - e.dead, e.name))
    full = [e for e in small if e.subs > tuning.segment_subs_max // 2]
    if len(small) - len(full) > tuning.deltas_max:
        chosen, total = [small[0]], small[0].subs
        for entry in small[1:]:
            like = entry.subs <= 4 * total or len(chosen) < 2
            if not like or total + entry.subs > tuning.segment_subs_max:
                break
            chosen.append(entry)
            total += entry.subs
        if len(chosen) > 1:
            return [e.name for e in chosen]
    rotten = [e for e in entries if e.dead > tuning.dead_share_max * e.subs or now_us >= e.stale_us]
    return [max(rotten, key=lambda e: e.subs).name] if rotten else []


def find_live(view: View, ids: SubIds, now_us: int) -> Ints:
    """(segment number, ordinal) of each ascending id that is live, as two rows; -1 where none is."""
    places = np.full((2, len(ids)), -1, np.int64)
    for number, (name, held) in enumerate(view.segments.items()):
        low, high = np.searchsorted(ids, (held.ids_sorted[0], held.ids_sorted[-1]))
        high += int(high < len(ids))  # the last id of the segment included
        ordinals = held.find(ids[low:high])
        found = ordinals >= 0
        alive = are_live(ordinals[found], held.records(view.dead[name]), now_us)
        hit = np.flatnonzero(found)[alive] + low
        places[0, hit] = number
        places[1, hit] = ordinals[hit - low]
    return places


def _placed(number: int, chosen: Bools) -> Ints:
    ordinals = np.flatnonzero(chosen)
    return np.stack([np.full(len(ordinals), number), ordinals])


@kernel
def _replay(ops: Ints, starts: Ints, live_before: Bools) -> tuple[Verdicts, Ints]:
    """Carry the operations out, id by id, in the order they came. Returns the verdict on each operation, and per id
    the operation whose rectangle is in force at the end, GONE or UNCHANGED."""
    verdicts = np.zeros(len(ops), np.int8)
    final = np.full(len(starts) - 1, UNCHANGED, np.int64)
    for i in range(len(starts) - 1):
        live = live_before[i]
        for k in range(starts[i], starts[i + 1]):
            if ops[k] == CANCEL:
                if live:
                    live, final[i] = False, GONE
                else:
                    verdicts[k] = UNKNOWN
            elif ops[k] == REGISTER and live:
                verdicts[k] = DUPLICATE
            else:
                live, final[i] = True, k
    return verdicts, final


def _file(rows: pa.RecordBatch, numbers: Ints, dead: DeadLetters, reason: str, detail: str) -> None:
    chosen = np.zeros(len(rows), np.bool_)
    chosen[numbers] = True
    dead.add(rows, chosen, reason, detail)


def codes_of_ops(ops: pa.StringArray) -> Ints:
    return np.asarray(pc.index_in(ops, pa.array(["register", "replace", "cancel"])).fill_null(0), np.int64)


def _subs(validated: ValidatedOperations, chosen: Ints, born_us: int) -> Subs:
    taken = validated.rows.drop_columns(["geometry"]).take(pa.array(chosen))  # they are shapes by now, and long
    rects = np.stack([np.asarray(taken.column(side), np.float64) for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)
    expires_us = np.asarray(pc.cast(taken.column("expires"), pa.int64()).fill_null(NEVER_US), np.int64)
    users = taken.column("user").fill_null("").dictionary_encode()
    ids = np.asarray(taken.column("sub_id"), np.int64)
    shapes = None if validated.shapes is None else validated.shapes.take(chosen)
    predicates = validated.predicates[chosen] if validated.predicates.any() else None
    words, on, born = validated.words.take(chosen), validated.on[chosen], np.full(len(chosen), born_us)
    return Subs(ids, rects, users, expires_us, words, on, born, shapes, predicates)
