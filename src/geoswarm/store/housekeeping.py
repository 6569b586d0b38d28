"""Keep a checkpoint's folder in order: verify and rebuild at a start, and remove files that are not needed any more.

Only an index can be rebuilt; any other file that is damaged or missing is an error that names what to restore.
"""

from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import CorruptState
from geoswarm.store import dead_files, guard_files, inbox, manifest, plans
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.open import repair_index
from geoswarm.store.segments.segment import SEGMENTS_FOLDER
from geoswarm.store.storage import Storage


def repair(storage: Storage, grid: Grid, newest: Manifest, plan: Plan) -> list[str]:
    """Verify every file of the kept versions and remove what a crash left incomplete. Returns the segments whose index
    was rebuilt from its records."""
    if plan.epoch < newest.plan_epoch:
        raise CorruptState(
            f"plan {newest.plan_epoch} of version {newest.version} is missing from plans/: restore it from a backup"
        )
    for folder in (
        plans.PLANS_FOLDER,
        inbox.INBOX_FOLDER,
        manifest.MANIFESTS_FOLDER,
        SEGMENTS_FOLDER,
        guard_files.GUARD_FOLDER,
    ):
        storage.sweep(folder)
    # Also those of the version that the last batch had: it may be run again.
    versions = [manifest.read(storage, version) for version in manifest.versions(storage)]
    names = sorted({entry.name for version in versions for entry in version.segments})
    return [name for name in names if repair_index(storage, grid, name)]


def collect_garbage(storage: Storage, newest: Manifest, dead_letter_folders_max: int) -> None:
    """Remove versions that no replay needs, and files that no version names."""
    kept = manifest.versions(storage)
    replayable = manifest.for_batch(storage, newest.last_batch)
    oldest = min(newest.version, replayable.version if replayable else newest.version)
    for version in kept:
        if version < oldest:
            manifest.remove(storage, version)
    used, guards = set[str | None](), set[str | None]()
    for version in kept:
        if version >= oldest:
            held = manifest.read(storage, version)
            used.update(entry.name for entry in held.segments)
            used.add(held.tombstones)
            guards.add(held.guard)
    for name in storage.names(SEGMENTS_FOLDER):
        stem, _, kind = name.rpartition(".")
        if (name if kind == "dead" else stem) not in used:
            storage.remove(f"{SEGMENTS_FOLDER}/{name}")
    guard_files.collect_garbage(storage, guards)
    dead_files.forget(storage, dead_letter_folders_max, newest.version)
    plans.forget_old(storage)
