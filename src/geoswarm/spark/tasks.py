"""What a task knows of its batch, and what a worker keeps between tasks.

A worker is interchangeable: everything here can be lost at any moment and found again from the checkpoint. The cache is
keyed by what is never used again (a plan's seal, a segment's name with its engine's token), so a stale answer cannot
come from it, not even when a checkpoint is removed and made again at the same place.
"""

import json
from dataclasses import dataclass

import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.flow.match.match import Searchable
from geoswarm.flow.observe import LoadReport
from geoswarm.jit import Ints, SubIds
from geoswarm.model import OBJECT
from geoswarm.space.grid import Grid
from geoswarm.space.plan import Plan
from geoswarm.state import dead_files, plans
from geoswarm.state.manifest import Manifest
from geoswarm.state.storage import Storage
from geoswarm.state.subscriptions import View


@dataclass(frozen=True)
class BatchTask:
    """Travels to every task of a batch. Small: plans and subscriptions are read from the checkpoint."""

    storage: Storage
    contract: Contract
    tuning: Tuning
    batch_id: int
    manifest: Manifest
    events: pa.Schema
    """The events as they leave the guard."""
    counts_points: bool = False
    """Whether a strategy needs the statistics."""

    @property
    def grid(self) -> Grid:
        return Grid.of(self.contract)

    @property
    def packs(self) -> bool:
        """Whether events travel as parcels. Where terms are divided they must: an event may be in several."""
        return self.tuning.exchange == "packed" or bool(self.plan().siblings)

    def plan(self) -> Plan:
        return _cache.plan(self.storage, self.manifest)

    def subscriptions(self) -> list[Searchable]:
        return _cache.view(self.storage, self.manifest).searchables()

    def on(self, sub_ids: SubIds) -> Ints:
        """What ascending subscriptions are on, for `flow/keyed/transitions.py`."""
        return _cache.view(self.storage, self.manifest).on(sub_ids, self.manifest.now_us)

    def users(self, sub_ids: SubIds) -> pa.StringArray:
        """Whose ascending subscriptions are."""
        return _cache.view(self.storage, self.manifest).users(sub_ids, self.manifest.now_us)

    @property
    def asks_for_transitions(self) -> bool:
        return any(entry.transitions for entry in self.manifest.segments)

    @property
    def shape(self) -> str:
        """Of what the matcher gives; transitions are found event by event."""
        return "arrays" if self.asks_for_transitions else self.tuning.matches

    @property
    def follows(self) -> bool:
        """Whether objects are followed from event to event, also where they meet nobody."""
        return self.asks_for_transitions and OBJECT.name in self.events.names

    def report(self, stage: str, task: int, counted: LoadReport) -> None:
        """The last attempt of a task wins."""
        text = json.dumps(counted.to_json()).encode()
        self.storage.write(f"{self.report_folder}/{stage}-{task:05d}.json", text, durable=False)

    @property
    def report_folder(self) -> str:
        return f"reports/{self.batch_id:012d}"

    @property
    def dead_folder(self) -> str:
        return dead_files.folder_of(dead_files.EVENTS, self.batch_id)

    def reports(self) -> dict[str, LoadReport]:
        """The sum of what each stage's tasks reported; stages that reported nothing are absent."""
        totals: dict[str, LoadReport] = {}
        for name in self.storage.names(self.report_folder):
            stage = name.split("-")[0]
            counted = LoadReport.from_json(json.loads(self.storage.read(f"{self.report_folder}/{name}")))
            totals.setdefault(stage, LoadReport()).include(counted)
        return totals


class _Cache:
    """One plan and one version at a time; segments that both versions share stay open."""

    def __init__(self) -> None:
        self._plan: tuple[tuple[str, int, str], Plan] | None = None
        self._view: tuple[tuple[str, int, str], View] | None = None

    def plan(self, storage: Storage, manifest: Manifest) -> Plan:
        key = (storage.root, manifest.plan_epoch, manifest.plan_seal)
        if self._plan is None or self._plan[0] != key:
            self._plan = key, plans.read(storage, manifest.plan_epoch, manifest.plan_seal)
        return self._plan[1]

    def view(self, storage: Storage, manifest: Manifest) -> View:
        key = (storage.root, manifest.version, manifest.token)
        if self._view is None or self._view[0] != key:
            before = self._view[1] if self._view and self._view[0][0] == storage.root else None
            self._view = key, View.open(storage, manifest, before)
        return self._view[1]


_cache = _Cache()
