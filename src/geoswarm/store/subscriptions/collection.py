"""The live subscriptions of one version as a collection: pages in ascending order of ids, of all or of a choice.

Each segment has its ids in ascending order, so a page of all merges the next few of each segment, and reads no others:

    segment 0   3  8  20  21 ...        window of each, up to the least of their ends    3 5 8 | 20 ...
    segment 1   5  30 ...                                                                live? met? true?

A region and a user choose among the ordinals of a segment first: by its index of cells, and by the code of the name.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import SubIdKind
from geoswarm.core.arrays.jit import Ints, Ordinals, SubIds
from geoswarm.core.subscriptions.attribute_kind import Attribute
from geoswarm.core.subscriptions.attributes import ATTRIBUTES, ID, OPERATION, REGION, USER
from geoswarm.core.where.clause import Clause, columns_of
from geoswarm.core.where.evaluate import truths
from geoswarm.flow.stages.show_ids import shown_field
from geoswarm.model import SUB_ID
from geoswarm.store.segments.segment import Segment
from geoswarm.store.subscriptions.near import AskedRegion, are_met, candidates
from geoswarm.store.subscriptions.view import View

SUBSCRIPTION = pa.schema([field for field in OPERATION if field.name != "op"])
"""The columns of a subscription: those of the operation that registers it, but for `op`."""
_WITH_TEXTS = SUBSCRIPTION.set(SUBSCRIPTION.get_field_index(SUB_ID.name), shown_field(SUB_ID))


def subscription_schema(ids: SubIdKind) -> pa.Schema:
    """`SUBSCRIPTION`, with a text as `sub_id` where ids are texts."""
    return _WITH_TEXTS if ids == "text" else SUBSCRIPTION


WINDOW_ROWS_MIN, WINDOW_ROWS_MAX = 1 << 10, 1 << 16
"""Ids of each segment that are looked at together: few at first, since a page may need few."""


class Choice(NamedTuple):
    """Which subscriptions are asked for; all of it must hold."""

    ids: SubIds | None = None
    """Ascending, each once; numbers, where ids are texts."""
    user: str | None = None
    region: AskedRegion | None = None
    where: Clause | None = None
    """Fits the columns of `SUBSCRIPTION`."""


class _Run(NamedTuple):
    """What a segment has to offer, by ascending id."""

    ids: SubIds
    ordinals: Ints | Ordinals


class _Found(NamedTuple):
    """Subscriptions by ascending id: the number of the segment and the ordinal there of each."""

    ids: SubIds
    numbers: Ints
    ordinals: Ints

    def take(self, rows: Any) -> "_Found":
        return _Found(self.ids[rows], self.numbers[rows], self.ordinals[rows])


class Collection:
    def __init__(self, view: View, now_us: int, ids: SubIdKind = "integer") -> None:
        self.schema, self._are_texts = subscription_schema(ids), ids == "text"
        self._segments, self._now_us = list(view.segments.values()), now_us
        self._dead = [view.dead[name] for name in view.segments]

    def page(self, choice: Choice, after: int | None, limit: int) -> pa.Table:
        """The first `limit` of the chosen ones whose ids are above `after`."""
        return next(self.pages(choice, after, limit), self.schema.empty_table())

    def pages(self, choice: Choice, after: int | None, limit: int) -> Iterator[pa.Table]:
        """All of the chosen ones, `limit` at a time; none is empty."""
        waiting, count = list[_Found](), 0
        for found in self._chosen(choice, after, limit):
            waiting.append(found)
            count += len(found.ids)
            while count >= limit:
                whole = _join(waiting)
                yield self._table(whole.take(slice(limit)), ATTRIBUTES)
                waiting, count = [whole.take(slice(limit, None))], count - limit
        if count:
            yield self._table(_join(waiting), ATTRIBUTES)

    def _chosen(self, choice: Choice, after: int | None, limit: int) -> Iterator[_Found]:
        asked = set[str]() if choice.where is None else columns_of(choice.where)
        needed = [attribute for attribute in ATTRIBUTES if asked & {column.name for column in attribute.columns}]
        needed += [ID] if self._are_texts and SUB_ID.name in asked else []
        runs = [_behind(self._run(number, choice), after) for number in range(len(self._segments))]
        for found in _merge(runs, min(max(limit, WINDOW_ROWS_MIN), WINDOW_ROWS_MAX)):
            kept = found.take(self._are_kept(found, choice.region))
            if choice.where is not None and len(kept.ids):
                rows = self._table(kept, needed)
                kept = kept.take(truths(choice.where, rows).combine_chunks().fill_null(False).to_numpy(False))
            if len(kept.ids):
                yield kept

    def _run(self, number: int, choice: Choice) -> _Run:
        held = self._segments[number]
        ordinals: Ints | None = None
        if choice.ids is not None:
            ordinals = held.find(choice.ids)
            ordinals = ordinals[ordinals >= 0]
        elif choice.region is not None:
            ordinals = candidates(held, choice.region)
        if choice.user is not None:
            ordinals = _of_user(held, choice.user, ordinals)
        if ordinals is None:
            return _Run(held.ids_sorted, held.order_by_id)
        ids = held.ids[ordinals]
        order = np.argsort(ids)
        return _Run(ids[order], ordinals[order])

    def _are_kept(self, found: _Found, region: AskedRegion | None) -> Any:
        """Whether each is live, and meets the region."""
        kept = np.zeros(len(found.ids), np.bool_)
        for number in np.unique(found.numbers).tolist():
            held, mine = self._segments[number], np.flatnonzero(found.numbers == number)
            mine = mine[held.live_at(found.ordinals[mine], self._dead[number], self._now_us)]
            if region is not None and len(mine):
                mine = mine[are_met(held[REGION], found.ordinals[mine], region)]
            kept[mine] = True
        return kept

    def _table(self, found: _Found, attributes: Iterable[Attribute[Any, Any]]) -> pa.Table:
        """At least one, with the columns of some attributes."""
        numbers = np.unique(found.numbers).tolist()
        by_segment = np.argsort(found.numbers, kind="stable")
        back = np.empty(len(by_segment), np.int64)
        back[by_segment] = np.arange(len(by_segment))
        theirs = {number: found.ordinals[found.numbers == number] for number in numbers}
        columns: dict[str, pa.Array] = {"sub_id": pa.array(found.ids)}
        for each in attributes:
            parts = [each.read(self._segments[n].stored[each.name], ordinals) for n, ordinals in theirs.items()]
            values = each.take(each.concatenate(parts), back)
            columns |= {SUB_ID.name: values.cast(pa.string())} if each is ID and self._are_texts else each.show(values)
        schema = pa.schema([field for field in self.schema if field.name in columns])
        if columns[SUB_ID.name].type != schema.field(SUB_ID.name).type:  # nobody asks for the texts
            schema = schema.set(schema.get_field_index(SUB_ID.name), SUB_ID)
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _of_user(held: Segment, user: str, ordinals: Ints | None) -> Ints:
    stored = held[USER]
    code = pc.index(stored.names, user).as_py()
    if code < 0:
        return np.empty(0, np.int64)
    return np.flatnonzero(stored.codes == code) if ordinals is None else ordinals[stored.codes[ordinals] == code]


def _behind(run: _Run, after: int | None) -> _Run:
    first = 0 if after is None else int(np.searchsorted(run.ids, after, "right"))
    return _Run(run.ids[first:], run.ordinals[first:])


def _merge(runs: list[_Run], rows: int) -> Iterator[_Found]:
    """All of the runs by ascending id, in pieces; each looks at most at `rows` of each run, later at more."""
    at = [0] * len(runs)
    while any(place < len(run.ids) for place, run in zip(at, runs, strict=True)):
        goes_on = [
            run.ids[place + rows - 1] for place, run in zip(at, runs, strict=True) if place + rows < len(run.ids)
        ]
        horizon = min(goes_on, default=None)
        parts = list[_Found]()
        for number, run in enumerate(runs):
            window = run.ids[at[number] : at[number] + rows]
            end = len(window) if horizon is None else int(np.searchsorted(window, horizon, "right"))
            ordinals = run.ordinals[at[number] : at[number] + end].astype(np.int64)
            parts.append(_Found(window[:end], np.full(end, number), ordinals))
            at[number] += end
        whole = _join(parts)
        yield whole.take(np.argsort(whole.ids, kind="stable"))
        rows = min(2 * rows, WINDOW_ROWS_MAX)


def _join(parts: list[_Found]) -> _Found:
    return parts[0] if len(parts) == 1 else _Found(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
