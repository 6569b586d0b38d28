"""Why a stream may match nothing, although events come and subscriptions are live: said once it has lasted a minute, or
when a stream ends that has matched nothing.

    a batch with events, none matched ──► since when? ──► a minute ──► some events, some subscriptions ──► sentences

Most of what goes wrong is how the columns of events were named or counted. So each such mistake is undone for some of
the events: where that brings most of them into subscriptions, it is said. Time is that of the batches.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.flow.observe import LoadReport

SILENCE_US = 60_000_000
"""How long nothing must have matched."""
SUBSCRIPTIONS_MAX = 100_000
"""Subscriptions that some of the events are compared with: with 256 events that takes a tenth of a second."""
MOST = 0.5
"""The part of the events that must lie in subscriptions, or among them, if a mistake is undone."""
_EARTH_M = 6_378_137.0
"""The radius of the sphere of Web Mercator."""
_LAT_MAX = 85.0
Places = tuple[Floats, Floats]


class Silence(NamedTuple):
    """How long nothing has matched, and why that may be."""

    since_us: int | None = None
    """The time of the first batch of events without a match; None: the newest events have matched."""
    why: tuple[str, ...] = ()
    """Sentences, once it has lasted."""

    def after(
        self, report: LoadReport, subscriptions: int, found: int, now_us: int, explain: Callable[[], Sequence[str]]
    ) -> "Silence":
        """After another batch, in which so many rows were `found`; `explain` looks for reasons."""
        if found or not subscriptions:
            return Silence()
        if not report.events_in:
            return self
        since_us = now_us if self.since_us is None else min(self.since_us, now_us)
        if now_us - since_us < SILENCE_US:
            return Silence(since_us)
        return Silence(since_us, self.why or tuple(explain()))

    @property
    def is_suspected(self) -> bool:
        return self.since_us is not None

    def sentence(self, now_us: int) -> str:
        assert self.since_us is not None
        return f"no event has matched for {(now_us - self.since_us) / 1e6:,.0f} s: {'; '.join(self.why)}"


NOT_SILENT = Silence()


def reasons(
    report: LoadReport, lacking: Sequence[str], rects: Floats, bounds: tuple[float, float, float, float]
) -> list[str]:
    """What may be wrong, the most telling first. `rects` are of some live subscriptions."""
    said, all_dead = list(lacking), 0 < report.dead == report.events_in
    if all_dead:
        said.append(f"all {report.dead:,} rows of the newest batch are dead letters: see `geoswarm dead-letters`")
    if report.places and len(rects):
        places = np.array(report.places, np.float64)
        said += (
            _about_places(places, rects, bounds)
            if not all_dead or not _part_inside((places[:, 0], places[:, 1]), rects)
            else []
        )
    valid = report.events_in - report.dead
    if valid and report.without_object == valid and not lacking:
        said.append("all events are without an object_id, and subscriptions follow objects")
    if valid and report.without_text == valid and not lacking:
        said.append("all events are without a text, and subscriptions ask for words")
    return said or ["nothing is wrong with places, columns or texts: the events may just be elsewhere"]


def _about_places(places: Floats, rects: Floats, bounds: tuple[float, float, float, float]) -> list[str]:
    x, y = places.T
    now = _part_inside((x, y), rects)
    if now > 0.0:
        return [
            f"{now:.0%} of the events lie in rectangles of subscriptions, so it is their words, their exact regions or "
            "what they are on that leaves them out"
        ]
    said, around = [], np.array([[*rects[:, :2].min(axis=0), *rects[:, 2:].max(axis=0)]])
    are_far = _part_inside((x, y), around) < MOST
    for mistake, undo in MISTAKES.items():
        undone = undo((x, y))
        part = _part_inside(undone, rects)
        # Fences may be small: most events are between them then, where before most were nowhere near.
        if part >= MOST or (part > 0 and are_far and _part_inside(undone, around) >= MOST):
            said.append(f"{mistake}: undone, {part:.0%} of the events would lie in subscriptions")
    xmin, ymin, xmax, ymax = bounds
    beyond = ((x < xmin) | (x > xmax) | (y < ymin) | (y > ymax)).mean()
    if beyond >= MOST:
        said.append(f"{beyond:.0%} of the events lie outside the bounds {list(bounds)}: see [contract] bounds")
    if max(abs(side) for side in bounds) > 1000 and (np.abs(x) <= 180).all() and (np.abs(y) <= 90).all():
        said.append(f"the bounds {list(bounds)} look like metres, and the events like longitude and latitude")
    return said or [f"events lie within {_around(x, x, y, y)}, subscriptions within {_around(*rects.T[[0, 2, 1, 3]])}"]


def _part_inside(places: Places, rects: Floats) -> float:
    """The part of some places that lie in some rectangle."""
    x, y = places
    inside = [
        bool(((rects[:, 0] <= a) & (a <= rects[:, 2]) & (rects[:, 1] <= b) & (b <= rects[:, 3])).any())
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    return float(np.mean(inside)) if inside else 0.0


def _around(low_x: Floats, high_x: Floats, low_y: Floats, high_y: Floats) -> str:
    sides = (low_x.min(), low_y.min(), high_x.max(), high_y.max())
    return f"({', '.join(f'{side:.6g}' for side in sides)})"


def _to_degrees(places: Places) -> Places:
    x, y = places
    return np.degrees(x / _EARTH_M), np.degrees(2 * np.arctan(np.exp(np.clip(y / _EARTH_M, -9, 9))) - np.pi / 2)


def _to_metres(places: Places) -> Places:
    lon, lat = places[0], np.clip(places[1], -_LAT_MAX, _LAT_MAX)
    return np.radians(lon) * _EARTH_M, np.log(np.tan(np.pi / 4 + np.radians(lat) / 2)) * _EARTH_M


MISTAKES: dict[str, Callable[[Places], Places]] = {
    'latitude and longitude may be exchanged, write columns = { x = "...", y = "..." } the other way': lambda p: (
        p[1],
        p[0],
    ),
    "x and y may be metres of Web Mercator, where subscriptions have degrees": _to_degrees,
    "x and y may be degrees, where subscriptions have metres of Web Mercator": _to_metres,
    "x and y may be millionths of degrees": lambda p: (p[0] / 1e6, p[1] / 1e6),
    "x and y may be ten-millionths of degrees": lambda p: (p[0] / 1e7, p[1] / 1e7),
    "x may have the wrong sign": lambda p: (-p[0], p[1]),
}
"""What producers do, and how it is undone."""
