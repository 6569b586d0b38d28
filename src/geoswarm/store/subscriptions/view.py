"""One version of the subscriptions, mapped: which are live, where they are, and their attributes.

A *place* is a segment's number in the version and an ordinal in the segment; places are two rows of numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, SubIds
from geoswarm.core.index.kernels import NONE_DEAD, Records, are_live
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.subscriptions.aggregate import AggregateValues, look_up
from geoswarm.core.subscriptions.attributes import (
    AGGREGATE,
    BIRTH,
    CONFIRM,
    COOLDOWN,
    COUNTED_FROM,
    EXIT_BUFFER,
    ID,
    MAX_EVENTS,
    NOTIFY,
    ON,
    OPERATION,
    PAYLOAD,
    REGION,
    USER,
)
from geoswarm.core.subscriptions.ending import TELLS_INITIAL
from geoswarm.core.subscriptions.id_texts import ID_TEXT
from geoswarm.core.subscriptions.kinds import TextAttribute
from geoswarm.core.subscriptions.rare_numbers import RareNumberAttribute
from geoswarm.core.subscriptions.region import RegionValues
from geoswarm.core.subscriptions.subs import Subs, concatenate_subs
from geoswarm.core.subscriptions.trigger import FollowRules
from geoswarm.guard.door import Removal
from geoswarm.model import SUB_ID
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment, places
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.ends import NOBODY_BEGAN, NOBODY_ENDED, ends_at, open_ends
from geoswarm.store.subscriptions.pasts import NONE_WAITS, Pasts, open_pasts


@dataclass
class View:
    """The open segments and bitmaps of a version. Segments stay open from one version to the next."""

    segments: dict[str, Segment]
    dead: dict[str, Bytes]
    pasts: Pasts = NONE_WAITS
    """Who waits for kept events."""
    ends: pa.RecordBatch = field(default_factory=lambda: NOBODY_ENDED)
    """Who has ended and is to be told so."""
    begun: SubIds = field(default_factory=lambda: NOBODY_BEGAN)
    """Who has begun and is to be told who is inside; ascending."""

    @classmethod
    def open(cls, storage: Storage, manifest: Manifest, before: "View | None" = None) -> "View":
        known = before.segments if before else {}
        names = [entry.name for entry in manifest.segments]
        opened = {name: known.get(name) or open_segment(storage, name) for name in names}
        bitmaps = storage.map_arrays(f"{SEGMENTS_FOLDER}/{manifest.tombstones}") if manifest.tombstones else {}
        dead = {name: bitmaps.get(name, NONE_DEAD) for name in names}
        return cls(opened, dead, open_pasts(storage, manifest.pasts), *open_ends(storage, manifest.ends))

    def with_segment(self, name: str, held: Segment) -> "View":
        return replace(self, segments=self.segments | {name: held}, dead=self.dead | {name: NONE_DEAD})

    def with_dead(self, dead: dict[str, Bytes]) -> "View":
        """The same with other bitmaps for some segments."""
        return replace(self, dead=self.dead | dead)

    def searchables(self) -> list[Searchable]:
        return [held.searchable(self.dead[name]) for name, held in self.segments.items()]

    def on_cross(self) -> list[tuple[Searchable, Ints]]:
        """The segments that have subscriptions on `cross`, and the ordinals of these."""
        held = [(name, held) for name, held in self.segments.items() if len(held.on_cross)]
        return [(each.searchable(self.dead[name]), each.on_cross) for name, each in held]

    def with_pasts(self, pasts: Pasts) -> "View":
        return replace(self, pasts=pasts)

    def with_ended(self, found: Ints, reason: str, now_us: int) -> "View":
        """With the last rows of the subscriptions at some places that asked for them."""
        told = ends_at(list(self.segments.values()), found, reason, now_us) if found.size else NOBODY_ENDED
        return replace(self, ends=pa.concat_batches([self.ends, told])) if len(told) else self

    def with_begun(self, subs: Subs) -> "View":
        """With those of new subscriptions that want to be told who is inside; what began under their ids before and has
        expired does not count."""
        asks, left = subs.ids[subs[NOTIFY] & TELLS_INITIAL > 0], self.without_begun(subs.ids)
        return replace(left, begun=np.union1d(left.begun, asks)) if len(asks) else left

    def without_begun(self, ids: SubIds) -> "View":
        """Without some, which were cancelled, or replaced by others."""
        if not len(self.begun):
            return self
        left = ~np.isin(self.begun, ids)
        return self if left.all() else replace(self, begun=self.begun[left])

    def asks_to_be_told(self) -> bool:
        """Whether some subscription may have `notify`."""
        return any(len(held[NOTIFY].ids) for held in self.segments.values())

    def settle_ends(self, last: Callable[[], tuple["View", int]], now_us: int) -> "View":
        """One last row for each that was live in the version of the last batch, and is not live now: who was registered
        again has not ended, and who came and went meanwhile was never in force. `last` opens that version, and returns
        its time, too."""
        if not len(self.ends):
            return self
        before, since_us = last()
        ids, first = np.unique(self.ends.column(SUB_ID.name).to_numpy(), return_index=True)
        ended = (find_live(before, ids, since_us)[0] >= 0) & (find_live(self, ids, now_us)[0] < 0)
        if ended.all() and len(ids) == len(self.ends):
            return self
        return replace(self, ends=self.ends.take(pa.array(np.sort(first[ended]))))

    def without_ended(self, ids: SubIds) -> "View":
        """Without the last rows of some subscriptions."""
        left = ~np.isin(self.ends.column(SUB_ID.name).to_numpy(), ids)
        return self if left.all() else replace(self, ends=self.ends.filter(pa.array(left)))

    # -- attributes of subscriptions, by id

    def table(self, ids: SubIds, now_us: int) -> pa.Table:
        """The live subscriptions among ascending ids, as operations that register them, by id."""
        subs = self.subs(ids, now_us)
        return OPERATION.empty_table() if subs is None else subs.take(np.argsort(subs.ids)).table()

    def subs(self, ids: SubIds, now_us: int) -> Subs | None:
        """The live subscriptions among ascending ids; None if there is none."""
        found = find_live(self, ids, now_us)
        parts = [
            held.subs(found[1, found[0] == number])
            for number, held in enumerate(self.segments.values())
            if (found[0] == number).any()
        ]
        return concatenate_subs(parts) if parts else None

    def column(self, name: str, ids: SubIds, now_us: int) -> pa.Array:
        """One column of `table` for each ascending id; null where no live subscription has the id."""
        shown = self.table(ids, now_us)
        known = np.asarray(shown.column("sub_id"), np.int64)
        rows = places(known, ids) if len(known) else np.full(len(ids), -1, np.int64)
        return shown.column(name).combine_chunks().take(pa.array(rows, mask=rows < 0))

    def follow_rules(self, ids: SubIds, now_us: int) -> FollowRules:
        """What each ascending id is on, and when a transition counts for it; as if on `inside` also where it is not
        live."""
        rules = (ON, CONFIRM, COOLDOWN, EXIT_BUFFER)
        return FollowRules(*(self._numbers(attribute, ids, now_us) for attribute in rules))

    def limits(self, ids: SubIds, now_us: int) -> tuple[Ints, Ints]:
        """The alerts after which each ascending id ends, or 0, and the version from which on they are counted."""
        return self._numbers(MAX_EVENTS, ids, now_us), self._numbers(COUNTED_FROM, ids, now_us)

    def notify(self, ids: SubIds, now_us: int) -> Ints:
        """What each ascending id is told beside events, as a code of `core/subscriptions/ending.py`."""
        return self._numbers(NOTIFY, ids, now_us)

    def asks_for(self, attribute: RareNumberAttribute, now_us: int) -> bool:
        """Whether some live subscription has more than the default."""
        asking = ((name, held) for name, held in self.segments.items() if len(held[attribute].ids))
        return any(
            are_live(held[attribute].ordinals.astype(np.int64), held.records(self.dead[name]), now_us).any()
            for name, held in asking
        )

    def _numbers(self, attribute: RareNumberAttribute, ids: SubIds, now_us: int) -> Ints:
        """The number of each ascending id; the default also where it is not live."""
        codes = np.full(len(ids), attribute.default, np.int64)
        for name, held in self.segments.items():
            asking = held[attribute]
            if not len(asking.ids):
                continue
            low, high = np.searchsorted(ids, asking.ids[0]), np.searchsorted(ids, asking.ids[-1], "right")
            place = places(asking.ids, ids[low:high])
            found = np.flatnonzero(place >= 0)
            place = place[found]
            alive = are_live(asking.ordinals[place].astype(np.int64), held.records(self.dead[name]), now_us)
            codes[low + found[alive]] = asking.codes[place[alive]]
        return codes

    def aggregates(self, ids: SubIds, now_us: int) -> AggregateValues:
        """What each ascending id counts instead of reporting matches, and since which version. Codes count among the
        texts of this answer only."""
        held = {name: held for name, held in self.segments.items() if len(held[AGGREGATE].ids)}
        lives = [partial(_are_live, each.records(self.dead[name]), now_us) for name, each in held.items()]
        return look_up(ids, [each[AGGREGATE] for each in held.values()], lives)

    def counts_events(self, now_us: int) -> bool:
        """Whether some live subscription has an aggregate."""
        counting = ((name, held) for name, held in self.segments.items() if len(held[AGGREGATE].ids))
        return any(
            are_live(held[AGGREGATE].ordinals.astype(np.int64), held.records(self.dead[name]), now_us).any()
            for name, held in counting
        )

    def users(self, ids: SubIds, now_us: int) -> pa.StringArray:
        """The user of each ascending id; null where no live subscription has the id."""
        names, codes, first = list[pa.StringArray](), np.full(len(ids), -1, np.int64), 0
        found = find_live(self, ids, now_us)
        for number, held in enumerate(self.segments.values()):
            mine, users = found[0] == number, held[USER]
            codes[mine] = users.codes[found[1, mine]].astype(np.int64) + first
            names.append(users.names)
            first += len(users.names)
        every = pa.concat_arrays(names) if names else pa.array([], pa.string())
        return every.take(pa.array(codes, mask=codes < 0))

    def payloads(self, ids: SubIds, now_us: int) -> pa.LargeStringArray:
        """The payload of each ascending id; null where there is none, or no live subscription has the id."""
        return self._texts(PAYLOAD, ids, now_us)

    def id_texts(self, ids: SubIds, now_us: int) -> pa.LargeStringArray:
        """The text of each ascending id; null where ids are integers, or no live subscription has it."""
        return self._texts(ID, ids, now_us)

    def known_id_texts(self, ids: SubIds, now_us: int) -> pa.LargeStringArray:
        """The same, also of those that are not live any more, while a segment has them or they are to be told so."""
        texts = self.id_texts(ids, now_us)
        for held in self.segments.values() if texts.null_count else ():
            ordinals = held.find(ids)
            known = pa.array(np.cumsum(ordinals >= 0) - 1, mask=ordinals < 0)
            texts = pc.coalesce(texts, ID.read(held[ID], ordinals[ordinals >= 0]).take(known))
        if texts.null_count and len(self.ends):
            told = pc.index_in(pa.array(ids), value_set=self.ends.column(SUB_ID.name))
            texts = pc.coalesce(texts, self.ends.column(ID_TEXT).take(told).cast(pa.large_string()))
        return texts

    def _texts(self, attribute: TextAttribute, ids: SubIds, now_us: int) -> pa.LargeStringArray:
        found, texts = find_live(self, ids, now_us), [pa.nulls(1, pa.large_string())]
        at = np.zeros(len(ids), np.int64)
        for number, held in enumerate(self.segments.values()):
            mine = np.flatnonzero(found[0] == number)
            at[mine] = sum(map(len, texts)) + np.arange(len(mine))
            texts.append(attribute.read(held[attribute], found[1, mine]))
        return pa.concat_arrays(texts).take(pa.array(at))

    # -- where subscriptions are

    def regions(self, ids: SubIds, now_us: int) -> RegionValues:
        """The region of each ascending id, at least one, all of which are live."""
        found, parts, at = find_live(self, ids, now_us), list[RegionValues](), np.empty(len(ids), np.int64)
        for number, held in enumerate(self.segments.values()):
            mine = np.flatnonzero(found[0] == number)
            if len(mine):
                at[mine] = sum(len(part.rects) for part in parts) + np.arange(len(mine))
                parts.append(REGION.read(held[REGION], found[1, mine]))
        return REGION.take(REGION.concatenate(parts), at)

    def rects_at(self, found: Ints) -> Floats:
        """The rectangles at some places."""
        held = list(self.segments.values())
        parts = [held[n].rects[found[1, found[0] == n]] for n in np.unique(found[0])]
        return np.concatenate(parts) if parts else np.empty((0, 4))

    def ids_at(self, found: Ints) -> SubIds:
        """The ids at some places, at least one, in any order."""
        held = list(self.segments.values())
        return np.concatenate([held[n].ids[found[1, found[0] == n]] for n in np.unique(found[0])])

    def live_rects(self, now_us: int) -> Floats:
        parts = [held.rects[held.live(self.dead[name], now_us)] for name, held in self.segments.items()]
        return np.concatenate(parts) if parts else np.empty((0, 4))

    def some_queries(self, most: int, now_us: int) -> tuple[Floats, pa.StringArray]:
        """Rectangles and keywords of at most `most` live subscriptions, evenly spread."""
        live = {name: np.flatnonzero(held.live(self.dead[name], now_us)) for name, held in self.segments.items()}
        step = max(1, -(-sum(map(len, live.values())) // most))
        rects, keywords = [np.empty((0, 4))], list[str | None]()
        for name, held in self.segments.items():
            chosen = live[name][::step]
            rects.append(held.rects[chosen])
            keywords += [held.keywords(int(ordinal)) for ordinal in chosen]
        return np.concatenate(rects), pa.array(keywords, pa.string())

    # -- which places

    def find_expired(self, since_us: int, now_us: int) -> Ints:
        """The places of subscriptions that were live at `since_us` and have expired since."""
        parts = [
            _places_of(number, held.live(self.dead[name], since_us) & (held.expires_us <= now_us))
            for number, (name, held) in enumerate(self.segments.items())
            if len(held.expires_us)
        ]
        return np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)

    def find_for_removal(self, removal: Removal, now_us: int) -> Ints:
        """The places of the live subscriptions that are to be removed."""
        wanted = pa.array(removal.users, pa.string())
        parts = [np.empty((2, 0), np.int64)]
        for number, (name, held) in enumerate(self.segments.items()):
            users = held[USER]
            theirs = pc.is_in(users.names, value_set=wanted).to_numpy(zero_copy_only=False)
            if theirs.any():
                chosen = theirs[users.codes] & (held[BIRTH] >= removal.since_us)
                parts.append(_places_of(number, chosen & held.live(self.dead[name], now_us)))
        return np.concatenate(parts, axis=1)


def find_live(view: View, ids: SubIds, now_us: int) -> Ints:
    """The place of the live subscription with each ascending id; -1 in both rows where there is none."""
    found = np.full((2, len(ids)), -1, np.int64)
    for number, (name, held) in enumerate(view.segments.items()):
        low, high = np.searchsorted(ids, (held.ids_sorted[0], held.ids_sorted[-1]))
        high += int(high < len(ids))  # the last id of the segment included
        ordinals = held.find(ids[low:high])
        known = ordinals >= 0
        alive = are_live(ordinals[known], held.records(view.dead[name]), now_us)
        hit = np.flatnonzero(known)[alive] + low
        found[0, hit] = number
        found[1, hit] = ordinals[hit - low]
    return found


def _are_live(records: Records, now_us: int, ordinals: Ints) -> Bools:
    return are_live(ordinals, records, now_us)


def _places_of(number: int, chosen: Bools) -> Ints:
    ordinals = np.flatnonzero(chosen)
    return np.stack([np.full(len(ordinals), number), ordinals])
