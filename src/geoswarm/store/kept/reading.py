"""Open what a query needs of the kept events, in any process, while an engine may write and forget them.

What is mapped stays mapped until it is forgotten: parts never change, and their names are never used again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from geoswarm.flow.keep import KeptPart
from geoswarm.flow.recall import OpenPart, PastQuery, open_part
from geoswarm.store.kept.files import PARTS_FOLDER, KeptRun, read_run, run_names
from geoswarm.store.storage import Storage


class KeptState(NamedTuple):
    """What is kept as of one committed batch."""

    runs: Sequence[KeptRun]
    first_kept: int
    """The oldest batch that counts; older ones may share a run with it."""

    def parts_near(self, query: PastQuery) -> list[tuple[KeptRun, KeptPart]]:
        """The parts that may have events of a query, by their boxes and times."""
        return [(run, part) for run in self.runs for part in run.parts if _may_have(part, query)]


class KeptReader:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._runs: dict[str, KeptRun] = {}
        self._parts: dict[str, OpenPart] = {}

    def state(self) -> KeptState:
        """What is kept by now."""
        names = run_names(self._storage)
        self._runs = {name: self._runs.get(name) or read_run(self._storage, name) for name in names}
        runs = list(self._runs.values())
        first_kept = runs[-1].first_kept if runs else 0
        known = {part.name for run in runs for part in run.parts}
        self._parts = {name: part for name, part in self._parts.items() if name in known}
        return KeptState([run for run in runs if run.last >= first_kept], first_kept)

    def open(self, part: KeptPart) -> OpenPart:
        if part.name not in self._parts:
            self._parts[part.name] = open_part(self._storage.map_arrays(f"{PARTS_FOLDER}/{part.name}"))
        return self._parts[part.name]


def _may_have(part: KeptPart, query: PastQuery) -> bool:
    xmin, ymin, xmax, ymax = part.box
    x0, y0, x1, y1 = query.box
    near = xmin <= x1 and xmax >= x0 and ymin <= y1 and ymax >= y0
    return near and part.times_us[0] < query.until_us and part.times_us[1] >= query.since_us
