"""Moves of objects as a map has them, and what a GPS makes of them: made-up taxis in streets, and real ships.

A taxi drives from crossing to crossing, turns where it likes, and now and then stands for minutes anywhere in a
street. The ships are those of New York harbour in a week, a fix about a minute, where the file is at hand
(`GEOSWARM_DATA` names its folder, as for `real_posts.py`).
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.shapes.circle import EARTH_M
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE
from geoswarm.model import TIMESTAMP

DEGREE_M = EARTH_M * np.pi / 180
CITY = (2.35, 48.85)
"""The lon and lat of the middle of the taxis' city."""
STREETS = 35
BLOCKS_M = (60.0, 200.0)
"""From one street to the next."""
SPEEDS_M_S = (5.0, 14.0)
STANDS_S = (20.0, 300.0)
STANDS_SHARE = 0.05
"""Of the blocks, those in which a taxi stands for a while."""
SHIPS_FILE = "points_ais_nyharbor_week.parquet"
HARBOUR = (-74.3, 40.4, -73.7, 40.9)


class Moves(NamedTuple):
    """Fixes in the order of their time."""

    objects: Ints
    ts_us: Ints
    lon: Floats
    lat: Floats

    def events(self) -> pa.Table:
        ids, times = np.arange(len(self.objects)), pa.array(self.ts_us).cast(TIMESTAMP)
        return pa.table({"event_id": ids, "ts": times, "x": self.lon, "y": self.lat, "object_id": self.objects})

    def blur(self, noise_m: float, rng: np.random.Generator) -> "Moves":
        """The same moves, each fix off by so many metres in either direction, as a standard deviation."""
        off = rng.normal(0.0, noise_m, (2, len(self.lon))) / DEGREE_M
        return self._replace(lon=self.lon + off[0] / np.cos(np.radians(self.lat)), lat=self.lat + off[1])


def drive_taxis(count: int, seconds: float, fix_s: float, rng: np.random.Generator) -> Moves:
    """A fix of each taxi every so many seconds."""
    lines = [np.cumsum(rng.uniform(*BLOCKS_M, STREETS)) for _ in range(2)]
    paths = [_drive(lines, seconds, rng) for _ in range(count)]
    at_s = np.arange(0.0, seconds, fix_s)
    metres = np.array([[np.interp(at_s, path[0], path[k]) for path in paths] for k in (1, 2)])
    middle = np.array([line.mean() for line in lines])[:, None]
    north, east = metres.reshape(2, -1)[1] - middle[1], metres.reshape(2, -1)[0] - middle[0]
    lat = CITY[1] + north / DEGREE_M
    moves = Moves(
        np.repeat(np.arange(count), len(at_s)),
        np.tile(np.rint(at_s * 1e6).astype(np.int64), count),
        CITY[0] + east / (DEGREE_M * np.cos(np.radians(CITY[1]))),
        lat,
    )
    return _by_time(moves)


def _drive(lines: list[Floats], seconds: float, rng: np.random.Generator) -> Floats:
    """Corners of one taxi's way: the times, and the metres in both directions."""
    at = rng.integers(0, STREETS, 2)
    way, now_s = [(0.0, lines[0][at[0]], lines[1][at[1]])], 0.0
    while now_s < seconds:
        axis, step = int(rng.integers(2)), int(rng.choice([-1, 1]))
        if not 0 <= at[axis] + step < STREETS:
            continue
        before = np.array(way[-1][1:])
        at[axis] += step
        after = np.array([lines[0][at[0]], lines[1][at[1]]])
        took_s = float(np.abs(after - before).sum() / rng.uniform(*SPEEDS_M_S))
        if rng.random() < STANDS_SHARE:
            part = rng.uniform(0.1, 0.9)
            x, y = before + part * (after - before)
            way.append((now_s + part * took_s, x, y))
            stands_s = rng.uniform(*STANDS_S)
            way.append((now_s + part * took_s + stands_s, x, y))
            now_s += stands_s
        now_s += took_s
        way.append((now_s, *after))
    return np.array(way).T


def ships_at_hand() -> bool:
    """Whether `real_ships` would find its file."""
    named = os.environ.get(FOLDER_VARIABLE)
    return bool(named) and (Path(str(named)) / SHIPS_FILE).is_file()


def real_ships(count: int, rng: np.random.Generator) -> Moves:
    """Some of the ships with the most fixes in the harbour."""
    rows = pq.read_table(Path(os.environ[FOLDER_VARIABLE]) / SHIPS_FILE)
    lon, lat = (rows.column(name).to_numpy() for name in ("lon", "lat"))
    west, south, east, north = HARBOUR
    near = (lon > west) & (lon < east) & (lat > south) & (lat < north)
    names = rows.column("mmsi").to_numpy()
    ids, fixes = np.unique(names[near], return_counts=True)
    busy = ids[np.argsort(-fixes)[: 3 * count]]
    chosen = near & np.isin(names, rng.choice(busy, min(count, len(busy)), replace=False))
    ts_us = rows.column("ts").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    return _by_time(Moves(names[chosen], ts_us[chosen], lon[chosen], lat[chosen]))


def _by_time(moves: Moves) -> Moves:
    order = np.argsort(moves.ts_us, kind="stable")
    return Moves(moves.objects[order], moves.ts_us[order], moves.lon[order], moves.lat[order])
