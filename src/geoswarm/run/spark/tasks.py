"""What a task knows of its batch, and what a worker keeps between tasks.

A worker is interchangeable: everything here can be lost at any moment and found again from the checkpoint. The cache is
keyed by what is never used again (a plan's seal, a segment's name with its engine's token), so a stale answer cannot
come from it, not even when a checkpoint is removed and made again at the same place.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.flow.match.match import Searchable
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.rivals.replicated_index import CANDIDATES, Replicated, boxed, replicated
from geoswarm.flow.rivals.shares import DividedSegment, divide_segment, homes
from geoswarm.flow.route_terms import numbered
from geoswarm.flow.sound import marked
from geoswarm.model import GEOMETRY, OBJECT
from geoswarm.store import dead_files, plans
from geoswarm.store.manifest import Manifest
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

T = TypeVar("T")


@dataclass(frozen=True)
class BatchTask:
    """Travels to every task of a batch. Small: plans and subscriptions are read from the checkpoint."""

    storage: Storage
    contract: Contract
    tuning: Tuning
    batch_id: int
    manifest: Manifest
    events: pa.Schema
    """The events as they leave validation."""
    counts_points: bool = False
    """Whether a strategy needs the statistics."""

    @property
    def grid(self) -> Grid:
        return Grid.of(self.contract)

    @property
    def packs(self) -> bool:
        """Whether events travel as parcels. They must where one may be in several, or subscriptions travel, too."""
        return self.tuning.exchange == "packed" or self.splits_events or self.is_at_stream

    @property
    def pipeline(self) -> str:
        """As the settings have it, unless terms are divided. `pipeline.py` refuses that, but a batch that is run again
        after settings were changed has the plan that it had."""
        return "spis" if self.plan().siblings else self.tuning.pipeline

    @property
    def is_at_stream(self) -> bool:
        """Whether subscriptions travel to the events."""
        return self.tuning.join_at == "stream" and not self.plan().siblings

    @property
    def splits_events(self) -> bool:
        """Whether an event may be in several parcels, and come back in several rows: where terms are divided, where
        candidates lie in several partitions, and where an area meets several that know their own subscriptions only."""
        if self.sends_candidates or self.plan().siblings:
            return True
        knows_all = self.pipeline == "spis" and not self.is_at_stream
        return not knows_all and GEOMETRY.name in self.events.names

    @property
    def sends_candidates(self) -> bool:
        return self.pipeline in ("rihps", "risps")

    @property
    def travelling(self) -> pa.Schema:
        """The events as they are in parcels."""
        events = marked(self.events)
        events = numbered(events) if self.splits_events else events
        return events.append(CANDIDATES) if self.sends_candidates else events

    def plan(self) -> Plan:
        return _cache.plan(self.storage, self.manifest)

    def subscriptions(self) -> list[Searchable]:
        return _cache.view(self.storage, self.manifest).searchables()

    def shares(self) -> list[tuple[Searchable, DividedSegment]]:
        """Every segment, and how it is divided among the partitions."""
        segments = _cache.named(self.storage, self.manifest)
        made = _cache.derived("shares", self._cut, segments, lambda s: divide_segment(s, self.plan(), self.pipeline))
        return list(zip(segments.values(), made, strict=True))

    def replicated(self) -> Replicated:
        """The index that routers look candidates up in."""
        return _cache.replicated((self._cut, self.manifest.version, self.manifest.token), self._replicated)

    def _replicated(self) -> Replicated:
        segments, plan, pipeline = _cache.named(self.storage, self.manifest), self.plan(), self.pipeline
        boxes = _cache.derived("boxes", self.storage.root, segments, lambda s: boxed(s, self.grid))
        slots = _cache.derived("homes", self._cut, segments, lambda s: homes(s.records, plan, pipeline))
        return replicated(list(zip(segments.values(), boxes, slots, strict=True)))

    @property
    def _cut(self) -> Hashable:
        """What lists depend on beside the segment. Not on who has which partition: handing one over changes no list."""
        plan = self.plan()
        partitions = plan.partition_id_of_slot.tobytes(), plan.borders.tobytes()
        return self.storage.root, self.pipeline, *partitions

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
    """One plan and one version at a time; segments that both versions share stay open, with what was made of them."""

    def __init__(self) -> None:
        self._derived: dict[str, dict[Hashable, Any]] = {}
        self._index: tuple[Hashable, Replicated] | None = None
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

    def named(self, storage: Storage, manifest: Manifest) -> dict[str, Searchable]:
        view = self.view(storage, manifest)
        return dict(zip(view.segments, view.searchables(), strict=True))

    def replicated(self, key: Hashable, make: Callable[[], Replicated]) -> Replicated:
        if self._index is None or self._index[0] != key:
            self._index = key, make()
        return self._index[1]

    def derived(
        self, kind: str, cut: Hashable, segments: Mapping[str, Searchable], make: Callable[[Searchable], T]
    ) -> list[T]:
        """Something of each segment, made once while the segment is in force and the map is cut as it is."""
        held = self._derived.get(kind, {})
        self._derived[kind] = {
            (cut, name): held[cut, name] if (cut, name) in held else make(segment) for name, segment in segments.items()
        }
        return list(self._derived[kind].values())


_cache = _Cache()
