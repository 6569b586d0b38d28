"""The knowledge of a task about its batch: settings, time, plan, subscriptions, and where to report.

It reads no files: the checkpoint's part of a batch comes through `BatchState`, which `store/batch_state.py` implements.
Everything that a worker derives from a segment is kept from batch to batch, and can be lost at any moment.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Array, Ints, SubIds
from geoswarm.core.index.searchable import Searchable
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.aggregate import AggregateValues
from geoswarm.core.subscriptions.region import RegionValues
from geoswarm.core.subscriptions.trigger import FollowRules
from geoswarm.flow.asked_pasts import AskedPasts
from geoswarm.flow.keyed.work import KeyedTask
from geoswarm.flow.observe import LoadReport, TaskName
from geoswarm.flow.recall import OpenPart, PastQuery
from geoswarm.flow.rivals.replicated_index import CANDIDATES, ReplicatedIndex, build_replicated_index, index_boxes
from geoswarm.flow.rivals.shares import DividedSegment, divide_segment, home_slots
from geoswarm.flow.route_terms import travel_schema
from geoswarm.flow.sound import marked_schema
from geoswarm.model import GEOMETRY, OBJECT

T = TypeVar("T")

Body = Callable[[int, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The work of a task: its number and its batches in, batches out. After an exchange the number is the executor's. A
body may be run again, also while another attempt at the same task still runs, and then returns the same."""


ExecutorBody = Callable[[int, Iterator[pa.RecordBatch], float], Iterator[pa.RecordBatch]]
"""The work of a task for one of its executors; with the CPU seconds that receiving the executor's rows took before."""


class BatchState(Protocol):
    """The checkpoint's part of one batch, which tasks read and report to. It travels to every task."""

    @property
    def place(self) -> str:
        """The name of the checkpoint."""

    @property
    def version(self) -> Hashable:
        """The version of the subscriptions; never used again for others."""

    def plan(self) -> Plan: ...

    def segments(self) -> Mapping[str, Searchable]:
        """Live subscriptions by the name of their segment, which is never used again for others."""

    def follow_rules(self, sub_ids: SubIds) -> FollowRules:
        """What each of ascending subscriptions is on, for `flow/keyed/transitions.py`."""

    def aggregates(self, sub_ids: SubIds) -> AggregateValues:
        """What each of ascending subscriptions counts instead of reporting matches."""

    def counted(self, name: str) -> pa.Table:
        """What one task has counted, as parcels."""

    def put_counted(self, stage: str, number: int, parcels: Iterable[pa.RecordBatch]) -> None:
        """Keep what a task has counted, packed for the executors of its keys. The last attempt of a task counts."""

    def users(self, sub_ids: SubIds) -> pa.StringArray:
        """The user of each of ascending subscriptions."""

    def payloads(self, sub_ids: SubIds) -> pa.LargeStringArray:
        """The payload of each of ascending subscriptions."""

    def id_texts(self, sub_ids: SubIds) -> pa.LargeStringArray:
        """The text that each of ascending subscriptions has as its id; null where ids are integers."""

    def limits(self, sub_ids: SubIds) -> tuple[Ints, Ints]:
        """The alerts after which each of ascending subscriptions ends, or 0, and the version from which on they are
        counted."""

    def notify(self, sub_ids: SubIds) -> Ints:
        """What each of ascending subscriptions is told beside events, as a code of `core/subscriptions/ending.py`."""

    def asks_to_be_told(self) -> bool:
        """Whether some subscription may be told more than its alerts of events."""

    def begun(self) -> Searchable | None:
        """The subscriptions that begin with the batch and want to be told who is inside; None if there are none."""

    def ends(self) -> pa.RecordBatch:
        """The last rows of subscriptions that have ended, with the columns ENDS."""

    def regions(self, sub_ids: SubIds) -> RegionValues:
        """The region of each of ascending subscriptions, at least one, all of which are live."""

    def on_cross(self) -> Sequence[tuple[Searchable, Ints]]:
        """The segments that have subscriptions on `cross`, and the ordinals of these, ascending."""

    def report(self, stage: str, number: int, counted: LoadReport) -> None:
        """Keep the counts of a task. The last attempt of a task counts."""

    def file_dead_letters(self, part: str, letters: pa.Table) -> None:
        """Keep the rows that a task refused; `part` names the task and its chunk."""

    def asked_pasts(self) -> AskedPasts | None:
        """The new subscriptions that ask for the past; None if none does."""

    def kept_for(self, query: PastQuery) -> Iterator[tuple[OpenPart, int]]:
        """The kept events of the batches before that a query may find, the newest first, each part with the
        first batch that counts."""

    def keep(self, part: str, arrays: Mapping[str, Array]) -> tuple[str, int]:
        """Write the events of a task for queries about the past. Returns the name of the file, which no other attempt
        at the task has, and its bytes."""


@dataclass(frozen=True)
class BatchTask:
    """Travels to every task of a batch. It is small: plans and subscriptions are read from the checkpoint."""

    state: BatchState
    contract: Contract
    tuning: Tuning
    batch_id: int
    now_us: int
    events: pa.Schema
    """The columns of events once they are validated."""
    cpu_s: Callable[[], float]
    """The CPU time of the calling thread."""
    name_task: Callable[[], TaskName]
    """The task that calls it."""
    asks_for_transitions: bool = False
    """Whether some subscription is not on `inside`."""
    limits_alerts: bool = False
    """Whether some subscription ends after `max_events`, and the matches are alerts."""
    counts_events: bool = False
    """Whether some subscription has an aggregate."""
    watermark_us: int | None = None
    """Windows that end here or before are closed for aggregates; None: there was no event before the batch."""
    counting: KeyedTask | None = None
    """By what counted events go to the executors that have the state of their subscriptions; None: they go nowhere."""
    counts_points: bool = False
    """Whether a strategy needs the statistics."""
    counts_cells: bool = False
    """Whether a strategy needs the counts by cell."""
    task_of: tuple[int, ...] = ()
    """The task that matches the events of each executor; without it, the executor modulo the number of tasks."""
    samples_places: bool = False
    """Whether the places of some rows are wanted, since nothing has matched lately."""

    @property
    def grid(self) -> Grid:
        return Grid.of(self.contract)

    @property
    def packs(self) -> bool:
        """Whether events travel as parcels. They must where one may be in several, or where subscriptions travel."""
        return self.tuning.exchange == "packed" or self.splits_events or self.is_at_stream

    @property
    def pipeline(self) -> str:
        """The pipeline of the settings, unless terms are divided. The engine refuses both together at its start, but a
        batch that is run again after a change of settings still has its old plan."""
        return "spis" if self.plan().siblings else self.tuning.pipeline

    @property
    def is_at_stream(self) -> bool:
        """Whether subscriptions travel to the events."""
        return self.tuning.join_at == "stream" and not self.plan().siblings

    @property
    def splits_events(self) -> bool:
        """Whether an event may be in several parcels, and come back in several rows: where terms are divided, where
        candidates lie in several partitions, and where an area meets several that have their own subscriptions only."""
        if self.sends_candidates or self.plan().siblings:
            return True
        knows_all = self.pipeline == "spis" and not self.is_at_stream
        return not knows_all and GEOMETRY.name in self.events.names

    @property
    def sends_candidates(self) -> bool:
        return self.pipeline in ("rihps", "risps")

    @property
    def validated(self) -> pa.Schema:
        """The columns of events as they leave validation, with the mark of sound areas where they are packed."""
        return marked_schema(self.events) if self.packs else self.events

    @property
    def travelling(self) -> pa.Schema:
        """The columns of events in parcels."""
        events = marked_schema(self.events)
        events = travel_schema(events) if self.splits_events else events
        return events.append(CANDIDATES) if self.sends_candidates else events

    @property
    def shape(self) -> str:
        """The shape of matches before transitions, which are found event by event, and before alerts."""
        is_last = self.tuning.matches == "pairs" and not (self.asks_for_transitions or self.follows)
        return "pairs" if is_last else "arrays"

    @property
    def follows(self) -> bool:
        """Whether objects are followed from event to event, also where they meet no subscription. For alerts they
        always are: all events of an object are then in one task, and go out in order."""
        tuning = self.tuning
        wanted = self.asks_for_transitions or tuning.keeps_objects or tuning.matches == "alerts"
        return wanted and OBJECT.name in self.events.names

    def plan(self) -> Plan:
        return self.state.plan()

    def subscriptions(self) -> list[Searchable]:
        return list(self.state.segments().values())

    def shares(self) -> list[tuple[Searchable, DividedSegment]]:
        """Every segment, and how it is divided among the partitions."""
        segments, plan, pipeline = self.state.segments(), self.plan(), self.pipeline
        made = _derived.of_segments("shares", self._cut, segments, lambda s: divide_segment(s, plan, pipeline))
        return list(zip(segments.values(), made, strict=True))

    def replicated_index(self) -> ReplicatedIndex:
        """The index in which routers look up candidates."""
        return _derived.whole_index((self._cut, self.state.version), self._build_replicated_index)

    def _build_replicated_index(self) -> ReplicatedIndex:
        segments, plan, pipeline = self.state.segments(), self.plan(), self.pipeline
        boxes = _derived.of_segments("boxes", self.state.place, segments, lambda s: index_boxes(s, self.grid))
        slots = _derived.of_segments("homes", self._cut, segments, lambda s: home_slots(s.records, plan, pipeline))
        return build_replicated_index(list(zip(segments.values(), boxes, slots, strict=True)))

    @property
    def _cut(self) -> Hashable:
        """What lists depend on beside the segment. The owners of partitions are not part of it."""
        plan = self.plan()
        partitions = plan.partition_id_of_slot.tobytes(), plan.borders.tobytes()
        return self.state.place, self.pipeline, *partitions


class _Derived:
    """Everything that was derived from the segments in force."""

    def __init__(self) -> None:
        self._made: dict[str, dict[Hashable, Any]] = {}
        self._index: tuple[Hashable, ReplicatedIndex] | None = None

    def whole_index(self, key: Hashable, make: Callable[[], ReplicatedIndex]) -> ReplicatedIndex:
        if self._index is None or self._index[0] != key:
            self._index = key, make()
        return self._index[1]

    def of_segments(
        self, kind: str, cut: Hashable, segments: Mapping[str, Searchable], make: Callable[[Searchable], T]
    ) -> list[T]:
        """A value for each segment, made once while the segment is in force and the partitions stay the same."""
        made = self._made.get(kind, {})
        self._made[kind] = {
            (cut, name): made[cut, name] if (cut, name) in made else make(segment) for name, segment in segments.items()
        }
        return list(self._made[kind].values())


_derived = _Derived()
