"""A manifest: one version of everything a batch depends on, in one sealed file.

Versions are numbered upwards. A version made for a batch has its number (`batch`), and that batch and any replay of it
run with this version; a version made by a bulk load has `batch` None. Writing the file is the one atomic step between
two versions: the segments and bitmaps that it names are on disk before it.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from geoswarm.errors import CorruptState
from geoswarm.flow.keyed.reorder import ReorderSettings
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, SegmentEntry
from geoswarm.store.storage import Storage

MANIFESTS_FOLDER = "manifests"
HEAD = "newest-version"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    version: int
    batch: int | None
    """The batch this version was made for."""
    last_batch: int
    """The newest batch whose operations are in it; -1 before the first."""
    plan_epoch: int
    plan_seal: str
    now_us: int
    """The time at which subscriptions count as live or expired, in microseconds since 1970."""
    term: int
    """The engine that wrote it (`fence.py`)."""
    token: str
    """Part of file names. Unlike the term it is never used again, not even by a checkpoint restored from a backup."""
    inbox_mark: int
    """Inbox files up to this number are in it."""
    segments: tuple[SegmentEntry, ...]
    content: str
    """A digest of what the source put into the batch; empty where it cannot be known."""
    loads: dict[str, int]
    """Rows taken in of each file that was bulk loaded (`loading.py`)."""
    refused: int
    """Operations that were refused in making it."""
    tombstones: str | None
    """The file with the bitmaps of cancelled subscriptions, if there are any."""
    guard: str | None = None
    """The file with Guard's memory, if it was ever on (`guard_files.py`)."""
    pasts: str | None = None
    """The file with who waits for kept events, if anybody does (`subscriptions/pasts.py`)."""
    ends: str | None = None
    """The file with who has begun or ended and is to be told, if anybody is (`subscriptions/ends.py`)."""
    reached_mark: int = -1
    """Who reached `max_events` in batches up to this one has ended in it (`subscriptions/reached.py`)."""
    reorder: ReorderSettings | None = None
    """By what its newest batch puts fixes in order; None: before the first batch, or not noted by an older engine."""

    @property
    def subs(self) -> int:
        """Subscriptions that are not cancelled; some of them may have expired."""
        return sum(entry.subs - entry.dead for entry in self.segments)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.segments)

    def files_since(self, before: "Manifest") -> list[str]:
        """The files of subscriptions that it names and the version before does not, but for indexes, which can be built
        again."""
        known = {entry.name for entry in before.segments}
        fresh = [f"{SEGMENTS_FOLDER}/{entry.name}.records" for entry in self.segments if entry.name not in known]
        if self.tombstones not in (None, before.tombstones):
            fresh.append(f"{SEGMENTS_FOLDER}/{self.tombstones}")
        for name, name_before in ((self.pasts, before.pasts), (self.ends, before.ends)):
            if name not in (None, name_before):
                fresh.append(f"{SEGMENTS_FOLDER}/{name}")
        return fresh

    def next(self, **changes: Any) -> "Manifest":
        return replace(self, version=self.version + 1, **changes)


EMPTY = Manifest(
    version=0,
    batch=None,
    last_batch=-1,
    plan_epoch=0,
    plan_seal="",
    now_us=0,
    term=0,
    token="",
    inbox_mark=-1,
    segments=(),
    content="",
    loads={},
    refused=0,
    tombstones=None,
)


def write(storage: Storage, manifest: Manifest) -> None:
    storage.write_document(file_name(manifest.version), {"format": FORMAT, **asdict(manifest)}, replace=False)
    # Only to notice that the newest was removed, so it need not survive a power cut.
    storage.write(HEAD, f"{manifest.version} {manifest.version}".encode(), durable=False)


def read(storage: Storage, version: int) -> Manifest:
    body = storage.read_document(file_name(version))
    if body.pop("format") != FORMAT:
        raise CorruptState(
            f"{file_name(version)} was written by another version of geoswarm: use that one, or load anew"
        )
    body["segments"] = tuple(SegmentEntry(**entry) for entry in body["segments"])
    if body.get("reorder") is not None:
        body["reorder"] = ReorderSettings(**body["reorder"])
    return Manifest(**body)


def newest(storage: Storage) -> Manifest:
    """The newest version. If it is damaged or missing, that is an error: an older one lacks acknowledged operations."""
    numbers = versions(storage)
    head = _head(storage)
    if not numbers or numbers[-1] < head:
        raise CorruptState(
            f"version {head} of the subscriptions is missing from {MANIFESTS_FOLDER}/: restore it from a backup"
        )
    return read(storage, numbers[-1])


def for_batch(storage: Storage, batch: int) -> Manifest | None:
    """The version that was made for a batch, if any."""
    for version in reversed(versions(storage)):
        manifest = read(storage, version)
        if manifest.batch == batch:
            return manifest
        if manifest.last_batch < batch:
            return None
    return None


def versions(storage: Storage) -> list[int]:
    return [int(name.split(".")[0]) for name in storage.names(MANIFESTS_FOLDER)]


def _head(storage: Storage) -> int:
    """The newest version's number; -1 if it is lost or damaged, as after a power cut: its two halves differ then."""
    try:
        one, other = storage.read(HEAD).split()
        return int(one) if one == other else -1
    except (CorruptState, ValueError):
        return -1


def remove(storage: Storage, version: int) -> None:
    storage.remove(file_name(version))


def file_name(version: int) -> str:
    return f"{MANIFESTS_FOLDER}/{version:012d}.json"
