"""One merge: what a process needs to know to carry it out. It names files, and is small."""

from dataclasses import dataclass

from geoswarm.core.index.kernels import NONE_DEAD
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.store.segments.merge import merge_segments
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, SegmentEntry
from geoswarm.store.storage import Storage


@dataclass(frozen=True)
class MergeOrder:
    storage: Storage
    grid: Grid
    name: str
    """The new segment's. It has the token of the engine, and is never used again."""
    sources: tuple[str, ...]
    tombstones: str | None
    """The bitmaps of cancelled subscriptions when the merge began."""
    now_us: int
    subs: int
    """The number of subscriptions in the sources."""
    dead_share_max: float
    counts: TermCounts | None

    def carry_out(self) -> SegmentEntry | None:
        """None: no subscription is left. The files are on disk when this returns."""
        name = f"{SEGMENTS_FOLDER}/{self.tombstones}"
        dead = self.storage.map_arrays(name) if self.tombstones else {}
        sources = [(open_segment(self.storage, source), dead.get(source, NONE_DEAD)) for source in self.sources]
        return merge_segments(
            self.storage, self.grid, self.name, sources, self.now_us, self.dead_share_max, self.counts
        )
