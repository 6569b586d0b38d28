"""One merge after the other: a thread of the engine gives an order to a process, waits, and opens what it has made.

So nothing of a merge is left to the stream but to take the open segment over. The thread also marks what was cancelled
while the merge ran, as far as it is committed; the batch that adopts the segment marks the rest.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from geoswarm.core.arrays.jit import Bytes, Ints
from geoswarm.errors import CorruptState
from geoswarm.store.merging.order import MergeOrder
from geoswarm.store.merging.process import MergerProcess
from geoswarm.store.segments.dead_bits import bits_set_since, mark
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment, SegmentEntry
from geoswarm.store.subscriptions.view import View

ATTEMPTS_MAX = 3
"""Times that a merge is tried before the lane rests."""
MARKING_ROUNDS = 3
"""Rounds of marking before the batch: each has only what was cancelled during the one before."""


@dataclass
class Merged:
    """A segment that can be adopted, and what is known to be cancelled in it."""

    order: MergeOrder
    entry: SegmentEntry | None
    segment: Segment | None
    """None, as `entry`: nothing is left of the sources."""
    seen: dict[str, Bytes]
    """The bitmaps of the sources that `dead` agrees with."""
    dead: Bytes
    seconds: float

    def with_view(self, view: View) -> "Merged":
        """The same, with what is cancelled in a version that still has the sources."""
        seen = {name: view.dead[name] for name in self.order.sources}
        fresh = [
            view.segments[name].ids[bits_set_since(self.seen[name], bits)]
            for name, bits in seen.items()
            if bits is not self.seen[name]
        ]
        ids = np.sort(np.concatenate([np.empty(0, np.int64), *fresh]))
        if not len(ids):
            return Merged(self.order, self.entry, self.segment, seen, self.dead, self.seconds)
        if self.entry is None or self.segment is None:
            raise CorruptState(f"{len(ids)} subscriptions were cancelled that the merge {self.order.name} did not find")
        ordinals: Ints = self.segment.find(ids)
        if ordinals.min() < 0:
            raise CorruptState(f"subscription {ids[ordinals.argmin()]} is missing from the merge {self.order.name}")
        dead = self.dead.copy() if len(self.dead) else np.zeros((self.entry.subs + 7) // 8, np.uint8)
        entry = self.entry.without(mark(dead, ordinals), self.segment, ordinals)
        return Merged(self.order, entry, self.segment, seen, dead, self.seconds)


@dataclass
class Lane:
    newest: Callable[[], View]
    """The newest version that is committed."""
    changed: threading.Condition
    """Notified when a merge has ended, well or not."""
    process: MergerProcess = field(default_factory=MergerProcess)
    order: MergeOrder | None = None
    done: Merged | None = None
    error: Exception | None = None
    """Why the last merge failed, after all attempts."""
    failures: int = 0
    """Attempts that failed since the last merge that did not."""

    @property
    def is_running(self) -> bool:
        return self.order is not None and self.done is None

    def begin(self, order: MergeOrder, view: View) -> None:
        self.order, self.done, self.error = order, None, None
        seen = {name: view.dead[name] for name in order.sources}
        threading.Thread(target=self._run, args=(order, seen), name="geoswarm-merge", daemon=True).start()

    def clear(self) -> None:
        """The segment is adopted, or never will be."""
        self.order = self.done = None

    def _run(self, order: MergeOrder, seen: dict[str, Bytes]) -> None:
        done, error = None, None
        for _ in range(ATTEMPTS_MAX):
            try:
                done = self._merge(order, seen)
                self.failures = 0
                break
            except Exception as why:  # whatever it is: a lane that waits for a dead thread would wait for ever
                error = why
                self.failures += 1
                order.storage.sweep(SEGMENTS_FOLDER, order.name)
        with self.changed:
            self.done, self.error = done, None if done else error
            if done is None:
                self.order = None
            self.changed.notify_all()

    def _merge(self, order: MergeOrder, seen: dict[str, Bytes]) -> Merged:
        began_s = time.perf_counter()
        entry = self.process.carry_out(order)
        segment = None if entry is None else open_segment(order.storage, order.name)
        done = Merged(order, entry, segment, seen, np.empty(0, np.uint8), time.perf_counter() - began_s)
        for _ in range(MARKING_ROUNDS):
            done = done.with_view(self.newest())
        return done
