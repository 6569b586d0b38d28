"""What the checkpoint holds for one batch, for its tasks to read, and what the tasks report back.

A worker is interchangeable: everything it keeps here can be lost at any moment and found again from the checkpoint. The
cache is keyed by what is never used again (a plan's seal, a version with its engine's token), so a stale answer cannot
come from it, not even when a checkpoint is removed and made again in the same folder.
"""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array, Ints, SubIds
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.aggregate import AggregateValues
from geoswarm.core.subscriptions.region import RegionValues
from geoswarm.core.subscriptions.trigger import FollowRules
from geoswarm.flow.asked_pasts import AskedPasts
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.recall import OpenPart, PastQuery
from geoswarm.store import dead_files, plans
from geoswarm.store.founding import read_contract
from geoswarm.store.kept import files as kept_files
from geoswarm.store.kept.reading import KeptReader
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.open import segment_in_memory
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

KEPT_OPEN_S = 60.0
"""Seconds without a question after which a worker unmaps kept events: the disk has no room of removed files before."""


@dataclass(frozen=True)
class StoredBatch:
    """A `flow.stages.task.BatchState`. It is small: it names files, and opens them in the process that reads them."""

    storage: Storage
    batch_id: int
    manifest: Manifest
    attempt: str = ""
    """A name that no other attempt at the batch has: tasks of a killed driver may still be counting events."""

    @property
    def place(self) -> str:
        return self.storage.root

    @property
    def version(self) -> Hashable:
        return self.manifest.version, self.manifest.token

    def plan(self) -> Plan:
        return _cache.plan(self.storage, self.manifest)

    def segments(self) -> dict[str, Searchable]:
        view = _cache.view(self.storage, self.manifest)
        return dict(zip(view.segments, view.searchables(), strict=True))

    def follow_rules(self, sub_ids: SubIds) -> FollowRules:
        return _cache.view(self.storage, self.manifest).follow_rules(sub_ids, self.manifest.now_us)

    def aggregates(self, sub_ids: SubIds) -> AggregateValues:
        return _cache.view(self.storage, self.manifest).aggregates(sub_ids, self.manifest.now_us)

    def users(self, sub_ids: SubIds) -> pa.StringArray:
        return _cache.view(self.storage, self.manifest).users(sub_ids, self.manifest.now_us)

    def payloads(self, sub_ids: SubIds) -> pa.LargeStringArray:
        return _cache.view(self.storage, self.manifest).payloads(sub_ids, self.manifest.now_us)

    def id_texts(self, sub_ids: SubIds) -> pa.LargeStringArray:
        return _cache.view(self.storage, self.manifest).known_id_texts(sub_ids, self.manifest.now_us)

    def limits(self, sub_ids: SubIds) -> tuple[Ints, Ints]:
        return _cache.view(self.storage, self.manifest).limits(sub_ids, self.manifest.now_us)

    def notify(self, sub_ids: SubIds) -> Ints:
        return _cache.view(self.storage, self.manifest).notify(sub_ids, self.manifest.now_us)

    def asks_to_be_told(self) -> bool:
        return _cache.view(self.storage, self.manifest).asks_to_be_told()

    def begun(self) -> Searchable | None:
        view = _cache.view(self.storage, self.manifest)
        subs = view.subs(view.begun, self.manifest.now_us) if len(view.begun) else None
        return None if subs is None else segment_in_memory(Grid.of(read_contract(self.storage)), subs).searchable()

    def ends(self) -> pa.RecordBatch:
        return _cache.view(self.storage, self.manifest).ends

    def regions(self, sub_ids: SubIds) -> RegionValues:
        return _cache.view(self.storage, self.manifest).regions(sub_ids, self.manifest.now_us)

    def on_cross(self) -> list[tuple[Searchable, Ints]]:
        return _cache.view(self.storage, self.manifest).on_cross()

    def asked_pasts(self) -> AskedPasts | None:
        view, now_us = _cache.view(self.storage, self.manifest), self.manifest.now_us
        subs = view.subs(view.pasts.ids, now_us) if len(view.pasts.ids) else None
        if subs is None:
            return None
        ids = np.sort(subs.ids)
        segment = segment_in_memory(Grid.of(read_contract(self.storage)), subs)
        return AskedPasts(segment.searchable(), ids, view.pasts.since_of(ids))

    def kept_for(self, query: PastQuery) -> Iterator[tuple[OpenPart, int]]:
        """As of the batch before: the keeper forgets none of it before this batch has ended."""
        reader = _cache.kept(self.storage, self.manifest)
        state = reader.state(before=self.batch_id)
        for _, part in reversed(state.parts_near(query)):
            yield reader.open(part), state.first_kept

    # -- what tasks send back

    def report(self, stage: str, number: int, counted: LoadReport) -> None:
        text = json.dumps(counted.to_json()).encode()
        self.storage.write(f"{self._report_folder}/{stage}-{number:05d}.json", text, durable=False)

    def put_counted(self, stage: str, number: int, parcels: Iterable[pa.RecordBatch]) -> None:
        found = pa.Table.from_batches(parcels, PACKED)
        if len(found):
            name = f"{stage}-{number:05d}{self._of_attempt}"
            self.storage.write(f"{self._counted_folder}/{name}", _packed(found), durable=False)

    def counted_names(self) -> list[str]:
        """The files of counted events, one for each task that counted any."""
        return sorted(name for name in self.storage.names(self._counted_folder) if name.endswith(self._of_attempt))

    def counted(self, name: str) -> pa.Table:
        return pa.ipc.open_file(pa.py_buffer(self.storage.read(f"{self._counted_folder}/{name}"))).read_all()

    def file_dead_letters(self, part: str, letters: pa.Table) -> None:
        dead_files.write(self.storage, self._dead_folder, part, letters)

    def keep(self, part: str, arrays: Mapping[str, Array]) -> tuple[str, int]:
        return kept_files.write(self.storage, f"{self.batch_id:012d}-{part}", arrays)

    def reports(self) -> dict[str, list[LoadReport]]:
        """What each stage's tasks reported, in their order; stages that reported nothing are absent."""
        stages: dict[str, list[LoadReport]] = {}
        for name in sorted(self.storage.names(self._report_folder)):
            counted = LoadReport.from_json(json.loads(self.storage.read(f"{self._report_folder}/{name}")))
            stages.setdefault(name.split("-")[0], []).append(counted)
        return stages

    def forget_attempt(self) -> None:
        """Remove what the tasks of a crashed attempt have sent back."""
        self.storage.remove_folder(self._report_folder)
        self.storage.remove_folder(self._counted_folder)
        self.storage.remove_folder(self._dead_folder)

    def forget_reports(self) -> None:
        self.storage.remove_folder(self._report_folder)
        self.storage.remove_folder(self._counted_folder)

    @property
    def _report_folder(self) -> str:
        return f"reports/{self.batch_id:012d}"

    @property
    def _of_attempt(self) -> str:
        return f"-{self.attempt}.arrow"

    @property
    def _counted_folder(self) -> str:
        return f"reports/{self.batch_id:012d}-counted"

    @property
    def _dead_folder(self) -> str:
        return dead_files.folder_of(dead_files.EVENTS, self.batch_id)


@dataclass(frozen=True)
class HeldBatch(StoredBatch):
    """The same where all tasks run in this process: their reports need no files. A process that dies loses them, and
    the batch is run again."""

    held: dict[str, LoadReport] = field(default_factory=dict)
    held_counted: dict[str, pa.Table] = field(default_factory=dict)

    def report(self, stage: str, number: int, counted: LoadReport) -> None:
        self.held[f"{stage}-{number:05d}"] = counted

    def put_counted(self, stage: str, number: int, parcels: Iterable[pa.RecordBatch]) -> None:
        self.held_counted[f"{stage}-{number:05d}"] = pa.Table.from_batches(parcels, PACKED)

    def counted_names(self) -> list[str]:
        return sorted(name for name, rows in self.held_counted.items() if len(rows))

    def counted(self, name: str) -> pa.Table:
        return self.held_counted[name]

    def reports(self) -> dict[str, list[LoadReport]]:
        stages: dict[str, list[LoadReport]] = {}
        for name in sorted(self.held):
            stages.setdefault(name.split("-")[0], []).append(self.held[name])
        return stages

    def forget_reports(self) -> None:
        self.held.clear()
        self.held_counted.clear()


def _packed(rows: pa.Table) -> memoryview:
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)
    return memoryview(out.getvalue())


class _Cache:
    """Holds one plan and one version at a time; segments that two versions share stay open, and so do files of kept
    events that two batches give to new subscriptions."""

    def __init__(self) -> None:
        self._plan: tuple[tuple[str, int, str], Plan] | None = None
        self._view: tuple[tuple[str, int, str], View] | None = None
        self._kept: tuple[str, int, KeptReader] | None = None
        """With the place, and when it was last asked."""

    def plan(self, storage: Storage, manifest: Manifest) -> Plan:
        key = (storage.root, manifest.plan_epoch, manifest.plan_seal)
        if self._plan is None or self._plan[0] != key:
            self._plan = key, plans.read(storage, manifest.plan_epoch, manifest.plan_seal)
        return self._plan[1]

    def set_view(self, storage: Storage, manifest: Manifest, view: View) -> None:
        self._view = (storage.root, manifest.version, manifest.token), view

    def view(self, storage: Storage, manifest: Manifest) -> View:
        key = (storage.root, manifest.version, manifest.token)
        if self._kept is not None and manifest.now_us - self._kept[1] > KEPT_OPEN_S * 1e6:
            self._kept = None
        if self._view is None or self._view[0] != key:
            before = self._view[1] if self._view and self._view[0][0] == storage.root else None
            self._view = key, View.open(storage, manifest, before)
        return self._view[1]

    def kept(self, storage: Storage, manifest: Manifest) -> KeptReader:
        """A new one each time: files keep their names for ever, documents only within one life of a checkpoint."""
        before = self._kept[2] if self._kept is not None and self._kept[0] == storage.root else None
        self._kept = storage.root, manifest.now_us, KeptReader(storage, before)
        return self._kept[2]


_cache = _Cache()


def share_view(storage: Storage, manifest: Manifest, view: View) -> None:
    """Let tasks of this process read the subscriptions that it has open, which are verified and may be decrypted."""
    _cache.set_view(storage, manifest, view)
