"""Seal what each batch has kept, and forget what is older than the window.

The window is counted in whole batches: a batch is kept as long as it is younger than `keep`, or as long as the batches
behind it have fewer events than `keep`, or as long as all together have no more bytes. So at least `keep` is there, and
which batches are does not depend on how files were merged. SWARM §5.2: data expires with the window.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from geoswarm.config import WindowSettings
from geoswarm.core.space.grid import Grid
from geoswarm.errors import StreamError
from geoswarm.flow.keep import KeptPart
from geoswarm.store.kept.files import (
    PARTS_FOLDER,
    RUNS_FOLDER,
    KeptBatch,
    KeptRun,
    read_run,
    remove_part,
    remove_runs,
    run_names,
    write_run,
)
from geoswarm.store.kept.merge import BackgroundMerge
from geoswarm.store.manifest import Manifest
from geoswarm.store.storage import Storage


class Keeper:
    """The driver's side of kept events. One engine at a time has one."""

    def __init__(self, storage: Storage, grid: Grid, window: WindowSettings) -> None:
        self._storage, self._window = storage, window
        self._merge = BackgroundMerge(storage, grid, window)
        storage.sweep(PARTS_FOLDER)
        self._runs = [read_run(storage, name) for name in run_names(storage)]
        self._remove_orphans()

    def seal(
        self, manifest: Manifest, batch: int, parts: Sequence[KeptPart], events: int, has_time: bool = False
    ) -> None:
        """Commit what a batch has kept, which are so many events, and forget what is too old by now. The same batch may
        be sealed again, after a crash. A stream that `has_time` to spare leaves it to a merge of large files."""
        rows = sum(part.rows for part in parts)
        if rows != events:
            raise StreamError(
                f"batch {batch}: {events} events came in, but {rows} were kept, so the batch is not committed: start "
                "again from the checkpoint"
            )
        before = self._runs.pop() if self._runs and self._runs[-1].first == batch else None
        size = sum(part.bytes for part in parts)
        sealed = KeptBatch(batch, manifest.now_us, rows, size, manifest.plan_epoch)
        since, cut = (self._runs[-1].first_kept, self._runs[-1].cut) if self._runs else (batch, 0)
        held = [b for run in self._runs for b in run.batches if b.number >= since]
        first_kept, early = _first_kept([*held, sealed], self._window)
        self._runs.append(KeptRun((sealed,), tuple(parts), first_kept, cut + early))
        write_run(self._storage, self._runs[-1])
        if before is not None:
            for part in set(before.parts) - set(parts):
                remove_part(self._storage, part.name)
        # Who is given the past in this batch is given what was kept before it, also if the batch is run again.
        needed = since if manifest.pasts is not None else first_kept
        self._forget([run for run in self._runs if run.last < needed])
        merged = self._merge.take_result()
        if merged is not None:
            self._adopt(merged)
        self._merge.begin(self._runs, has_time)

    def close(self) -> None:
        self._merge.close()

    def _adopt(self, merged: KeptRun) -> None:
        """Put a run in the place of those of its batches, of which none is the newest."""
        inside = [run for run in self._runs if merged.first <= run.first and run.last <= merged.last]
        if not inside or inside[0].first != merged.first:
            counted = self._named()
            for part in merged.parts:  # some of its batches have been forgotten meanwhile
                if part.name not in counted:
                    remove_part(self._storage, part.name)
            return
        merged = replace(merged, first_kept=self._runs[-1].first_kept, cut=self._runs[-1].cut)
        write_run(self._storage, merged)
        at = self._runs.index(inside[0])
        self._runs[at : at + len(inside)] = [merged]
        remove_runs(self._storage, inside, {part.name for part in merged.parts})

    def _forget(self, old: Sequence[KeptRun]) -> None:
        remove_runs(self._storage, old)
        self._runs = [run for run in self._runs if run not in old]

    def _remove_orphans(self) -> None:
        """Remove what a crash left: runs that lie in others, and parts that no run names."""
        for name in set(self._storage.names(RUNS_FOLDER)) - {run.name for run in self._runs}:
            self._storage.remove(f"{RUNS_FOLDER}/{name}")
        counted = self._named()
        for name in self._storage.names(PARTS_FOLDER):
            if name not in counted:
                remove_part(self._storage, name)

    def _named(self) -> set[str]:
        """The parts that count."""
        return {part.name for run in self._runs for part in run.parts}


def _first_kept(batches: Sequence[KeptBatch], window: WindowSettings) -> tuple[int, int]:
    """The oldest batch that is kept, and how many that `keep` would have kept go because of `bytes_max`."""
    wanted, most = len(batches), math.inf if window.events is None else window.events
    since_us = -math.inf if window.seconds is None else batches[-1].now_us - window.seconds * 1e6
    events = size = 0
    for place, batch in enumerate(reversed(batches)):
        if place and (batch.now_us <= since_us or events >= most):
            wanted = place
            break
        events += batch.rows
    held, bytes_max = 0, window.bytes
    for place, batch in enumerate(reversed(batches[len(batches) - wanted :])):
        size += batch.bytes
        if place and size > bytes_max:
            break
        held = place + 1
    early = wanted - held if bytes_max == window.bytes_max else 0
    return batches[len(batches) - held].number, early
