"""Rows for stages beside and after matching: validated events, matches with their users, and pairs."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.keyed.transitions import without_object
from geoswarm.flow.merge import as_pairs, split_arrays
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.flow.validate import validate_events
from geoswarm.model import ENDED_REASON, SUB_ID, SUB_IDS, USER


def select_valid(task: BatchTask) -> Body:
    """Events that pass validation; the others are filed on the way to the matcher."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield validate_events(batch, task.grid, DeadLetters("event", task.batch_id))

    return run


def pairs_with_users(task: BatchTask, matches: pa.Schema) -> tuple[Body, pa.Schema]:
    """One row for each event and subscription, with the subscription's user; and the columns of these rows. Alerts are
    such rows."""
    if task.tuning.matches == "alerts":
        return _alerts_of_events(task, matches)
    fields = [field for field in matches if field.name not in (SUB_IDS.name, SUB_ID.name)]
    schema = pa.schema([*fields, SUB_ID.with_nullable(True), USER])

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pairs = as_pairs(split_arrays(batch)) if SUB_IDS.name in batch.schema.names else iter([batch])
            for rows in pairs:
                ids, at = np.unique(rows.column(SUB_ID.name).to_numpy(), return_inverse=True)
                users = task.state.users(ids).take(pa.array(at)) if len(ids) else pa.array([], pa.string())
                own = [rows.column(field.name) for field in fields]
                yield pa.record_batch([*own, rows.column(SUB_ID.name), users], schema=schema)

    return run, schema


def _alerts_of_events(task: BatchTask, alerts: pa.Schema) -> tuple[Body, pa.Schema]:
    """The alerts that have an event, with its columns as they are in events; the others are for the sink only."""
    known = {field.name: field for field in task.events}
    schema = pa.schema([known.get(field.name, field) for field in alerts if field.name != ENDED_REASON.name])

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column("event_id")
            rows = batch.filter(ids.is_valid()) if ids.null_count else batch
            yield rows.select(schema.names).cast(schema)

    return run, schema


def drop_followers(task: BatchTask) -> Body:
    """Matches where events have no column for objects, without subscriptions that are not on `inside`."""

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield without_object(batch, task.state.follow_rules)

    return run


def split_into_pairs(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from as_pairs(split_arrays(batch))


def as_they_are(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For rows whose columns are only declared anew."""
    return batches
