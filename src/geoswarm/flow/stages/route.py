"""Validate, route and pack: the work of a task before the exchange."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.batches import GATHERED_BYTES_MAX, gather
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack_parcels
from geoswarm.flow.keep import sort_by_place
from geoswarm.flow.observe import TASK_PLACES_MAX, LoadReport, sample_places
from geoswarm.flow.rivals.replicated_index import route_candidates
from geoswarm.flow.rivals.route_areas import route_areas
from geoswarm.flow.rivals.static_side import subscription_parcels
from geoswarm.flow.route import Parcel, executors_of, route
from geoswarm.flow.route_terms import Dispatch, route_terms
from geoswarm.flow.stages.keeping import KeepsEvents
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.flow.validate import validate_events
from geoswarm.model import OBJECT, TEXT, TIMESTAMP

EVENT_BITS = 40
"""Bits of an event's number within its task; the bits above hold the number of the task."""
EXECUTOR = pa.field("executor", pa.int32())

Forward = Callable[[pa.RecordBatch, int, LoadReport], Iterator[pa.RecordBatch]]
"""Takes valid events, the number of the task, and its counts so far; returns rows."""


def route_packed(task: BatchTask) -> Body:
    """Events to their executors as parcels, one row each."""

    def forward(valid: pa.RecordBatch, number: int, counted: LoadReport) -> Iterator[pa.RecordBatch]:
        if not task.splits_events:
            parcels = route(valid, task.plan(), is_sorted=task.tuning.window is not None)
            yield pack_parcels(_rotate(parcels, task.batch_id))
            return
        for sent in send_several(valid, (number << EVENT_BITS) + counted.events_in, task):
            counted.copies += sent.copies
            counted.dropped += sent.dropped
            yield pack_parcels(sent.parcels)

    return _validate_and(forward, task)


def _rotate(parcels: Iterator[Parcel], turn: int) -> Iterator[Parcel]:
    """The parcels in their order, from another one on with every batch. A task that serves several executors serves
    them in this order, and the first takes a tenth longer, while caches and memory are cold: not always the same."""
    every = list(parcels)
    first = turn % max(1, len(every))
    yield from every[first:]
    yield from every[:first]


def route_unpacked(task: BatchTask) -> Body:
    """Events to their executors, one row each, as a plain shuffle does. Kept for comparison with `route_packed`."""

    def forward(valid: pa.RecordBatch, number: int, counted: LoadReport) -> Iterator[pa.RecordBatch]:
        yield valid.append_column(EXECUTOR, pa.array(executors_of(valid, task.plan())))

    return _validate_and(forward, task)


def send_several(events: pa.RecordBatch, first_event: int, task: BatchTask) -> Iterator[Dispatch]:
    """Parcels where an event may be in several; events are numbered from `first_event` on."""
    plan, tuning = task.plan(), task.tuning
    if task.sends_candidates:
        limits = {"rows_max": tuning.match_rows_max, "pairs_max": tuning.match_pairs_max}
        return route_candidates(
            events, plan, task.replicated_index(), task.now_us, first_event, every=task.follows, **limits
        )
    if plan.siblings:
        return iter([route_terms(events, plan, task.subscriptions(), first_event, every=task.follows)])
    return route_areas(events, plan, first_event)


def _validate_and(forward: Forward, task: BatchTask) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, wanted = LoadReport(), task.validated
        copies_max = max(map(len, task.plan().siblings.values()), default=1)
        gathered = gather(batches, task.tuning.route_rows_max, GATHERED_BYTES_MAX // copies_max)
        with KeepsEvents(task, number, counted) as keeper:
            for chunk, batch in enumerate(gathered):
                began_s = task.cpu_s()
                dead = DeadLetters("event", task.batch_id)
                if task.samples_places and len(counted.places) < TASK_PLACES_MAX:
                    counted.places += sample_places(batch, TASK_PLACES_MAX - len(counted.places))
                valid = validate_events(batch, task.grid, dead, marks=task.packs)
                if valid.schema != wanted:  # a setting of Spark may give larger types than parcels have
                    valid = valid.cast(wanted)
                if len(dead):
                    task.state.file_dead_letters(f"{number:05d}-{chunk:04d}", dead.table())
                _look_at_times(valid, task, counted)
                counted.without_object += _count_without(valid, OBJECT.name)
                counted.without_text += _count_without(valid, TEXT.name)
                if task.tuning.window is not None:
                    valid = sort_by_place(valid, task.grid)  # once for both, the file and the parcels
                    keeper.keep(valid)
                for out in forward(valid, number, counted):
                    counted.route_cpu_us += int((task.cpu_s() - began_s) * 1e6)
                    yield out
                    began_s = task.cpu_s()
                counted.events_in += len(batch)
                counted.dead += len(dead)
                counted.route_cpu_us += int((task.cpu_s() - began_s) * 1e6)
        task.state.report("route", number, counted)

    return run


def _look_at_times(valid: pa.RecordBatch, task: BatchTask, counted: LoadReport) -> None:
    """The newest event moves the watermark of aggregates in the next batch, unless it is from the future."""
    if not len(valid):
        return
    times_us = valid.column("ts").cast(TIMESTAMP).cast(pa.int64())
    newest_us, bound_us = pc.max(times_us).as_py(), task.now_us + task.tuning.aggregates.ahead_us
    if newest_us > bound_us:
        known = times_us.filter(pc.less_equal(times_us, bound_us))
        counted.ahead += len(times_us) - len(known)
        newest_us = pc.max(known).as_py()
    counted.see_newest(newest_us)


def _count_without(valid: pa.RecordBatch, name: str) -> int:
    return valid.column(name).null_count if name in valid.schema.names else len(valid)


def send_subscriptions(task: BatchTask) -> Body:
    """Send the subscriptions of every partition, whose slots are the input, to its executor: where the join is at the
    stream. Which partitions have events is not known before the batch has run."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, plan, shares = LoadReport(), task.plan(), task.shares()
        for slot in (slot for batch in batches for slot in batch.column(0).to_pylist()):
            began_s = task.cpu_s()
            own = [share.of(slot, segment) for segment, share in shares]
            for parcel in subscription_parcels(own, plan, slot, task.now_us):
                out = pack_parcels(iter([parcel]))
                counted.route_cpu_us += int((task.cpu_s() - began_s) * 1e6)
                yield out
                began_s = task.cpu_s()
        task.state.report("static", number, counted)

    return run
