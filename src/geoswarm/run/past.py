"""Questions about the past of a stream: which kept events lie in a region, in a time, and have some words.

    past = Past("state")
    past.query((2.2, 48.8, 2.5, 48.9), since=an_hour_ago, keywords="flood AND river").events

Any process may ask, while an engine runs or not. An answer is as of one committed batch. The paper follows a chain of
partitions to the machines that held the data before (SWARM §5.2); here the chain is the list of files that a region and
a time touch, and any process maps them.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import REGION, operation_table, registration
from geoswarm.errors import CorruptState, InputError, SettingsError, StateError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.recall import PastQuery, blocks_touched, candidates, matched_events
from geoswarm.flow.validate import validate_operations
from geoswarm.model import EVENT, NEVER_US, TEXT
from geoswarm.store import plans
from geoswarm.store.founding import CONTRACT, read_contract
from geoswarm.store.kept.files import KeptRun
from geoswarm.store.kept.reading import KeptReader, KeptState
from geoswarm.store.segments.open import segment_in_memory
from geoswarm.store.storage import Storage

TRIES = 5
"""Looks at the kept events, each of which may find that a file has just been forgotten."""

Rectangle = tuple[float, float, float, float]


class Link(NamedTuple):
    """A partition that held events of a region: where in the paper a query would have gone."""

    epoch: int
    """Of the plan."""
    partition: int
    executors: tuple[int, ...]
    batches: int
    """Batches that were routed by this plan, of those that were read."""


class TouchedRun(NamedTuple):
    """A link of the chain: what a query read of the batches that share files."""

    run: KeptRun
    parts: int
    """Files that were opened."""
    blocks: int
    """Blocks of them that were read."""
    blocks_of_parts: int
    """Blocks that these files have."""


class Answer(NamedTuple):
    events: pa.Table
    """The newest first."""
    touched: list[TouchedRun]
    files: int
    """Of all that is kept."""
    box: Rectangle
    """The rectangle round the region."""


class Past:
    def __init__(self, checkpoint: str | Storage) -> None:
        self._storage = checkpoint if isinstance(checkpoint, Storage) else Storage(checkpoint)
        if not self._storage.exists(CONTRACT):
            raise InputError(f"{self._storage.root} is no checkpoint of an engine: give the folder that one uses")
        self._grid, self._reader = Grid.of(read_contract(self._storage)), KeptReader(self._storage)

    def query(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        predicate: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Answer:
        """The kept events that a subscription with the same region and words would have matched, from `since` on and
        before `until`, the newest first; without a region those of the whole world. At most `limit` of them."""
        if limit is not None and limit < 1:
            raise InputError(f"limit {limit}: ask for at least one event, or leave it out for all")
        query = self._read_query(rectangle, geometry, keywords, predicate, since, until)
        state, found, touched = self._look(query)
        if not state.runs:
            raise SettingsError("this checkpoint keeps no events: set [window] keep, and let a batch go through")
        events = matched_events(found, query, self._grid)
        if keywords is not None and events is not None and TEXT.name not in events.schema.names:
            raise InputError("keywords need the column text, which is not kept: name it in the columns of [window]")
        if events is None:
            events = EVENT.empty_table()
        events = events.sort_by([("ts", "descending"), ("event_id", "ascending")])
        files = sum(len(run.parts) for run in state.runs)
        return Answer(_chosen(events.slice(0, limit), columns), touched, files, query.box)

    def chain(self, answer: Answer) -> list[Link]:
        """The partitions that had the region while the batches that an answer read came, plan by plan."""
        epochs = Counter(batch.plan_epoch for touched in answer.touched for batch in touched.run.batches)
        links = list[Link]()
        for epoch, batches in sorted(epochs.items()):
            plan = plans.at(self._storage, epoch)
            corners = (np.array([side]) for side in answer.box)
            (row0, col0, row1, col1) = (int(edge[0]) for edge in plan.grid.cover(*corners))
            slots = plan.slot_of_cell.reshape(plan.grid.rows, plan.grid.columns)[row0 : row1 + 1, col0 : col1 + 1]
            owners = [plan.partitions[slot] for slot in np.unique(slots).tolist()]
            links += [Link(epoch, p.id, tuple(sorted(set(p.turns))), batches) for p in owners]
        return links

    def _read_query(
        self,
        rectangle: Rectangle | None,
        geometry: str | bytes | None,
        keywords: str | None,
        predicate: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> PastQuery:
        grid = self._grid
        if rectangle is None and geometry is None:
            rectangle = (grid.xmin, grid.ymin, grid.xmax, grid.ymax)
        row = registration(0, rectangle, geometry=geometry, keywords=keywords, predicate=predicate)
        dead = DeadLetters("query", -1)
        (batch,) = operation_table([row]).combine_chunks().to_batches()
        validated = validate_operations(batch, grid, 0, dead)
        if len(dead):
            raise InputError(dead.table()["detail"][0].as_py().replace("subscription 0", "the query"))
        subs = validated.subs(np.zeros(1, np.int64))
        xmin, ymin, xmax, ymax = subs[REGION].rects[0].tolist()
        since_us, until_us = (_microseconds(when) for when in (since, until))
        span_us = -NEVER_US if since_us is None else since_us, NEVER_US if until_us is None else until_us
        if span_us[0] >= span_us[1]:
            raise InputError(f"since {since} is not before until {until}: swap them")
        return PastQuery(segment_in_memory(grid, subs).searchable(), (xmin, ymin, xmax, ymax), *span_us)

    def _look(self, query: PastQuery) -> tuple[KeptState, list[pa.Table], list[TouchedRun]]:
        """The candidates, as of one moment. Files that are forgotten meanwhile are of no moment that counts."""
        for attempt in range(TRIES):
            state = self._reader.state()
            try:
                return state, *self._read(state, query)
            except CorruptState:
                again = self._reader.state()
                if attempt == TRIES - 1 or [run.name for run in again.runs] == [run.name for run in state.runs]:
                    raise
        raise StateError("kept events were forgotten faster than they could be read: ask for a shorter time")

    def _read(self, state: KeptState, query: PastQuery) -> tuple[list[pa.Table], list[TouchedRun]]:
        found, touched = list[pa.Table](), dict[str, TouchedRun]()
        for run, part in state.parts_near(query):
            held = self._reader.open(part)
            blocks = blocks_touched(held, query)
            found.append(candidates(held, blocks, query, state.first_kept))
            _, parts, read, of_parts = touched.get(run.name, TouchedRun(run, 0, 0, 0))
            touched[run.name] = TouchedRun(run, parts + 1, read + int(blocks.sum()), of_parts + len(blocks))
        return found, list(touched.values())


def _microseconds(when: datetime | None) -> int | None:
    """A time without a zone is UTC."""
    if when is None:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1e6)


def _chosen(events: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return events
    unknown = [name for name in columns if name not in events.schema.names]
    if unknown and len(events):
        known = ", ".join(events.schema.names)
        raise InputError(f"no column {', '.join(unknown)} is kept: known are {known}")
    return events.select([name for name in columns if name in events.schema.names])
