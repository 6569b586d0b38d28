"""What the engine of a checkpoint does: totals of its batches, status, dead letters.

Everything is read, without a lock, so any number of processes may watch an engine while it runs. A batch that ran twice
because of a crash is journalled twice; it counts once here, as in the output.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from geoswarm.errors import CorruptState, InputError
from geoswarm.flow.dead_letters import REASONS
from geoswarm.store import dead_files, manifest, plans
from geoswarm.store.fence import newest_term
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.kept.summary import kept_status
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.lacking import lacking_of_stream


class _Counted(NamedTuple):
    """The counts of one batch: less than its entry, since a stream may have a million batches."""

    events: int
    matched: int
    matches: int
    dead: int
    answers: int
    reported: int
    batch_s: float


@dataclass
class WatchedTotals:
    """Sums over the batches that were added."""

    last: BatchEntry | None = None
    _of_batch: dict[int, _Counted] = field(default_factory=dict)

    def add(self, batches: Iterable[BatchEntry]) -> None:
        for batch in batches:
            self.last = batch
            self._of_batch[batch.batch] = _Counted(
                batch.events_in, batch.matched, batch.matches, batch.dead, batch.answers, batch.reported, batch.batch_s
            )

    @property
    def batches(self) -> int:
        return len(self._of_batch)

    @property
    def events(self) -> int:
        return sum(each.events for each in self._of_batch.values())

    @property
    def matched(self) -> int:
        return sum(each.matched for each in self._of_batch.values())

    @property
    def matches(self) -> int:
        return sum(each.matches for each in self._of_batch.values())

    @property
    def dead(self) -> int:
        return sum(each.dead for each in self._of_batch.values())

    @property
    def answers(self) -> int:
        """Rows that aggregates gave."""
        return sum(each.answers for each in self._of_batch.values())

    @property
    def reported(self) -> int:
        """Transitions that went out."""
        return sum(each.reported for each in self._of_batch.values())

    @property
    def busy_s(self) -> float:
        return sum(each.batch_s for each in self._of_batch.values())

    def to_json(self) -> dict[str, Any]:
        names = ("batches", "events", "matched", "matches", "dead", "answers", "reported")
        return {name: getattr(self, name) for name in names} | {"busy_s": round(self.busy_s, 3)}


def status(checkpoint: str) -> dict[str, Any]:
    """What a checkpoint holds, and what its engine has done so far."""
    storage = existing(checkpoint)
    if not storage.exists("contract.json"):
        operator = storage.read_document("identity.json").get("operator")
        raise InputError(f"{checkpoint} is of a KeyedStream: see `geoswarm explain {checkpoint} --operator {operator}`")
    newest = manifest.newest(storage)
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
        "executors": plans.newest(storage)[0].executors,
        "kept": kept_status(storage),
        "lacking": _lacking(storage) if newest else [],
        **JournalReader(storage).progress(),
    }


def _lacking(storage: Storage) -> list[dict[str, Any]]:
    """A damaged segment is no reason to show nothing at all."""
    try:
        return [each.to_json() for each in lacking_of_stream(storage)]
    except CorruptState as why:
        return [{"column": "answer", "what": f"whether subscriptions ask for what the stream lacks is unknown: {why}"}]


def existing(checkpoint: str) -> Storage:
    """The storage of an existing checkpoint: to look at one must not create it."""
    storage = Storage(checkpoint)
    if not storage.exists("identity.json"):
        raise InputError(
            f"{checkpoint} is no checkpoint (it has no identity.json): give the folder that an engine uses"
        )
    return storage


def rates(batches: list[BatchEntry]) -> tuple[float, float]:
    """Events and matches per second, from the beginning of the first of these batches to the end of the last."""
    if not batches:
        return 0.0, 0.0
    first, last = batches[0], batches[-1]
    span_s = max((last.now_us - first.now_us) / 1e6 + last.batch_s, 1e-6)
    return sum(b.events_in for b in batches) / span_s, sum(b.matches for b in batches) / span_s


def dead_rows(checkpoint: str, reason: str | None = None) -> list[dict[str, Any]]:
    """The dead letters of a checkpoint as `model.DEAD_LETTER`, oldest batch first; those of one reason if asked."""
    if reason is not None and reason not in REASONS:
        raise InputError(f"no dead letter has the reason {reason!r}: the reasons are {', '.join(REASONS)}")
    rows = [row for table in dead_files.read(existing(checkpoint)) for row in table.to_pylist()]
    rows.sort(key=lambda row: row["batch_id"])
    return [row for row in rows if reason is None or row["reason"] == reason]
