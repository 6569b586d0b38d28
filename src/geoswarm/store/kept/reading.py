"""Open what a query needs of the kept events, in any process, while an engine may write and forget them.

What is mapped stays mapped until it is forgotten: parts never change, and their names are never used again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from geoswarm.errors import CorruptState
from geoswarm.flow.keep import KeptPart
from geoswarm.flow.recall import OpenPart, PastQuery, open_part
from geoswarm.store.kept.files import PARTS_FOLDER, KeptRun, read_run, run_names, span_of
from geoswarm.store.storage import Storage

LOOKS = 5
"""Looks at the documents, each of which may find that one has just been removed."""


class KeptState(NamedTuple):
    """What is kept as of one committed batch."""

    runs: Sequence[KeptRun]
    first_kept: int
    """The oldest batch that counts; older ones may share a run with it."""

    @property
    def newest_part(self) -> KeptPart | None:
        """The part with the newest event of the newest run that has any; None: no event is kept. In a merged run the
        last part may be of older events that had other types."""
        parts = next((run.parts for run in reversed(self.runs) if run.parts), ())
        return max(parts, key=lambda part: part.times_us[1], default=None)

    def parts_near(self, query: PastQuery) -> list[tuple[KeptRun, KeptPart]]:
        """The parts that may have events of a query, by their boxes and times."""
        known = [(run, part) for run in self.runs for part in run.parts if _may_have(part, query)]
        return [(run, part) for run, part in known if part.batch is None or part.batch >= self.first_kept]


class KeptReader:
    def __init__(self, storage: Storage, before: "KeptReader | None" = None) -> None:
        """What the reader `before` of the same storage has mapped, and so checked, stays mapped."""
        self._storage = storage
        self._runs: dict[str, KeptRun] = {}
        self._parts: dict[str, OpenPart] = dict(before._parts) if before is not None else {}

    def state(self, before: int | None = None) -> KeptState:
        """What is kept by now; or what was kept when the batch before this one was committed: who wants that must be
        known to the keeper, which forgets it else."""
        for _ in range(LOOKS - 1):
            try:
                return self._state(before)
            except CorruptState:
                pass  # a run took the place of one that was listed, or it was forgotten
        return self._state(before)

    def open(self, part: KeptPart) -> OpenPart:
        if part.name not in self._parts:
            self._parts[part.name] = open_part(self._storage.map_arrays(f"{PARTS_FOLDER}/{part.name}"))
        return self._parts[part.name]

    def _state(self, before: int | None) -> KeptState:
        names = [name for name in run_names(self._storage) if before is None or span_of(name)[1] < before]
        self._runs = {name: self._runs.get(name) or read_run(self._storage, name) for name in names}
        runs = list(self._runs.values())
        first_kept = runs[-1].first_kept if runs else 0
        known = {part.name for run in runs for part in run.parts}
        self._parts = {name: part for name, part in self._parts.items() if name in known}
        if before is None:
            self._storage.forget_others(PARTS_FOLDER, known)  # copies of what an engine elsewhere has merged or removed
        return KeptState([run for run in runs if run.last >= first_kept], first_kept)


def _may_have(part: KeptPart, query: PastQuery) -> bool:
    xmin, ymin, xmax, ymax = part.box
    x0, y0, x1, y1 = query.box
    near = xmin <= x1 and xmax >= x0 and ymin <= y1 and ymax >= y0
    return near and part.times_us[0] < query.until_us and part.times_us[1] >= query.since_us
