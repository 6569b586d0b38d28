"""Follow a checkpoint's journal from outside: its batches as they come, and their totals.

Reads only, and takes no lock, so any number of watchers may look at an engine while it runs. A batch that a crash made
run twice is journalled twice; it counts once here, as in the output.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from geoswarm.errors import InputError
from geoswarm.flow.dead_letters import REASONS
from geoswarm.store import dead_files, journal, manifest
from geoswarm.store.fence import newest_term
from geoswarm.store.journal import FOLDER
from geoswarm.store.storage import Storage

Batch = dict[str, Any]
"""A journal entry of kind "batch" (`run/spark/pipeline.py` writes it)."""


class Follower:
    """Each call yields what was written since the one before, the first call since it was made. A line half
    written is left for the next call."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._offsets: dict[str, int] = {}  # bytes of each file that were read
        self.batches()  # what was there before

    def batches(self) -> list[Batch]:
        return [entry for entry in self._entries() if entry.get("kind") == "batch"]

    def _entries(self) -> Iterator[dict[str, Any]]:
        names = self._storage.names(FOLDER)
        newest_read = max(self._offsets, default="")
        self._offsets = {name: self._offsets.get(name, 0) for name in names}
        for name in names:
            if name < newest_read:
                continue
            entries, self._offsets[name] = journal.follow(self._storage, name, self._offsets[name])
            yield from entries


@dataclass
class Totals:
    """Empty when made; `add` batches; read the sums."""

    last: Batch | None = None
    _of_batch: dict[int, tuple[int, int, int, int, float]] = field(default_factory=dict)

    def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.last = batch
            keys = ("events_in", "matched", "matches", "dead", "batch_s")
            self._of_batch[batch["batch"]] = tuple(batch[key] for key in keys)

    @property
    def batches(self) -> int:
        return len(self._of_batch)

    @property
    def events(self) -> int:
        return sum(row[0] for row in self._of_batch.values())

    @property
    def matched(self) -> int:
        return sum(row[1] for row in self._of_batch.values())

    @property
    def matches(self) -> int:
        return sum(row[2] for row in self._of_batch.values())

    @property
    def dead(self) -> int:
        return sum(row[3] for row in self._of_batch.values())

    @property
    def busy_s(self) -> float:
        return sum(row[4] for row in self._of_batch.values())

    def to_json(self) -> dict[str, Any]:
        names = ("batches", "events", "matched", "matches", "dead")
        return {name: getattr(self, name) for name in names} | {"busy_s": round(self.busy_s, 3)}


def status(checkpoint: str) -> dict[str, Any]:
    """What a checkpoint holds, and what its engine has done so far."""
    storage = existing(checkpoint)
    if not storage.exists("contract.json"):
        operator = storage.read_document("identity.json").get("operator")
        raise InputError(f"{checkpoint} is of a KeyedStream: see `geoswarm explain {checkpoint} --operator {operator}`")
    last, newest = journal.last(storage, "batch"), manifest.newest(storage)
    return {
        "checkpoint": storage.root,
        "contract": storage.read_document("contract.json"),
        "engines": newest_term(storage),
        "last_process": storage.read_as_is("lock").decode()
        if not storage.is_remote and storage.exists("lock")
        else None,
        "subscriptions": newest.subs if newest else 0,
        "subscription_bytes": newest.bytes if newest else 0,
        "segments": len(newest.segments) if newest else 0,
        "version": newest.version if newest else 0,
        "plan_epoch": newest.plan_epoch if newest else 0,
        **(last["totals"] if last else dict.fromkeys(("batches", "events", "dead", "matched", "matches"), 0)),
        "last_batch": last,
    }


def existing(checkpoint: str) -> Storage:
    """The storage of a checkpoint that is there; looking at one must not make one."""
    storage = Storage(checkpoint)
    if not storage.exists("identity.json"):
        raise InputError(
            f"{checkpoint} is no checkpoint (it has no identity.json): give the folder that an engine uses"
        )
    return storage


def rates(batches: list[Batch]) -> tuple[float, float]:
    """Events and matches per second, from the beginning of the first of these batches to the end of the last."""
    if not batches:
        return 0.0, 0.0
    first, last = batches[0], batches[-1]
    span_s = max((last["now_us"] - first["now_us"]) / 1e6 + last["batch_s"], 1e-6)
    return sum(b["events_in"] for b in batches) / span_s, sum(b["matches"] for b in batches) / span_s


def dead_rows(checkpoint: str, reason: str | None = None) -> list[dict[str, Any]]:
    """The dead letters of a checkpoint as `model.DEAD_LETTER`, oldest batch first; those of one reason if asked."""
    if reason is not None and reason not in REASONS:
        raise InputError(f"no dead letter has the reason {reason!r}: the reasons are {', '.join(REASONS)}")
    rows = [row for table in dead_files.read(existing(checkpoint)) for row in table.to_pylist()]
    rows.sort(key=lambda row: row["batch_id"])
    return [row for row in rows if reason is None or row["reason"] == reason]
