"""Collisions on the roads, published as points and as postcode polygons, and subscriptions to postcode polygons.

Rows are random; the country is in `postcodes.py`, the choice of hot executors in `skew.py`. Distributor §4.3:
polygons are those of collisions picked at random, so that they are spread as collisions are, and polygons among the
publications take longer than points do.

    place ──► which level? ──► its polygon there                          subscriptions: sector, district or area
          └─► point or polygon? ──► the place, some metres off it         publications: a point,
                               └──► the place, and its polygon                           or a sector or district

A row depends on nothing but the parameters and its id, as in `tweets.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.draw import Key, key_of
from geoswarm.lab.workload.postcodes import BOUNDS, LEVELS, Britain
from geoswarm.lab.workload.queries import draws
from geoswarm.lab.workload.skew import Hot
from geoswarm.lab.workload.tweets import ID_MAX, START_S
from geoswarm.model import EVENT, GEOMETRY

PUBLICATION = EVENT.append(GEOMETRY)
"""`x` and `y` are the collision's place, also of a polygon, which is routed by it. `geometry` is WKB; null: a point."""
SUBSCRIPTION = pa.schema([pa.field("sub_id", pa.int64(), nullable=False), GEOMETRY])
"""The columns that `Engine.load` needs in a file of regions."""

PUBLISHED_LEVELS = 2
"""Sectors and districts; areas are only subscribed to."""
JITTER_DEG = 0.001
"""Points are drawn again and again from some hundred thousand collisions: each up to 100 m off, east and north."""
ROWS_MAX = 400_000
"""Rows of one batch: a polygon is about 2 kB, and Arrow's binary columns end at 2 GB."""


@dataclass(frozen=True, eq=False)
class Collisions:
    """Ids from 0; publication i is at `start_s + i / events_per_s` of stream time."""

    britain: Britain
    seed: int = 0
    polygon_share: float = 0.5
    """The share of polygons among the publications."""
    events_per_s: float = 10_000.0
    start_s: float = START_S

    def __post_init__(self) -> None:
        if not (0 <= self.polygon_share <= 1 and 1e-6 <= self.events_per_s <= 1e12 and 0 <= self.start_s <= 1e11):
            raise SettingsError(
                f"polygon_share {self.polygon_share}, events_per_s {self.events_per_s} or start_s {self.start_s} of "
                "the collisions is out of range: give 0 to 1, 1e-6 to 1e12, and 0 to 1e11"
            )

    def subscriptions(self, first_id: int, count: int) -> pa.RecordBatch:
        """Sectors, districts or areas of collisions, as `SUBSCRIPTION`. Popular polygons occur several times."""
        ids, key = _ids(first_id, count), key_of(self.seed, "zones")
        places = _pick(np.arange(len(self.britain.places)), draws(key, ids, 0))
        level = (draws(key, ids, 1) * len(LEVELS)).astype(np.int64)
        return pa.record_batch([pa.array(ids), self._polygons(places, level)], schema=SUBSCRIPTION)

    def publications(
        self, first_id: int, count: int, *, hot: Hot | None = None, share: float | None = None
    ) -> pa.RecordBatch:
        """Rows as `PUBLICATION`. With a skew coefficient, `share` of them is in the cells of `hot`, the rest is not; on
        either side every collision is as likely as any other, and the 3/16 of a level plan is no skew."""
        ids, key = _ids(first_id, count), key_of(self.seed, "crashes")
        places = self._places(key, ids, hot, share)
        polygon = draws(key, ids, 2) < self.polygon_share
        level = (draws(key, ids, 3) * PUBLISHED_LEVELS).astype(np.int64)
        xy = self.britain.places[places]
        near = np.clip(xy + (_pairs(key, ids) - 0.5) * 2 * JITTER_DEG, BOUNDS[:2], BOUNDS[2:])
        stays = polygon if hot is None else polygon | (hot.are_hot(near) != hot.are_hot(xy))
        x, y = np.where(stays[:, None], xy, near).T
        geometry = self._polygons(places, level, ~polygon)
        return pa.record_batch([pa.array(ids), self._ts(ids), pa.array(x), pa.array(y), geometry], schema=PUBLICATION)

    def replay(self, pool: pa.RecordBatch, rows: Ints, first_id: int) -> pa.RecordBatch:
        """Publications of a pool as a stream of its own, such as `skew.resample` returns: ids and times go on from
        `first_id`."""
        ids = _ids(first_id, len(rows))
        taken = pool.take(pa.array(rows))
        return pa.record_batch([pa.array(ids), self._ts(ids), *taken.columns[2:]], schema=pool.schema)

    def _places(self, key: Key, ids: Ints, hot: Hot | None, share: float | None) -> Ints:
        drawn = draws(key, ids, 1)
        if hot is None and share is None:
            return _pick(np.arange(len(self.britain.places)), drawn)
        if hot is None or share is None:
            raise InputError("a skew coefficient needs a share and who is hot: give both, or none")
        are_hot = hot.are_hot(self.britain.places)
        if not (0 <= share <= 1) or are_hot.all() or not are_hot.any():
            raise InputError(
                f"no share of {share} can be drawn where {int(are_hot.sum())} of {len(are_hot)} places are hot: give a "
                "share from 0 to 1, and executors that own some of them"
            )
        warm, cold = (_pick(np.flatnonzero(side), drawn) for side in (are_hot, ~are_hot))
        return np.where(draws(key, ids, 0) < share, warm, cold)

    def _polygons(self, places: Ints, level: Ints, missing: Bools | None = None) -> pa.Array:
        wkb, first = self._wkb
        return wkb.take(pa.array(first[level] + self.britain.homes[places, level], mask=missing))

    @cached_property
    def _wkb(self) -> tuple[pa.Array, Ints]:
        """The WKB of all polygons, and where each level begins."""
        polygons = self.britain.polygons
        sizes = np.array([len(of_level) for of_level in polygons])
        return pa.array(shapely.to_wkb(np.concatenate(polygons)), pa.binary()), np.cumsum(sizes) - sizes

    def _ts(self, ids: Ints) -> pa.Array:
        us = int(self.start_s * 1e6) + (ids * (1e6 / self.events_per_s)).astype(np.int64)
        return pa.array(us).cast(EVENT.field("ts").type)


def write(folder: Path, subscriptions: pa.RecordBatch, publications: Iterable[pa.RecordBatch]) -> None:
    """Write `subscriptions.parquet` for `Engine.load`, and a file per batch in `events` for `events_from_files`."""
    (folder / "events").mkdir(parents=True)
    pq.write_table(pa.table(subscriptions), folder / "subscriptions.parquet")
    for number, batch in enumerate(publications):
        pq.write_table(pa.table(batch), folder / "events" / f"{number:05d}.parquet")


def _ids(first_id: int, count: int) -> Ints:
    if first_id < 0 or not 0 <= count <= ROWS_MAX or first_id + count > ID_MAX:
        raise InputError(f"no {count} rows from id {first_id}: ids run from 0 to 2^53, {ROWS_MAX} at once")
    return np.arange(first_id, first_id + count, dtype=np.int64)


def _pick(places: Ints, drawn: Floats) -> Ints:
    """`drawn` is in [0, 1)."""
    return places[(drawn * len(places)).astype(np.int64)]


def _pairs(key: Key, ids: Ints) -> Floats:
    return np.stack([draws(key, ids, 4), draws(key, ids, 5)], axis=1)
