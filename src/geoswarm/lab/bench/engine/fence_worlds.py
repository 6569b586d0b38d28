"""Fences and moves of `fences.py`, as Tile38 and as geoswarm have them.

Measures nothing. Fences are the rectangles of the tweets' world, about its cities, all of one size: the more there are,
the more lie over each other. Objects begin where people tweet, and go a small part of a fence with each move.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.lab.bench.kit.density import rectangles_of, tweets_for
from geoswarm.lab.bench.kit.tile38 import encode, fence
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import TIMESTAMP

KINDS = ("enter", "exit")
KEY = "fleet"
STANDARD = 23_000
"""As many fences as the claim is about."""
NEAR = 3.0
"""Fences that an object is in, on average, when there are so many."""
STEP = 0.03
"""Of a fence's side, the standard deviation of a move in either direction."""


@dataclass(frozen=True)
class Moves:
    """Of each object a move in each round, after a first fix that is not counted."""

    objects: int
    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.x) - self.objects

    def commands(self, first: int, end: int, names: int) -> list[bytes]:
        """SETs of these fixes; objects are numbered from `names` on."""
        of = names + np.arange(first, end) % self.objects
        places = zip(of.tolist(), self.x[first:end].tolist(), self.y[first:end].tolist(), strict=True)
        return [encode("SET", KEY, name, "POINT", lat, lon) for name, lon, lat in places]

    def events(self, first: int, end: int, names: int, ts_us: Ints | None = None) -> pa.Table:
        """These fixes; the id of an event is its number, and without `ts_us` also its time."""
        numbers = np.arange(first, end)
        times = numbers if ts_us is None else ts_us
        return pa.table(
            {
                "event_id": numbers,
                "ts": pa.array(times).cast(TIMESTAMP),
                "x": self.x[first:end],
                "y": self.y[first:end],
                "object_id": names + numbers % self.objects,
            }
        )


@dataclass(frozen=True)
class World:
    rects: Floats
    tweets: Tweets

    @classmethod
    def of(cls, fences: int, seed: int) -> "World":
        tweets = tweets_for(STANDARD, NEAR, seed)
        return cls(rectangles_of(tweets, fences), tweets)

    def moves(self, objects: int, count: int, turn: int, seed: int) -> Moves:
        """About so many; turns differ."""
        rng = np.random.default_rng([seed, turn])
        begins, rounds = self.tweets.events(turn * objects, objects), count // objects
        sides = self.rects[0, 2:] - self.rects[0, :2]
        steps = np.cumsum(rng.normal(0.0, STEP, (rounds, objects, 2)) * sides, axis=0)
        at = np.stack([np.asarray(begins.column(axis)) for axis in ("x", "y")], axis=1)
        places = np.clip(np.concatenate([at[None], at + steps]), (-180.0, -90.0), (180.0, 90.0)).reshape(-1, 2)
        return Moves(objects, np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1]))

    def commands(self) -> list[bytes]:
        """A SETCHAN of each fence."""
        return [
            fence(str(n), KEY, ",".join(KINDS), "BOUNDS", south, west, north, east)
            for n, (west, south, east, north) in enumerate(self.rects.tolist())
        ]

    def write_operations(self, path: Path) -> None:
        """Two subscriptions of each fence: twice its number on enter, and one more on exit."""
        ids = np.arange(len(KINDS) * len(self.rects))
        columns = {"op": pa.repeat(pa.scalar("register"), len(ids)), "sub_id": pa.array(ids)}
        columns |= {side: np.repeat(self.rects[:, k], 2) for k, side in enumerate(("xmin", "ymin", "xmax", "ymax"))}
        columns["on"] = pa.array(KINDS).take(pa.array(ids % len(KINDS)))
        nulls = {field.name: pa.nulls(len(ids), field.type) for field in OPERATION if field.name not in columns}
        pq.write_table(pa.table(columns | nulls).select(OPERATION.names).cast(OPERATION), path)


def alert_keys(fences: Ints, kinds: Ints, numbers: Ints) -> Ints:
    """One number for each alert: of which fix, of which fence, and whether it is an exit. Ascending."""
    return np.sort((numbers << 32) + fences * len(KINDS) + kinds)
