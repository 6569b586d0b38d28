"""Half an hour of six vans in a made-up town, and fences there: the rows of `geoswarm init --example fleet`.

Messages are as a fleet's server sends them: names of its own, nested objects, UUIDs, milliseconds, noise of GPS, and
three that are of no use. `sample_files` is what lies in `service/examples/fleet/`, which a test compares; after a
change write it again: `python -m geoswarm.lab.workload.fleet`. Taxis that drive at random are in `moves.py`.
"""

import json
import math
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.shapes.circle import EARTH_M

MIDDLE = (2.1640, 41.3920)
"""Longitude and latitude of the crossing (0, 0)."""
BLOCK_M = 133.0
"""From one street to the next; streets lead north-east and north-west."""
BEGIN_MS = 1_767_600_000_000
FIX_S = 10
FILES = 3
FILE_S = 600
TUNNEL = ("van-6", 700, 790)
"""Who drives through it, and the seconds: fixes there are off by hundreds of metres, and say so."""
TUNNEL_M = 150.0


class Leg(NamedTuple):
    """Along one street after the other to a crossing, or to a place between two; then a stand."""

    u: float
    v: float
    kmh: float = 28.0
    stand_s: float = 0.0


class Van(NamedTuple):
    name: str
    noise_m: float
    start: tuple[float, float]
    legs: tuple[Leg, ...]


VANS = (
    Van("van-1", 5, (-6.5, -1.5), (
        Leg(-6, 0, 20), Leg(0, 3), Leg(4, 3, stand_s=150), Leg(4, 0), Leg(-6, -1), Leg(-6.5, -1.5, 15),
    )),
    Van("van-2", 14, (1, -4), (Leg(-5, -4), Leg(-5, -1.5, 25, stand_s=720), Leg(-5, 2), Leg(3, 4), Leg(3, 1))),
    Van("van-3", 5, (7, 4), (
        Leg(7, -2), Leg(2, -2, 45), Leg(2, 4, 48), Leg(-3, 4, 40), Leg(-3, -2, 40, stand_s=60), Leg(6, -2, 24),
        Leg(6, 2, 24), Leg(0, 2, 24), Leg(0, -4, 24),
    )),
    Van("van-4", 5, (-3, -4), (
        Leg(5, -4, 46), Leg(5, 1, 46, stand_s=120), Leg(5, -4, 46), Leg(-2, -4, 46), Leg(-2, 1, 30, stand_s=60),
        Leg(-2, -4, 30), Leg(7, -4, 50), Leg(7, 4, 30),
    )),
    Van("van-5", 6, (-5.7, -1.2), (
        Leg(-5.7, -1.2, stand_s=60), Leg(-5, 3), Leg(3, 3, 22), Leg(3, 3.5, 15, stand_s=420), Leg(-1, 3, 20),
        Leg(-1, 0.5, 20, stand_s=260), Leg(-5, 0), Leg(-6, -1.2, 15),
    )),
    Van("van-6", 8, (-4, 4), (
        Leg(-4, 1), Leg(1, 1, stand_s=200), Leg(1, -3), Leg(6, -3), Leg(6, 3), Leg(-1, 3), Leg(-1, -3), Leg(-4, -3),
        Leg(-4, 4),
    )),
)  # fmt: skip


def place(u: float, v: float) -> tuple[float, float]:
    """Longitude and latitude of a place in the town, which is given in blocks."""
    east, north = (u - v) * BLOCK_M / math.sqrt(2), (u + v) * BLOCK_M / math.sqrt(2)
    degree_m = EARTH_M * math.pi / 180
    return (
        round(MIDDLE[0] + east / degree_m / math.cos(math.radians(MIDDLE[1])), 6),
        round(MIDDLE[1] + north / degree_m, 6),
    )


def _drive(van: Van) -> Iterator[tuple[float, float, float]]:
    """Where the van is at the time of each fix, with its speed."""
    stops = [(0.0, *van.start)]
    for leg in van.legs:
        for u, v in ((leg.u, stops[-1][2]), (leg.u, leg.v)):  # along u first, then along v
            at_s, from_u, from_v = stops[-1]
            metres = (abs(u - from_u) + abs(v - from_v)) * BLOCK_M
            if metres:
                stops.append((at_s + metres / (leg.kmh / 3.6), u, v))
        if leg.stand_s:
            stops.append((stops[-1][0] + leg.stand_s, leg.u, leg.v))
    for second in range(0, FILES * FILE_S, FIX_S):
        for (s0, u0, v0), (s1, u1, v1) in pairwise(stops):
            if s0 <= second < s1:
                share = (second - s0) / (s1 - s0)
                kmh = (abs(u1 - u0) + abs(v1 - v0)) * BLOCK_M / (s1 - s0) * 3.6
                yield u0 + (u1 - u0) * share, v0 + (v1 - v0) * share, kmh
                break
        else:
            yield stops[-1][1], stops[-1][2], 0.0


def _messages(rng: np.random.Generator) -> Iterator[tuple[int, str]]:
    """The second and the text of each message, van by van."""
    for van in VANS:
        for number, (u, v, kmh) in enumerate(_drive(van)):
            second = number * FIX_S
            lost = van.name == TUNNEL[0] and TUNNEL[1] <= second < TUNNEL[2]
            off_m = rng.normal(0.0, TUNNEL_M if lost else van.noise_m, 2) / BLOCK_M
            lng, lat = place(u + off_m[0], v + off_m[1])
            message = {
                "fix": {"uuid": str(uuid.UUID(bytes=rng.bytes(16), version=4))},
                "sent_ms": BEGIN_MS + second * 1000 + int(rng.integers(0, 900)),
                "vehicle": {"id": van.name, "status": "driving" if kmh else "standing"},
                "lng": lng,
                "lat": lat,
                "acc": 320 if lost else int(van.noise_m * 1.5),
                "kmh": round(kmh),
            }
            yield second, json.dumps(message)


def fix_files() -> dict[str, str]:
    """The messages as JSON lines in the order of their time, by the names of their files."""
    said = sorted(_messages(np.random.default_rng(17)), key=lambda message: message[0])
    lines = [[text for second, text in said if second // FILE_S == number] for number in range(FILES)]
    no_fix = json.loads(lines[1][40]) | {"lng": 0, "lat": 0}  # what many receivers send before they know their place
    lines[1].insert(41, json.dumps(no_fix))
    lines[1].insert(90, lines[1][90][:97])
    lines[2].insert(30, json.dumps(json.loads(lines[2][29]) | {"sent_ms": None}))
    return {f"fixes/fixes-{number + 1}.json": "\n".join(own) + "\n" for number, own in enumerate(lines)}


def fences() -> dict[str, Any]:
    """The subscriptions as GeoJSON: any map shows them."""
    yard = _polygon((-7, -2.5), (-5, -2.5), (-5, -0.5), (-7, -0.5))
    calm = {"confirm": "3 fixes", "exit_buffer_m": 40, "user": "yard"}
    return {
        "type": "FeatureCollection",
        "features": [
            _feature(1, yard, {"user": "plain", "on": "enter"}, "Yard, plain"),
            _feature(2, yard, {"user": "plain", "on": "exit"}, "Yard, plain"),
            _feature(3, yard, {**calm, "on": "enter"}, "Yard"),
            _feature(4, yard, {**calm, "on": "exit"}, "Yard"),
            _feature(5, _point(3, 3.5), {"radius_m": 120, "user": "parking", "on": "dwell(180)"}, "Market"),
            _feature(
                6,
                _polygon((1.6, -1), (2.4, -1), (2.4, 2), (1.6, 2)),
                {"user": "school", "on": "enter", "where": "kmh > 30"},
                "School",
            ),
            _feature(7, _polygon((3.4, -4.2), (3.6, -4.2), (3.6, -3.8), (3.4, -3.8)), {"user": "toll", "on": "cross"},
                     "Toll gate"),
            _feature(8, _point(-1, 0.5), {"radius_m": 160, "user": "order 88", "on": "enter", "confirm": "2 fixes",
                                         "objects": ["van-5"]}, "Order 88"),
        ],
    }  # fmt: skip


def _polygon(*corners: tuple[float, float]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[list(place(*corner)) for corner in (*corners, corners[0])]]}


def _point(u: float, v: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": list(place(u, v))}


def _feature(sub_id: int, geometry: dict[str, Any], asked: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "type": "Feature",
        "properties": {"sub_id": sub_id, **asked, "payload": {"name": name}},
        "geometry": geometry,
    }


def sample_files() -> dict[str, str]:
    """What the example has beside its settings, by the names of the files."""
    features = ",\n".join(json.dumps(feature) for feature in fences()["features"])
    return fix_files() | {"fences.geojson": f'{{"type": "FeatureCollection", "features": [\n{features}\n]}}\n'}


def main(folder: Path) -> None:
    for name, text in sample_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(__file__).parents[2] / "service" / "examples" / "fleet")
