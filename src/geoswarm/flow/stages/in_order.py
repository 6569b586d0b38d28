"""Brings rows with the same value of a column together, in the order of their events, to send them so.

Rows of an object are in order already where objects are followed: one task has them all. Those of a subscription come
from any task.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.core.keys.hashing import key_ids
from geoswarm.flow.exchange import pack_parcels, unpack_parcels
from geoswarm.flow.route import Parcel
from geoswarm.flow.stages.task import Body
from geoswarm.model import OBJECT

ORDER = ("ts", "event_id")
_RANK = "_rank"


def route_by(column: str, tasks: int) -> Body:
    """Rows as parcels for the task that has all with the same value."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            target = (key_ids(batch.column(column)).view(np.uint64) % np.uint64(tasks)).astype(np.int64)
            parts = ((int(task), batch.filter(pa.array(target == task))) for task in np.unique(target))
            yield pack_parcels(Parcel(0, task, rows) for task, rows in parts)

    return run


def in_order(rows: pa.Schema) -> Body:
    """The rows of parcels, by the time of their events."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = [parcel.events for batch in batches for parcel in unpack_parcels(batch, rows)]
        if arrived:
            table = pa.Table.from_batches(arrived)
            order = [(name, "ascending") for name in ORDER]
            if not table.column("event_id").null_count:
                yield from table.sort_by(order).to_batches()
                return
            # An alert without an event is of an object that sent nothing yet, or is the last of its subscription.
            knows = OBJECT.name in table.schema.names
            without = table.column("event_id").is_null().to_numpy()
            known = table.column(OBJECT.name).is_valid().to_numpy() if knows else ~without
            ranked = table.append_column(_RANK, pa.array(np.where(without, np.where(known, 0, 2), 1)))
            order.insert(1, (_RANK, "ascending"))
            yield from ranked.sort_by(order).drop_columns([_RANK]).to_batches()

    return run
