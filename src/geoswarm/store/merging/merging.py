"""What the checkpoint does about merges: begin them, adopt what they have made, and wait where there are too many.

    batch 7   commits version 7 ── begin ──► a process merges segments a, b and c, as they are in version 7
    batch 8   cancels some of b: version 8 has a, b and c, and a bitmap
    batch 9   adopts: version 9 has the merged segment, with those marked that were cancelled in version 8

A batch that adopts names the new segment in its manifest, so it finds the same one when it is run again. If the engine
dies before that manifest is written, no version knows of the merge: its files are removed, and it is begun again.

Two merges may run at once, a light one and a heavy one: while tens of millions are rewritten, the deltas of new batches
are merged, too. Where they come faster than that, a batch waits: a segment costs each event a look-up.
"""

import threading
from dataclasses import replace

from geoswarm.config import Tuning
from geoswarm.core.index.kernels import NONE_DEAD
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.errors import MachineError
from geoswarm.store.journal import Journal
from geoswarm.store.journal.entries import MergeEntry
from geoswarm.store.manifest import Manifest
from geoswarm.store.merging.choose import choose_segments, size_max
from geoswarm.store.merging.lane import Lane, Merged
from geoswarm.store.merging.order import MergeOrder
from geoswarm.store.merging.process import HERE_SUBS_MAX
from geoswarm.store.segments.segment import SegmentEntry
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.view import View

LIGHT_SUBS_MAX = 1_000_000
"""Subscriptions of a light merge, which takes less than a second."""
WAIT_FACTOR = 16
"""A batch waits for a merge where there are more than so many times `deltas_max` small segments."""
REST_BATCHES = 100
"""Batches between two tries of a merge that fails."""


class Merging:
    def __init__(
        self, storage: Storage, grid: Grid, tuning: Tuning, journal: Journal, counts: TermCounts, view: View
    ) -> None:
        self._storage, self._grid, self._tuning, self._journal = storage, grid, tuning, journal
        self._counts, self._view = counts, view
        self._changed = threading.Condition()
        self._light, self._heavy = (Lane(lambda: self._view, self._changed) for _ in range(2))
        self._lanes = (self._light, self._heavy)
        self._begun, self._rest = 0, 0
        self._error: Exception | None = None

    @property
    def is_running(self) -> bool:
        return any(lane.is_running for lane in self._lanes)

    @property
    def is_idle(self) -> bool:
        """Whether no merge runs, and none waits to be adopted."""
        return all(lane.order is None for lane in self._lanes)

    def pids(self) -> list[int]:
        """The processes that merge."""
        return [lane.process.pid for lane in self._lanes if lane.process.pid is not None]

    def names(self) -> set[str | None]:
        """Files that merges need or have made, and that no version may name."""
        orders = [lane.order for lane in self._lanes if lane.order is not None]
        return {order.name for order in orders} | {order.tombstones for order in orders}

    def begin(self, manifest: Manifest, view: View, *, settles: bool = False) -> None:
        """Begin the merges that a version needs, as far as there is a lane for them. Called when it is committed, and
        when a load `settles`."""
        self._view = view
        self._note_errors()
        if self._rest:
            self._rest -= 1
            return
        self._prepare_process(manifest, view)
        chosen = self._choose(manifest, view, self._tuning.segment_subs_max, settles)
        if sum(entry.subs for entry in chosen) > LIGHT_SUBS_MAX:
            if self._heavy.order is None:
                self._heavy.begin(self._order(manifest, view, chosen), view)
            chosen = self._choose(manifest, view, min(LIGHT_SUBS_MAX, self._tuning.segment_subs_max))
        if chosen and self._light.order is None:
            self._light.begin(self._order(manifest, view, chosen), view)

    def adopt(self, draft: Manifest, view: View) -> tuple[Manifest, View]:
        """The draft with merged segments in the place of their sources. Waits for merges if there are too many."""
        draft, view = self._adopt_done(draft, view)
        while self._has_too_many(draft, view):
            if not self.wait():
                if self._error is None:
                    break  # segments as these cannot be merged
                raise MachineError(
                    f"{len(draft.segments)} segments wait to be merged, and merging fails: {self._error}; "
                    "remove the cause and start the engine again"
                ) from self._error
            draft, view = self._adopt_done(draft, view)
        return draft, view

    def confirm(self, manifest: Manifest) -> None:
        """A version is committed: forget the merges that it has adopted."""
        held = {entry.name for entry in manifest.segments}
        for lane, done in self._done():
            if not held.intersection(done.order.sources):
                left = done.entry.subs if done.entry is not None else 0
                self._journal.append(MergeEntry(done.order.name, len(done.order.sources), left, done.seconds))
                lane.clear()

    def wait(self) -> bool:
        """Wait until a merge has ended well. False: none runs, or those that ran have failed."""
        with self._changed:
            running = [lane for lane in self._lanes if lane.is_running]
            self._changed.wait_for(lambda: any(lane.done for lane in running) or not self.is_running)
        self._note_errors()
        return any(lane.done for lane in running)

    def close(self) -> None:
        for lane in self._lanes:
            lane.process.end()
        with self._changed:
            self._changed.wait_for(lambda: not self.is_running)

    def _prepare_process(self, manifest: Manifest, view: View) -> None:
        """Start the process of light merges with the first deltas that will need it: a start takes many batches."""
        delta = manifest.segments[-1].subs if manifest.segments else 0
        is_large = delta * self._tuning.deltas_max > HERE_SUBS_MAX and self._count_small(manifest, view) > 1
        if is_large and self._light.process.pid is None:
            threading.Thread(target=self._light.process.prepare, daemon=True).start()

    def _choose(self, manifest: Manifest, view: View, subs_max: int, settles: bool = False) -> list[SegmentEntry]:
        taken = {name for lane in self._lanes if lane.order is not None for name in lane.order.sources}
        free = [entry for entry in manifest.segments if entry.name not in taken]
        return choose_segments(free, view.segments, manifest.now_us, self._tuning, subs_max, settles=settles)

    def _order(self, manifest: Manifest, view: View, chosen: list[SegmentEntry]) -> MergeOrder:
        self._begun += 1
        asks_for_words = any(view.segments[entry.name].text is not None for entry in chosen)
        return MergeOrder(
            self._storage,
            self._grid,
            f"{manifest.version:012d}-{manifest.token[:8]}-m{self._begun}",
            tuple(entry.name for entry in chosen),
            manifest.tombstones,
            manifest.now_us,
            sum(entry.subs for entry in chosen),
            self._tuning.dead_share_max,
            TermCounts(self._counts.counts.copy()) if asks_for_words else None,
        )

    def _done(self) -> list[tuple[Lane, Merged]]:
        return [(lane, done) for lane in self._lanes if (done := lane.done) is not None]

    def _adopt_done(self, draft: Manifest, view: View) -> tuple[Manifest, View]:
        for _, found in self._done():
            if found.order.sources[0] not in view.segments:
                continue  # this draft has adopted it already
            done = found.with_view(view)
            fresh = [] if done.entry is None else [done.entry]
            gone = set(done.order.sources)
            draft = replace(draft, segments=tuple(e for e in draft.segments if e.name not in gone) + tuple(fresh))
            segments = {name: held for name, held in view.segments.items() if name not in gone}
            dead = {name: bits for name, bits in view.dead.items() if name not in gone}
            if done.entry is not None and done.segment is not None:
                segments[done.entry.name] = done.segment
                dead[done.entry.name] = done.dead if len(done.dead) else NONE_DEAD
            view = replace(view, segments=segments, dead=dead)
        return draft, view

    def _has_too_many(self, draft: Manifest, view: View) -> bool:
        return self._count_small(draft, view) > WAIT_FACTOR * self._tuning.deltas_max

    def _count_small(self, draft: Manifest, view: View) -> int:
        most = self._tuning.segment_subs_max
        return sum(entry.subs <= size_max(view.segments[entry.name], most) // 2 for entry in draft.segments)

    def _note_errors(self) -> None:
        for lane in self._lanes:
            if lane.error is not None:
                self._journal.append(MergeEntry("none", 0, 0, 0.0, f"failed {lane.failures} times: {lane.error}"))
                self._error, lane.error, self._rest = lane.error, None, REST_BATCHES
            elif lane.done is not None:
                self._error = None
