"""Routes events to every partition that they meet, where a partition has only its own subscriptions.

A point meets one. An area may meet several, by the rectangle round it; each pair that they find is reported by one of
them (`pairs.are_reported_here`), and the merger joins the event's rows. The engine's own pipeline is different: every
worker has all subscriptions, and an area goes to one (`flow/route.py`). Distributor §4.2 (sPS).
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.batches import row_bytes, xy
from geoswarm.core.space.overlap import overlap
from geoswarm.core.space.plan import Plan
from geoswarm.flow.rivals.pairs import locate_events
from geoswarm.flow.rivals.shares import slot_of_partition
from geoswarm.flow.rivals.travel import number_in_order, pieces
from geoswarm.flow.route import split_into_parcels
from geoswarm.flow.route_terms import COPIES, Dispatch


def events_at_home(events: pa.RecordBatch, plan: Plan, partition: int) -> pa.RecordBatch:
    """The events of a partition whose own place is there, so that each event counts in one partition."""
    slots = plan.route(plan.grid.locate(*xy(events)))
    return events.filter(pa.array(slots == slot_of_partition(plan, partition)))


def route_areas(events: pa.RecordBatch, plan: Plan, first_event: int) -> Iterator[Dispatch]:
    """`events` are validated, and numbered from `first_event` on."""
    travelling = number_in_order(events, first_event, plan.grid)
    boxes = locate_events(travelling, plan.grid).boxes
    met = overlap(plan, plan.grid.cover(*np.ascontiguousarray(boxes.T)))
    times = np.diff(met.offsets)
    rows, slots = np.repeat(np.arange(len(events)), times), met.slots.astype(np.uint32)
    place = travelling.schema.get_field_index(COPIES.name)
    travelling = travelling.set_column(place, COPIES, pa.array(times.astype(np.int32)))
    copies = len(rows) - len(events)
    for first, last in pieces(row_bytes(travelling)[rows]):
        yield Dispatch(split_into_parcels(travelling, rows[first:last], slots[first:last], plan), copies, 0)
        copies = 0
