"""The synthetic stream: exact replay, plausible places and hours, churn that always makes sense."""

import dataclasses
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.cities import cities
from geoswarm.lab.workload.draw import alias_table, zipf_table
from geoswarm.lab.workload.tweets import START_S, Tweets
from geoswarm.model import EVENT

WORLD = Tweets(seed=7)
# A rate at which a few thousand ids cross many quarters of an hour and many bursts.
FAST_CLOCK = dataclasses.replace(WORLD, events_per_s=0.5, burst_share=0.3)


def column(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(batch[name].to_numpy(zero_copy_only=False))


def at_edt_hour(hour: float) -> Tweets:
    return Tweets(seed=1, start_s=START_S + (hour + 4) * 3600, events_per_s=1e5)


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 10**10), st.lists(st.integers(0, 3000), min_size=1, max_size=5))
def test_a_replay_gives_the_same_rows_however_the_range_is_cut(first_id: int, counts: list[int]) -> None:
    for make in (FAST_CLOCK.events, FAST_CLOCK.subscriptions, lambda f, n: FAST_CLOCK.operations(f, n, 1000)):
        whole = make(first_id, sum(counts))
        starts = first_id + np.cumsum([0, *counts[:-1]])
        pieces = [make(int(start), count) for start, count in zip(starts, counts, strict=True)]
        assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))


def test_a_burst_keeps_its_place_when_a_batch_begins_in_the_middle_of_it() -> None:
    """Nine days cut every 140 s: many a cut falls between a burst's start and a quarter of an hour."""
    bursts = dataclasses.replace(WORLD, events_per_s=0.05, burst_share=0.9)
    pieces = [bursts.events(first_id, 7) for first_id in range(0, 39_998, 7)]
    assert pa.Table.from_batches(pieces).combine_chunks().equals(pa.Table.from_batches([bursts.events(0, 39_998)]))


def test_the_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    copy = pickle.loads(pickle.dumps(WORLD))
    assert copy.events(0, 1000).equals(WORLD.events(0, 1000))
    other = dataclasses.replace(WORLD, seed=8)
    assert not (column(other.events(0, 1000), "x") == column(WORLD.events(0, 1000), "x")).any()
    assert column(other.subscriptions(0, 50), "xmin")[0] != column(WORLD.subscriptions(0, 50), "xmin")[0]


def test_events_and_subscriptions_have_the_columns_of_the_model() -> None:
    assert WORLD.events(3, 5).schema.equals(EVENT)
    assert WORLD.subscriptions(3, 5).schema.equals(OPERATION)
    assert WORLD.operations(3, 5, 10).schema.equals(OPERATION)
    assert column(WORLD.events(3, 5), "event_id").tolist() == [3, 4, 5, 6, 7]
    assert WORLD.events(3, 0).num_rows == 0


def test_stream_time_runs_at_the_given_rate() -> None:
    ts = Tweets(events_per_s=4.0, start_s=1000.0).events(8, 3)["ts"].cast(pa.int64()).to_pylist()
    assert ts == [1_002_000_000, 1_002_250_000, 1_002_500_000]


@pytest.mark.parametrize(("hour_edt", "americas_low", "americas_high"), [(6, 0.0, 0.1), (18, 0.5, 0.8)])
def test_the_americas_sleep_at_six_in_the_morning_and_lead_at_six_in_the_evening(
    hour_edt: int, americas_low: float, americas_high: float
) -> None:
    share = (column(at_edt_hour(hour_edt).events(0, 50_000), "x") < -30).mean()
    assert americas_low < share < americas_high


def test_large_cities_have_more_posts_than_small_ones() -> None:
    calm = Tweets(country="DE", background_share=0.0, burst_share=0.0).events(0, 50_000)
    x, y = column(calm, "x"), column(calm, "y")
    berlin = (np.abs(x - 13.41) < 0.5) & (np.abs(y - 52.52) < 0.5)
    jena = (np.abs(x - 11.59) < 0.1) & (np.abs(y - 50.93) < 0.1)
    assert berlin.mean() > 10 * jena.mean() > 0


def test_posts_of_a_country_stay_in_its_box() -> None:
    france = Tweets(country="fr")
    xmin, ymin, xmax, ymax = france.bounds
    posts = france.events(0, 20_000)
    x, y = column(posts, "x"), column(posts, "y")
    assert -10 < xmin < 0 < xmax < 12
    assert 40 < ymin < 45 < ymax < 53
    assert ((x >= xmin) & (x <= xmax) & (y >= ymin) & (y <= ymax)).all()


def test_a_burst_draws_its_share_to_one_place_and_then_ends() -> None:
    """Two days of slots of eight minutes, 500 posts each: the fullest half degree of each slot."""
    slot_s, per_slot = 480, 500
    world = Tweets(seed=2, events_per_s=per_slot / slot_s, burst_share=0.5)
    posts = world.events(0, per_slot * 360)
    spots = np.round(column(posts, "x") * 2).astype(int) * 1000 + np.round(column(posts, "y") * 2).astype(int)
    fullest = np.array([np.unique(s, return_counts=True)[1].max() for s in spots.reshape(-1, per_slot)]) / per_slot
    bursting = fullest > 0.2
    assert 0.25 < bursting.mean() < 0.55
    assert np.count_nonzero(np.diff(bursting.astype(int))) > 50


def test_rectangles_have_the_given_side_lie_in_the_world_and_are_never_empty() -> None:
    for workload in (
        WORLD,
        Tweets(country="SG", side_share=0.3),
        Tweets(bounds=(5, 45, 15, 55), side_share=1e-6),
    ):
        xmin, _, xmax, ymax = workload.bounds
        subs = workload.subscriptions(0, 20_000)
        width = column(subs, "xmax") - column(subs, "xmin")
        height = column(subs, "ymax") - column(subs, "ymin")
        assert (width > 0).all()
        assert (height > 0).all()
        assert np.median(width) <= (xmax - xmin) * workload.side_share * 1.000001
        assert (column(subs, "xmin") >= xmin).all()
        assert (column(subs, "ymax") <= ymax).all()
    sides = column(WORLD.subscriptions(0, 1000), "xmax") - column(WORLD.subscriptions(0, 1000), "xmin")
    assert np.median(sides) == pytest.approx(360 * 0.0016)


def test_few_users_hold_many_subscriptions_and_many_hold_few() -> None:
    _, counts = np.unique(column(WORLD.subscriptions(0, 100_000), "user"), return_counts=True)
    counts = np.sort(counts)[::-1]
    assert len(counts) == 1000
    assert counts[0] == pytest.approx(2 * counts[1], rel=0.1)
    assert counts[0] > 100 * counts[-1]


@pytest.mark.parametrize("registered", [1, 2, 7, 12, 100])
def test_churn_registers_new_ids_and_cancels_each_live_id_once(registered: int) -> None:
    live = set(range(registered))
    used = set(live)
    operations = WORLD.operations(0, 6 * registered + 3, registered)
    for op, sub_id in zip(operations["op"].to_pylist(), operations["sub_id"].to_pylist(), strict=True):
        if op == "register":
            assert sub_id not in used
            live.add(sub_id)
            used.add(sub_id)
        else:
            live.remove(sub_id)  # KeyError: cancelled before it was registered, or twice
        assert registered <= len(live) <= registered + 1
    kinds = operations["op"].to_pylist()
    assert abs(kinds.count("register") - kinds.count("cancel")) <= 1


def test_a_registration_in_the_churn_is_the_subscription_of_that_id() -> None:
    churn = [row for row in WORLD.operations(0, 20, 100).to_pylist() if row["op"] == "register"]
    assert churn == WORLD.subscriptions(100, 10).to_pylist()


def test_an_unknown_country_is_refused_with_its_likely_codes() -> None:
    with pytest.raises(SettingsError, match=r"'Germny'.*DE \(Germany\)"):
        Tweets(country="Germny")
    with pytest.raises(SettingsError, match="two-letter code"):
        Tweets(country="12345")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bounds": (0, 0, 1000, 1000)}, "no box of degrees"),
        ({"bounds": (10, 0, 5, 1)}, "no box of degrees"),
        ({"events_per_s": 0.0}, "events_per_s"),
        ({"events_per_s": float("nan")}, "events_per_s"),
        ({"side_share": 0.0}, "side_share"),
        ({"burst_share": 0.99}, "burst_share"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Tweets(**wrong)  # type: ignore[arg-type]


def test_bounds_without_a_city_are_refused() -> None:
    with pytest.raises(SettingsError, match="hold no city"):
        Tweets(bounds=(-150, -50, -140, -45)).events(0, 1)


def test_ids_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="id -1"):
        WORLD.events(-1, 5)
    with pytest.raises(InputError, match="none to cancel"):
        WORLD.operations(0, 2, 0)
    with pytest.raises(InputError, match="year 9999"):
        Tweets(events_per_s=1.0).events(10**12, 1)


def test_clocks_of_cities_are_those_of_a_summer_day() -> None:
    assert set(cities("JP").utc_offset_s.tolist()) == {9 * 3600}
    assert set(cities("IN").utc_offset_s.tolist()) == {19_800}
    assert -4 * 3600 in cities("US").utc_offset_s


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=50))
def test_an_alias_table_gives_each_entry_its_weight(weights: list[float]) -> None:
    coin, alias = alias_table(np.array(weights))
    drawn = coin.copy()
    np.add.at(drawn, alias, 1.0 - coin)
    assert drawn / len(weights) == pytest.approx(np.array(weights) / sum(weights), abs=1e-9)


def test_a_zipf_table_halves_from_the_first_rank_to_the_second() -> None:
    counts = np.bincount(zipf_table(100), minlength=100)
    assert counts.min() > 0
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.01)
