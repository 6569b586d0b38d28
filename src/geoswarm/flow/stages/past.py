"""The past of new subscriptions: the kept events that they match, as matches, before those of the stream.

One task gives it, beside the tasks that match (`flow/asked_pasts.py`). Kept events are those of the batches before, as
they were committed: nothing is missing between the past and the stream, and nothing comes twice.
"""

from collections.abc import Iterator

import pyarrow as pa

from geoswarm.flow.asked_pasts import matched
from geoswarm.flow.merge import as_arrays, as_pairs, match_schema
from geoswarm.flow.newest_matches import NewestMatches
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.stages.task import BatchTask, Body
from geoswarm.model import ALERT, EVENT, PAST, SUB_IDS, VERSION


def give_past(task: BatchTask) -> tuple[Body, pa.Schema]:
    """The matches of the past, and their columns, in arrays where alerts are made of them. What is not kept of an event
    is null."""
    assert task.tuning.window is not None
    columns, most = nullable_columns(task.events), task.tuning.window.past_matches_max
    shape = "pairs" if task.tuning.matches == "pairs" else "arrays"
    rows_of = as_pairs if shape == "pairs" else as_arrays

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, asked = LoadReport(), task.state.asked_pasts()
        if asked is not None:
            newest = NewestMatches(asked.ids, asked.since_us, most)
            for met in matched(task.state.kept_for(asked.query), asked, task.grid, columns):
                newest.add(met)
            for met in newest.read():
                counted.past_matches += len(met.subs)
                yield from rows_of(met)
            counted.pasts, counted.past_left_out = len(asked.ids), newest.left_out
        task.state.report("past", number, counted)

    return run, match_schema(columns, shape)


def nullable_columns(rows: pa.Schema) -> pa.Schema:
    """The same columns, of which an event's own may be null, but for those that every event has."""
    ours = (*EVENT.names, *ALERT.names, SUB_IDS.name, PAST.name, VERSION)
    return pa.schema([field if field.name in ours else field.with_nullable(True) for field in rows])
