"""Keep a checkpoint's folder in order: verify and rebuild at a start, and remove files that are not needed any more.

Only an index can be rebuilt; any other file that is damaged or missing is an error that names what to restore. Large
files are removed in a thread of its own, since the stream would wait for the disk.
"""

from concurrent.futures import ThreadPoolExecutor

from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import CorruptState
from geoswarm.store import dead_files, guard_files, inbox, manifest, plans
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.open import repair_index
from geoswarm.store.segments.segment import SEGMENTS_FOLDER
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import ends, pasts
from geoswarm.store.subscriptions.reached import REACHED_FOLDER


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
        REACHED_FOLDER,
    ):
        storage.sweep(folder)
    # Also those of the version that the last batch had: it may be run again.
    versions = [manifest.read(storage, version) for version in manifest.versions(storage)]
    names = sorted({entry.name for version in versions for entry in version.segments})
    return [name for name in names if repair_index(storage, grid, name)]


class Janitor:
    """Removes files, one call after the other, in the order of each call."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._thread = ThreadPoolExecutor(1, "geoswarm-janitor")

    def remove(self, names: list[str]) -> None:
        """Names that nothing will be written to any more."""
        self._thread.submit(self._remove, names)

    def wait(self) -> None:
        """Wait until all is removed."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        self._thread.shutdown()

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._storage.remove(name)


def collect_garbage(
    storage: Storage, newest: Manifest, dead_letter_folders_max: int, needed: set[str | None], janitor: Janitor
) -> None:
    """Remove versions that no replay needs, and files that no version names, except for those that merges have made or
    still need (`needed`), and those that a later version may write again."""
    replayable = manifest.for_batch(storage, newest.last_batch)
    unused = list[str]()
    used, guards = set(needed), set[str | None]()
    for version in manifest.versions(storage):
        if version < newest.version and (replayable is None or version != replayable.version):
            # at once, before what it names: the list of versions is read by others
            storage.remove(manifest.file_name(version))
            continue
        held = manifest.read(storage, version)
        used.update(entry.name for entry in held.segments)
        used |= {held.tombstones, held.pasts, held.ends}
        guards.add(held.guard)
    for name in storage.names(SEGMENTS_FOLDER):
        stem, _, kind = name.rpartition(".")
        number = name.partition("-")[0]
        is_past = not number.isdecimal() or int(number) <= newest.version
        if (name if kind in ("dead", pasts.KIND, ends.KIND) else stem) not in used and is_past:
            unused.append(f"{SEGMENTS_FOLDER}/{name}")
    janitor.remove(unused)
    guard_files.collect_garbage(storage, guards)
    dead_files.forget(storage, dead_letter_folders_max, newest.version)
    plans.forget_old(storage)
