"""Hotspots over the tweets: for a while, part of the stream and a crowd of new rectangles go to one small square.

Not an attack, which hides among users, and not a tweet's own burst, which stays in its city. As with the tweets, a
row depends on nothing but the parameters and its id, so any range of ids can be asked for again.

    share of the stream          bell                     step
    peak_share                 .-'''-.               ┌──────────┐
                             .'       '.             │          │
    0                  _____/           \\_____  _____│          │_____
                           start       end         start       end
    queries registered     └60 s┘       └60 s┘ cancelled

SWARM §6.2: a square with sides of 15% of the world's; up to 40% of the spouts redirected; all queries of a hotspot
within one minute of its start. `SCENARIOS` names its figures. Two things the paper leaves open: the "variance of 20% of
the side" is taken as a standard deviation, which has the unit of a side; and queries are cancelled within the minute
after the end. The moving hotspot is not in the paper: its queries lie along the whole of its way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.draw import Key, bell, key_of, reflect, uniform
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import EVENT

SIDE_SHARE = 0.15
PEAK_SHARE = 0.4
SPREAD_SHARE = 0.2
"""Standard deviation of a normal hotspot, as a share of its side."""
CROWD_S = 60.0
"""Seconds within which all queries of a hotspot come after its start, and go after its end."""
SUB_ID_FIRST = 1 << 40
"""Far above the ids of any base workload that fits into memory."""

Table = npt.NDArray[np.void]
_SPOT = np.dtype(
    [(n, "f8") for n in ("x", "y", "drift_x", "drift_y", "side_x", "side_y", "start_us", "life_us", "peak")]
    + [("normal", "i8"), ("step", "i8"), ("first_id", "i8"), ("queries", "i8")],
    align=True,
)


@dataclass(frozen=True)
class Hotspot:
    """Places and sides are shares of the world's sides; times are seconds from the start of the stream."""

    center: tuple[float, float]
    start_s: float
    life_s: float
    queries: int
    spread: Literal["uniform", "normal"] = "uniform"
    intensity: Literal["bell", "step"] = "bell"
    peak_share: float = PEAK_SHARE
    drift: tuple[float, float] = (0.0, 0.0)
    """How far the centre has gone by the end, at an even pace."""
    side_share: float = SIDE_SHARE

    @property
    def end_s(self) -> float:
        return self.start_s + self.life_s

    def share(self, at_s: float) -> float:
        """The part of the stream that is redirected at a time."""
        age = (at_s - self.start_s) / self.life_s
        return self.peak_share * intensity(age, self.intensity == "step")


@dataclass(frozen=True)
class Hotspots:
    """The base's events, some of them moved; the base's subscriptions, and the hotspots' own as operations."""

    base: Tweets
    spots: tuple[Hotspot, ...]

    def __post_init__(self) -> None:
        for i, spot in enumerate(self.spots):
            for x, d in zip(spot.center, spot.drift, strict=True):
                low, high = min(x, x + d) - spot.side_share / 2, max(x, x + d) + spot.side_share / 2
                if not (low >= -1e-9 and high <= 1 + 1e-9 and spot.side_share > 0):
                    raise SettingsError(
                        f"hotspot {i} reaches from {low:g} to {high:g} of the world's side: keep it within 0 to 1"
                    )
            if not (spot.start_s >= 0 and spot.life_s > 0 and spot.queries >= 0):
                raise SettingsError(
                    f"hotspot {i} starts at {spot.start_s:g} s, lives {spot.life_s:g} s, has {spot.queries} queries: "
                    "start at 0 or later, live more than 0 s, have 0 queries or more"
                )
        for spot in self.spots:  # most of them live at once when one of them starts
            total = sum(other.peak_share for other in self.spots if other.start_s <= spot.start_s < other.end_s)
            if not 0 <= total <= 1:
                raise SettingsError(
                    f"hotspots take up to {total:g} of the stream at {spot.start_s:g} s: lower their peak_share"
                )

    def events(self, first_id: int, count: int) -> pa.RecordBatch:
        """Posts first_id .. first_id + count - 1, as `model.EVENT`."""
        rows = self.base.events(first_id, count)
        if not count:
            return rows
        ids, x, y = (rows.column(name).to_numpy() for name in ("event_id", "x", "y"))
        ts = rows.column("ts").cast(pa.int64()).to_numpy()
        since = ts - int(self.base.start_s * 1e6)
        live = self._table()
        live = live[(live["start_us"] <= since[-1]) & (live["start_us"] + live["life_us"] >= since[0])]
        if not len(live):
            return rows
        x, y = x.copy(), y.copy()  # Arrow's own are not to be written to
        _redirect(ids, since, key_of(self.base.seed, "hotspots"), live, np.array(self.base.bounds), x, y)
        return pa.record_batch([rows.column("event_id"), rows.column("ts"), pa.array(x), pa.array(y)], schema=EVENT)

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch:
        """The base's registrations, made before the stream starts."""
        return self.base.subscriptions(first_id, count)

    def operations(self, since_s: float, until_s: float) -> pa.RecordBatch:
        """Operations of the hotspots' crowds from `since_s` to just before `until_s`, as `columns.OPERATION`."""
        table = self._table()
        spots: list[int] = []
        ids: list[Ints] = []
        at_s: list[Floats] = []
        register: list[npt.NDArray[np.bool_]] = []
        for i, spot in enumerate(self.spots):
            for first_s, is_register in ((spot.start_s, True), (spot.end_s, False)):
                pace = spot.queries / CROWD_S  # evenly, the first at once
                low, high = (int(np.clip(np.ceil((t - first_s) * pace), 0, spot.queries)) for t in (since_s, until_s))
                number = np.arange(low, high)
                spots.append(i)
                ids.append(table["first_id"][i] + number)
                at_s.append(first_s + number / max(pace, 1e-300))
                register.append(np.full(len(number), is_register))
        which = np.repeat(spots, [len(part) for part in ids]).astype(np.int64)
        order = np.argsort(np.concatenate([*at_s, np.empty(0)]), kind="stable")
        sub_ids = np.concatenate([*ids, np.empty(0, np.int64)])[order]
        new = np.concatenate([*register, np.empty(0, np.bool_)])[order]
        sides = self._rectangles(sub_ids, which[order], table)
        users = pa.array([f"hotspot{i}" for i in range(len(self.spots))], pa.string())
        empty = [pa.nulls(len(sub_ids), field.type) for field in list(OPERATION)[7:]]
        columns = [
            pa.array(["cancel", "register"]).take(pa.array(new.astype(np.int8))),
            pa.array(sub_ids),
            users.take(pa.array(which[order])),
            *(pa.array(side, mask=~new) for side in sides),
            *empty,
        ]
        return pa.record_batch(columns, schema=OPERATION)

    def _rectangles(self, sub_ids: Ints, which: Ints, table: Table) -> list[Floats]:
        xmin, ymin, xmax, ymax = self.base.bounds
        x, y = _crowd(sub_ids, which, key_of(self.base.seed, "crowds"), table, np.array(self.base.bounds))
        half_x, half_y = (xmax - xmin) * self.base.side_share / 2, (ymax - ymin) * self.base.side_share / 2
        low = [np.maximum(x - half_x, xmin), np.maximum(y - half_y, ymin)]
        return [*low, np.minimum(x + half_x, xmax), np.minimum(y + half_y, ymax)]

    def _table(self) -> Table:
        xmin, ymin, xmax, ymax = self.base.bounds
        width, height = xmax - xmin, ymax - ymin
        table = np.zeros(len(self.spots), _SPOT)
        first_id = SUB_ID_FIRST
        for row, spot in zip(table, self.spots, strict=True):
            row["x"], row["y"] = xmin + spot.center[0] * width, ymin + spot.center[1] * height
            row["drift_x"], row["drift_y"] = spot.drift[0] * width, spot.drift[1] * height
            row["side_x"], row["side_y"] = spot.side_share * width, spot.side_share * height
            row["start_us"], row["life_us"] = spot.start_s * 1e6, spot.life_s * 1e6
            row["peak"], row["queries"], row["first_id"] = spot.peak_share, spot.queries, first_id
            row["normal"], row["step"] = spot.spread == "normal", spot.intensity == "step"
            first_id += spot.queries
        return table


@kernel
def intensity(age: float, step: bool) -> float:
    """The intensity at an age, both from 0 to 1. The bell is the density of `draw.bell`: near to normal, 0 at the ends,
    and without a function whose last bit could differ between machines."""
    if age < 0.0 or age > 1.0:
        return 0.0
    if step:
        return 1.0
    z = abs(age - 0.5) * 3.0
    return 1.0 - z * z / 0.75 if z < 0.5 else (1.5 - z) * (1.5 - z) / 1.5


@kernel
def _within(key: Key, row_id: int, n: int, middle: float, side: float, normal: bool) -> float:
    """Draw n of an id: a coordinate in the square."""
    low, high = middle - side / 2.0, middle + side / 2.0
    if normal:
        return reflect(middle + side * SPREAD_SHARE * bell(key, row_id, n), low, high)
    return min(max(low + side * uniform(key, row_id, n), low), high)


@kernel
def _clip(v: float, low: float, high: float) -> float:
    return min(max(v, low), high)


@kernel
def _redirect(ids: Ints, since_us: Ints, key: Key, spots: Table, frame: Floats, x: Floats, y: Floats) -> None:
    """Overwrite the points that go to a hotspot. Draw 0 decides which; draws 1 and 2 where."""
    for i in range(len(ids)):
        kind = uniform(key, ids[i], 0)
        for s in range(len(spots)):
            spot = spots[s]
            age = (since_us[i] - spot.start_us) / spot.life_us
            share = spot.peak * intensity(age, spot.step == 1)
            if kind < share:
                normal = spot.normal == 1
                at_x = _within(key, ids[i], 1, spot.x + spot.drift_x * age, spot.side_x, normal)
                at_y = _within(key, ids[i], 2, spot.y + spot.drift_y * age, spot.side_y, normal)
                x[i], y[i] = _clip(at_x, frame[0], frame[2]), _clip(at_y, frame[1], frame[3])
                break
            kind -= share


@kernel
def _crowd(sub_ids: Ints, which: Ints, key: Key, spots: Table, frame: Floats) -> tuple[Floats, Floats]:
    """Centres of the queries: where the hotspot will be at some moment of its life."""
    x, y = np.empty(len(sub_ids)), np.empty(len(sub_ids))
    for i in range(len(sub_ids)):
        spot, row_id = spots[which[i]], sub_ids[i]
        age = uniform(key, row_id, 3)
        normal = spot.normal == 1
        at_x = _within(key, row_id, 1, spot.x + spot.drift_x * age, spot.side_x, normal)
        at_y = _within(key, row_id, 2, spot.y + spot.drift_y * age, spot.side_y, normal)
        x[i], y[i] = _clip(at_x, frame[0], frame[2]), _clip(at_y, frame[1], frame[3])
    return x, y


LOWER_LEFT, UPPER_RIGHT = (0.125, 0.125), (0.875, 0.875)
MINUTE_S = 60.0


def _one_uniform(queries: int) -> tuple[Hotspot, ...]:
    return (Hotspot(LOWER_LEFT, 10 * MINUTE_S, 20 * MINUTE_S, queries),)


def _one_normal(queries: int) -> tuple[Hotspot, ...]:
    return (Hotspot(LOWER_LEFT, 10 * MINUTE_S, 20 * MINUTE_S, queries, spread="normal"),)


def _one_step(queries: int) -> tuple[Hotspot, ...]:
    return (Hotspot(LOWER_LEFT, 10 * MINUTE_S, 20 * MINUTE_S, queries, intensity="step"),)


def _two_overlapping(queries: int) -> tuple[Hotspot, ...]:
    return (
        Hotspot(LOWER_LEFT, 10 * MINUTE_S, 20 * MINUTE_S, queries // 2, peak_share=PEAK_SHARE / 2),
        Hotspot(UPPER_RIGHT, 15 * MINUTE_S, 20 * MINUTE_S, queries // 2, peak_share=PEAK_SHARE / 2),
    )


def _two_consecutive(queries: int) -> tuple[Hotspot, ...]:
    return (
        Hotspot(LOWER_LEFT, 10 * MINUTE_S, 15 * MINUTE_S, queries // 2, peak_share=PEAK_SHARE / 2),
        Hotspot(UPPER_RIGHT, 25 * MINUTE_S, 15 * MINUTE_S, queries // 2, peak_share=PEAK_SHARE / 2),
    )


def _one_moving(queries: int) -> tuple[Hotspot, ...]:
    return (Hotspot(LOWER_LEFT, 10 * MINUTE_S, 20 * MINUTE_S, queries, intensity="step", drift=(0.4, 0.4)),)


SCENARIOS: dict[str, Callable[[int], tuple[Hotspot, ...]]] = {
    "one-uniform": _one_uniform,  # Fig. 12
    "one-normal": _one_normal,  # Fig. 13
    "one-step": _one_step,  # Fig. 14
    "two-overlapping": _two_overlapping,  # Fig. 15
    "two-consecutive": _two_consecutive,  # Fig. 16
    "one-moving": _one_moving,
}
"""Functions by name, from the number of all queries of the hotspots. The hotspots start after ten minutes."""


def scenario(name: str, base: Tweets, queries: int) -> Hotspots:
    if name not in SCENARIOS:
        raise SettingsError(f"no hotspot scenario is called {name!r}: choose one of {', '.join(SCENARIOS)}")
    return Hotspots(base, SCENARIOS[name](queries))
