"""Points and areas in shapes: the same answers as plain shapely, borders and corners included."""

import numpy as np
import pyarrow as pa
import pytest
import shapely

from core.shapes.drawn import WORLD, blob, blobs, probe_points
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.shapes.areas import areas_in
from geoswarm.core.shapes.circle import EARTH_M, METRES_MAX, bounding_rectangles, boxes, distance_m
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.shapes.points import Predicate, points_in
from geoswarm.core.shapes.shapes import Geometries, Shapes, concatenate_shapes, no_shapes, of_circles, of_polygons
from geoswarm.errors import InputError


def all_pairs(polygons: Geometries, points: list[Floats]) -> tuple[Floats, Floats, Ints, Ints]:
    """Every shape with every one of its points, as pairs in no order."""
    rng = np.random.default_rng(0)
    xy = np.vstack(points)
    chosen = np.repeat(np.arange(len(polygons)), [len(part) for part in points])
    order = rng.permutation(len(xy))
    return xy[:, 0].copy(), xy[:, 1].copy(), order, chosen[order]


@pytest.mark.parametrize("predicate", ["intersects", "contains", "covers"])
@pytest.mark.parametrize("vertices", [3, 12, 60, 700])
def test_points_are_in_a_polygon_exactly_when_shapely_says_so(vertices: int, predicate: Predicate) -> None:
    rng = np.random.default_rng(vertices)
    polygons = blobs(rng, 9, vertices)
    x, y, points, chosen = all_pairs(polygons, [probe_points(rng, polygon, 0.25) for polygon in polygons])
    got = points_in(of_polygons(polygons), x, y, points, chosen, predicate)
    plain = shapely.points(x[points], y[points])
    want = getattr(shapely, predicate)(polygons[chosen], plain)
    assert want.any()
    assert not want.all()
    np.testing.assert_array_equal(got, want)


def test_a_point_on_a_shared_border_is_in_both_neighbours() -> None:
    left, right = shapely.box(0, 0, 1, 1), shapely.Polygon([(1, 0), (2, 0.3), (1, 1)])
    shapes = of_polygons(np.array([left, right]))
    x, y = np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.37, 1.0])
    points, chosen = np.tile(np.arange(3), 2), np.repeat([0, 1], 3)
    assert points_in(shapes, x, y, points, chosen).all()
    assert not points_in(shapes, x, y, points, chosen, "contains").any()


def test_few_points_and_many_points_of_a_shape_get_the_same_answers() -> None:
    rng = np.random.default_rng(5)
    polygon = blobs(rng, 3, 300)[1:2]
    xy = probe_points(rng, polygon[0], 0.1)
    x, y = xy[:, 0].copy(), xy[:, 1].copy()
    shapes, every = of_polygons(polygon), np.arange(len(x))
    together = points_in(shapes, x, y, every, np.zeros(len(x), np.int64))
    alone = [points_in(shapes, x, y, every[i : i + 1], np.zeros(1, np.int64))[0] for i in every]
    np.testing.assert_array_equal(together, alone)


def test_no_region_is_within_a_point_and_an_unknown_predicate_is_refused() -> None:
    shapes, zero = of_polygons(np.array([shapely.box(0, 0, 1, 1)])), np.zeros(1, np.int64)
    assert not points_in(shapes, np.array([0.5]), np.array([0.5]), zero, zero, "within").any()
    with pytest.raises(InputError, match="touches"):
        points_in(shapes, np.array([0.5]), np.array([0.5]), zero, zero, "touches")  # type: ignore[arg-type]


def test_empty_parts_and_holes_hold_nothing_and_hide_nothing() -> None:
    texts = ["MULTIPOLYGON(((0 0,4 0,4 4,0 0)),EMPTY)", "MULTIPOLYGON(EMPTY,((0 0,4 0,4 4,0 0)))"]
    shapes = parse_shapes(pa.array([*texts, "POLYGON((0 0,4 0,4 4,0 0),EMPTY)"]), WORLD).shapes
    x, y, chosen = np.array([3.0, 1.0]), np.array([1.0, 3.0]), np.repeat(np.arange(3), 2)
    assert points_in(shapes, x, y, np.tile([0, 1], 3), chosen).tolist() == [True, False] * 3


def test_a_row_without_a_shape_holds_no_point() -> None:
    zero = np.zeros(1, np.int64)
    assert not points_in(no_shapes(1), np.array([0.5]), np.array([0.5]), zero, zero).any()


def test_a_circle_holds_the_points_within_its_metres_over_pole_and_antimeridian() -> None:
    rng = np.random.default_rng(3)
    circles = np.array([[13.4, 52.5, 2e6], [179.9, 10.0, 5e5], [0.0, 89.0, 4e5], [-60.0, -20.0, 1.5e7]])
    lon, lat = rng.uniform(-180, 180, 4000), np.degrees(np.arcsin(rng.uniform(-1, 1, 4000)))
    points, chosen = np.tile(np.arange(4000), 4), np.repeat(np.arange(4), 4000)
    got = points_in(of_circles(circles), lon, lat, points, chosen)

    # The angle between unit vectors, another road to the same distance.
    def vector(x: Floats, y: Floats) -> Floats:
        x, y = np.radians(x), np.radians(y)
        return np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)])

    centre, there = vector(circles[chosen, 0], circles[chosen, 1]), vector(lon[points], lat[points])
    away = EARTH_M * np.arctan2(np.linalg.norm(np.cross(centre, there, axis=0), axis=0), (centre * there).sum(axis=0))
    clear = np.abs(away - circles[chosen, 2]) > 0.1
    assert [got[chosen == i].any() for i in range(4)] == [True] * 4
    np.testing.assert_array_equal(got[clear], (away <= circles[chosen, 2])[clear])
    round_boxes = boxes(circles, WORLD)
    assert np.isfinite(round_boxes[:, 1, 0]).tolist() == [False, True, False, False]
    x, y = lon[points][got], lat[points][got]
    box = round_boxes[chosen[got]]
    with np.errstate(invalid="ignore"):
        held = (box[..., 0] <= x[:, None]) & (x[:, None] <= box[..., 2]) & (box[..., 1] <= y[:, None])
    assert (held & (y[:, None] <= box[..., 3])).any(axis=1).all()


def test_every_shape_has_a_rectangle_round_it() -> None:
    square = of_polygons(np.array([shapely.box(1, 2, 3, 4)]))
    shapes = concatenate_shapes([of_circles(np.array([[179.9, 0.0, 5e4], [0.0, 90.0, 1e5]])), no_shapes(1), square])
    got = bounding_rectangles(shapes, WORLD)
    assert got[0, [0, 2]].tolist() == [-180, 180]
    np.testing.assert_allclose(got[0, [1, 3]], [-0.44967, 0.44967], atol=1e-4)
    np.testing.assert_allclose(got[1], [-180, 89.1007, 180, 90], atol=1e-4)
    assert np.isnan(got[2]).all()
    assert got[3].tolist() == [1, 2, 3, 4]


def test_a_point_at_exactly_the_radius_counts_as_the_border_does() -> None:
    metres = distance_m(10.0, 50.0, 10.5, 50.2)
    shapes, zero = of_circles(np.array([[10.0, 50.0, metres]])), np.zeros(1, np.int64)
    x, y = np.array([10.5]), np.array([50.2])
    assert points_in(shapes, x, y, zero, zero).all()
    assert not points_in(shapes, x, y, zero, zero, "contains").any()


@pytest.mark.parametrize("predicate", ["intersects", "contains", "covers", "within"])
def test_areas_meet_regions_exactly_when_shapely_says_so(predicate: Predicate) -> None:
    rng = np.random.default_rng(11)
    regions = np.append(blobs(rng, 12, 30), [shapely.box(0, 0, 4, 4), shapely.box(4, 0, 8, 4)])
    areas = np.append(blobs(rng, 12, 10), [shapely.box(0, 0, 4, 4), shapely.box(1, 1, 2, 2), shapely.box(-9, -9, 9, 9)])
    areas[:6] = [shapely.affinity.scale(shapely.get_parts(region)[0], 0.1, 0.1) for region in regions[:6]]
    events, chosen = (part.ravel() for part in np.meshgrid(np.arange(len(areas)), np.arange(len(regions))))
    got = areas_in(of_polygons(regions), of_polygons(areas), events, chosen, predicate)
    want = getattr(shapely, predicate)(regions[chosen], areas[events])
    assert want.any()
    np.testing.assert_array_equal(got, want)


def test_circles_and_polygons_meet_as_their_nearest_and_farthest_points_say() -> None:
    rng = np.random.default_rng(7)
    polygons = np.array([blob(rng, 20, x, y, 1.0) for x, y in rng.uniform(-3, 3, (20, 2))])
    metres = rng.uniform(2e4, 6e5, 12)
    circles = of_circles(np.column_stack([rng.uniform(-3, 3, (12, 2)), metres]))
    shapes = of_polygons(polygons)
    events, chosen = (part.ravel() for part in np.meshgrid(np.arange(20), np.arange(12)))
    border = [shapely.get_coordinates(shapely.segmentize(polygon, 0.002)) for polygon in polygons]
    near, far, centre_in = (np.empty(len(events)) for _ in range(3))
    for i, (event, circle) in enumerate(zip(events, chosen, strict=True)):
        x, y = circles.xy[circle]
        away = np.array([distance_m(x, y, *at) for at in border[event]])
        near[i], far[i], centre_in[i] = away.min(), away.max(), shapely.intersects_xy(polygons[event], x, y)
    radius = metres[chosen]
    clear = (np.abs(near - radius) > 200) & (np.abs(far - radius) > 200)
    meets, holds, lies_in = (near <= radius) | (centre_in > 0), far <= radius, (centre_in > 0) & (near >= radius)
    assert meets.any()
    assert holds.any()
    assert lies_in.any()
    mirror: list[tuple[Predicate, Predicate, Bools]] = [
        ("intersects", "intersects", meets),
        ("covers", "within", holds),
        ("within", "covers", lies_in),
    ]
    for predicate, mirrored, want in mirror:
        np.testing.assert_array_equal(areas_in(circles, shapes, events, chosen, predicate)[clear], want[clear])
        np.testing.assert_array_equal(areas_in(shapes, circles, chosen, events, mirrored)[clear], want[clear])


def test_circles_meet_circles_by_the_distance_of_their_centres() -> None:
    here, there = of_circles(np.array([[0.0, 0.0, 1e5]])), of_circles(np.array([[1.0, 0.0, 5e4], [0.1, 0.0, 1e4]]))
    events, chosen = np.array([0, 1]), np.zeros(2, np.int64)
    assert areas_in(here, there, events, chosen).tolist() == [True, True]
    assert areas_in(here, there, events, chosen, "covers").tolist() == [False, True]
    assert areas_in(there, here, chosen, events, "within").tolist() == [False, True]


def test_the_whole_earth_as_a_circle_holds_every_area() -> None:
    earth = of_circles(np.array([[10.0, 10.0, METRES_MAX]]))
    world, zero = of_polygons(np.array([shapely.box(-180, -90, 180, 90)])), np.zeros(1, np.int64)
    assert areas_in(earth, world, zero, zero, "covers").all()


def test_shapes_survive_taking_joining_and_a_file() -> None:
    rng = np.random.default_rng(1)
    polygons = blobs(rng, 6)
    shapes = concatenate_shapes([of_polygons(polygons), no_shapes(2), of_circles(np.array([[1.0, 2.0, 300.0]]))])
    assert len(shapes) == 9
    again = Shapes.from_arrays(shapes.to_arrays()).take(np.array([8, 3, 6, 3]))
    assert again.metres.tolist() == [300.0, 0.0, 0.0, 0.0]
    assert shapely.equals(again.polygons()[[1, 3]], polygons[[3, 3]]).all()
    assert shapely.is_empty(again.polygons()[[0, 2]]).all()
    np.testing.assert_array_equal(shapes.bounds()[:6], shapely.bounds(polygons))
    assert np.isnan(shapes.bounds()[6:]).all()


@pytest.mark.parametrize("metres", [10.0, 1_000.0, 10_000.0])
def test_a_circle_at_a_pole_beside_a_parallel_is_decided_at_once(metres: float) -> None:
    top = 90 - np.degrees((metres + 0.5) / EARTH_M)
    region = of_polygons(np.array([shapely.box(-170, 80, 170, top)]))
    areas, refused, *_ = parse_shapes(pa.array([f"CIRCLE(0 90, {metres})".encode()], pa.binary()), WORLD)
    assert not refused
    one = np.zeros(1, np.int64)
    assert areas_in(region, areas, one, one).tolist() == [False]


@pytest.mark.parametrize("height", [0.0, 5e-324, 1e-310, 1e-250, 1e-150])
def test_a_shape_that_is_hardly_higher_than_a_line_breaks_nothing(height: float) -> None:
    along = np.linspace(0.0, 1.0, 12)
    ring = [*zip(along, np.zeros(12), strict=True), *zip(along[::-1], np.full(12, height), strict=True)]
    shapes = of_polygons(np.array([shapely.Polygon(ring)]))
    x, y = np.linspace(0.0, 1.0, 20), np.zeros(20)
    assert points_in(shapes, x, y, np.arange(20), np.zeros(20, np.int64)).all()
