"""The kept events that are nearest to a place: those that the oracle finds by measuring all of them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import InputError, SettingsError
from geoswarm.run.oracle.past import PastOracle
from geoswarm.run.questions import K_MAX, Place

WORLD = gs.Contract(columns=30, rows=20, executors=3)
WINDOW = WindowSettings(keep="100 days")
STRATEGIES = ("auto", "ps2-hybrid", "per-batch-weighed", "swarm")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CORNERS = [(180.0, 0.0), (-180.0, 12.0), (0.0, 90.0), (33.0, -90.0), (0.0, 0.0), (179.9, -45.2)]


def batch(seed: int, number: int, rows: int = 400) -> pa.Table:
    """Points on a lattice, so that many are at one distance, and areas, some of which say that they are elsewhere."""
    rng = np.random.default_rng((seed, number))
    drawn = worlds.events(rng, rows, first_id=1000 * number, snap=2.0)
    areas = worlds.with_areas(rng, worlds.with_texts(rng, drawn), 0.2, snap=2.0)
    circle = np.array([shape is not None and shape.startswith(b"CIRCLE") for shape in areas["geometry"].to_pylist()])
    for axis in ("x", "y"):
        filled = pa.compute.if_else(pa.array(circle), drawn.column(axis), areas[axis])
        areas = areas.set_column(areas.schema.get_field_index(axis), axis, filled)
    return areas


def asked(keywords: str | None = None) -> pa.Table:
    return operation_table([registration(0, worlds.BOUNDS, keywords=keywords)])


def run(folder: Path, tables: list[pa.Table], tuning: gs.Tuning, sink: Any = None) -> None:
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(folder)) as engine:
        engine.subscribe(1, keywords="flood AND river OR dam", replace=True)
        engine.start(events=tables, sink=sink or gs.sinks.Noop(), available_now=True).wait()


def oracle_of(tables: list[pa.Table]) -> PastOracle:
    oracle = PastOracle(worlds.BOUNDS, WINDOW)
    for events in tables:
        oracle.take(events, 0)
    return oracle


def check(folder: Path, oracle: PastOracle, seed: int, many: int) -> int:
    """Returns how many events were found."""
    past, rng, found = gs.Past(str(folder)), np.random.default_rng(seed), 0
    for number in range(many):
        lon, lat = CORNERS[number] if number < len(CORNERS) else rng.uniform((-180, -90), (180, 90)).tolist()
        k, keywords = int(rng.choice([1, 10, 700])), (None, "flood", "storm AND (river OR dam)")[number % 3]
        within_m = (None, 900_000.0)[int(rng.integers(0, 2))]
        since_us, until_us = ((None, None), (1_200, None), (None, 2_050), (1_100, 2_200))[number % 4]
        times = [None if us is None else EPOCH + timedelta(microseconds=us) for us in (since_us, until_us)]
        want = oracle.nearest(
            (lon, lat), k, within_m or 1e9, asked=asked(keywords), since_us=since_us, until_us=until_us
        )
        got = past.nearest(lon, lat, k, within_m=within_m, keywords=keywords, since=times[0], until=times[1])
        assert got["event_id"].to_pylist() == [event for event, _ in want], (lon, lat, k, keywords, within_m)
        assert np.allclose(got["distance_m"].to_numpy(), [metres for _, metres in want], rtol=0, atol=1e-6)
        found += len(want)
    return found


def test_the_nearest_are_what_brute_force_finds_whatever_the_plan(tmp_path: Path) -> None:
    """Over the antimeridian and at the poles, with words and times, under plans that divide terms."""
    tables = [batch(1, k) for k in range(len(STRATEGIES))]
    for number, name in enumerate(STRATEGIES):
        run(tmp_path, tables[: number + 1], gs.Tuning(strategy=name, window=WINDOW))
    assert check(tmp_path, oracle_of(tables), 2, 24) > 500


class Fails(gs.sinks.Memory):
    """Fails at a batch, after it has written it, as if the process had ended there."""

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        if batch_id == 2:
            raise RuntimeError("the process ended")


def test_a_batch_that_is_run_again_is_found_once_and_one_that_did_not_end_is_not_found(tmp_path: Path) -> None:
    tables, tuning = [batch(3, k) for k in range(4)], gs.Tuning(window=WINDOW)
    with pytest.raises(RuntimeError, match="the process ended"):
        run(tmp_path, tables, tuning, Fails())
    assert check(tmp_path, oracle_of(tables[:2]), 4, 8) > 0
    run(tmp_path, tables, tuning)
    assert check(tmp_path, oracle_of(tables), 5, 8) > 0


def test_only_blocks_that_may_hold_a_nearer_event_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    tables = [pa.table(worlds.events(rng, 20_000, first_id=100_000 * k)) for k in range(3)]
    run(tmp_path, tables, gs.Tuning(window=WINDOW))
    past = gs.Past(str(tmp_path))
    near = past.nearest_events(Place(10.0, 10.0, 10, 1e9), since=EPOCH + timedelta(microseconds=200_000))
    assert len(near.events) == 10
    assert near.files == 3
    (touched,) = near.touched
    assert 0 < touched.blocks < touched.blocks_of_parts / 4
    nothing = past.nearest_events(Place(10.0, 10.0, 10, 0.001))
    assert len(nothing.events) == 0
    assert sum(run.blocks for run in nothing.touched) < 0.1 * sum(run.blocks_of_parts for run in nothing.touched)


def test_events_of_batches_without_a_text_have_no_words(tmp_path: Path) -> None:
    """More of them than are looked at in a first step, and all nearer than those that have the word."""
    rng = np.random.default_rng(9)
    near, far = (
        pa.table(worlds.events(rng, 9000)),
        worlds.with_texts(rng, pa.table(worlds.events(rng, 300, first_id=10_000))),
    )
    near = near.set_column(near.schema.get_field_index("x"), "x", pa.array(rng.uniform(0.0, 1.0, len(near))))
    run(tmp_path, [near], gs.Tuning(window=WINDOW))
    run(tmp_path, [far, far], gs.Tuning(window=WINDOW))  # the first of them has been read
    oracle, past = oracle_of([near, far]), gs.Past(str(tmp_path))
    for k in (1, 5000):
        want = oracle.nearest((0.5, 0.5), k, asked=asked("flood"))
        assert past.nearest(0.5, 0.5, k, keywords="flood")["event_id"].to_pylist() == [event for event, _ in want] != []


def test_columns_are_chosen_and_the_distance_is_always_there(tmp_path: Path) -> None:
    table = batch(9, 0).append_column("distance_m", pa.array(["mine"] * 400))
    with gs.LocalEngine(WORLD, gs.Tuning(window=WINDOW), checkpoint=str(tmp_path)) as engine:
        engine.start(events=[table], sink=gs.sinks.Noop(), available_now=True).wait()
        found = engine.nearest(0.0, 0.0, 3)
        assert found.schema.names == ["event_id", "ts", "x", "y", "text", "geometry", "distance_m"]
        assert found["distance_m"].to_pylist() == sorted(found["distance_m"].to_pylist())
        assert engine.nearest(0.0, 0.0, columns=["event_id"]).schema.names == ["event_id", "distance_m"]
        none = engine.nearest(0.0, 0.0, since=EPOCH + timedelta(days=1))
        assert (len(none), none.schema.names[-1]) == (0, "distance_m")
        with pytest.raises(InputError, match="no column speed is kept"):
            engine.nearest(0.0, 0.0, columns=["speed"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": 180.5, "y": 0.0}, r"x 180.5 is outside the world, from -180.0 to 180.0"),
        ({"x": 0.0, "y": float("nan")}, "y nan is outside the world"),
        ({"x": 0.0, "y": 0.0, "k": 0}, f"k is 0: ask for 1 to {K_MAX}"),
        ({"x": 0.0, "y": 0.0, "k": K_MAX + 1}, "or by a circle for all of a place"),
        ({"x": 0.0, "y": 0.0, "k": 2.5}, "k is 2.5, which is no whole number"),
        ({"x": 0.0, "y": 0.0, "within_m": 0.0}, "within_m is 0.0: give metres above 0"),
        ({"x": 0.0, "y": 0.0, "within_m": float("nan")}, "within_m is nan"),
        ({"x": 0.0, "y": 0.0, "of": "people"}, "the nearest are events or objects"),
        ({"x": 0.0, "y": 0.0, "keywords": "(river"}, "the query"),
        ({"x": 0.0, "y": 0.0, "of": "objects", "keywords": "flood"}, "asked of events"),
        ({"x": 0.0, "y": 0.0, "since": EPOCH, "until": EPOCH}, "swap them"),
        ({"x": 0.0, "y": 0.0, "since": "1 hour"}, "since is '1 hour', which is no datetime: give one, such as"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_remedy(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine, pytest.raises(InputError, match=said):
        engine.nearest(**given)


def test_a_world_without_degrees_has_no_nearest(tmp_path: Path) -> None:
    plane = gs.Contract(bounds=(0.0, 0.0, 5000.0, 5000.0), columns=10, rows=10, executors=2)
    with gs.LocalEngine(plane, checkpoint=str(tmp_path)) as engine, pytest.raises(InputError, match="are no degrees"):
        engine.nearest(1.0, 1.0)


def test_a_world_from_0_to_360_is_as_round_as_another(tmp_path: Path) -> None:
    places = {1: (359.9, 0.0), 2: (0.3, 0.0), 3: (180.0, 89.9), 4: (90.0, 0.0)}
    lon, lat = ([place[axis] for place in places.values()] for axis in range(2))
    times = pa.array([0] * 4, pa.timestamp("us", tz="UTC"))
    table = pa.table({"event_id": list(places), "ts": times, "x": lon, "y": lat, "object_id": list(places)})
    world = gs.Contract(bounds=(0.0, -90.0, 360.0, 90.0), columns=36, rows=18, executors=2)
    with gs.LocalEngine(world, gs.Tuning(window=WINDOW, keeps_objects=True), checkpoint=str(tmp_path)) as engine:
        engine.start(events=[table], sink=gs.sinks.Noop(), available_now=True).wait()
        for x, y, want in ((0.0, 0.0, [1, 2, 4, 3]), (360.0, 0.0, [1, 2, 4, 3]), (0.0, 80.0, [3, 1, 2, 4])):
            events, objects = engine.nearest(x, y), engine.nearest(x, y, of="objects")
            assert events["event_id"].to_pylist() == objects["object_id"].to_pylist() == want
            assert events["distance_m"].to_pylist() == objects["distance_m"].to_pylist()


def test_nothing_is_kept_unless_asked_for(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.start(events=[batch(9, 0)], sink=gs.sinks.Noop(), available_now=True).wait()
        with pytest.raises(SettingsError, match=r"keeps no events: set \[window\] keep"):
            engine.nearest(0.0, 0.0)
        with pytest.raises(SettingsError, match="keeps_objects = true"):
            engine.nearest(0.0, 0.0, of="objects")
