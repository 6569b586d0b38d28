"""What the engine's journal has of a run, for benchmarks, which all read it here: batches, rounds, blocked users."""

from pathlib import Path

from geoswarm.control.outcome import RoundEntry
from geoswarm.guard.findings import DetectionEntry
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry, KeyedBatchEntry
from geoswarm.store.storage import Storage


def batches(checkpoint: str | Path) -> list[BatchEntry]:
    """Oldest first."""
    return list(_reader(checkpoint).read(BatchEntry))


def keyed_batches(checkpoint: str | Path) -> list[KeyedBatchEntry]:
    """What keyed operators did in each batch, oldest first."""
    return list(_reader(checkpoint).read(KeyedBatchEntry))


def rounds(checkpoint: str | Path) -> list[RoundEntry]:
    """Oldest first. Entries without a time are of a strategy that took over a checkpoint, and are left out."""
    return [entry for entry in _reader(checkpoint).read(RoundEntry) if entry.now_s is not None]


def blocked_users(checkpoint: str | Path) -> dict[str, float]:
    """When Guard blocked each user, in seconds by the engine's clock."""
    entries = _reader(checkpoint).read(DetectionEntry)
    return {user: entry.now_us * 1e-6 for entry in entries for user in entry.blocked}


def executors_cpu_us(entry: BatchEntry, executors: int) -> list[float]:
    """CPU time of the whole task, by executor; 0 for one that had no task."""
    return [float(entry.executors[i].cpu_us) if i in entry.executors else 0.0 for i in range(executors)]


def _reader(checkpoint: str | Path) -> JournalReader:
    return JournalReader(Storage(str(checkpoint)))
