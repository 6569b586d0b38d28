"""The obvious answers: every event against every subscription, every operation in turn, in plain numpy and dicts.

It is slow on purpose. Whatever the engine does (segments, plans, crashes, rebalances), its matches must equal these.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import shapely

from geoswarm.core.aggregates.spec import AggregateSpec
from geoswarm.core.arrays.jit import Floats, Ints, SubIds
from geoswarm.core.shapes.circle import bounding_rectangles
from geoswarm.core.shapes.shapes import of_circles, of_polygons
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import Expression, satisfied
from geoswarm.core.text.tokens import terms_of
from geoswarm.core.where.clause import Clause
from geoswarm.model import PREDICATES
from geoswarm.run.oracle.asked import (
    can_compare,
    is_json,
    read_condition,
    read_counted,
    read_objects,
    read_on,
    read_since,
    read_words,
)
from geoswarm.run.oracle.endings import Endings, InForce, read_asked
from geoswarm.run.oracle.following import INSIDE, Follower, Rules, Told, Unprompted, read_rules
from geoswarm.run.oracle.outputs import Alert, Pair
from geoswarm.run.oracle.regions import Region, distance_m, passes, read_region
from geoswarm.run.oracle.reorder import Fix, Waiting
from geoswarm.run.oracle.where import truth


@dataclass(frozen=True)
class Counting:
    """What a subscription counts instead of reporting matches."""

    spec: AggregateSpec
    began: int
    """Different for each time that counting began anew."""
    user: str


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
        self.wheres: dict[int, Clause] = {}
        self.objects: dict[int, set[str]] = {}
        """The objects whose events count, by subscription; those of any where it is missing."""
        self.regions: dict[int, Region] = {}
        """Regions that are not plain rectangles."""
        self.predicates: dict[int, str] = {}
        """The predicate by subscription; "intersects" where it is missing."""
        self.on: dict[int, str | float] = {}
        """"enter", "exit", or the seconds of a dwell, by subscription; "inside" where it is missing."""
        self.rules: dict[int, Rules] = {}
        """Of the subscriptions that are in `on`."""
        self.following, self.waiting = Follower(), Waiting()
        self.way_m_max = 10_000.0
        """A longer way between two fixes is a gap."""
        self.users: dict[int, str] = {}
        self.payloads: dict[int, str | None] = {}
        self.counting: dict[int, Counting] = {}
        """By subscription; those that are missing report matches."""
        self._beginnings = 0
        self.endings = Endings()
        self.unprompted = list[Unprompted]()
        """What the last batch told of objects that sent nothing."""
        self.since_us: dict[int, int] = {}
        """From when on subscriptions that took effect in this batch want kept events; cleared by who ends it."""

    def operate(self, operations: pa.Table, now_us: int) -> int:
        """Applies operations, once for a batch. Returns how many were refused."""
        in_force = self._in_force(now_us)
        refused = 0
        expires = operations.column("expires").cast(pa.int64()).to_pylist()
        for row, expires_us in zip(operations.to_pylist(), expires, strict=True):
            refused += not self._operate(row, expires_us, now_us)
        self.endings.settle(in_force, set(self.live), now_us)
        return refused

    def _in_force(self, now_us: int) -> dict[int, InForce]:
        """Remove what is over by now; returns what was in force in the batch before and told no end."""
        for sub in self.endings.reached:
            self.live.pop(sub, None)
        self.endings.reached.clear()
        found = {
            sub: InForce(self.endings.asked[sub].tells, held[4], self.users[sub], self.payloads[sub])
            for sub, held in self.live.items()
        }
        self.live = {sub: held for sub, held in self.live.items() if held[4] is None or held[4] > now_us}
        return found

    def _operate(self, row: dict[str, object], expires_us: int | None, now_us: int) -> bool:
        sub_id, op = row["sub_id"], row["op"]
        if not isinstance(sub_id, int) or op not in ("register", "replace", "cancel"):
            return False
        held = self.live.get(sub_id)
        is_live = held is not None and (held[4] is None or held[4] > now_us)
        if op == "cancel":
            if is_live:
                del self.live[sub_id]
                self.since_us.pop(sub_id, None)
                self.counting.pop(sub_id, None)
            return is_live
        words, readable = read_words(row["keywords"])
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
        on = read_on(row.get("on"))
        predicate = str(row.get("predicate") or "intersects").strip()
        if predicate not in PREDICATES:
            return False
        since_us = read_since(row.get("since"), now_us)
        if since_us is None or (row.get("since") is not None and on != "inside"):
            return False
        spec, counts = read_counted(row)
        if not counts or (spec is not None and (on != "inside" or row.get("since") is not None)):
            return False
        where, says = read_condition(row.get("where"))
        objects, names = read_objects(row.get("objects"))
        if not says or not names:
            return False
        if on == "cross" and row["geometry"] is None and row["xmin"] is None:
            return False
        if on == "cross" and predicate != "intersects":
            return False
        asked = read_asked(row, on)
        if asked is None:
            return False
        unread = (row["geometry"] is not None and region is None) or not is_json(row.get("payload"))
        rules = read_rules(on, row.get("confirm"), row.get("cooldown"), row.get("exit_buffer_m"))
        if unread or on is None or rules is None or not readable or (op == "register" and is_live):
            return False
        before = self.counting.pop(sub_id, None) if is_live else None
        self.counting.pop(sub_id, None)
        if spec is not None:
            goes_on = before is not None and before.spec.state_key == spec.state_key
            self._beginnings += not goes_on
            began = before.began if before is not None and goes_on else self._beginnings
            self.counting[sub_id] = Counting(spec, began, str(row.get("user") or ""))
        self.endings.begin(sub_id, asked)
        self.live[sub_id] = (x0, y0, x1, y1, expires_us)
        self.users[sub_id] = str(row.get("user") or "")
        payload = row.get("payload")
        self.payloads[sub_id] = None if payload is None else str(payload)
        self.since_us.pop(sub_id, None)
        if row.get("since") is not None:
            self.since_us[sub_id] = since_us
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
        self.wheres.pop(sub_id, None)
        if where is not None:
            self.wheres[sub_id] = where
        self.objects.pop(sub_id, None)
        if objects is not None:
            self.objects[sub_id] = objects
        self.on.pop(sub_id, None)
        self.rules.pop(sub_id, None)
        if on != "inside":
            self.on[sub_id], self.rules[sub_id] = on, rules
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
        near = self._meet_demands(near, events)

        published = {i: Region(shapely.Point(x[i], y[i])) for i in {i for i, _ in near}} | areas
        return {
            (event_ids[i], sub)
            for i, sub in near
            if event_ids[i] is not None
            and (sub not in self.words or satisfied(self.words[sub], said[i]))
            and ((i not in areas and sub not in self.regions) or self._holds(sub, published[i], i in areas))
        }

    def _meet_demands(self, near: set[Pair], events: pa.Table) -> set[Pair]:
        """The pairs whose event has what the subscription asks of its columns."""
        rows = events.to_pylist()
        fits = {sub: can_compare(where, events.schema) for sub, where in self.wheres.items()}
        return {
            (i, sub)
            for i, sub in near
            if (sub not in self.wheres or (fits[sub] and truth(self.wheres[sub], rows[i]) is True))
            and (sub not in self.objects or str(rows[i].get("object_id")) in self.objects[sub])
            and (sub not in self.objects or rows[i].get("object_id") is not None)
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
        return set(self.tell(events, now_us, interval, window, met))

    def tell(
        self, events: pa.Table, now_us: int, interval: int = 0, window: int = 1, met: set[Pair] | None = None
    ) -> dict[Pair, Told]:
        """The same, with what each subscription is told."""
        events = events.filter(pa.array([self.is_fit(row) for row in events.to_pylist()], pa.bool_()))
        met = self.match(events, now_us) if met is None else met
        pairs = {(event, sub): INSIDE for event, sub in met if sub not in self.on and sub not in self.counting}
        live = {sub for sub, held in self.live.items() if held[4] is None or held[4] > now_us}
        rules = {sub: self.rules[sub] for sub in sorted(live & set(self.rules))}
        stays = {sub: self.endings.asked[sub] for sub, asked in rules.items() if asked.on != "cross"}
        self.unprompted = self.following.forget(interval - window, [sub for sub, asked in stays.items() if asked.tells])
        begun = [sub for sub, asked in stays.items() if asked.initial and sub in self.endings.begun]
        self.unprompted += self.following.begin(begun, self._is_inside)
        self.endings.begun.clear()
        times = events.column("ts").cast(pa.int64()).to_pylist()
        arrived = list[Fix]()
        for ts_us, row in zip(times, events.to_pylist(), strict=True):
            event, name, accuracy_m = row["event_id"], row.get("object_id"), row.get("accuracy_m")
            inside = frozenset(sub for sub in rules if (event, sub) in met)
            if name is not None:
                arrived.append(Fix(ts_us, event, name, accuracy_m, self._place(row), row, inside))
        for ts_us, event, name, accuracy_m, place, row, was_inside in self.waiting.next_batch(arrived, times, now_us):
            cross = partial(self._cross, rules, row, events.schema)
            near = {sub for sub, asked in rules.items() if asked.buffer_m and self._is_near(sub, place)}
            told = self.following.see(name, ts_us, interval, accuracy_m, was_inside, rules, near, place, cross)
            pairs |= {(event, sub): said for sub, said in told.items()}
        return pairs

    def _is_inside(self, sub: int, name: object, place: shapely.Point) -> bool:
        """Whether an object counts as inside by its place alone."""
        if sub in self.objects and str(name) not in self.objects[sub]:
            return False
        region = self.regions.get(sub) or Region(shapely.box(*self.live[sub][:4]))
        return region.satisfies(self.predicates.get(sub, "intersects"), Region(place))

    def _place(self, event: dict[str, object]) -> shapely.Point:
        """A fit event as a point."""
        area = read_region(event.get("geometry"))
        if area is not None and isinstance(area.shape, shapely.Point) and area.metres is None:
            return area.shape
        x, y = event["x"], event["y"]
        if area is not None and (x is None or y is None):
            grid = Grid(*self._bounds, columns=1, rows=1)
            if area.metres is None:
                shapes = of_polygons(np.array([area.shape], object))
            else:
                shapes = of_circles(np.array([[area.shape.x, area.shape.y, area.metres]]))
            ((west, south, east, north),) = bounding_rectangles(shapes, grid).tolist()
            x, y = (west + east) / 2 if x is None else x, (south + north) / 2 if y is None else y
        return shapely.Point(x, y)

    def _cross(
        self,
        rules: dict[int, Rules],
        row: dict[str, object],
        columns: pa.Schema,
        begin: shapely.Point,
        end: shapely.Point,
    ) -> set[int] | None:
        """The subscriptions that the straight way passes through to an event, which has what they ask for; None: there
        are some on cross, and it is a gap."""
        asked = [sub for sub in rules if rules[sub].on == "cross"]
        if asked and distance_m(begin, end) > self.way_m_max:
            return None
        return {
            sub
            for sub in asked
            if passes(begin, end, self.regions.get(sub) or Region(shapely.box(*self.live[sub][:4])))
            and self._is_asked_for(sub, row, columns)
        }

    def _is_asked_for(self, sub: int, row: dict[str, object], columns: pa.Schema) -> bool:
        """Whether an event has the object, the columns and the words that a subscription asks for."""
        if sub in self.wheres and not (can_compare(self.wheres[sub], columns) and truth(self.wheres[sub], row) is True):
            return False
        if sub in self.objects and (row["object_id"] is None or str(row["object_id"]) not in self.objects[sub]):
            return False
        return sub not in self.words or satisfied(self.words[sub], set(terms_of(str(row.get("text") or ""))))

    def _is_near(self, sub: int, place: shapely.Point) -> bool:
        region = self.regions.get(sub) or Region(shapely.box(*self.live[sub][:4]))
        return region.satisfies("intersects", Region(place, self.rules[sub].buffer_m))

    def alerts(self, told: dict[Pair, Told]) -> list[Alert]:
        """What was told, as alerts, before further operations."""
        return sorted((pair, said, self.users[pair[1]], self.payloads[pair[1]]) for pair, said in told.items())

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
