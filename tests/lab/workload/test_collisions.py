"""Collisions and postcodes: a country without gaps, polygons like the real ones, and the skew that was asked for."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.layout.level import level
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.shapes.parse import parse_shapes
from geoswarm.core.space.grid import Grid
from geoswarm.errors import InputError, MachineError, SettingsError
from geoswarm.lab.workload.collisions import PUBLICATION, SUBSCRIPTION, Collisions, write
from geoswarm.lab.workload.postcodes import BOUNDS, FILES, Britain, britain, make_britain, real_britain
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE
from geoswarm.lab.workload.skew import Hot, hot_executors, resample
from geoswarm.lab.workload.tiling import wiggly_cells
from geoswarm.store.region_files import read_regions

GRID = Grid(*BOUNDS, columns=1000, rows=1000)
EXECUTORS = 16


@pytest.fixture(scope="module")
def made_country() -> Britain:
    return make_britain(0)


@pytest.fixture(scope="module")
def real_country(data_folder: Path) -> Britain:
    for file in FILES.values():
        if not (data_folder / file).is_file():
            pytest.skip(f"no {file} in {data_folder}")
    return real_britain(data_folder)


def _hot(country: Britain, seed: int = 0) -> Hot:
    return hot_executors(level(GRID, EXECUTORS, country.places), country.places, np.random.default_rng(seed))


def _places(batch: pa.RecordBatch) -> Floats:
    return np.stack([batch["x"].to_numpy(), batch["y"].to_numpy()], axis=1)


# -- the country


def test_one_seed_makes_one_country() -> None:
    again, same, other = (make_britain.__wrapped__(seed, places=500, sectors=300) for seed in (7, 7, 8))
    for one, two in zip(again.polygons, same.polygons, strict=True):
        assert shapely.to_wkb(one).tolist() == shapely.to_wkb(two).tolist()
    assert np.array_equal(again.places, same.places)
    assert np.array_equal(again.homes, same.homes)
    assert shapely.to_wkb(again.polygons[0][0]) != shapely.to_wkb(other.polygons[0][0])
    assert not set(again.places[:, 0]) & set(other.places[:, 0])


@pytest.mark.parametrize(
    ("number", "count", "vertices", "square_km"),
    [
        pytest.param(0, (9_500, 11_000), (40, 70), (2.5, 8), id="sectors"),
        pytest.param(1, (2_500, 3_000), (140, 210), (15, 35), id="districts"),
        pytest.param(2, (90, 130), (250, 400), (600, 1500), id="areas"),
    ],
)
@pytest.mark.parametrize("which", ["made_country", "real_country"])
def test_polygons_have_the_number_and_size_of_real_postcodes(
    which: str,
    number: int,
    count: tuple[int, int],
    vertices: tuple[int, int],
    square_km: tuple[float, float],
    request: pytest.FixtureRequest,
) -> None:
    polygons = request.getfixturevalue(which).polygons[number]
    middle_vertices = float(np.median(shapely.get_num_coordinates(polygons)))
    middle_square_km = float(np.median(shapely.area(polygons))) * 111.2**2 * 0.6  # at 53 degrees north
    assert count[0] <= len(polygons) <= count[1]
    assert vertices[0] <= middle_vertices <= vertices[1]
    assert square_km[0] <= middle_square_km <= square_km[1]


def test_neighbours_share_their_borders_and_a_district_is_its_sectors(made_country: Britain) -> None:
    sectors, districts, areas = made_country.polygons
    for polygons in made_country.polygons:
        assert shapely.coverage_is_valid(polygons)
    assert shapely.area(districts).sum() == pytest.approx(shapely.area(shapely.union_all(districts)), abs=1e-9)
    inner = shapely.point_on_surface(sectors)
    for larger in (districts, areas):
        each, holder = shapely.STRtree(larger).query(inner, predicate="within")
        assert each.tolist() == list(range(len(sectors)))
        summed = np.bincount(holder, shapely.area(sectors), len(larger))
        assert np.abs(summed - shapely.area(larger)).max() < 1e-9


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60), scale=st.sampled_from([1e-4, 1.0, 300.0]))
def test_wiggly_cells_leave_no_gap_and_hold_their_seeds(seed: int, count: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    land = rng.random((count, 2)) ** 2 * scale
    rim = np.exp(1j * np.linspace(0.01, 2 * np.pi, 40, endpoint=False)) * 4 * scale
    outside = np.stack([rim.real, rim.imag], axis=1)
    groups = np.vstack([rng.integers(0, 5, (count, 2)), np.full((len(outside), 2), -1)])
    cells = wiggly_cells(np.vstack([land, outside]), groups, rng)
    assert len(cells) == count
    assert shapely.is_valid(cells).all()
    assert shapely.contains_xy(cells, land).all()
    together = shapely.union_all(cells)
    assert shapely.get_num_interior_rings(together) == 0
    assert shapely.area(cells).sum() == pytest.approx(shapely.area(together), rel=1e-9)
    assert shapely.coverage_is_valid(cells)


@pytest.mark.parametrize("which", ["made_country", "real_country"])
def test_every_polygon_is_taken_as_it_is(which: str, request: pytest.FixtureRequest) -> None:
    for polygons in request.getfixturevalue(which).polygons:
        parsed = parse_shapes(pa.array(shapely.to_wkb(polygons), pa.binary()), GRID)
        assert len(polygons) > 0
        assert parsed.refused == []
        assert parsed.notes == []
        assert (parsed.shapes.vertex_counts() == shapely.get_num_coordinates(polygons)).all()


@pytest.mark.parametrize("which", ["made_country", "real_country"])
def test_places_lie_in_the_polygons_that_they_are_said_to(which: str, request: pytest.FixtureRequest) -> None:
    country = request.getfixturevalue(which)
    assert len(country.places) > 130_000
    points = shapely.points(country.places)
    for number, polygons in enumerate(country.polygons):
        assert shapely.intersects(polygons[country.homes[:, number]], points).all()


def test_without_files_a_country_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_country: Britain
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert britain().source == "made"
    assert britain(tmp_path) is made_country
    with pytest.raises(MachineError, match="points_uk_collisions"):
        real_britain(tmp_path)
    with pytest.raises(InputError, match="100 sectors"):
        make_britain(0, sectors=100)


def test_with_files_the_real_country_is_taken(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, real_country: Britain
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(data_folder))
    assert britain() is real_country
    assert real_country.source == "real"


# -- what is asked for and published


@pytest.mark.parametrize("skew", [None, 0.5])
def test_a_row_depends_on_its_id_alone(skew: float | None, made_country: Britain) -> None:
    collisions = Collisions(made_country, seed=5)
    hot = None if skew is None else _hot(made_country)
    whole = collisions.publications(100, 1000, hot=hot, share=skew)
    parts = [collisions.publications(first, 250, hot=hot, share=skew) for first in range(100, 1100, 250)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.table(whole))
    assert not whole["x"].equals(Collisions(made_country, seed=6).publications(100, 1000, hot=hot, share=skew)["x"])
    zones = pa.Table.from_batches([collisions.subscriptions(0, 60), collisions.subscriptions(60, 40)])
    assert zones.combine_chunks().equals(pa.table(collisions.subscriptions(0, 100)))


@pytest.mark.parametrize("which", ["made_country", "real_country"])
def test_subscriptions_are_polygons_of_all_levels_where_collisions_are(
    which: str, request: pytest.FixtureRequest
) -> None:
    country = request.getfixturevalue(which)
    zones = Collisions(country).subscriptions(0, 3000)
    assert zones.schema.equals(SUBSCRIPTION)
    wanted = zones["geometry"].to_pylist()
    written = [set(shapely.to_wkb(polygons).tolist()) for polygons in country.polygons]
    by_level = [sum(zone in of_level for zone in wanted) for of_level in written]
    assert min(by_level) > 900
    # A popular area is asked for as often as collisions happen there.
    most = int(np.bincount(country.homes[:, 2]).argmax())
    share = float((country.homes[:, 2] == most).mean())
    found = wanted.count(shapely.to_wkb(country.polygons[2][most]))
    assert found / by_level[2] == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("which", ["made_country", "real_country"])
@pytest.mark.parametrize("polygon_share", [0.0, 0.5, 1.0])
def test_publications_are_points_and_polygons_mixed(
    which: str, polygon_share: float, request: pytest.FixtureRequest
) -> None:
    country = request.getfixturevalue(which)
    batch = Collisions(country, polygon_share=polygon_share).publications(0, 4000)
    batch.validate(full=True)
    assert batch.schema.equals(PUBLICATION)
    assert batch.schema.names == ["event_id", "ts", "x", "y", "geometry"]
    polygons = shapely.from_wkb(batch["geometry"].to_numpy(zero_copy_only=False))
    are = ~shapely.is_missing(polygons)
    assert are.mean() == pytest.approx(polygon_share, abs=0.03)
    assert shapely.intersects_xy(polygons[are], *_places(batch)[are].T).all()
    assert (np.diff(batch["ts"].cast(pa.int64()).to_numpy()) == 100).all()


def test_points_of_one_collision_do_not_coincide(made_country: Britain) -> None:
    places = _places(Collisions(made_country, polygon_share=0.0).publications(0, 20_000))
    assert len(np.unique(places, axis=0)) == len(places)


def test_what_cannot_be_drawn_is_refused(made_country: Britain) -> None:
    collisions, hot = Collisions(made_country), _hot(made_country)
    with pytest.raises(SettingsError, match="polygon_share"):
        Collisions(made_country, polygon_share=1.5)
    with pytest.raises(InputError, match="at once"):
        collisions.publications(0, 10_000_000)
    with pytest.raises(InputError, match="give both"):
        collisions.publications(0, 10, share=0.5)
    with pytest.raises(InputError, match=r"share of 1\.2"):
        collisions.publications(0, 10, hot=hot, share=1.2)
    with pytest.raises(InputError, match="0 of"):
        collisions.publications(0, 10, hot=hot._replace(cells=np.zeros(GRID.cells, np.bool_)), share=0.5)


# -- skew


@pytest.mark.parametrize("which", ["made_country", "real_country"])
@pytest.mark.parametrize("share", [0.1875, 0.3, 0.5, 0.7])
def test_three_of_sixteen_executors_get_the_share_that_was_asked_for(
    which: str, share: float, request: pytest.FixtureRequest
) -> None:
    country = request.getfixturevalue(which)
    hot = _hot(country, seed=2)
    assert len(hot.executors) == 3
    assert hot.share == pytest.approx(3 / 16, rel=0.03)
    batch = Collisions(country).publications(0, 100_000, hot=hot, share=share)
    assert hot.are_hot(_places(batch)).mean() == pytest.approx(share, abs=0.01)


def test_on_either_side_collisions_stay_as_they_are(made_country: Britain) -> None:
    hot = _hot(made_country)
    batch = Collisions(made_country, polygon_share=0.2).publications(0, 100_000, hot=hot, share=0.6)
    drawn = _places(batch)
    for side in (hot.are_hot, lambda places: ~hot.are_hot(places)):
        mine, base = drawn[side(drawn)], made_country.places[side(made_country.places)]
        parts = [np.quantile(base[:, 0], q) for q in (0.25, 0.5, 0.75)]
        assert [(mine[:, 0] < x).mean() for x in parts] == pytest.approx([0.25, 0.5, 0.75], abs=0.01)


def test_who_is_hot_is_drawn_from_those_who_have_enough(made_country: Britain) -> None:
    plan = level(GRID, EXECUTORS, made_country.places)
    trios = {hot_executors(plan, made_country.places, np.random.default_rng(seed)).executors for seed in range(20)}
    assert len(trios) > 10
    assert all(len(set(trio)) == 3 for trio in trios)
    lonely = level(GRID, EXECUTORS, np.full((10, 2), 50.0) * (0.0, 1.0))  # all partitions round one place in the sea
    with pytest.raises(InputError, match="half of an equal share"):
        hot_executors(lonely, np.full((10, 2), 50.0) * (0.0, 1.0), np.random.default_rng(0))
    with pytest.raises(InputError, match="outside the grid"):
        hot_executors(plan, np.zeros((5, 2)), np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.05, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("heavy", [False, True])
def test_a_pool_is_resampled_to_the_share_of_its_load(share: float, heavy: bool) -> None:
    rng = np.random.default_rng(1)
    loads = rng.pareto(1.5, 20_000) * 10 + 1 if heavy else np.ones(20_000)
    pool = rng.beta(2, 8, 20_000)
    drawn = resample(pool, share, 20_000, rng, loads=loads)
    assert drawn.share == pytest.approx(share, abs=0.01)
    assert (loads * pool)[drawn.rows].sum() / loads[drawn.rows].sum() == pytest.approx(drawn.share)


def test_a_pool_that_is_right_already_is_hardly_touched() -> None:
    pool = np.random.default_rng(1).beta(2, 8, 5000)
    drawn = resample(pool, float(pool.mean()), 5000, np.random.default_rng(2))
    assert len(np.unique(drawn.rows)) == 5000
    assert drawn.variety == pytest.approx(1.0)


def test_a_share_beyond_the_pool_is_neared_and_said() -> None:
    pool = np.full(1000, 0.1)
    pool[:100] = 0.5
    drawn = resample(pool, 0.8, 4000, np.random.default_rng(0), variety_min=0.2)
    assert drawn.variety == pytest.approx(0.2, abs=0.01)
    assert 0.3 < drawn.share < 0.5
    assert len(np.unique(drawn.rows)) > 200
    further = resample(pool, 0.8, 4000, np.random.default_rng(0), variety_min=0.1)
    assert drawn.share < further.share <= 0.5
    with pytest.raises(InputError, match="from 0 rows"):
        resample(np.zeros(0), 0.5, 10, np.random.default_rng(0))


def test_chosen_rows_become_a_stream_of_their_own(made_country: Britain) -> None:
    collisions = Collisions(made_country)
    pool = collisions.publications(0, 50)
    stream = collisions.replay(pool, np.array([7, 7, 3]), 1000)
    assert stream["event_id"].to_pylist() == [1000, 1001, 1002]
    assert stream["ts"].equals(collisions.publications(1000, 3)["ts"])
    for name in ("x", "y", "geometry"):
        assert stream[name].to_pylist() == [pool[name][i].as_py() for i in (7, 7, 3)]


def test_a_stream_is_written_as_the_engine_reads_it(made_country: Britain, tmp_path: Path) -> None:
    collisions = Collisions(made_country)
    batches = [collisions.publications(first, 100) for first in (0, 100, 200)]
    write(tmp_path / "run", collisions.subscriptions(0, 40), iter(batches))
    files = sorted((tmp_path / "run" / "events").iterdir())
    assert len(files) == 3
    assert all(pq.read_table(f).equals(pa.table(batch)) for f, batch in zip(files, batches, strict=True))
    (regions,) = read_regions(tmp_path / "run" / "subscriptions.parquet")
    assert regions["sub_id"].to_pylist() == list(range(40))
    assert regions["geometry"].to_pylist() == collisions.subscriptions(0, 40)["geometry"].to_pylist()
