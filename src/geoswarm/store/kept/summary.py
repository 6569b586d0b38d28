"""What is kept, in figures, for `geoswarm status` and `geoswarm explain`."""

from typing import NamedTuple

from geoswarm.store.kept.reading import KeptReader
from geoswarm.store.storage import Storage


class KeptSummary(NamedTuple):
    batches: int
    events: int
    bytes: int
    """Of all files on disk; those of merged batches stay until the newest of them has expired."""
    oldest_us: int
    """When the oldest batch came, by the engine's clock, in microseconds since 1970."""
    newest_us: int
    cut: int
    """Batches that went early since the checkpoint was made, because there were too many bytes."""
    files: int
    merged_batches: int
    """Batches all of whose events are in files together with those of others."""


def kept_status(storage: Storage) -> dict[str, int] | None:
    """The part of every `status` that is about kept events."""
    kept = summarise(storage)
    return None if kept is None else kept._asdict()


def summarise(storage: Storage) -> KeptSummary | None:
    """None if nothing is kept."""
    runs, first_kept = KeptReader(storage).state()
    counted = [(batch, run) for run in runs for batch in run.batches if batch.number >= first_kept]
    if not counted:
        return None
    parts = [part for run in runs for part in run.parts]
    whole = {part.batch for part in parts if part.batch is not None}
    return KeptSummary(
        len(counted),
        sum(batch.rows for batch, _ in counted),
        sum(part.bytes for part in parts),
        counted[0][0].now_us,
        counted[-1][0].now_us,
        runs[-1].cut,
        len(parts),
        sum(len(run.batches) > 1 and batch.number not in whole for batch, run in counted),
    )
