"""What is plain and sound is read without GEOS, and must be what GEOS reads."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from shapely import MultiPolygon, Point, Polygon, box

from geoswarm.core.arrays.threads import PIECE_STEPS_MIN
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.shapes import of_polygons
from geoswarm.core.shapes.wkb import are_plain, decode_wkb
from geoswarm.core.space.grid import Grid
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.areas import areas_of
from geoswarm.flow.sound import SOUND
from geoswarm.flow.validate import validate_events

WORLD = Grid(-180, -90, 180, 90, columns=100, rows=50)
RING = [(0, 0), (8, 0), (8, 8), (0, 8)]
HOLED = Polygon(RING, [[(1, 1), (2, 1), (2, 2)], [(4, 4), (5, 4), (5, 5)]])
BOWTIE = Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])
TWO_PARTS = bytes([1, 6, 0, 0, 0, 2, 0, 0, 0])
SEVERAL = MultiPolygon([box(20, 0, 21, 1), HOLED])


def some_polygons(rng: np.random.Generator, count: int) -> list[Polygon | MultiPolygon]:
    drawn: list[Polygon | MultiPolygon] = []
    for _ in range(count):
        stars = []
        for k in range(rng.integers(1, 4)):
            turns = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 40)))
            reach = rng.uniform(1, 2, len(turns))
            at = rng.uniform(-30, 30, 2) + np.array([60 * k - 60, 0])
            stars.append(Polygon(np.stack([np.cos(turns), np.sin(turns)], axis=1) * reach[:, None] + at))
        drawn.append(stars[0] if len(stars) == 1 else MultiPolygon(stars))
    return [one for one in drawn if one.is_valid]


@pytest.mark.parametrize("seed", range(5))
def test_sound_polygons_are_as_geos_reads_them(seed: int) -> None:
    column = pa.array(shapely.to_wkb(np.array(some_polygons(np.random.default_rng(seed), 40))).tolist(), pa.binary())
    column = column.slice(3)  # where the buffers begin earlier
    assert are_plain(column).all()
    expected, read = parse_shapes(column, WORLD).shapes, decode_wkb(column)
    for name, array in expected.to_arrays().items():
        np.testing.assert_array_equal(read.to_arrays()[name], array, err_msg=name)


def test_many_polygons_are_read_and_taken_by_several_threads_as_by_one() -> None:
    rng = np.random.default_rng(7)
    polygons = np.array(some_polygons(rng, 400) * 10)
    column, order = pa.array(shapely.to_wkb(polygons).tolist(), pa.binary()), rng.permutation(len(polygons))
    read = decode_wkb(column)
    assert len(read.xy) > 2 * PIECE_STEPS_MIN
    for found, expected in ((read, polygons), (read.take(order), polygons[order])):
        for name, array in of_polygons(expected).to_arrays().items():
            np.testing.assert_array_equal(found.to_arrays()[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        (HOLED.wkb, True),
        (SEVERAL.wkb, True),
        (BOWTIE.wkb, True),
        (shapely.to_wkb(HOLED, byte_order=0), False),
        (shapely.to_wkb(shapely.set_srid(HOLED, 4326), include_srid=True), False),
        (shapely.to_wkb(shapely.force_3d(HOLED)), False),
        (shapely.GeometryCollection([HOLED]).wkb, False),
        (Point(1, 1).wkb, False),
        (Polygon().wkb, False),
        (TWO_PARTS + box(0, 0, 1, 1).wkb + Polygon().wkb, False),
        (TWO_PARTS + box(0, 0, 1, 1).wkb + box(2, 0, 3, 1).wkb, True),
        (HOLED.wkt.encode(), False),
        (HOLED.wkb.hex().encode(), False),
        (HOLED.wkb + b"\0", False),
        (HOLED.wkb[:-1], False),
        (HOLED.wkb[:40], False),
        (SEVERAL.wkb[:14], False),
        (b"\x01\x06\x00\x00\x00\xff\xff\xff\xff", False),
        (b"\x01\x03\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00", False),
        (b"\x01", False),
        (b"", False),
        (None, False),
    ],
)
def test_only_what_lies_as_expected_to_the_last_byte_is_plain(raw: bytes | None, plain: bool) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        assert are_plain(pa.array([HOLED.wkb, raw], kind)).tolist() == [True, plain]


def test_validation_marks_what_it_takes_as_it_came_and_the_matcher_reads_all_of_it_as_without_a_mark() -> None:
    around = Polygon([(170, 0), (190, 0), (190, 10), (170, 10)])
    sent = [
        HOLED.wkb,
        BOWTIE.wkb,
        HOLED.wkt.encode(),
        None,
        SEVERAL.wkb,
        around.wkb,
        Point(3, 4).wkb,
        b"CIRCLE(1 2, 900)",
    ]
    sent += [one.wkb for one in some_polygons(np.random.default_rng(9), 20)]
    times = pa.array(np.zeros(len(sent), "M8[us]")).cast(pa.timestamp("us", "UTC"))
    place = pa.array(np.full(len(sent), 1.0))
    rows = {
        "event_id": np.arange(len(sent)),
        "ts": times,
        "x": place,
        "y": place,
        "geometry": pa.array(sent, pa.binary()),
    }
    events = pa.record_batch(rows)
    dead = DeadLetters("event", 0)
    kept = validate_events(events, WORLD, dead, marks=True)
    marks = dict(zip(kept.column("event_id").to_pylist(), kept.column(SOUND.name).to_pylist(), strict=True))
    assert [i for i, marked in marks.items() if marked] == [0, 4, *range(8, len(sent))]
    bare = validate_events(events, WORLD, DeadLetters("event", 0))
    assert bare.schema == events.schema
    expected, read = areas_of(bare, WORLD), areas_of(kept, WORLD)
    assert expected is not None
    assert read is not None
    np.testing.assert_array_equal(read.rows, expected.rows)
    np.testing.assert_array_equal(read.boxes, expected.boxes)
    for name, array in expected.shapes.to_arrays().items():
        np.testing.assert_array_equal(read.shapes.to_arrays()[name], array, err_msg=name)
