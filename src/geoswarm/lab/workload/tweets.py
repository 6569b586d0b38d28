"""A stream of located posts, and of standing rectangles, that looks like the world's cities through a day.

Any range of ids can be asked for, and a row depends on nothing but the parameters and its id: however a range
is cut over batches, tasks or machines, a replay gives the same rows. `cities.py` knows the places, `draw.py`
the chance; hotspots and attacks are workloads of their own.

    id ──► ts ──► quarter of an hour ──► time zone (population × activity by its clock)
                                             └──► city (by population) ──► scatter round it ──► x, y

SWARM Fig. 1: at 6AM (EDT) Europe and Asia are more active than the Americas, at 6PM the opposite.
SWARM §6: rectangles with sides of 0.16% of the world's side.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.cities import WORLD, Bounds, cities
from geoswarm.lab.workload.draw import Key, alias_table, bell, key_of, picks, reflect, uniform, zipf_table
from geoswarm.model import EVENT

START_S = 1_719_792_000.0
"""2024-07-01 00:00 UTC, the day whose clocks `cities.py` uses."""

END_S = 253_402_300_800.0
"""The end of the year 9999, the last that Spark's timestamps hold."""

ID_MAX = 1 << 53
SIDE_SHARE_MIN = 1e-9
"""Smaller sides would vanish in the rounding of a coordinate."""

DAY_SLOTS = 96
SLOT_US = 86_400_000_000 // DAY_SLOTS
BURST_US = 480_000_000
"""A burst lasts one slot of eight minutes."""
BURST_CHANCE = 0.4
BURST_RADIUS_SHARE = 0.3
"""A burst is narrower than its city: a stadium, a square."""

Table = npt.NDArray[np.void]
_CITY = np.dtype([(n, "f8") for n in ("x", "y", "radius_x", "radius_y", "coin")] + [("alias", "i8")], align=True)
_ZONE = np.dtype([("coin", "f8"), ("alias", "i8"), ("first", "i8"), ("size", "i8")], align=True)


@dataclass(frozen=True)
class Tweets:
    """Ids from 0; each a post at `start_s + id / events_per_s` of stream time."""

    seed: int = 0
    bounds: Bounds = field(default=None)  # type: ignore[assignment]  # resolved below, never None afterwards
    """Within the world's degrees. By default the world, or the box round the country's cities."""
    country: str | None = None
    """A two-letter code; None is the whole world."""
    events_per_s: float = 10_000.0
    start_s: float = START_S
    side_share: float = 0.0016
    """Side of a subscription's rectangle, as a share of the world's side on each axis."""
    background_share: float = 0.02
    """Posts from anywhere within the bounds."""
    burst_share: float = 0.05
    """Posts that a burst draws to one city while it lasts; 0 for a calm world."""
    users: int = 1000
    stream_name: ClassVar[str] = "geoswarm-tweets"
    event_schema: ClassVar[pa.Schema] = EVENT
    id_max: ClassVar[int] = ID_MAX

    def __post_init__(self) -> None:
        given = cast("Bounds | None", self.bounds)
        box = given or (WORLD if self.country is None else cities(self.country).bounds())
        xmin, ymin, xmax, ymax = (float(v) for v in box)
        object.__setattr__(self, "bounds", (xmin, ymin, xmax, ymax))
        if not (WORLD[0] <= xmin < xmax <= WORLD[2] and WORLD[1] <= ymin < ymax <= WORLD[3]):
            raise SettingsError(
                f"bounds {self.bounds} of the tweets are no box of degrees: "
                f"give (xmin, ymin, xmax, ymax) within {WORLD}"
            )
        _expect("events_per_s", self.events_per_s, 1e-6, 1e12)
        _expect("start_s", self.start_s, 0.0, 1e11)
        _expect("side_share", self.side_share, SIDE_SHARE_MIN, 1.0)
        _expect("background_share", self.background_share, 0.0, 1.0)
        _expect("burst_share", self.burst_share, 0.0, 1.0 - self.background_share)
        _expect("users", self.users, 1, 65536)

    def events(self, first_id: int, count: int) -> pa.RecordBatch:
        """Posts first_id .. first_id + count - 1, as `model.EVENT`."""
        ids = _ids(first_id, count)
        if self.start_s + (first_id + count) / self.events_per_s > END_S:
            raise InputError(
                f"post {first_id + count} at {self.events_per_s:g} per second falls after the year 9999: "
                "raise events_per_s"
            )
        ts = int(self.start_s * 1e6) + (ids * (1e6 / self.events_per_s)).astype(np.int64)
        x, y = self._points(ids, ts, "events", average=False)
        return pa.record_batch(
            [pa.array(ids), pa.array(ts).cast(EVENT.field("ts").type), pa.array(x), pa.array(y)], schema=EVENT
        )

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch:
        """Registrations of sub_id first_id .. first_id + count - 1, as `columns.OPERATION`."""
        ids = _ids(first_id, count)
        return _operations(pa.repeat(pa.scalar("register"), count), ids, self._users_of(ids), self._rectangles(ids))

    def operations(self, first_id: int, count: int, registered: int) -> pa.RecordBatch:
        """Churn after `subscriptions(0, registered)`: even operations register a new id, odd ones cancel one.

        Each generation of `registered` ids is cancelled in a scrambled order while the next is registered:

            operation   0     1         2     3         4     5
            sub_id      R  cancel(0)   R+1  cancel(1)  R+2  cancel(2)      R = registered
        """
        if registered < 1:
            raise InputError(f"churn over {registered} registered subscriptions has none to cancel: register 1 or more")
        numbers = _ids(first_id, count)
        new = numbers % 2 == 0
        generation, place = np.divmod(numbers // 2, registered)
        step = _coprime_step(registered)
        cancelled = generation * registered + (place * step + self.seed) % registered
        ids = np.where(new, registered + numbers // 2, cancelled)
        sides = [np.zeros(count) for _ in range(4)]
        for side, drawn in zip(sides, self._rectangles(ids[new]), strict=True):
            side[new] = drawn
        verbs = pa.array(["cancel", "register"]).take(pa.array(new.astype(np.int8)))
        return _operations(verbs, ids, self._users_of(ids), sides, null=~new)

    def _points(self, ids: Ints, ts: Ints, purpose: str, *, average: bool) -> tuple[Floats, Floats]:
        places, zones = _tables(self.country, self.bounds)
        zones = zones[DAY_SLOTS:] if average else zones[:DAY_SLOTS]
        shares = np.array([self.background_share, 0.0 if average else self.burst_share])
        return _scatter(ids, ts, key_of(self.seed, purpose), shares, places, zones, np.array(self.bounds))

    def _rectangles(self, ids: Ints) -> list[Floats]:
        xmin, ymin, xmax, ymax = self.bounds
        x, y = self._points(ids, np.zeros(len(ids), np.int64), "subs", average=True)
        half_x, half_y = (xmax - xmin) * self.side_share / 2, (ymax - ymin) * self.side_share / 2
        low = [np.maximum(x - half_x, xmin), np.maximum(y - half_y, ymin)]
        return [*low, np.minimum(x + half_x, xmax), np.minimum(y + half_y, ymax)]

    def _users_of(self, ids: Ints) -> pa.Array:
        ranks, names = _users(self.users)
        return names.take(pa.array(picks(ids, key_of(self.seed, "users"), 0, ranks)))


def _expect(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also true for NaN
        raise SettingsError(f"{key} of the tweets is {value}: give a value from {low:g} to {high:g}")


def _ids(first_id: int, count: int) -> Ints:
    if first_id < 0 or count < 0 or first_id + count > ID_MAX:
        raise InputError(f"no {count} rows from id {first_id}: ids run from 0 to 2^53")
    return np.arange(first_id, first_id + count, dtype=np.int64)


def _operations(verbs: pa.Array, ids: Ints, users: pa.Array, sides: list[Floats], null: Any = None) -> pa.RecordBatch:
    rectangle = [pa.array(side, mask=null) for side in sides]
    empty = [pa.nulls(len(ids), field.type) for field in list(OPERATION)[7:]]
    return pa.record_batch([verbs, pa.array(ids), users, *rectangle, *empty], schema=OPERATION)


def _coprime_step(n: int) -> int:
    """A step that visits each of n places before it repeats, and jumps about: near the golden ratio of n."""
    step = max(1, int(n * 0.6180339887))
    while math.gcd(step, n) != 1:
        step += 1
    return step


@lru_cache(maxsize=4)
def _users(count: int) -> tuple[npt.NDArray[np.int32], pa.Array]:
    return zipf_table(count), pa.array([f"u{i}" for i in range(count)])


def activity(hour: float) -> float:
    """How busy people are by their own clock, up to 1: least at 5 in the morning, most 12 hours later."""
    wave = 0.5 + 0.5 * math.cos((hour - 17.0) * math.tau / 24.0)
    return round(0.08 + 0.92 * wave * wave, 6)


@lru_cache(maxsize=4)
def _tables(country: str | None, bounds: Bounds) -> tuple[Table, Table]:
    """The cities by clock, and for each quarter of an hour (last, for all day) the weight of each clock."""
    towns = cities(country).within(bounds)
    if not len(towns):
        raise SettingsError(f"bounds {bounds} hold no city of {country or 'the world'}: widen them")
    order = np.argsort(towns.utc_offset_s, kind="stable")
    offsets_s, first, size = np.unique(towns.utc_offset_s[order], return_index=True, return_counts=True)
    population = towns.population[order].astype(np.float64)

    places = np.zeros(len(towns), _CITY)
    places["x"], places["y"] = towns.x[order], towns.y[order]
    # Rounded, so that machines whose power functions differ in the last bit still draw the same points.
    places["radius_y"] = np.round(0.03 * (population / 15_000) ** 0.3, 6)
    places["radius_x"] = np.round(places["radius_y"] / np.maximum(np.cos(np.radians(places["y"])), 0.2), 6)
    zones = np.zeros((DAY_SLOTS + 1, len(offsets_s)), _ZONE)
    zones["first"], zones["size"] = first, size
    weights = np.zeros(len(offsets_s))
    for z, (start, n) in enumerate(zip(first, size, strict=True)):
        weights[z] = population[start : start + n].sum()
        coin, alias = alias_table(population[start : start + n])
        places["coin"][start : start + n], places["alias"][start : start + n] = coin, alias + start
    for slot in range(DAY_SLOTS):
        hours = ((slot + 0.5) * 24 / DAY_SLOTS + offsets_s / 3600) % 24
        busy = np.array([activity(hour) for hour in hours])
        zones["coin"][slot], zones["alias"][slot] = alias_table(weights * busy)
    zones["coin"][DAY_SLOTS], zones["alias"][DAY_SLOTS] = alias_table(weights)
    return places, zones


@kernel
def _city(key: Key, row_id: int, places: Table, zones: Table) -> int:
    """Draws 1 and 2 of an id: the clock, then the city."""
    u = uniform(key, row_id, 1) * len(zones)
    z = int(u)
    if u - z >= zones[z].coin:
        z = zones[z].alias
    u = uniform(key, row_id, 2) * zones[z].size
    c = int(u)
    at = zones[z].first + c
    return at if u - c < places[at].coin else places[at].alias  # type: ignore[no-any-return]


@kernel
def _scatter(
    ids: Ints, ts: Ints, key: Key, shares: Floats, places: Table, zones: Table, frame: Floats
) -> tuple[Floats, Floats]:
    """One point per id. `ts` rises along the ids; the row of `zones` and the burst change with it."""
    x, y = np.empty(len(ids)), np.empty(len(ids))
    now = zones[0]
    slot_ends = burst_ends = np.int64(-1)
    burst_city, bursting = 0, shares[0]
    for i in range(len(ids)):
        row_id = ids[i]
        if ts[i] >= slot_ends:
            slot = ts[i] // SLOT_US
            slot_ends = (slot + 1) * SLOT_US
            now = zones[slot % len(zones)]
        if ts[i] >= burst_ends:
            burst = ts[i] // BURST_US
            burst_ends = (burst + 1) * BURST_US
            bursting = shares[0] + (shares[1] if uniform(~key, burst, 0) < BURST_CHANCE else 0.0)
            # By the clock at the burst's own start, so that a range cut inside it finds the same city.
            burst_city = _city(~key, burst, places, zones[burst * BURST_US // SLOT_US % len(zones)])
        kind = uniform(key, row_id, 0)
        if kind < shares[0]:
            x[i] = reflect(frame[0] + uniform(key, row_id, 3) * (frame[2] - frame[0]), frame[0], frame[2])
            y[i] = reflect(frame[1] + uniform(key, row_id, 4) * (frame[3] - frame[1]), frame[1], frame[3])
            continue
        v = uniform(key, row_id, 5)
        if kind < bursting:
            city, reach = burst_city, BURST_RADIUS_SHARE
        else:
            # Most near the centre, few far out.
            city, reach = _city(key, row_id, places, now), 0.3 + 2.2 * v * v * v
        place = places[city]
        x[i] = reflect(place.x + place.radius_x * reach * bell(key, row_id, 3), frame[0], frame[2])
        y[i] = reflect(place.y + place.radius_y * reach * bell(key, row_id, 4), frame[1], frame[3])
    return x, y
