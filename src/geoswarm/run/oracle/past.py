"""The obvious answers about the past: every batch in a list, every kept event against the query, every object in a
dict.

The nearest are found by measuring all of them. What a distance is, `core/shapes/circle.py` defines; it is taken from
there, so that ties are ties.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from geoswarm.config import WindowSettings
from geoswarm.core.shapes.circle import METRES_MAX, distance_m
from geoswarm.core.where.read import read_where
from geoswarm.model import EVENT
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.run.oracle.regions import read_region
from geoswarm.run.oracle.where import chosen_rows

Bounds = tuple[float, float, float, float]


def place_of(event: dict[str, object]) -> tuple[float, float]:
    """Where a fit event is: an area in the middle of the rectangle round it, unless it says otherwise."""
    area = read_region(event.get("geometry"))
    is_point = area is not None and area.metres is None and not area.shape.area
    if area is not None and (is_point or event["x"] is None or event["y"] is None):
        x0, y0, x1, y1 = area.shape.bounds
        return (x0 + x1) / 2, (y0 + y1) / 2
    return float(str(event["x"])), float(str(event["y"]))


@dataclass
class PastOracle:
    bounds: Bounds
    window: WindowSettings
    batches: list[tuple[pa.Table, int, int]] = field(default_factory=list)
    """The events of each batch that validation lets through, when it came, and its bytes as they were kept."""

    def take(self, events: pa.Table, now_us: int, size: int = 0) -> None:
        fits = Oracle(self.bounds).is_fit
        self.batches.append((events.filter(pa.array(map(fits, events.to_pylist()), pa.bool_())), now_us, size))

    def kept(self) -> list[pa.Table]:
        """The batches in the window: the newest always."""
        kept, rows, size, newest_us = list[pa.Table](), 0, 0, self.batches[-1][1]
        for events, now_us, bytes_ in reversed(self.batches):
            size += bytes_
            too_old = self.window.seconds is not None and newest_us - now_us >= self.window.seconds * 1e6
            too_many = self.window.events is not None and rows >= self.window.events
            if kept and (too_old or too_many or size > self.window.bytes):
                break
            kept.append(events)
            rows += len(events)
        return kept

    def pasts(self, oracle: Oracle, now_us: int) -> set[Pair]:
        """The matches of the past that a batch gives to those of its subscriptions that ask for it: `take` has not been
        called for the batch yet."""
        found = set[Pair]()
        for events in self.kept() if self.batches else []:
            ids, times_us = events["event_id"].to_pylist(), events["ts"].cast(pa.int64()).to_pylist()
            time_us_of = dict(zip(ids, times_us, strict=True))
            found |= {
                (event_id, sub)
                for event_id, sub in oracle.match(events, now_us)
                if sub in oracle.since_us and time_us_of[event_id] >= oracle.since_us[sub]
            }
        return found

    def query(
        self, asked: pa.Table, since_us: int | None = None, until_us: int | None = None, where: str | None = None
    ) -> list[int] | None:
        """The ids of the kept events that the subscription `asked`, one operation, would have matched and of which the
        condition `where` is true, the newest first and else by id; None if it would be refused."""
        oracle, found = Oracle(self.bounds), list[tuple[int, int]]()
        if oracle.operate(asked, 0):
            return None
        for events in self.kept():
            if where is not None:
                events = chosen_rows(read_where(where), events)
            ids, times_us = events["event_id"].to_pylist(), events["ts"].cast(pa.int64()).to_pylist()
            time_us_of = dict(zip(ids, times_us, strict=True))
            for event_id, _ in oracle.match(events, 0):
                ts_us = time_us_of[event_id]
                if (since_us is None or ts_us >= since_us) and (until_us is None or ts_us < until_us):
                    found.append((-ts_us, event_id))
        return [event_id for _, event_id in sorted(found)]

    def nearest(
        self,
        place: tuple[float, float],
        k: int,
        within_m: float = METRES_MAX,
        *,
        asked: pa.Table,
        since_us: int | None = None,
        until_us: int | None = None,
    ) -> list[tuple[int, float]]:
        """The ids of the k nearest of those that `query` finds, and their distances: of events at one distance the
        newest first, and then the lowest id. Ids are not repeated."""
        wanted, found = set(self.query(asked, since_us, until_us) or ()), list[tuple[float, int, int]]()
        for event in (event for events in self.kept() for event in events.to_pylist()):
            metres = distance_m(*place, *place_of(event))
            if event["event_id"] in wanted and metres <= within_m:
                found.append((metres, -int(event["ts"].timestamp() * 1e6), event["event_id"]))
        return [(event_id, metres) for metres, _, event_id in sorted(found)[:k]]


class LastPlace(NamedTuple):
    interval: int
    ts_us: int
    x: float
    y: float


@dataclass
class ObjectOracle:
    bounds: Bounds
    window: int
    """Intervals after which an object is forgotten."""
    last: dict[int | str, LastPlace] = field(default_factory=dict)

    def take(self, events: pa.Table, interval: int) -> None:
        """The next batch. An event that is older than one of an earlier batch changes nothing."""
        self.last = {name: held for name, held in self.last.items() if held.interval > interval - self.window}
        fits, before = Oracle(self.bounds).is_fit, dict(self.last)
        times_us = events["ts"].cast(pa.int64()).to_pylist()
        rows = [(ts_us, row["event_id"], row) for ts_us, row in zip(times_us, events.to_pylist(), strict=True)]
        fit = [row for row in rows if fits(row[2])]
        for ts_us, _, event in sorted(fit, key=lambda row: row[:2]):
            name = event["object_id"]
            if name is not None and (name not in before or ts_us >= before[name].ts_us):
                self.last[name] = LastPlace(interval, ts_us, *place_of(event))

    def inside(self, asked: pa.Table) -> list[int | str]:
        """The objects in the region of one operation, the one that was seen last first, and else by name."""
        names, oracle = sorted(self.last, key=self._newest), Oracle(self.bounds)
        oracle.operate(asked, 0)
        rows = [{"event_id": i, "ts": 0, "x": self.last[n].x, "y": self.last[n].y} for i, n in enumerate(names)]
        met = oracle.match(pa.Table.from_pylist(rows, schema=EVENT), 0)
        return [names[i] for i, _ in sorted(met)]

    def nearest(self, place: tuple[float, float], k: int, within_m: float = METRES_MAX) -> list[int | str]:
        """Of objects at one distance the one that was seen last comes first, and then the lowest name."""
        metres = {name: distance_m(*place, held.x, held.y) for name, held in self.last.items()}
        near = [name for name, away_m in metres.items() if away_m <= within_m]
        return sorted(near, key=lambda name: (metres[name], *self._newest(name)))[:k]

    def _newest(self, name: int | str) -> tuple[int, int | str]:
        return -self.last[name].ts_us, name
