"""Reading shapes: every form gives the same polygon, and what is wrong is refused with its reason, quickly."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from core.shapes.drawn import WORLD, blobs, ring
from geoswarm.core.arrays.jit import Array
from geoswarm.core.shapes.checks import VERTICES_MAX
from geoswarm.core.shapes.parse import ParsedShapes, parse_shapes
from geoswarm.core.shapes.points import flat_of
from geoswarm.core.shapes.shapes import Geometries, of_polygons
from geoswarm.core.shapes.tangle import tangles
from geoswarm.core.space.grid import Grid
from geoswarm.errors import SchemaError

Form = Callable[[Geometries], Any]
SQUARE = "POLYGON((0 0,4 0,4 4,0 4,0 0))"
PLANE = Grid(0.0, 0.0, 700_000.0, 1_300_000.0, columns=100, rows=100)


def read(*texts: str, grid: Grid = WORLD) -> ParsedShapes:
    return parse_shapes(pa.array(texts), grid)


def reasons(*texts: str, grid: Grid = WORLD) -> dict[int, str]:
    parsed = read(*texts, grid=grid)
    assert (np.diff(parsed.shapes.parts)[[refusal.row for refusal in parsed.refused]] == 0).all()
    return {refusal.row: refusal.reason for refusal in parsed.refused}


@pytest.mark.parametrize(
    "form",
    [
        shapely.to_wkt,
        shapely.to_wkb,
        shapely.to_geojson,
        lambda shape: shapely.to_wkb(shape, hex=True),
        lambda shape: shapely.to_wkb(shape, byte_order=0),
        lambda shape: shapely.to_wkb(shapely.force_3d(shape, 7.0), flavor="iso"),
        lambda shape: shapely.to_wkb(shapely.force_3d(shape, 7.0), flavor="extended"),
        lambda shape: shapely.to_wkb(shapely.set_srid(shape, 4326), include_srid=True),
        lambda shape: [f"SRID=4326;{text}" for text in shapely.to_wkt(shape, rounding_precision=-1)],
        lambda shape: [
            json.dumps({"type": "Feature", "properties": {}, "geometry": json.loads(text)})
            for text in shapely.to_geojson(shape)
        ],
    ],
)
def test_every_form_of_a_polygon_is_read_as_the_same_polygon(form: Form) -> None:
    polygons = shapely.set_precision(blobs(np.random.default_rng(1), 9), 1e-4)
    parsed = parse_shapes(pa.array(form(polygons)), WORLD)
    assert parsed.refused == []
    assert shapely.equals_exact(shapely.normalize(parsed.shapes.polygons()), _multi(polygons), 1e-9).all()


def _multi(polygons: Geometries) -> Geometries:
    several: Geometries = shapely.normalize([shapely.multipolygons(shapely.get_parts(one)) for one in polygons])
    return several


def test_forms_may_be_mixed_in_a_column_and_null_is_no_shape() -> None:
    square = shapely.from_wkt(SQUARE)
    mixed = [
        SQUARE.encode(),
        None,
        shapely.to_wkb(square),
        b"  circle(13.4 52.5, 8e2) ",
        shapely.to_geojson(square).encode(),
    ]
    parsed = parse_shapes(pa.array(mixed, pa.binary()), WORLD)
    assert parsed.refused == []
    assert shapely.area(parsed.shapes.polygons()).tolist() == [16, 0, 16, 0, 16]
    assert parsed.shapes.metres.tolist() == [0, 0, 0, 800, 0]
    assert parsed.shapes.xy[parsed.shapes.first_vertices()[3]].tolist() == [13.4, 52.5]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("POLYGON((0 0, 1 x, 2 2))", "malformed", "'x'"),
        ("POLYGON((0 0,1 0,1 1))", "malformed", "closed"),
        ("hello", "malformed", "HELLO"),
        ("", "malformed", "neither"),
        ("?", "malformed", "neither"),
        ("0103", "malformed", "geometry"),
        ("01zz", "malformed", "hexadecimal"),
        ('{"type":"Polygon","coordinates":[[[0,0],[1,', "malformed", "parse"),
        ("CIRCLE(1 2)", "malformed", "lon lat, metres"),
        ("POLYGON EMPTY", "empty", "empty"),
        ("GEOMETRYCOLLECTION EMPTY", "empty", "empty"),
        ("POINT(1 1)", "no-area", "Point"),
        ("LINESTRING(0 0,1 1)", "no-area", "LineString"),
        ("GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))", "no-area", "GeometryCollection"),
        ("POLYGON((0 0,1 1,2 2,0 0))", "invalid", "area from 0 to 0"),
        ("CIRCLE(1 2, 0)", "no-area", "radius of 0"),
        ("CIRCLE(1 2, 3e7)", "no-area", "half way round"),
        ("CIRCLE(1 95, 10)", "out-of-bounds", "outside the world"),
        ("POLYGON((0 0,nan 1,2 2,0 0))", "not-finite", "finite"),
        ("POLYGON((0 0,inf 1,2 2,0 0))", "not-finite", "finite"),
        ("POLYGON((0 0,1 0,1 91,0 0))", "out-of-bounds", "clip"),
        ("POLYGON((530000 180000,530100 180000,530100 180100,530000 180000))", "out-of-bounds", "looks like metres"),
        (f"SRID=27700;{SQUARE}", "coordinate-system", "27700"),
        (
            shapely.to_wkb(shapely.set_srid(shapely.box(0, 0, 1, 1), 3857), hex=True, include_srid=True),
            "coordinate-system",
            "3857",
        ),
        (
            '{"type":"Polygon","crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::2056"}},'
            '"coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}',
            "coordinate-system",
            "EPSG::2056",
        ),
        ("POLYGON((0 0,1 1,1 0,0 1,0 0))", "invalid", "at (0.5, 0.5)"),
        ("GEOMETRYCOLLECTION(" * 50_000, "malformed", "nested"),
        ("01" + "0700000001000000" + "010700000001000000" * 50_000, "malformed", "nested"),
        ("[" * 50_000, "malformed", "neither"),
        ('{"type":"GeometryCollection","geometries":[' * 50_000, "malformed", "nested"),
        # brackets in a string are none, and do not hide those that are
        ('{"x":"' + "}" * 200_000 + '",' + '"a":[' * 50_000, "malformed", "nested"),
        ("POLYGON((0 0,1 0,1 1,0 0))))", "malformed", "brackets"),
        ("CIRCULARSTRING(0 0,1 1,2 0)", "malformed", "straight sides"),
        ("CURVEPOLYGON(CIRCULARSTRING(0 0,4 0,4 4,0 4,0 0))", "malformed", "straight sides"),
        ("GEOMETRYCOLLECTION(POINT(0 0),COMPOUNDCURVE((0 0,1 1)))", "malformed", "straight sides"),
        ("0108000000030000" + "00" * 50, "malformed", "straight sides"),
        # collections within collections that GEOS would follow: another byte order, bits of no meaning, surfaces
        ("010700000001000000" + "020700000001000000" * 20_000, "malformed", "straight sides"),
        ("010700010001000000" * 20_000, "malformed", "straight sides"),
        ("010c00000001000000" * 20_000, "malformed", "straight sides"),
        ("POLYGON((5 5,5 5,5 5,5 5))", "invalid", "too few points"),
        ("POLYGON((5 5,6 6,5 5,5 5))", "invalid", "too few points"),
    ],
)
def test_a_bad_geometry_is_refused_with_its_reason(text: str, reason: str, words: str) -> None:
    parsed = read(SQUARE, text)
    assert [(refusal.row, refusal.reason) for refusal in parsed.refused] == [(1, reason)]
    assert words in parsed.refused[0].detail
    assert np.diff(parsed.shapes.parts).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("POLYGON((0 0,4 0,4 4,0 4,0 0),EMPTY)", 16),
        ("POLYGON((0 0,4 0,4 4,0 4,0 0),EMPTY,(1 1,2 1,2 2,1 2,1 1))", 15),
        ("POLYGON((170 10,-170 10,-170 20,170 20,170 10),EMPTY)", 200),
        ("MULTIPOLYGON(EMPTY,((0 0,4 0,4 4,0 4,0 0)))", 16),
        ("MULTIPOLYGON(((170 10,-170 10,-170 20,170 20,170 10)),EMPTY)", 200),
    ],
)
def test_holes_and_parts_without_vertices_are_left_out(text: str, area: float) -> None:
    parsed = read(SQUARE, text)
    assert parsed.refused == []
    assert (np.diff(parsed.shapes.vertices) > 0).all()
    assert shapely.area(parsed.shapes.polygons()).tolist() == [16, area]


def test_a_string_within_geojson_may_have_brackets_and_quotes() -> None:
    feature = {
        "type": "Feature",
        "properties": {"name": 'a \\ "quoted" } ] name'},
        "geometry": json.loads(shapely.to_geojson(shapely.box(0, 0, 4, 4))),
    }
    assert shapely.area(read(json.dumps(feature)).shapes.polygons()).tolist() == [16]


def test_a_crs_that_means_degrees_is_no_reason_to_refuse() -> None:
    names = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326", "urn:ogc:def:crs:EPSG::4326"]
    crs = [json.dumps({"type": "name", "properties": {"name": name}}) for name in names]
    texts = [f'{{"type":"Polygon","crs":{said},"coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}}' for said in crs]
    assert reasons(*texts) == {}


def test_mixed_coordinate_systems_are_refused_row_by_row() -> None:
    assert reasons(f"SRID=4326;{SQUARE}", f"SRID=3857;{SQUARE}", f"SRID=0;{SQUARE}") == {1: "coordinate-system"}


def test_any_bounds_work_and_only_degrees_have_circles() -> None:
    square = "POLYGON((530000 180000,530100 180000,530100 180100,530000 180000))"
    assert reasons(square, "CIRCLE(1 2, 3)", grid=PLANE) == {1: "no-area"}


def test_a_small_flaw_is_mended_and_noted() -> None:
    spike = "POLYGON((0 0,4 0,9 0,4 0,4 4,0 4,0 0))"
    loop = "POLYGON((0 0,4 0,4 4,2 4,2.05 4.05,1.95 4.05,2 4,0 4,0 0))"
    parsed = read(spike, loop)
    assert parsed.refused == []
    assert [row for row, _ in parsed.notes] == [0, 1]
    assert "(9, 0)" in parsed.notes[0][1] or "(4, 0)" in parsed.notes[0][1]
    made = parsed.shapes.polygons()
    assert shapely.is_valid(made).all()
    np.testing.assert_allclose(shapely.area(made), 16, rtol=0.01)


def test_overlapping_parts_are_joined_and_collections_flattened() -> None:
    other = "POLYGON((2 2,6 2,6 6,2 6,2 2))"
    parsed = read(f"GEOMETRYCOLLECTION(POINT(9 9),{SQUARE},GEOMETRYCOLLECTION({other}))")
    assert parsed.refused == []
    assert shapely.area(parsed.shapes.polygons()[0]) == 28


def test_a_ring_over_the_antimeridian_is_cut_in_two() -> None:
    jump, run_on = "POLYGON((179 0,-179 0,-179 2,179 2,179 0))", "POLYGON((-181 0,-179 0,-179 2,-181 2,-181 0))"
    holed = "POLYGON((170 0,-170 0,-170 20,170 20,170 0),(-179 5,-178 5,-178 6,-179 6,-179 5))"
    parsed = read(jump, run_on, holed)
    assert parsed.refused == []
    assert len(parsed.notes) == 3
    made = parsed.shapes.polygons()
    want = shapely.multipolygons([shapely.box(179, 0, 180, 2), shapely.box(-180, 0, -179, 2)])
    assert shapely.equals(made[:2], want).all()
    assert shapely.area(made[2]) == 399
    assert not shapely.intersects_xy(made[2], -178.5, 5.5)


def test_the_world_and_polygons_that_were_already_cut_stay_as_they_are() -> None:
    world = "POLYGON((-180 -90,180 -90,180 90,-180 90,-180 -90))"
    parsed = read(world)
    assert (parsed.refused, parsed.notes) == ([], [])
    assert shapely.area(parsed.shapes.polygons()[0]) == 360 * 180


def test_a_ring_round_the_pole_holds_the_pole() -> None:
    parsed = read("POLYGON((0 -70,90 -70,180 -70,-90 -70,0 -70))")
    assert parsed.refused == []
    assert shapely.area(parsed.shapes.polygons()[0]) == 360 * 20


def test_a_million_vertices_are_too_many_before_anything_is_built() -> None:
    began = time.perf_counter()
    counts = np.array([VERTICES_MAX + 1], np.uint32)
    promise = b"\x01\x03\x00\x00\x00\x01\x00\x00\x00" + counts.tobytes()  # promised, not sent
    text = "POLYGON((" + "1 1," * VERTICES_MAX + "1 1))"
    refused = parse_shapes(pa.array([promise, text.encode()], pa.binary()), WORLD).refused
    assert [refusal.reason for refusal in refused] == ["too-large", "too-large"]
    assert all(str(VERTICES_MAX + 1) in refusal.detail for refusal in refused)
    assert time.perf_counter() - began < 20


def test_a_tangle_is_refused_before_it_is_examined() -> None:
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    parsed = parse_shapes(pa.array([shapely.to_wkb(shapely.polygons(rng.uniform(0, 50, (100_000, 2))))]), WORLD)
    assert [refusal.reason for refusal in parsed.refused] == ["invalid"]
    assert "more than 1000 places" in parsed.refused[0].detail
    assert time.perf_counter() - began < 20


def test_a_ring_that_nowhere_touches_itself_is_just_what_geos_calls_valid() -> None:
    rng = np.random.default_rng(8)
    drawn: list[Array] = [rng.integers(0, 6, (rng.integers(3, 8), 2)) for _ in range(400)]
    drawn += [ring(rng, 9, 0.0, 0.0, 1.0) for _ in range(50)]
    circle = ring(rng, 20, 5.0, 5.0, 1.0)
    drawn += [np.vstack([circle, circle + 0.3]), np.vstack([circle, circle[:3] * 0.9]), circle[::3].repeat(2, axis=0)]
    drawn += [circle[np.arange(0, 20 * step, step) % 20] for step in (1, 3, 7, 9, 19)]  # most go round several times
    drawn += [circle * 1e200, circle * 1e-200, np.vstack([circle[:5], [[5.0, 5.0]], circle[5:]])]
    polygons = np.array([shapely.polygons(xy) for xy in drawn])
    found = tangles(flat_of(of_polygons(polygons)), np.arange(len(polygons)), 10**6, 10**6)
    valid = shapely.is_valid(polygons)
    assert 50 < valid.sum() < 300
    assert valid[found.touches == 0].all()
    assert not valid[found.crossings > 0].any()


def test_a_column_of_numbers_is_refused() -> None:
    with pytest.raises(SchemaError, match="int64"):
        parse_shapes(pa.array([1, 2]), WORLD)


def test_all_countries_are_read(data_folder: Path) -> None:
    file = data_folder / "poly_world_countries.parquet"
    if not file.is_file():
        pytest.skip(f"no {file.name} in {data_folder}")
    table = pq.read_table(file)
    parsed = parse_shapes(table["geometry"], WORLD)
    assert parsed.refused == []
    made, plain = parsed.shapes.polygons(), shapely.from_wkb(table["geometry"].to_numpy())
    assert shapely.is_valid(made).all()
    names, changed = table["name"].to_pylist(), [row for row, _ in parsed.notes]
    assert {"Russia", "Fiji", "Antarctica"} <= {names[row] for row in changed}
    same = np.setdiff1d(np.arange(len(plain)), changed)
    np.testing.assert_array_equal(shapely.area(made)[same], shapely.area(plain)[same])
    assert shapely.intersects_xy(made[names.index("Antarctica")], 0.0, -90.0)
    assert shapely.area(made[names.index("Fiji")]) < 2  # not the whole way round the world
