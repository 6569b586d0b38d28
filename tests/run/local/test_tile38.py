"""The same moves to Tile38's server and to the local engine: they agree on enter, exit and cross, and differ as the
page docs/tile38.md says. Each difference of the page has its test here. Without a server (`GEOSWARM_PEERS`, else
shared/peers beside the repository) all are skipped."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.lab.bench.kit.tile38 import END, PEERS_VARIABLE, Subscriber, Tile38, batched, encode, fence
from geoswarm.lab.workload.moves import real_ships
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE

pytestmark = pytest.mark.slow
ENTER, EXIT, CROSS = KINDS = ("enter", "exit", "cross")
WEST, SOUTH, EAST, NORTH = 2.2, 48.7, 2.6, 49.0
Rows = Sequence[tuple[str, float, float]]
"""The fixes in order: object, lon, lat."""
Told = dict[tuple[int, str], list[tuple[str, int]]]
"""By fence and object, in order: what the object did, and the number of the fix."""


class Fence(NamedTuple):
    """A place as Tile38 and as a subscription has it."""

    area: tuple[Any, ...]
    place: Mapping[str, Any]

    @classmethod
    def box(cls, west: float, south: float, east: float, north: float) -> "Fence":
        return cls(("BOUNDS", south, west, north, east), {"rectangle": (west, south, east, north)})

    @classmethod
    def circle(cls, lon: float, lat: float, metres: float) -> "Fence":
        return cls(("CIRCLE", lat, lon, metres), {"geometry": f"CIRCLE({lon} {lat}, {metres})"})

    @classmethod
    def polygon(cls, ring: Sequence[tuple[float, float]]) -> "Fence":
        text = ", ".join(f"[{x}, {y}]" for x, y in (*ring, ring[0]))
        json_text = f'{{"type": "Polygon", "coordinates": [[{text}]]}}'
        return cls(("OBJECT", json_text), {"geometry": json_text})


@pytest.fixture(scope="module")
def server(peers_folder: Path) -> Iterator[Tile38]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PEERS_VARIABLE, str(peers_folder))
        with Tile38() as running:
            yield running


def told_by_tile38(server: Tile38, fences: Sequence[Fence], rows: Rows, *commands: bytes) -> Told:
    """`commands` come after the fixes."""
    connection = server.connect()
    connection.call("FLUSHDB")
    asked = [fence(str(n), "fleet", ",".join(KINDS), *one.area) for n, one in enumerate(fences)]
    connection.send(b"".join(asked), len(asked))
    subscriber = Subscriber(server.port)
    moves = [  # numbers begin with 1, since a field of 0 is none
        encode("SET", "fleet", name, "FIELD", "number", n + 1, "POINT", lat, lon)
        for n, (name, lon, lat) in enumerate(rows)
    ]
    for piece, replies in batched([*moves, *commands, encode("PUBLISH", END, END)], 100):
        connection.send(piece, replies)
    subscriber.wait()
    connection.close()
    told = defaultdict[tuple[int, str], list[tuple[str, int]]](list)
    for note in subscriber.notifications():
        told[int(note.channel), note.object_id].append((note.detect, note.number - 1))
    return dict(told)


def told_by_geoswarm(
    folder: Path,
    fences: Sequence[Fence],
    rows: Rows,
    *,
    seconds: Sequence[int] | None = None,
    sizes: Sequence[int] = (),
    **tuning: Any,
) -> Told:
    """A fix a second, in batches of these sizes, and the rest in one."""
    events = pa.table(
        {
            "event_id": np.arange(len(rows)),
            "ts": pa.array(seconds or range(len(rows)), pa.timestamp("s", "UTC")),
            "x": [lon for _, lon, _ in rows],
            "y": [lat for _, _, lat in rows],
            "object_id": [name for name, _, _ in rows],
        }
    )
    ends = np.cumsum([0, *sizes])
    batches = [events.slice(first, count) for first, count in zip(ends, (*sizes, len(rows)), strict=True)]
    matches = gs.sinks.Memory()
    settings: dict[str, Any] = {"matches": "alerts", "cross_way_m_max": 1e7, "object_ttl_s": 1e6} | tuning
    with gs.LocalEngine(gs.Contract(executors=3), gs.Tuning(**settings), checkpoint=str(folder)) as engine:
        engine.submit(
            operation_table(
                registration(len(KINDS) * n + k, on=kind, **one.place)
                for n, one in enumerate(fences)
                for k, kind in enumerate(KINDS)
            )
        )
        engine.start(events=[b for b in batches if len(b)], sink=matches, available_now=True).wait()
    told = defaultdict[tuple[int, str], list[tuple[str, int]]](list)
    for row in matches.table().sort_by([("event_id", "ascending"), ("sub_id", "ascending")]).to_pylist():
        told[row["sub_id"] // len(KINDS), row["object_id"]].append((row["transition"], row["event_id"]))
    return dict(told)


def without_crossing_in(told: Told) -> Told:
    """Our `cross`, left out where the object has come in by it: Tile38 calls that enter alone."""
    kept = {key: [one for one in seen if one[0] != CROSS or (ENTER, one[1]) not in seen] for key, seen in told.items()}
    return {key: seen for key, seen in kept.items() if seen}


def count(told: Told, kind: str) -> int:
    return sum(one[0] == kind for seen in told.values() for one in seen)


def draw_fences(rng: np.random.Generator, number: int) -> list[Fence]:
    fences = []
    for n in range(number):
        lon, lat, reach = rng.uniform(WEST, EAST), rng.uniform(SOUTH, NORTH), rng.uniform(0.002, 0.05)
        if n % 3 == 0:
            fences.append(Fence.box(lon - reach, lat - reach / 2, lon + reach, lat + reach / 2))
        elif n % 3 == 1:
            fences.append(Fence.circle(lon, lat, reach * 80_000))
        else:
            corners = int(rng.integers(4, 9))
            turns = (np.arange(corners) + rng.uniform(0, 0.9, corners)) * (2 * np.pi / corners)
            far = reach * rng.uniform(0.3, 1.0, corners)
            ring = np.stack([lon + far * np.cos(turns), lat + far * np.sin(turns)], axis=1).tolist()
            fences.append(Fence.polygon([(x, y) for x, y in ring]))
    return fences


def walks(rng: np.random.Generator, objects: int, fixes: int, step: float) -> list[tuple[str, float, float]]:
    """Fixes of all objects, shuffled; nobody is twice at a place."""
    at = rng.uniform((WEST, SOUTH), (EAST, NORTH), (objects, 1, 2)) + np.cumsum(
        rng.normal(0, step, (objects, fixes, 2)), axis=1
    )
    whose = rng.permutation(np.repeat(np.arange(objects), fixes))
    taken, rows = np.zeros(objects, np.int64), []
    for one in whose.tolist():
        lon, lat = at[one, taken[one]].tolist()
        rows.append((f"van {one}", lon, lat))
        taken[one] += 1
    return rows


@pytest.mark.parametrize("world", range(3))
def test_enter_exit_and_cross_are_those_of_tile38(server: Tile38, tmp_path: Path, world: int) -> None:
    rng = np.random.default_rng(world)
    fences, rows = draw_fences(rng, 60), walks(rng, 30, 60, (0.01, 0.02, 0.06)[world])
    theirs = told_by_tile38(server, fences, rows)
    ours = told_by_geoswarm(tmp_path / "state", fences, rows, sizes=rng.integers(1, 400, 4).tolist())
    assert min(count(theirs, kind) for kind in KINDS) > 10
    assert count(ours, CROSS) > count(theirs, CROSS)
    assert without_crossing_in(ours) == theirs


def test_on_borders_and_corners_they_agree_too(server: Tile38, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    fences = []
    for n in range(30):
        (x, y), (w, h) = rng.integers(0, 12, 2) / 8, rng.integers(1, 5, 2) / 8
        triangle, kite = [(x, y), (x + w, y), (x + w, y + h)], [(x, y + h), (x + w, y), (x + w + 1, y + h), (x + w, 2)]
        fences.append([Fence.box(x, y, x + w, y + h), Fence.polygon(triangle), Fence.polygon(kite)][n % 3])
    places = (rng.integers(0, 16, (1000, 2)) / 8).tolist()
    rows = [(f"van {n % 10}", x, y) for n, (x, y) in enumerate(places)]
    theirs = told_by_tile38(server, fences, rows)
    assert min(count(theirs, kind) for kind in KINDS) > 500
    assert without_crossing_in(told_by_geoswarm(tmp_path / "state", fences, rows)) == theirs


def test_real_ships_enter_exit_and_cross_as_tile38_says(
    server: Tile38, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(data_folder))
    rng = np.random.default_rng(0)
    ships = real_ships(12, rng)
    fences = []
    for at in rng.integers(0, len(ships.lon), 60).tolist():
        lon, lat, reach = float(ships.lon[at]), float(ships.lat[at]), float(rng.choice([0.0005, 0.002, 0.01]))
        near = Fence.box(lon - reach, lat - reach, lon + reach, lat + reach)
        fences.append(near if at % 2 else Fence.circle(lon, lat, reach * 100_000))
    rows = list(zip(map(str, ships.objects.tolist()), ships.lon.tolist(), ships.lat.tolist(), strict=True))
    theirs = told_by_tile38(server, fences, rows)
    ours = without_crossing_in(told_by_geoswarm(tmp_path / "state", fences, rows, sizes=[1000, 3000]))
    assert min(count(theirs, kind) for kind in KINDS) > 100
    assert ours == theirs


# -- where they differ

BOX = Fence.box(0.0, 0.0, 1.0, 1.0)


def both(
    server: Tile38, folder: Path, fences: Sequence[Fence], places: Sequence[tuple[float, float]], **given: Any
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What each says of one object, of all fences."""
    rows = [("van", *place) for place in places]
    told = told_by_tile38(server, fences, rows), told_by_geoswarm(folder, fences, rows, **given)
    theirs, ours = (sorted((one for seen in each.values() for one in seen), key=lambda one: one[1]) for each in told)
    return theirs, ours


def test_who_comes_in_crosses_for_us_alone(server: Tile38, tmp_path: Path) -> None:
    theirs, ours = both(server, tmp_path / "in", [BOX], [(2, 0.5), (0.5, 0.5), (2, 0.5)])
    assert theirs == [(ENTER, 1), (EXIT, 2)]
    assert sorted(ours) == [(CROSS, 1), (ENTER, 1), (EXIT, 2)]


@pytest.mark.parametrize("first_batch", [2, 3])
def test_a_fix_that_comes_late_moves_the_object_for_tile38_alone(
    server: Tile38, tmp_path: Path, first_batch: int
) -> None:
    """In one batch ours are put in order, and a fix that is older than the batch before is passed over."""
    places, seconds = [(0.5, 0.5), (2.0, 2.0), (0.5, 0.6)], [0, 20, 10]
    theirs, ours = both(server, tmp_path / "state", [BOX], places, seconds=seconds, sizes=[first_batch])
    assert theirs == [(ENTER, 0), (EXIT, 1), (ENTER, 2)]
    assert ours == [(ENTER, 0), (EXIT, 1)]


def test_a_way_of_more_than_10_km_crosses_nothing_for_us_unless_told(server: Tile38, tmp_path: Path) -> None:
    wall, jump = Fence.box(0.0, 0.0, 0.01, 1.0), [(-0.1, 0.5), (0.1, 0.5)]
    assert both(server, tmp_path / "gap", [wall], jump, cross_way_m_max=10_000.0) == ([(CROSS, 1)], [])
    assert both(server, tmp_path / "far", [wall], jump, cross_way_m_max=50_000.0) == ([(CROSS, 1)], [(CROSS, 1)])


def test_a_way_over_the_antimeridian_goes_round_the_world_for_tile38(server: Tile38, tmp_path: Path) -> None:
    jump = [(179.8, 0.5), (-179.8, 0.5)]
    for name, fence_there, told in (
        ("near", Fence.box(-180.0, -1.0, -179.9, 1.0), ([], [(CROSS, 1)])),
        ("round", Fence.box(-10.0, -1.0, 10.0, 1.0), ([(CROSS, 1)], [])),
    ):
        assert both(server, tmp_path / name, [fence_there], jump) == told


def test_a_circle_over_the_antimeridian_is_left_by_its_other_side_for_us_alone(server: Tile38, tmp_path: Path) -> None:
    circle, places = Fence.circle(179.9, 0.0, 50_000.0), [(179.8, 0.0), (-179.8, 0.0), (0.0, 0.0)]
    assert both(server, tmp_path / "state", [circle], places) == ([(ENTER, 0)], [(ENTER, 0), (EXIT, 2)])


def test_the_earth_of_tile38_is_nine_metres_smaller(server: Tile38, tmp_path: Path) -> None:
    metres = 100_000.0
    between = float(np.degrees(metres / 6_371_004.0))
    circle, places = Fence.circle(0.0, 0.0, metres), [(0.0, between), (0.0, between * 0.99999), (0.0, 2.0)]
    theirs, ours = both(server, tmp_path / "state", [circle], places)
    assert theirs == [(ENTER, 0), (EXIT, 2)]
    assert sorted(ours) == [(CROSS, 1), (ENTER, 1), (EXIT, 2)]


def test_a_way_past_a_circle_cuts_the_circle_for_us_and_a_polygon_of_64_corners_for_tile38(
    server: Tile38, tmp_path: Path
) -> None:
    """The way is a tangent to a slightly smaller circle, half way between two corners."""
    radius_m, turn = 10_000.0, np.pi / 64
    degrees = np.degrees(radius_m / 6_371_000.0)
    for name, share, told in (("between", 0.9995, ([], [(CROSS, 1)])), ("deeper", 0.998, ([(CROSS, 1)], [(CROSS, 1)]))):
        touch, along = np.array([np.sin(turn), np.cos(turn)]) * share, np.array([np.cos(turn), -np.sin(turn)])
        ends = [((touch + side * along) * degrees).tolist() for side in (-0.3, 0.3)]
        assert both(server, tmp_path / name, [Fence.circle(0.0, 0.0, radius_m)], [(x, y) for x, y in ends]) == told


def test_a_box_over_the_antimeridian_is_none_for_tile38(server: Tile38, tmp_path: Path) -> None:
    """A subscription has one side of it as its rectangle, and the other as a second one, or a polygon."""
    over = Fence(("BOUNDS", -1, 170, 1, -170), {"geometry": "POLYGON((170 -1, 190 -1, 190 1, 170 1, 170 -1))"})
    places = [(175.0, 0.0), (-175.0, 0.0), (0.0, 0.0)]
    theirs, ours = both(server, tmp_path / "state", [over], places)
    assert ENTER not in dict(theirs)
    assert ours == [(ENTER, 0), (EXIT, 2)]


def test_who_is_inside_when_a_fence_is_made_enters_with_the_next_fix_for_us_alone(
    server: Tile38, tmp_path: Path
) -> None:
    connection = server.connect()
    connection.call("FLUSHDB")
    inside, later, out = (encode("SET", "fleet", "van", "POINT", y, x) for x, y in ((0.5, 0.5), (0.6, 0.6), (2.0, 2.0)))
    connection.send(inside + fence("0", "fleet", "enter,exit", *BOX.area), 2)
    subscriber = Subscriber(server.port)
    connection.send(later + out + encode("PUBLISH", END, END), 3)
    subscriber.wait()
    connection.close()
    assert [note.detect for note in subscriber.notifications()] == [EXIT]

    fixes = [(0.5, 0.5), (0.6, 0.6), (2.0, 2.0)]
    events = [
        pa.table(
            {"event_id": [n], "ts": pa.array([n], pa.timestamp("s", "UTC")), "x": [x], "y": [y], "object_id": ["van"]}
        )
        for n, (x, y) in enumerate(fixes)
    ]
    matches = gs.sinks.Memory()
    with gs.LocalEngine(gs.Contract(), gs.Tuning(matches="alerts"), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(9, BOX.place["rectangle"], on=ENTER)  # so that the object is followed
        engine.start(events=events[:1], sink=matches, available_now=True).wait()
        for sub, kind in ((1, ENTER), (2, EXIT)):
            engine.subscribe(sub, BOX.place["rectangle"], on=kind)
        engine.start(events=events, sink=matches, available_now=True).wait()
    rows = [row for row in matches.table().to_pylist() if row["sub_id"] != 9]
    assert [(row["transition"], row["event_id"]) for row in rows] == [(ENTER, 1), (EXIT, 2)]


@pytest.mark.parametrize("how", ["DEL", "EX"])
def test_an_object_that_is_deleted_or_expires_does_not_exit(server: Tile38, tmp_path: Path, how: str) -> None:
    rows = [("van", 0.5, 0.5)]
    if how == "DEL":
        told = told_by_tile38(server, [BOX], rows, encode("DEL", "fleet", "van"))
        assert told == {(0, "van"): [(ENTER, 0), ("del", -1)]}
        return
    connection = server.connect()
    connection.call("FLUSHDB")
    connection.send(fence("0", "fleet", "enter,exit", *BOX.area), 1)
    subscriber = Subscriber(server.port)
    connection.call("SET", "fleet", "van", "EX", 0.2, "POINT", 0.5, 0.5)
    while b"$-1" not in connection.call("GET", "fleet", "van"):
        time.sleep(0.05)
    connection.call("PUBLISH", END, END)
    subscriber.wait()
    connection.close()
    assert [note.detect for note in subscriber.notifications()][:2] in ([ENTER], [ENTER, "del"])


def test_a_subscriber_that_was_away_has_missed_what_tile38_told(server: Tile38) -> None:
    connection = server.connect()
    connection.call("FLUSHDB")
    inside, out = encode("SET", "fleet", "van", "POINT", 0.5, 0.5), encode("SET", "fleet", "van", "POINT", 2, 2)
    connection.send(fence("0", "fleet", "enter,exit", *BOX.area) + inside, 2)
    subscriber = Subscriber(server.port)
    connection.send(out + encode("PUBLISH", END, END), 2)
    subscriber.wait()
    connection.close()
    assert [note.detect for note in subscriber.notifications()] == [EXIT]
