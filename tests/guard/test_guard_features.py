"""Table 5.1 by hand and against the obvious version; what a hotspot is made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import InputError
from geoswarm.guard.features import X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, Features, normalise
from geoswarm.guard.sensor import AGES, NOWHERE, HotspotSummary, hotspot_place, near, summarise_hotspot


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def table_of(*counts: tuple[int, ...]) -> Ints:
    return np.array(counts, np.int64).reshape(-1, AGES + 1)


def test_the_features_of_one_user_over_two_rounds_are_those_of_the_table() -> None:
    features = Features()
    features.begin(ints(0))
    features.round = 6
    features.count_requests(ints(0, 0), ints(6, 2))
    features.count_deletions(ints(0), ints(3))
    features.add_hotspot(HotspotSummary(ints(0), table_of((4, 0, 2, 0, 0, 7))))  # the first hotspot
    first = features.close_round().raw[0]
    features.count_requests(ints(0), ints(4))
    features.add_hotspot(HotspotSummary(ints(0), table_of((0, 1, 0, 0, 0, 0))))  # the second, nothing new in it
    features.add_hotspot(HotspotSummary(ints(0), table_of((2, 0, 0, 0, 8, 0))))  # the third
    second = features.close_round().raw[0]
    assert [first[x] for x in (X1, X2, X3, X4, X5)] == [8, 3, 1, 13, 1]
    assert [first[x] for x in (X6, X7, X8, X9, X10)] == [8, 3, 1, 13, 1]
    assert [first[x] for x in (X11, X12, X13, X14)] == [1, 4 + 2 / 4, 4.5 / 8, 4.5 / 8]
    assert [second[x] for x in (X1, X2, X3, X4, X5)] == [4, 0, 2, 11, 5]
    assert [second[x] for x in (X6, X7, X8, X9, X10)] == [8, 1.5, 2.5, 17.5, 5.5]
    x13 = (1 / 2 + 2 + 8 / 16) / 8
    assert [second[x] for x in (X11, X12, X13, X14)] == [1 + 3, 3, x13, (4.5 / 8 + x13) / 2]


def test_rounds_without_hotspots_do_not_lower_the_mean_rate() -> None:
    features = Features()
    features.begin(ints(0))
    features.count_requests(ints(0), ints(4))
    features.add_hotspot(HotspotSummary(ints(0), table_of((4, 0, 0, 0, 0, 0))))
    features.close_round()
    features.count_requests(ints(0), ints(4))
    calm = features.close_round().raw[0]
    assert (calm[X13], calm[X14]) == (0, 1)


def test_rounds_without_detection_fade_too() -> None:
    features = Features()
    features.begin(ints(0))
    features.count_requests(ints(0), ints(16))
    features.close_round(rounds=3)
    assert features.round == 3
    assert features.close_round().raw[0][X6] == 16 / 2 / 2 / 2


def test_a_user_whose_row_began_anew_is_not_held_to_queries_from_before() -> None:
    features = Features()
    features.round = 9
    features.begin(ints(0))
    features.count_requests(ints(0), ints(2))
    touched = features.add_hotspot(HotspotSummary(ints(0), table_of((1, 50, 50, 0, 0, 0))))
    assert touched.weights.tolist() == [1]
    row = features.close_round().raw[0]
    assert (row[X4], row[X12], row[X13]) == (101, 1, 0.5)


def test_a_user_who_asked_for_nothing_has_no_rate() -> None:
    features = Features()
    features.begin(ints(0))
    touched = features.add_hotspot(HotspotSummary(ints(0), table_of((3, 0, 0, 0, 0, 0))))
    assert (touched.asked.tolist(), touched.weights.tolist()) == ([0], [3])
    assert features.close_round().raw[0][[X13, X14]].tolist() == [0, 0]


def test_users_without_a_code_are_not_counted() -> None:
    features = Features()
    features.begin(ints(0))
    features.count_requests(ints(-1, 0, -1), ints(5, 2, 5))
    assert features.close_round().raw[:, X1].tolist() == [2]


def test_normalised_features_lie_between_0_and_1_and_constant_ones_are_0() -> None:
    raw = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 0.0], [2.0, 5.0, 2.0]])
    assert normalise(raw).tolist() == [[0, 0, 0], [1, 0, 0.5], [0.5, 0, 1]]
    assert normalise(np.empty((0, 14))).shape == (0, 14)


USERS = 5
batches = st.lists(st.tuples(st.integers(-1, USERS - 1), st.integers(1, 9)), max_size=8)
hotspots = st.lists(
    st.dictionaries(st.integers(0, USERS - 1), st.lists(st.integers(0, 9), min_size=6, max_size=6), max_size=USERS),
    max_size=3,
)


def by_hand(rounds: list[tuple[list[tuple[int, int]], list[dict[int, list[int]]]]]) -> Floats:
    """x1, x6, x11, x12, x14 of all users after the last round, one user and one number at a time."""
    rows = []
    for user in range(USERS):
        x6 = x11 = number = x1 = x12 = 0.0
        rates: list[float] = []
        for batch, hot in rounds:
            x1, x12 = float(sum(count for who, count in batch if who == user)), 0.0
            x6 = x6 / 2 + x1
            for hotspot in hot:
                number += 1
                counts = hotspot.get(user, [0] * 6)
                x12 += sum(count / 2**age for age, count in enumerate(counts[:5]))
                x11 += number if counts[0] else 0
            if x6 and x12:
                rates.append(x12 / x6)
        rows.append([x1, x6, x11, x12, sum(rates) / len(rates) if rates else 0.0])
    return np.array(rows)


@given(st.lists(st.tuples(batches, hotspots), min_size=1, max_size=6))
def test_all_users_at_once_have_the_features_that_one_by_one_would_give(
    rounds: list[tuple[list[tuple[int, int]], list[dict[int, list[int]]]]],
) -> None:
    features = Features()
    features.begin(np.arange(USERS))
    features.born[:USERS] = -AGES
    for batch, hot in rounds:
        features.count_requests(ints(*(user for user, _ in batch)), ints(*(count for _, count in batch)))
        for hotspot in hot:
            users = sorted(hotspot)
            features.add_hotspot(HotspotSummary(ints(*users), table_of(*(tuple(hotspot[user]) for user in users))))
        table = features.close_round()
    np.testing.assert_allclose(table.raw[:, [X1, X6, X11, X12, X14]], by_hand(rounds))


@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(-2, 99)), max_size=40), st.sampled_from([1, 100_000]))
def test_a_summary_counts_each_live_query_once_under_its_user_and_age(rows: list[tuple[int, int]], step: int) -> None:
    got = summarise_hotspot(
        ints(*(user * step if user > 0 else user for user, _ in rows)), ints(*(age for _, age in rows))
    )
    want: dict[int, list[int]] = {}
    for user, age in rows:
        if user >= 0:
            want.setdefault(user * step, [0] * 6)[min(max(age, 0), 5)] += 1
    assert got.users.tolist() == sorted(want)
    assert got.counts.tolist() == [want[user] for user in sorted(want)]
    assert got.counts.shape == (len(want), 6)


def test_a_hotspot_lies_where_its_youngest_queries_lie() -> None:
    ages, x, y = ints(0, 0, 0, 3, 3), np.array([0.2, 0.21, 0.9, 0.5, 0.5]), np.array([0.3, 0.31, 0.8, 0.5, 0.5])
    assert summarise_hotspot(ints(1, 1, 2, 3, 3), ages, x, y).place == (0.21, 0.31)
    assert near((0.21, 0.31), x, y, 0.02).tolist() == [True, True, False, False, False]
    assert np.isnan(hotspot_place(ints(), np.empty(0), np.empty(0))).all()
    assert summarise_hotspot(ints(1), ints(0)).place is NOWHERE


def test_users_and_ages_must_be_of_the_same_queries() -> None:
    with pytest.raises(InputError, match="one of each for every query"):
        summarise_hotspot(ints(1, 2), ints(0))
