"""Events that are areas, and the predicates of subscriptions: validation, segments, merges, plans and the matcher."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoswarm.config import Contract, Tuning
from geoswarm.core.space.change import Divide
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.cut import TermCut
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.areas import areas_of
from geoswarm.flow.match.match import MatchRun, match
from geoswarm.flow.merge import as_pairs
from geoswarm.flow.validate import validate_events
from geoswarm.model import EVENT, GEOMETRY, PREDICATES, TEXT
from geoswarm.run.oracle.oracle import Oracle
from restless import changes_with_terms, legal_changes
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_areas, with_keywords, with_predicates, with_shapes, with_texts

CONTRACT = Contract(columns=40, rows=40, executors=3)
WORLD = Grid.of(CONTRACT)
EVENTS = pa.schema([*(f.with_nullable(True) for f in EVENT), TEXT, GEOMETRY])
BOW_TIE = b"POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))"


def event_table(*geometries: object, **columns: Any) -> pa.Table:
    """Events with these geometries, as text or bytes, that leave it to the engine where they are."""
    rows = [{"event_id": i, "ts": 0, "geometry": g.encode() if isinstance(g, str) else g} | columns
            for i, g in enumerate(geometries)]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=EVENTS)


def subscription_table(*regions: dict[str, Any]) -> pa.Table:
    """Subscriptions 0, 1, ...; the key `box` gives the four sides."""
    rows = []
    for i, region in enumerate(regions):
        sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), map(float, region.pop("box", ())), strict=False))
        rows.append({"op": "register", "sub_id": i, "user": ""} | sides | region)
    columns = ("op", "sub_id", "user", "xmin", "ymin", "xmax", "ymax", "geometry", "keywords", "on", "predicate")
    return pa.table({name: [row.get(name) for row in rows] for name in columns})


def match_pairs(folder: Path, regions: list[dict[str, Any]], batch: pa.Table) -> list[tuple[int, int]]:
    engine = SteppedEngine(folder, CONTRACT)
    pairs = sorted(engine.batch(0, batch, subscription_table(*regions), 0).pairs)
    engine.close()
    return pairs


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_points_and_areas_meet_regions_by_every_predicate_as_shapely_says(
    tmp_path: Path, seed: int, words: bool
) -> None:
    rng, oracle = np.random.default_rng((seed, 6)), Oracle(BOUNDS)
    snap = 2.0 if seed % 2 else None  # corners and edges of areas, regions and cells on one lattice
    near = 40.0 if seed % 3 else None
    tuning = Tuning(
        deltas_max=2, match_rows_max=int(rng.choice([7, 1000])), match_pairs_max=int(rng.choice([5, 10**6]))
    )
    engine, asked = SteppedEngine(tmp_path, CONTRACT, tuning), set[str]()
    for b in range(6):
        storm = with_shapes(rng, operations(rng, 70, ids=60, now_us=10 * b, near=near), snap=snap)
        storm = with_predicates(rng, storm)
        batch = pa.table(events(rng, 90, first_id=1000 * b, snap=snap))
        batch = with_areas(rng, batch, snap=snap, near=near or 180.0)
        wide = with_areas(rng, pa.table(events(rng, 1, first_id=1000 * b + 90)), 0.0)
        wide = wide.set_column(4, "geometry", pa.array([shapely.to_wkb(shapely.box(-80, -80, 80, 80))]))
        batch = pa.concat_tables([batch, wide])
        if words:
            storm, batch = with_keywords(rng, storm), with_texts(rng, batch)
        oracle.operate(storm, 10 * b)
        want = sorted(oracle.match(batch, 10 * b))
        got = engine.batch(b, batch, storm, 10 * b)
        assert sorted(got.pairs) == want, b
        assert got.report.matched == len({event for event, _ in want})
        asked |= {oracle.predicates.get(sub, "intersects") for _, sub in want}
        engine.checkpoint.adopt_plan(engine.checkpoint.plan.apply(legal_changes(engine.checkpoint.plan, rng, 3)))
    assert asked >= {"intersects", "within"}
    assert len(engine.checkpoint.manifest.segments) <= 3, "segments were merged on the way"
    engine.close()


@pytest.mark.parametrize("seed", range(4))
def test_an_area_is_matched_once_however_terms_are_divided(seed: int, tmp_path: Path) -> None:
    rng, oracle, copies = np.random.default_rng((seed, 8)), Oracle(BOUNDS), 0
    engine = SteppedEngine(tmp_path, CONTRACT)
    plan = engine.checkpoint.plan
    engine.checkpoint.adopt_plan(plan.apply([Divide(p.id, TermCut.of(3, {}), (0, 1, 2)) for p in plan.partitions]))
    share = float(rng.choice([0.6, 1.0]))
    for b in range(5):
        storm = with_predicates(rng, with_shapes(rng, operations(rng, 80, ids=60, now_us=10 * b)))
        storm = with_keywords(rng, storm, share)
        batch = with_texts(rng, with_areas(rng, pa.table(events(rng, 100, first_id=1000 * b))))
        oracle.operate(storm, 10 * b)
        result = engine.batch(b, batch, storm, 10 * b)
        assert sorted(result.pairs) == sorted(oracle.match(batch, 10 * b))
        copies += result.report.copies
        plan = engine.checkpoint.plan
        engine.checkpoint.adopt_plan(plan.apply(changes_with_terms(plan, rng, int(rng.integers(1, 5)))))
    assert copies > 0
    engine.close()


def test_regions_without_words_are_found_where_terms_are_divided(tmp_path: Path) -> None:
    engine = SteppedEngine(tmp_path, CONTRACT)
    plan = engine.checkpoint.plan
    engine.checkpoint.adopt_plan(plan.apply([Divide(p.id, TermCut.of(3, {}), (0, 1, 2)) for p in plan.partitions]))
    regions = subscription_table(
        {"geometry": b"POLYGON((0 0, 10 0, 0 10, 0 0))"}, {"box": (0, 0, 9, 9), "keywords": "flood"}
    )
    point = pa.table({"event_id": [7], "ts": pa.array([0], EVENT.field("ts").type), "x": [1.0], "y": [1.0]})
    assert engine.batch(0, point, regions, 0).pairs == [(7, 0)]
    engine.close()


@pytest.mark.parametrize("is_shape", [False, True])
def test_squares_on_the_lines_of_the_grid_touch_share_and_hold_each_other(tmp_path: Path, is_shape: bool) -> None:
    """Every square of a lattice whose lines are those of cells, against every other."""
    step = 360.0 / 65536 * 16
    corners = [(x * step, y * step, (x + w) * step, (y + h) * step)
               for x in range(4) for y in range(4) for w, h in ((1, 1), (2, 1), (3, 3))]  # fmt: skip
    boxes = [shapely.box(*corner) for corner in corners]
    regions: list[dict[str, Any]] = []
    for corner, box in zip(corners, boxes, strict=True):
        for predicate in PREDICATES:
            place = {"geometry": shapely.to_wkb(box)} if is_shape else {"box": corner}
            regions.append(place | {"predicate": predicate})
    got = match_pairs(tmp_path, regions, event_table(*map(shapely.to_wkb, boxes)))
    want = [
        (event, 4 * region + code)
        for region, one in enumerate(boxes)
        for code, predicate in enumerate(PREDICATES)
        for event, other in enumerate(boxes)
        if getattr(shapely, predicate)(one, other)
    ]
    assert got == sorted(want)
    assert len(want) > 500


def test_an_area_across_the_antimeridian_meets_both_ends_of_the_world(tmp_path: Path) -> None:
    east, west, middle = {"box": (178, 0, 179.5, 5)}, {"box": (-179.5, 0, -178, 5)}, {"box": (-10, 0, 10, 5)}
    regions: list[dict[str, Any]] = [
        east, west, middle,
        {"geometry": b"CIRCLE(-179.9 2, 50000)"},
        {"geometry": b"POLYGON((177 -5, -177 -5, -177 9, 177 9, 177 -5))", "predicate": "covers"},
        {"box": (-180, -90, 180, 90), "predicate": "contains"},
        {"geometry": b"CIRCLE(180 2, 1000)", "predicate": "within"},
    ]  # fmt: skip
    areas = "POLYGON((179 1, -179 1, -179 3, 179 3, 179 1))", "CIRCLE(179.99 2, 120000)"
    got = match_pairs(tmp_path, regions, event_table(*areas))
    assert [sub for event, sub in got if event == 0] == [0, 1, 3, 4, 5]
    # A polygon that was cut has its cut for a border: a circle across it is not in the polygon.
    assert [sub for event, sub in got if event == 1] == [0, 1, 3, 6]


def test_bad_areas_become_dead_letters_and_nothing_else_is_lost() -> None:
    angles = np.linspace(0, 2 * np.pi, 1_000_001)
    ring = shapely.Polygon(np.column_stack([np.cos(angles), np.sin(angles)]))
    cases: dict[bytes, str] = {
        BOW_TIE: "invalid",
        b"POLYGON EMPTY": "empty",
        b"POLYGON((500000 5400000, 500100 5400000, 500100 5400100, 500000 5400000))": "out-of-bounds",
        shapely.to_wkb(ring): "too-large",
        b"LINESTRING(0 0, 1 1)": "no-area",
        b"MULTIPOINT(0 0, 1 1)": "no-area",
        b"POLYGON((0 0, 1 1": "malformed",
        b"SRID=3857;POLYGON((0 0, 1 0, 1 1, 0 0))": "coordinate-system",
        b"CIRCLE(0 0, -5)": "no-area",
        b"POINT EMPTY": "empty",
        b"POINT(500 0)": "out-of-bounds",
        b"": "malformed",
    }
    sound = b"POLYGON((1 2, 3 2, 3 6, 1 2))"
    batch = event_table(*[part for bad in cases for part in (bad, sound)])
    dead = DeadLetters("event", 0)
    kept = validate_events(batch.combine_chunks().to_batches()[0], WORLD, dead)
    letters = dead.table().to_pylist()
    assert {letter["reason"] for letter in letters} == set(cases.values())
    assert len(letters) == len(cases)
    assert kept["geometry"].to_pylist() == [sound] * len(cases)
    assert set(zip(kept["x"].to_pylist(), kept["y"].to_pylist(), strict=True)) == {(2.0, 4.0)}
    details = " ".join(letter["detail"] for letter in letters)
    assert "looks like metres" in details
    assert "(5, 5)" in details
    assert "event 8: geometry is a LineString, which has no area" in details


def test_a_point_gives_the_place_and_an_area_gives_it_where_there_is_no_point() -> None:
    batch = event_table("CIRCLE(10 20, 1000)", "POINT(7 8)", '{"type": "Point", "coordinates": [7, 8]}',
                      shapely.to_wkb(shapely.Point(7, 8)), shapely.to_wkb(shapely.Point(7, 8), hex=True))  # fmt: skip
    known = event_table("POLYGON((1 2, 3 2, 3 6, 1 2))", "POINT(7 8)", x=50.0, y=40.0)
    nowhere = event_table(None)
    dead = DeadLetters("event", 0)
    kept = validate_events(pa.concat_tables([batch, known, nowhere]).combine_chunks().to_batches()[0], WORLD, dead)
    places = list(zip(kept["x"].to_pylist(), kept["y"].to_pylist(), strict=True))
    assert places[0] == pytest.approx((10.0, 20.0))
    assert places[1:5] == [(7.0, 8.0)] * 4
    assert places[5:] == [(50.0, 40.0), (7.0, 8.0)]
    assert dead.table()["reason"].to_pylist() == ["null"]
    areas = areas_of(kept, WORLD)
    assert areas is not None
    assert areas.rows.tolist() == [0, 5], "a point as geometry is a point"


def test_a_batch_of_points_has_no_areas() -> None:
    plain = events(np.random.default_rng(0), 3)
    assert areas_of(plain, WORLD) is None
    assert areas_of(plain.append_column("geometry", pa.nulls(3, pa.binary())), WORLD) is None


def test_a_geometry_may_be_text(tmp_path: Path) -> None:
    batch = event_table("POLYGON((1 1, 2 1, 2 2, 1 1))", "POINT(1 1)", None, x=1.0, y=1.0)
    text = batch.set_column(batch.schema.get_field_index("geometry"), "geometry", batch["geometry"].cast(pa.string()))
    assert match_pairs(tmp_path, [{"box": (0, 0, 5, 5)}], text) == [(0, 0), (1, 0), (2, 0)]


def test_what_one_run_finds_is_bounded_and_events_stay_in_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    engine = SteppedEngine(tmp_path, CONTRACT)
    boxes = [{"box": (x, y, x + 1, y + 1)} for x, y in rng.uniform(-80, 80, (400, 2))]
    world = "POLYGON((-180 -90, 0 -90, 180 -90, 180 90, 0 90, -180 90, -180 -90))"
    batch = event_table(*[world, None, "CIRCLE(0 0, 1000)", None] * 25, x=0.0, y=0.0)
    engine.batch(0, batch, subscription_table(*boxes), 0)
    (held,) = engine.checkpoint._view.segments.values()
    rows = batch.combine_chunks().to_batches()[0]
    runs = list(match(rows, [held.searchable()], WORLD, 0, rows_max=30, pairs_max=1000))
    assert pa.concat_batches([run.events for run in runs]) == rows
    assert len(runs) > 10
    assert max(len(run.subs) for run in runs) <= 1000
    counts = np.concatenate([np.diff(run.offsets) for run in runs])
    assert (counts[::4] == 400).all(), "the world meets everybody, and once"
    assert all(
        len(set(run.subs[a:b])) == b - a for run in runs for a, b in zip(run.offsets, run.offsets[1:], strict=False)
    )
    engine.close()


def test_segments_where_everybody_intersects_rest_as_ever(tmp_path: Path) -> None:
    engine = SteppedEngine(tmp_path, CONTRACT)
    triangle = b"POLYGON((0 0, 10 0, 0 10, 0 0))"
    engine.batch(0, event_table(None), subscription_table({"geometry": triangle, "predicate": "intersects"}), 0)
    (name,) = engine.checkpoint._view.segments
    assert "predicates" not in engine.checkpoint.storage.map_arrays(f"subscriptions/{name}.records")
    (held,) = engine.checkpoint._view.segments.values()
    assert held.regions is not None
    assert not len(held.regions.predicates)
    engine.close()


def test_no_region_lies_in_a_point_and_a_border_is_not_contained(tmp_path: Path) -> None:
    regions: list[dict[str, Any]] = [{"box": (0, 0, 4, 4), "predicate": name} for name in PREDICATES]
    regions += [{"box": (0, 0, 4, 4), "predicate": name, "keywords": "flood"} for name in PREDICATES]
    batch = event_table(*["POINT(4 2)", "POINT(2 2)"], text="flood")
    asked = {0: {"intersects", "covers"}, 1: {"intersects", "covers", "contains"}}
    fulfilled = [(event, code) for event in asked for code, name in enumerate(PREDICATES) if name in asked[event]]
    want = [(event, code + 4 * worded) for event, code in fulfilled for worded in (0, 1)]
    assert match_pairs(tmp_path, regions, batch) == sorted(want)


def test_a_predicate_that_there_is_not_is_refused_with_those_there_are(tmp_path: Path) -> None:
    engine = SteppedEngine(tmp_path, CONTRACT)
    result = engine.batch(0, event_table(None), subscription_table({"box": (0, 0, 1, 1), "predicate": "touches"}), 0)
    assert result.manifest.subs == 0
    assert result.manifest.refused == 1
    engine.close()


def test_a_heavy_area_meets_many_in_the_time_of_one_look_each(tmp_path: Path) -> None:
    """GEOS must be given what it has prepared: looked at anew for each region, this would take minutes."""
    rng = np.random.default_rng(1)
    angles = np.linspace(0, 2 * np.pi, 100_000, endpoint=False)
    reach = 40 + 5 * np.sin(17 * angles)
    star = shapely.Polygon(np.column_stack([reach * np.cos(angles), reach * np.sin(angles)]))
    corners = rng.uniform(-60, 60, (4000, 2))
    regions: list[dict[str, Any]] = [
        {"box": (x, y, x + 0.5, y + 0.5), "predicate": ("intersects", "within")[i % 2]}
        for i, (x, y) in enumerate(corners)
    ]
    got = match_pairs(tmp_path, regions, event_table(shapely.to_wkb(star)))
    shapely.prepare(star)
    boxes = shapely.box(*corners.T, *(corners.T + 0.5))
    want = np.where(np.arange(4000) % 2, shapely.contains(star, boxes), shapely.intersects(star, boxes))
    assert [sub for _, sub in got] == np.flatnonzero(want).tolist()


def test_large_ids_of_subscriptions_come_back_as_they_are(tmp_path: Path) -> None:
    ids = [(1 << 53) + 1, (1 << 62) + 3]
    regions: list[dict[str, Any]] = [{"box": (0, 0, 9, 9), "sub_id": i} for i in ids]
    assert [sub for _, sub in match_pairs(tmp_path, regions, event_table("POLYGON((1 2, 3 2, 3 6, 1 2))"))] == ids


@pytest.mark.slow
def test_a_huge_area_that_many_ask_for_goes_out_in_pieces() -> None:
    bytes_max = 8 << 20
    geometries = pa.array([b"x" * 100_000, *[b""] * 999])
    batch = pa.record_batch({"event_id": np.arange(1000), "geometry": geometries})
    offsets = np.concatenate([[0], np.full(1000, 3000)])
    out = list(as_pairs(MatchRun(batch, offsets, np.arange(3000)), bytes_max))
    assert sum(map(len, out)) == 3000
    assert max(part.nbytes for part in out) <= bytes_max + (1 << 20)


def test_text_that_is_not_utf8_as_geometry_stops_nothing() -> None:
    raw = b'{"type": "Feature", "properties": {"name": "\xff"}, "geometry": {"type": "Point", "coordinates": [7, 8]}}'
    batch = event_table("POINT(1 2)")
    column = pa.array([raw], pa.binary()).view(pa.string())
    batch = batch.set_column(batch.schema.get_field_index("geometry"), "geometry", column)
    dead = DeadLetters("event", 0)
    kept = validate_events(batch.combine_chunks().to_batches()[0], WORLD, dead)
    assert len(kept) + len(dead) == 1
