"""Hotspots over the tweets: exact replay, the right share in the right square in time, a crowd that leaves."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.hotspots import CROWD_S, SCENARIOS, SUB_ID_FIRST, Hotspot, Hotspots, scenario
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import EVENT

BOUNDS = (-125.0, 24.0, -66.0, 50.0)
BASE = Tweets(seed=3, country="US", bounds=BOUNDS, events_per_s=500.0)
QUERIES = 3000


def points(batch: pa.RecordBatch) -> np.ndarray:
    return np.stack([batch["x"].to_numpy(), batch["y"].to_numpy()], axis=1)


def redirected_events(workload: Hotspots, at_s: float, for_s: float = 20.0) -> tuple[np.ndarray, np.ndarray]:
    """(which events of a stretch of time differ from the base's, where all of them lie as shares of the map)."""
    first, count = int(at_s * BASE.events_per_s), int(for_s * BASE.events_per_s)
    got, base = points(workload.events(first, count)), points(BASE.events(first, count))
    shares = (got - BOUNDS[:2]) / (np.array(BOUNDS[2:]) - BOUNDS[:2])
    return (got != base).any(axis=1), shares


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(sorted(SCENARIOS)),
    at_s=st.integers(0, 3000),
    counts=st.lists(st.integers(0, 2000), min_size=1, max_size=4),
)
def test_a_replay_gives_the_same_events_however_the_range_is_cut(name: str, at_s: int, counts: list[int]) -> None:
    workload, first = scenario(name, BASE, QUERIES), int(at_s * BASE.events_per_s)
    starts = first + np.cumsum([0, *counts[:-1]])
    pieces = [workload.events(int(start), count) for start, count in zip(starts, counts, strict=True)]
    whole = workload.events(first, sum(counts))
    assert whole.schema == EVENT
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))


@settings(deadline=None, max_examples=30)
@given(name=st.sampled_from(sorted(SCENARIOS)), cuts=st.lists(st.floats(0, 4000), max_size=6))
def test_a_replay_gives_the_same_operations_however_time_is_cut(name: str, cuts: list[float]) -> None:
    workload = scenario(name, BASE, QUERIES)
    edges = [0.0, *sorted(cuts), 1e6]
    pieces = [workload.operations(a, b) for a, b in itertools.pairwise(edges)]
    whole = workload.operations(0.0, 1e6)
    assert whole.schema == OPERATION
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_query_of_a_hotspot_comes_within_a_minute_and_is_cancelled_once(name: str) -> None:
    workload = scenario(name, BASE, QUERIES)
    came: list[int] = []
    went: list[int] = []
    for spot in workload.spots:
        for start_s, verb, kept in ((spot.start_s, "register", came), (spot.end_s, "cancel", went)):
            rows = workload.operations(start_s, start_s + CROWD_S).to_pylist()
            kept += [row["sub_id"] for row in rows if row["op"] == verb and row["sub_id"] not in kept]
    assert sorted(came) == sorted(went) == list(range(SUB_ID_FIRST, SUB_ID_FIRST + QUERIES))
    assert workload.operations(0.0, 1e6).num_rows == 2 * QUERIES
    assert workload.operations(0.0, workload.spots[0].start_s).num_rows == 0


@pytest.mark.parametrize(("age", "share"), [(0.0, 0.0), (0.25, 0.15), (0.5, 0.4), (0.75, 0.15), (1.0, 0.0)])
def test_a_bell_takes_its_share_of_the_stream_over_its_life(age: float, share: float) -> None:
    workload = scenario("one-uniform", BASE, QUERIES)
    spot = workload.spots[0]
    at_s = spot.start_s + age * spot.life_s
    assert spot.share(at_s) == pytest.approx(share, abs=1e-12)
    moved, _ = redirected_events(workload, max(at_s - 10.0, 0.0))
    assert moved.mean() == pytest.approx(share, abs=0.02)


def test_a_step_takes_its_full_share_at_once_and_nothing_after_its_end() -> None:
    workload = scenario("one-step", BASE, QUERIES)
    spot = workload.spots[0]
    assert not redirected_events(workload, spot.start_s - 20.0)[0].any()
    assert redirected_events(workload, spot.start_s)[0].mean() == pytest.approx(0.4, abs=0.02)
    assert redirected_events(workload, spot.end_s - 20.0)[0].mean() == pytest.approx(0.4, abs=0.02)
    assert not redirected_events(workload, spot.end_s + 0.01)[0].any()


def test_the_points_of_a_hotspot_stay_in_its_square_and_fill_it_if_uniform_or_crowd_its_middle_if_normal() -> None:
    deviations = {}
    for name in ("one-uniform", "one-normal"):
        workload = scenario(name, BASE, QUERIES)
        moved, at = redirected_events(workload, 1190.0)
        offset = (at[moved] - workload.spots[0].center) / 0.15
        assert np.abs(offset).max() <= 0.5 + 1e-9
        assert np.abs(offset.mean(axis=0)).max() < 0.03
        deviations[name] = offset.std(axis=0)
    np.testing.assert_allclose(deviations["one-uniform"], 12**-0.5, rtol=0.05)
    np.testing.assert_allclose(deviations["one-normal"], 0.2, rtol=0.05)


def test_a_moving_hotspot_goes_its_way_and_meets_its_own_queries() -> None:
    workload = scenario("one-moving", BASE, QUERIES)
    spot = workload.spots[0]
    for age in (0.1, 0.5, 0.9):
        moved, at = redirected_events(workload, spot.start_s + age * spot.life_s)
        want = np.array(spot.center) + np.array(spot.drift) * age
        np.testing.assert_allclose(at[moved].mean(axis=0), want, atol=0.01)
    rows = workload.operations(spot.start_s, spot.start_s + CROWD_S)
    x = (rows["xmin"].to_numpy() + rows["xmax"].to_numpy()) / 2
    share = (x - BOUNDS[0]) / (BOUNDS[2] - BOUNDS[0])
    assert share.min() < 0.1
    assert share.max() > 0.5


def test_two_overlapping_hotspots_share_the_stream_and_are_apart() -> None:
    workload = scenario("two-overlapping", BASE, QUERIES)
    at_s = 22.5 * 60.0
    moved, at = redirected_events(workload, at_s)
    low, high = (np.abs(at - spot.center).max(axis=1) <= 0.075 + 1e-9 for spot in workload.spots)
    assert (low | high)[moved].all()
    for inside, spot in ((low, workload.spots[0]), (high, workload.spots[1])):
        assert (inside & moved).mean() == pytest.approx(spot.share(at_s + 10.0), abs=0.02)


def test_rectangles_have_the_side_of_the_base_and_stay_on_the_map() -> None:
    corner = Hotspots(BASE, (Hotspot((0.075, 0.075), 0.0, 60.0, 500),))
    rows = corner.operations(0.0, 60.0)
    width = rows["xmax"].to_numpy() - rows["xmin"].to_numpy()
    assert width.max() == pytest.approx(0.0016 * 59.0)
    assert rows["xmin"].to_numpy().min() >= BOUNDS[0]
    assert rows["ymin"].to_numpy().min() >= BOUNDS[1]


def test_another_seed_is_another_crowd() -> None:
    other = scenario("one-uniform", dataclasses.replace(BASE, seed=4), QUERIES).operations(600.0, 660.0)
    assert not other.equals(scenario("one-uniform", BASE, QUERIES).operations(600.0, 660.0))


@pytest.mark.parametrize(
    ("spots", "said"),
    [
        ((Hotspot((0.05, 0.5), 0.0, 60.0, 1),), "within 0 to 1"),
        ((Hotspot((0.5, 0.5), 0.0, 60.0, 1, drift=(0.5, 0.0)),), "within 0 to 1"),
        ((Hotspot((0.5, 0.5), 0.0, 0.0, 1),), "live more than 0 s"),
        (tuple(Hotspot((0.5, 0.5), 10.0 * i, 60.0, 1) for i in range(3)), "lower their peak_share"),
    ],
)
def test_a_hotspot_that_cannot_be_is_refused_with_the_remedy(spots: tuple[Hotspot, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Hotspots(BASE, spots)


def test_an_unknown_scenario_is_answered_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="two-consecutive"):
        scenario("three", BASE, 1)
