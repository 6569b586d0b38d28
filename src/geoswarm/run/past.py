"""Questions about the past of a stream: which kept events lie in a region, in a time, and have some words; which are
the nearest to a place; and who is where now.

    past = Past("state")
    past.query((2.2, 48.8, 2.5, 48.9), since=an_hour_ago, keywords="flood AND river").events
    past.nearest(2.35, 48.86, k=10, of="objects")
    past.objects((2.2, 48.8, 2.5, 48.9))

Any process may ask, while an engine runs or not. An answer is as of one committed batch. The paper follows a chain of
partitions to the machines that held the data before (SWARM §5.2); here the chain is the list of files that a region and
a time touch, and any process maps them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools
from geoswarm.core.space.grid import Grid
from geoswarm.core.where.clause import columns_of
from geoswarm.core.where.types import check_where
from geoswarm.errors import CorruptState, InputError, SettingsError, StateError
from geoswarm.flow.keep import BATCH, KeptPart
from geoswarm.flow.nearest import DISTANCE, NearestQuery, NearPart, nearest_events
from geoswarm.flow.objects import Objects
from geoswarm.flow.recall import (
    OpenPart,
    PastQuery,
    blocks_touched,
    candidates,
    has_enough,
    join_tables,
    matched_events,
    newest_events,
)
from geoswarm.model import EVENT, OBJECT, TEXT
from geoswarm.run.questions import (
    Of,
    Place,
    Rectangle,
    check_limit,
    chosen_columns,
    read_place,
    read_query,
)
from geoswarm.store import plans
from geoswarm.store.founding import open_checkpoint
from geoswarm.store.kept.files import KeptRun
from geoswarm.store.kept.reading import KeptReader, KeptState
from geoswarm.store.objects import ObjectReader
from geoswarm.store.storage import Storage

FIRST_FILES = 4
"""Files that a query with a limit reads first; then twice as many, and so on."""
TRIES = 5
"""Looks at the kept events, each of which may find that a file has just been forgotten."""

T = TypeVar("T")


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


class Touched(NamedTuple):
    """What an answer is read from, as of one committed batch, for a runner that divides it among tasks."""

    storage: Storage
    grid: Grid
    query: PastQuery
    first_kept: int
    """The oldest batch that counts."""
    pieces: list[tuple[KeptPart, Bools]]
    """The files, and which of their blocks."""
    columns: pa.Schema
    """Of the events in them."""
    given: pa.Schema
    """The columns of the answer."""


class Past:
    def __init__(self, checkpoint: str | Storage) -> None:
        self._storage, contract = open_checkpoint(checkpoint)
        self._grid = Grid.of(contract)
        self._reader = KeptReader(self._storage)
        self._objects = ObjectReader(self._storage, self._grid)

    def query(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        predicate: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Answer:
        """The kept events that a subscription with the same region and words would have matched, from `since` on and
        before `until`, the newest first; without a region those of the whole world. At most `limit` of them. `where` is
        a condition on their columns, such as `speed > 80 AND status IN ('free', 'idle')`."""
        check_limit(limit)
        query = read_query(
            self._grid,
            rectangle,
            geometry=geometry,
            keywords=keywords,
            predicate=predicate,
            where=where,
            since=since,
            until=until,
        )
        wanted = _names_in(columns, keywords, query)
        state, (found, touched) = self._look(partial(self._read, query, wanted, limit))
        events = chosen_columns(_check_text(found, keywords), columns, state.newest_part is not None)
        return Answer(events, touched, sum(len(run.parts) for run in state.runs), query.box)

    def nearest(
        self,
        x: float,
        y: float,
        k: int = 10,
        *,
        of: Of = "events",
        within_m: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        keywords: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The k kept events that are nearest to a place, by metres on the sphere, in a column `distance_m`; the nearest
        first, then the newest, then the lowest id. Or of the objects those whose last places are nearest; time and
        words are asked of events only."""
        place = read_place(self._grid, x, y, k, within_m)
        if of == "events":
            return self.nearest_events(place, since=since, until=until, keywords=keywords, columns=columns).events
        if of != "objects":
            raise InputError(f"of is {of!r}: the nearest are events or objects")
        if not (since is None and until is None and keywords is None):
            raise InputError("since, until and keywords are asked of events: leave them out, or ask for of='events'")
        objects = self._read_objects()
        rows, metres = objects.nearest(*place)
        near = pc.take(objects.rows, pa.array(rows), boundscheck=False)  # twice as fast, for so few rows
        return chosen_columns(pa.Table.from_batches([near.append_column(DISTANCE, pa.array(metres))]), columns)

    def nearest_events(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        keywords: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Answer:
        """The same of a place that was checked, with what was read for it."""
        past = read_query(self._grid, keywords=keywords, since=since, until=until)
        query, wanted = NearestQuery(*place, past, bool(keywords)), _names_in(columns, keywords) - {DISTANCE.name}
        state, (found, touched) = self._look(partial(self._read_nearest, query, wanted))
        events = _check_text(found, keywords)
        if DISTANCE.name not in events.schema.names:
            events = events.append_column(DISTANCE, pa.array([], DISTANCE.type))
        files = sum(len(run.parts) for run in state.runs)
        return Answer(chosen_columns(events, columns, state.newest_part is not None), touched, files, past.box)

    def objects(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        predicate: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The objects that are in a region now, by their last events: `object_id`, `ts`, `x` and `y`, the one that was
        seen last first; without a region those of the whole world. Objects are kept while some subscription follows
        them, or always with `Tuning(keeps_objects=True)`, and forgotten after `object_ttl_s` without events."""
        check_limit(limit)
        query = read_query(self._grid, rectangle, geometry=geometry, predicate=predicate)
        objects = self._read_objects()
        here = pa.Table.from_batches([objects.rows.slice(0, 0)])
        if objects.part is not None:
            near = candidates(objects.part, blocks_touched(objects.part, query), query, 0)
            found = matched_events([near], query, self._grid)
            here = here if found is None else found
        here = here.sort_by([("ts", "descending"), (OBJECT.name, "ascending")])
        return chosen_columns(here.slice(0, limit), columns)

    def touch(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        predicate: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> Touched:
        """What `query` would read, which a runner divides among tasks. Nothing holds the files."""
        query = read_query(
            self._grid,
            rectangle,
            geometry=geometry,
            keywords=keywords,
            predicate=predicate,
            where=where,
            since=since,
            until=until,
        )
        wanted = _names_in(columns, keywords, query)
        state, (pieces, known) = self._look(partial(self._open, query, wanted))
        are_known = state.newest_part is not None
        if are_known:
            _check_text(known, keywords)
        if are_known and query.where is not None:
            check_where(query.where, known.schema)
        chosen = [(part, blocks_touched(held, query)) for part, held in pieces]
        given = chosen_columns(known, columns, are_known).schema
        return Touched(self._storage, self._grid, query, state.first_kept, chosen, known.schema, given)

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

    def _read_objects(self) -> Objects:
        objects = self._objects.read()
        if objects is None:
            raise SettingsError(
                "this checkpoint keeps no objects: set [tuning] keeps_objects = true, or have a subscription on enter, "
                "exit or dwell, and let a batch of events with an object_id go through"
            )
        return objects

    def _look(self, read: Callable[[KeptState], T]) -> tuple[KeptState, T]:
        """What is kept, and what is read of it, as of one moment. Files that are forgotten meanwhile are of no moment
        that counts."""
        for attempt in range(TRIES):
            state = self._reader.state()
            if not state.runs:
                raise SettingsError("this checkpoint keeps no events: set [window] keep, and let a batch go through")
            try:
                return state, read(state)
            except CorruptState:
                again = self._reader.state()
                if attempt == TRIES - 1 or [run.name for run in again.runs] == [run.name for run in state.runs]:
                    raise
        raise StateError("kept events were forgotten faster than they could be read: ask for a shorter time")

    def _open(
        self, query: PastQuery, wanted: set[str], state: KeptState
    ) -> tuple[list[tuple[KeptPart, OpenPart]], pa.Table]:
        """The parts, and an empty table with the columns of their events."""
        pieces = [(part, self._reader.open(part)) for _, part in state.parts_near(query)]
        tables = [EVENT.empty_table(), *(held.rows.schema.empty_table() for _, held in pieces)]
        known = join_tables(self._with_wanted(tables, wanted, state))
        return pieces, known.drop_columns([name for name in known.schema.names if name == BATCH.name])

    def _with_wanted(self, tables: list[pa.Table], wanted: set[str], state: KeptState) -> list[pa.Table]:
        """The same; if they lack a wanted column, with an empty table behind them that has the columns of the newest
        events, too: what was read may be older than a column, or nothing."""
        known = {BATCH.name, *EVENT.names, *(name for table in tables for name in table.schema.names)}
        if state.newest_part is None or not wanted or (tables and wanted <= known):
            return tables
        newest = self._reader.open(state.newest_part).rows.schema
        others = [field for field in newest if field.name not in known]
        return [*tables, pa.schema([*EVENT, *others]).empty_table()]

    def _read(
        self, query: PastQuery, wanted: set[str], limit: int | None, state: KeptState
    ) -> tuple[pa.Table | None, list[TouchedRun]]:
        """The newest first. With a limit, files are read from the newest on, until no other may have newer events."""
        known, touched = state.parts_near(query), _TouchedRuns()
        if limit is not None:
            known.sort(key=lambda each: each[1].times_us[1], reverse=True)
        events, first, step = None, 0, len(known) if limit is None else FIRST_FILES
        while first == 0 or (first < len(known) and not has_enough(events, limit, known[first][1])):
            found = list[pa.Table]()
            for run, part in known[first : first + step]:
                held = self._reader.open(part)
                blocks = blocks_touched(held, query)
                found.append(candidates(held, blocks, query, state.first_kept))
                touched.add(run, int(blocks.sum()), len(blocks))
            met = matched_events(self._with_wanted(found, wanted, state), query, self._grid)
            events = newest_events([each for each in (events, met) if each is not None], limit)
            first, step = first + max(1, step), 2 * step
        return events, touched.runs

    def _read_nearest(
        self, query: NearestQuery, wanted: set[str], state: KeptState
    ) -> tuple[pa.Table | None, list[TouchedRun]]:
        known, touched = state.parts_near(query.past), _TouchedRuns()
        parts = [NearPart(part.box, partial(self._reader.open, part)) for _, part in known]
        events, blocks = nearest_events(parts, query, self._grid, state.first_kept)
        for number, (read, of_part) in sorted(blocks.items()):
            touched.add(known[number][0], read, of_part)
        if events is None and state.newest_part is not None:
            events = pa.schema([*EVENT, DISTANCE]).empty_table()
        tables = [] if events is None else self._with_wanted([events], wanted, state)
        return join_tables(tables) if tables else None, touched.runs


class _TouchedRuns:
    """What was read, run by run."""

    def __init__(self) -> None:
        self._runs: dict[str, TouchedRun] = {}

    def add(self, run: KeptRun, read: int, of_part: int) -> None:
        _, parts, blocks, of_parts = self._runs.get(run.name, TouchedRun(run, 0, 0, 0))
        self._runs[run.name] = TouchedRun(run, parts + 1, blocks + read, of_parts + of_part)

    @property
    def runs(self) -> list[TouchedRun]:
        return list(self._runs.values())


def _names_in(columns: Sequence[str] | None, keywords: str | None, query: PastQuery | None = None) -> set[str]:
    """The columns that a question names, or needs for its words."""
    looked_at = columns_of(query.where) if query is not None and query.where is not None else set()
    return looked_at | set(columns or ()) | ({TEXT.name} if keywords is not None else set())


def _check_text(events: pa.Table | None, keywords: str | None) -> pa.Table:
    """The events that were found; an error if words could not be looked for in them."""
    if keywords is not None and events is not None and TEXT.name not in events.schema.names:
        raise InputError("keywords need the column text, which is not kept: name it in the columns of [window]")
    return EVENT.empty_table() if events is None else events
