"""Aggregates as a keyed operator: counted rows of a subscription and group go to one executor, which gives the windows
that are over.

A key is a subscription, and with `group_by` a subscription and a group, so a heavy subscription with groups is spread
by its groups. One without groups is never heavy: tasks that match make one row of all its events of a pane. Only
windows of so many events, whose order matters, come event by event. `work.py` is what an executor does.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, SubIds
from geoswarm.core.subscriptions.aggregate import AggregateValues
from geoswarm.flow.aggregates.answers import ANSWERS
from geoswarm.flow.aggregates.counted import EVENT_TEXT, GROUP, SUB
from geoswarm.flow.aggregates.held_rows import NUMBERS, PLAIN, REST, are_plain, keys_of
from geoswarm.flow.aggregates.panes import NEVER_US
from geoswarm.flow.aggregates.work import AggregateWork
from geoswarm.flow.keyed.operator import KEY, Operator, Turn
from geoswarm.flow.stages.task import BatchState

FED_KEY = pa.field(KEY, pa.int64(), nullable=False)


class Aggregates(Operator):
    """Rows of a subscription live by event time, and not in intervals: files say when they are due."""

    name = "aggregates"
    window = 1 << 62

    def __init__(self, state: BatchState | None = None, since_us: int | None = None, watermark_us: int | None = None):
        """`state` are the subscriptions of the batch; windows that end after `since_us` and up to `watermark_us` are
        over in it."""
        self._state = state
        self.since_us = -NEVER_US if since_us is None else since_us
        self.watermark_us = -NEVER_US if watermark_us is None else watermark_us

    def rules(self, sub_ids: SubIds) -> AggregateValues:
        assert self._state is not None, "it works on a batch"
        return self._state.aggregates(sub_ids)

    def users(self, sub_ids: SubIds) -> pa.StringArray:
        assert self._state is not None, "it works on a batch"
        return self._state.users(sub_ids)

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([*NUMBERS, *REST])

    @property
    def kept_before(self) -> tuple[pa.Schema, ...]:
        """Not of an earlier version: files of plain counts have these columns only."""
        return (PLAIN,)

    def given(self, fed: pa.Schema) -> pa.Schema:
        return ANSWERS

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        subs = np.asarray(rows.column(SUB.name), np.int64)
        keys = pa.array(keys_of(subs, rows.column(GROUP.name)))
        fields = [FED_KEY, *NUMBERS, *REST, EVENT_TEXT]
        columns = [rows.column(field.name) for field in fields[1:]]
        return pa.record_batch([keys, *columns], schema=pa.schema(fields))

    @property
    def narrow(self) -> pa.Schema:
        return pa.schema([FED_KEY, *PLAIN])

    def fits_narrow(self, fed: pa.RecordBatch) -> Bools:
        return are_plain(fed)

    def work(self) -> Callable[[Any, int], Any]:
        return AggregateWork

    def update(self, turn: Turn) -> NoReturn:
        raise AssertionError("aggregates are worked on in files (`work`), and not in turns")
