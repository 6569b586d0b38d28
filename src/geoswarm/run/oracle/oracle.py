"""The obvious answers: every event against every subscription, every operation in turn, in plain numpy and dicts.

It is slow on purpose. Whatever the engine does (segments, plans, crashes, rebalances), its matches must equal these.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import shapely

from geoswarm.core.arrays.jit import Floats, Ints, SubIds
from geoswarm.core.text.expression import Expression, parse, satisfied
from geoswarm.core.text.tokens import terms_of
from geoswarm.errors import InputError
from geoswarm.model import PREDICATES
from geoswarm.run.oracle.regions import Region, read_region

Pair = tuple[int, int]


@dataclass
class Stay:
    since_us: int
    has_dwelt: bool = False


@dataclass
class ObjectState:
    """What is known of one moving object."""

    interval: int = 0
    newest_us: int | None = None
    stays: dict[int, Stay] = field(default_factory=dict)


def brute_force(x: Floats, y: Floats, rects: Floats, ids: SubIds) -> set[Pair]:
    """(event row, subscription id) of every point in every closed rectangle."""
    pairs: set[Pair] = set()
    for i in range(len(x)):
        inside = (rects[:, 0] <= x[i]) & (x[i] <= rects[:, 2]) & (rects[:, 1] <= y[i]) & (y[i] <= rects[:, 3])
        pairs.update((i, int(sub)) for sub in ids[inside])
    return pairs


class Oracle:
    """The live subscriptions in dicts. Apply operations in order, then match events."""

    def __init__(self, bounds: tuple[float, float, float, float]) -> None:
        self._bounds = bounds
        self.live: dict[int, tuple[float, float, float, float, int | None]] = {}
        self.words: dict[int, Expression] = {}
        self.regions: dict[int, Region] = {}
        """Regions that are not plain rectangles."""
        self.predicates: dict[int, str] = {}
        """The predicate by subscription; "intersects" where it is missing."""
        self.on: dict[int, str | float] = {}
        """"enter", "exit", or the seconds of a dwell, by subscription; "inside" where it is missing."""
        self.objects: dict[object, ObjectState] = {}

    def operate(self, operations: pa.Table, now_us: int) -> int:
        """Applies operations. Returns how many were refused."""
        refused = 0
        expires = operations.column("expires").cast(pa.int64()).to_pylist()
        for row, expires_us in zip(operations.to_pylist(), expires, strict=True):
            refused += not self._operate(row, expires_us, now_us)
        return refused

    def _operate(self, row: dict[str, object], expires_us: int | None, now_us: int) -> bool:
        sub_id, op = row["sub_id"], row["op"]
        if not isinstance(sub_id, int) or op not in ("register", "replace", "cancel"):
            return False
        held = self.live.get(sub_id)
        is_live = held is not None and (held[4] is None or held[4] > now_us)
        if op == "cancel":
            if is_live:
                del self.live[sub_id]
            return is_live
        words, readable = _words(row["keywords"])
        region = read_region(row["geometry"])
        if region is not None and region.metres is None and region.shape.area == 0:
            return False
        sides = [row[k] for k in ("xmin", "ymin", "xmax", "ymax")]
        if region is not None:
            sides = region.sides(self._bounds)
        if row["keywords"] is not None and sides == [None] * 4:
            sides = list(self._bounds)
        if not all(isinstance(side, float) and np.isfinite(side) for side in sides):
            return False
        x0, y0, x1, y1 = (float(str(side)) for side in sides)
        west, south, east, north = self._bounds
        if not (west <= x0 < x1 <= east and south <= y0 < y1 <= north):
            return False
        if expires_us is not None and expires_us <= now_us:
            return False
        on = _read_on(row.get("on"))
        predicate = str(row.get("predicate") or "intersects").strip()
        if predicate not in PREDICATES:
            return False
        unread = row["geometry"] is not None and region is None
        if unread or on is None or not readable or (op == "register" and is_live):
            return False
        self.live[sub_id] = (x0, y0, x1, y1, expires_us)
        self.regions.pop(sub_id, None)
        self.predicates.pop(sub_id, None)
        if predicate != "intersects":
            self.predicates[sub_id] = predicate
            region = region or Region(shapely.box(x0, y0, x1, y1))
        if region is not None:
            self.regions[sub_id] = region
        self.words.pop(sub_id, None)
        if words is not None:
            self.words[sub_id] = words
        self.on.pop(sub_id, None)
        if on != "inside":
            self.on[sub_id] = on
        return True

    def match(self, events: pa.Table, now_us: int) -> set[Pair]:
        """(event_id, sub_id) of every match. Events that validation would refuse match nothing."""
        live = [(k, v) for k, v in self.live.items() if v[4] is None or v[4] > now_us]
        rects = np.array([v[:4] for _, v in live], np.float64).reshape(-1, 4)
        ids: Ints = np.array([k for k, _ in live], np.int64)
        x, y = (np.array(events.column(c).to_pylist(), np.float64) for c in ("x", "y"))
        event_ids = events.column("event_id").to_pylist()
        texts = events.column("text").to_pylist() if "text" in events.schema.names else [None] * len(events)
        said = [set(terms_of(text or "")) for text in texts]
        areas = self._areas(events)
        points = np.array([geometry is None for geometry in self._geometries(events)], np.bool_)
        near = {(i, sub) for i, sub in brute_force(x, y, rects, ids) if points[i]}
        near |= {(i, int(sub)) for i in areas for sub in ids}

        published = {i: Region(shapely.Point(x[i], y[i])) for i in {i for i, _ in near}} | areas
        return {
            (event_ids[i], sub)
            for i, sub in near
            if event_ids[i] is not None
            and (sub not in self.words or satisfied(self.words[sub], said[i]))
            and ((i not in areas and sub not in self.regions) or self._holds(sub, published[i], i in areas))
        }

    def _geometries(self, events: pa.Table) -> list[object]:
        return events.column("geometry").to_pylist() if "geometry" in events.schema.names else [None] * len(events)

    def _areas(self, events: pa.Table) -> dict[int, Region]:
        """The readable events that are not plain points, by row."""
        read = {i: read_region(geometry) for i, geometry in enumerate(self._geometries(events))}
        return {i: region for i, region in read.items() if region is not None and self._is_in_world(region)}

    def _is_in_world(self, region: Region) -> bool:
        return bool(shapely.covers(shapely.box(*self._bounds), region.shape))

    def _holds(self, sub: int, publication: Region, is_area: bool) -> bool:
        if sub in self.regions:
            return self.regions[sub].satisfies(self.predicates.get(sub, "intersects"), publication)
        return not is_area or Region(shapely.box(*self.live[sub][:4])).satisfies("intersects", publication)

    def deliver(
        self, events: pa.Table, now_us: int, interval: int = 0, window: int = 1, met: set[Pair] | None = None
    ) -> set[Pair]:
        """The pairs that a batch delivers, with transitions, if its events have an `object_id`. An object is forgotten
        when the interval of its last event is out of the window. `met` are the matches, where they are known."""
        events = events.filter(pa.array([self.is_fit(row) for row in events.to_pylist()], pa.bool_()))
        met = self.match(events, now_us) if met is None else met
        pairs = {(event, sub) for event, sub in met if sub not in self.on}
        live = {sub for sub, held in self.live.items() if held[4] is None or held[4] > now_us}
        for known in list(self.objects):
            if self.objects[known].interval <= interval - window:
                del self.objects[known]
        names = events.column("object_id").to_pylist() if "object_id" in events.schema.names else []
        times = events.column("ts").cast(pa.int64()).to_pylist()
        ids = events.column("event_id").to_pylist()
        for ts_us, event, name in sorted(zip(times, ids, names, strict=False), key=lambda row: row[:2]):
            if name is None:
                continue
            here = self.objects.setdefault(name, ObjectState())
            if here.newest_us is not None and ts_us < here.newest_us:
                continue  # late
            here.newest_us, here.interval = ts_us, interval
            here.stays = {sub: stay for sub, stay in here.stays.items() if sub in live and sub in self.on}
            for sub in sorted(live & set(self.on)):
                if self._transits(here, sub, ts_us, (event, sub) in met):
                    pairs.add((event, sub))
        return pairs

    def is_fit(self, event: dict[str, object]) -> bool:
        west, south, east, north = self._bounds
        needed = ["event_id", "ts", "x", "y"]
        if event.get("geometry") is not None:
            area = read_region(event["geometry"])
            if area is None or not self._is_in_world(area):
                return False
            needed = [name for name in needed if name not in "xy" or event[name] is not None]
            event = {"x": west, "y": south} | {name: event[name] for name in needed}
        if any(event[name] is None for name in needed):
            return False
        x, y = float(str(event["x"])), float(str(event["y"]))
        return west <= x <= east and south <= y <= north

    def _transits(self, here: ObjectState, sub: int, ts_us: int, is_inside: bool) -> bool:
        on, was_inside = self.on[sub], sub in here.stays
        if not is_inside:
            here.stays.pop(sub, None)
            return was_inside and on == "exit"
        stay = here.stays.setdefault(sub, Stay(ts_us))
        if isinstance(on, float):
            dwells = not stay.has_dwelt and ts_us - stay.since_us >= on * 1e6
            stay.has_dwelt |= dwells
            return dwells
        return on == "enter" and not was_inside


def _read_on(on: object) -> str | float | None:
    """The value of `on`; None if it cannot be read."""
    text = "inside" if on is None else str(on).strip()
    if text in ("inside", "enter", "exit"):
        return text
    try:
        seconds = float(text.removeprefix("dwell(").removesuffix(")"))
    except ValueError:
        return None
    is_call = text.startswith("dwell(") and text.endswith(")")
    return seconds if is_call and 0 <= seconds <= 1e9 else None


def _words(keywords: object) -> tuple[Expression | None, bool]:
    """The expression of the keywords, and whether they can be read."""
    try:
        return (None if keywords is None else parse(str(keywords))), True
    except InputError:
        return None, False


def pairs_of(tables: Iterable[pa.Table]) -> list[Pair]:
    """The matches in an engine's output of either form, as a list, so that repeated pairs stay visible."""
    pairs: list[Pair] = []
    for table in tables:
        for row in table.select([c for c in ("event_id", "sub_id", "sub_ids") if c in table.schema.names]).to_pylist():
            subs = row["sub_ids"] if "sub_ids" in row else [row["sub_id"]]
            pairs.extend((row["event_id"], sub) for sub in subs)
    return pairs
