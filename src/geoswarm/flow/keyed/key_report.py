"""What the tasks of a keyed batch report to the driver: what they did, and the load and the state of their keys.

Of keys an executor reports either all, or only those that a plan may move: the heaviest, and those that the plan in
force names. All others are summed per slot of their hash. They stay where their hash sends them, so that for a plan
only the sums matter, and the report has a bounded length. Mixed §IV sends vectors of similar keys instead, and must ask
for the keys afterwards.

    keys     [id, load, state]      16 bytes each
    slots    [slot, load]            6 bytes each, whatever the number of keys
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints
from geoswarm.core.keys.hashing import SLOTS, slots_of_keys
from geoswarm.flow.keyed.state import StateFile
from geoswarm.flow.observe import TaskName

_COUNT, _ID, _SLOT, _LOAD = (np.dtype(name) for name in ("<i8", "<i8", "<u2", "<f4"))
_KINDS = (_ID, _LOAD, _LOAD, _SLOT, _LOAD)
"""How the columns of a report travel. Seven digits are enough for a plan."""


@dataclass
class KeyedReport:
    """The report of a task to the driver."""

    rows: int = 0
    dead: int = 0
    sent: int = 0
    """Rows that went to the executor of their key; the others were refused, or go out without the operator."""
    given: int = 0
    cpu_us: int = 0
    """Of the worker, from the first row received to the last one given."""
    task: TaskName | None = None
    """The task in which the executor had its turn, by which the runner's part of the CPU time is asked for."""
    keys: int = 0
    work: float = 0.0
    """In the operator's own unit."""
    measured_us: int = 0
    """CPU time that the operator measured key by key."""
    added: list[StateFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Names of files that are merged into one of the added files."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the operator counted beside its rows."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "KeyedReport":
        task = written["task"] and TaskName(*written["task"])
        return cls(**written | {"task": task, "added": [StateFile(**file) for file in written["added"]]})


def add_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of what was counted, by name."""
    total = Counter[str]()
    for part in parts:
        total.update(part)
    return dict(total)


class KeyLoads(NamedTuple):
    ids: Ints
    load: Floats
    """c(k) in the batch."""
    state: Floats
    """S(k, w) after the batch."""
    slots: Ints = np.empty(0, np.int64)
    """Slots with load of keys that are not named."""
    slot_load: Floats = np.empty(0)

    def shorten(self, is_named: Bools, heavy_keys: int) -> "KeyLoads":
        """The report with the named keys and the heaviest others; the rest is summed per slot."""
        others = np.flatnonzero(~is_named)
        if len(others) <= heavy_keys:
            return self
        order = np.argpartition(-self.load[others], heavy_keys)
        kept = np.sort(np.concatenate([np.flatnonzero(is_named), others[order[:heavy_keys]]]))
        light = others[order[heavy_keys:]]
        sums = np.bincount(slots_of_keys(self.ids[light]), self.load[light], SLOTS).astype(np.float64)
        slots = np.flatnonzero(sums)
        return KeyLoads(self.ids[kept], self.load[kept], self.state[kept], slots, sums[slots])

    def scale(self, factor: float) -> "KeyLoads":
        """The same keys with other loads."""
        return self._replace(load=self.load * factor, slot_load=self.slot_load * factor)

    def pack(self) -> bytes:
        counts = np.array([len(self.ids), len(self.slots)], _COUNT)
        return b"".join([counts.tobytes(), *(v.astype(kind).tobytes() for v, kind in zip(self, _KINDS, strict=True))])

    @classmethod
    def unpack(cls, data: bytes) -> "KeyLoads":
        keys, slots = np.frombuffer(data, _COUNT, 2).tolist()
        found: list[Array] = []
        at = 2 * _COUNT.itemsize
        for kind, count in zip(_KINDS, (keys, keys, keys, slots, slots), strict=True):
            wide = np.float64 if kind == _LOAD else np.int64
            found.append(np.frombuffer(data, kind, count, at).astype(wide))
            at += count * kind.itemsize
        return cls(*found)
