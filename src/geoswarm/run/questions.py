"""Questions about the past, objects and subscriptions, from what a caller gives to what is searched for; or why not.

A region and words are read as those of a subscription, so that both mean the same. `past.py` answers.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, SupportsIndex, cast

import numpy as np
import pyarrow as pa

from geoswarm.config import SubIdKind
from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.shapes.circle import METRES_MAX, is_degrees
from geoswarm.core.shapes.points import Predicate
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import REGION, SubId, operation_table, registration
from geoswarm.core.subscriptions.id_texts import id_text, numbers_of
from geoswarm.core.subscriptions.since import EPOCH
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.core.where.read import read_where
from geoswarm.core.where.types import check_where
from geoswarm.errors import InputError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.nearest import DISTANCE
from geoswarm.flow.recall import PastQuery
from geoswarm.flow.validate import validate_operations
from geoswarm.model import NEVER_US, PREDICATES
from geoswarm.store.segments.open import segment_in_memory
from geoswarm.store.subscriptions.collection import Choice
from geoswarm.store.subscriptions.near import AskedRegion

K_MAX = 10_000
"""The nearest that can be asked for at once: they are held and sorted in memory. For all of a place ask by a circle."""
PAGE_ROWS_MAX = 1_000_000
"""Subscriptions of a page, and ids that are asked for at once: some hundred bytes each, and up to megabytes."""

Rectangle = tuple[float, float, float, float]
Of = Literal["events", "objects"]
"""What the nearest are: kept events, or the last places of objects."""


class Place(NamedTuple):
    """Where the nearest are asked for."""

    lon: float
    lat: float
    k: int
    within_m: float


def read_query(
    grid: Grid,
    rectangle: Rectangle | None = None,
    *,
    geometry: str | bytes | None = None,
    keywords: str | None = None,
    predicate: str | None = None,
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> PastQuery:
    """Without a region, the whole world."""
    if rectangle is None and geometry is None:
        rectangle = (grid.xmin, grid.ymin, grid.xmax, grid.ymax)
    subs = _read_subscription(grid, rectangle, geometry=geometry, keywords=keywords, predicate=predicate)
    xmin, ymin, xmax, ymax = subs[REGION].rects[0].tolist()
    since_us, until_us = (_microseconds(*said) for said in (("since", since), ("until", until)))
    span_us = -NEVER_US if since_us is None else since_us, NEVER_US if until_us is None else until_us
    if span_us[0] >= span_us[1]:
        raise InputError(f"since {since} is not before until {until}: swap them")
    asked, clause = segment_in_memory(grid, subs).searchable(), None if where is None else read_where(where)
    return PastQuery(asked, (xmin, ymin, xmax, ymax), *span_us, clause)


def read_choice(
    grid: Grid,
    region: Rectangle | str | bytes | None,
    columns: pa.Schema,
    *,
    predicate: str | None = None,
    user: str | None = None,
    where: str | None = None,
    ids: "AskedIds | None" = None,
) -> Choice:
    """Which subscriptions, which have these columns, are asked for."""
    asked = None
    if predicate is not None and (region is None or predicate not in PREDICATES):
        remedy = f"with a region, ask for one of {', '.join(PREDICATES)}"
        raise InputError(f"predicate {predicate!r} {'needs a region' if region is None else 'is unknown'}: {remedy}")
    if region is not None:
        is_geometry = isinstance(region, str | bytes)
        rectangle, geometry = (None, region) if is_geometry else (region, None)
        subs = _read_subscription(grid, rectangle, geometry=geometry)  # type: ignore[arg-type]
        asked = AskedRegion.of(subs[REGION], cast(Predicate, predicate or PREDICATES[0]))
    clause = None if where is None else read_where(where)
    if clause is not None:
        check_where(clause, columns)
    return Choice(None if ids is None else ids.numbers, user, asked, clause)


def read_page_limit(limit: int) -> int:
    if not 1 <= _whole("limit", limit) <= PAGE_ROWS_MAX:
        raise InputError(f"limit {limit}: ask for 1 to {PAGE_ROWS_MAX} subscriptions, and by `after` for those behind")
    return int(limit)


def read_place(grid: Grid, x: float, y: float, k: int, within_m: float | None) -> Place:
    if not is_degrees(grid):
        raise InputError(
            f"the bounds {(grid.xmin, grid.ymin, grid.xmax, grid.ymax)} are no degrees, and the nearest are found by "
            "metres on the sphere: ask for a rectangle instead, or keep the stream in lon and lat"
        )
    for name, value, least, most in (("x", x, grid.xmin, grid.xmax), ("y", y, grid.ymin, grid.ymax)):
        if not least <= value <= most:  # also for NaN
            raise InputError(f"{name} {value} is outside the world, from {least} to {most}: give a lon and a lat in it")
    if not 1 <= _whole("k", k) <= K_MAX:
        raise InputError(f"k is {k}: ask for 1 to {K_MAX} of the nearest, or by a circle for all of a place")
    if within_m is not None and not within_m > 0:
        raise InputError(f"within_m is {within_m}: give metres above 0, or leave it out for any distance")
    return Place(float(x), float(y), int(k), METRES_MAX if within_m is None else min(float(within_m), METRES_MAX))


def check_limit(limit: int | None) -> None:
    if limit is not None and _whole("limit", limit) < 1:
        raise InputError(f"limit {limit}: ask for at least one row, or leave it out for all")


def chosen_columns(found: pa.Table, columns: Sequence[str] | None, are_known: bool = True) -> pa.Table:
    """The columns that were asked for, and always the distance, if there is one. While no event has been kept, none
    `are_known` but those that every event has."""
    if columns is None:
        return found
    unknown = [name for name in columns if name not in found.schema.names]
    if unknown and are_known:
        known = ", ".join(found.schema.names)
        raise InputError(f"no column {', '.join(unknown)} is kept: known are {known}")
    chosen = [name for name in columns if name in found.schema.names]
    if DISTANCE.name in found.schema.names and DISTANCE.name not in chosen:
        chosen.append(DISTANCE.name)
    return found.select(chosen)


def _read_subscription(grid: Grid, rectangle: Rectangle | None, **said: Any) -> Subs:
    """A query as a subscription with the id 0, so that both mean the same."""
    if rectangle is not None and (not isinstance(rectangle, Iterable) or len(list(rectangle)) != 4):
        raise InputError(f"the rectangle {rectangle!r} has not four sides: give xmin, ymin, xmax and ymax")
    dead = DeadLetters("query", -1)
    (batch,) = operation_table([registration(0, rectangle, **said)]).combine_chunks().to_batches()
    validated = validate_operations(batch, grid, 0, dead)
    if len(dead):
        raise InputError(dead.table()["detail"][0].as_py().replace("subscription 0", "the query"))
    return validated.subs(np.zeros(1, np.int64))


class AskedIds(NamedTuple):
    numbers: SubIds
    """Ascending, each once."""
    texts: pa.StringArray | None
    """What they are of, where ids are texts."""


def read_ids(sub_ids: Iterable[SubId], kind: SubIdKind) -> AskedIds:
    if not isinstance(sub_ids, Iterable) or isinstance(sub_ids, str):
        raise InputError(f"sub_ids is {sub_ids!r}: give a list of ids")
    given = list(sub_ids)
    ids = sorted({read_id("sub_ids", each, kind) for each in given})
    if len(ids) > PAGE_ROWS_MAX:
        raise InputError(f"{len(ids)} sub_ids: ask for at most {PAGE_ROWS_MAX} at once")
    texts = pa.array(map(id_text, given), pa.string()) if kind == "text" else None
    return AskedIds(np.array(ids, np.int64), texts)


def read_id(name: str, value: object, kind: SubIdKind) -> int:
    """The number of an id."""
    if kind == "text":
        try:
            if isinstance(text := id_text(value), str):
                return int(numbers_of([text])[0])
        except UnicodeEncodeError:
            pass
        raise InputError(f"{name} is {value!r}, which is no id: give a text, a UUID or an integer")
    if not -(1 << 63) <= (number := _whole(name, value)) < 1 << 63:
        raise InputError(f"{name} {number} is no id: ids are integers of 64 bits")
    return number


def _whole(name: str, value: object) -> int:
    if not isinstance(value, SupportsIndex):
        raise InputError(f"{name} is {value!r}, which is no whole number: give one, such as 10")
    return value.__index__()


def _microseconds(name: str, when: object) -> int | None:
    """A time without a zone is UTC."""
    if when is None:
        return None
    if not isinstance(when, datetime):
        remedy = "give one, such as datetime.now(UTC) - timedelta(minutes=15)"
        raise InputError(f"{name} is {when!r}, which is no datetime: {remedy}")
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
