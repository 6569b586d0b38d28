"""Posts with words and queries over them: exact replay, a power law, dialects, and churn that always makes sense."""

import dataclasses
import pickle
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.lifetimes import Lifetimes
from geoswarm.lab.workload.posts import POST, POSTS_PER_CHANGE, Posts
from geoswarm.lab.workload.queries import KM_PER_DEGREE, cosine
from geoswarm.lab.workload.words import WORDS_MAX, vocabulary

STATES = (-125.0, 24.0, -66.0, 50.0)
US = Posts(seed=7, country="US", bounds=STATES)
EVEN = dataclasses.replace(US, background_share=1.0, burst_share=0.0)  # as many posts in the desert as in New York
SIDES = ("xmin", "ymin", "xmax", "ymax")
CHANGES: dict[str, Callable[[int, int], pa.RecordBatch]] = {
    "events": lambda f, n: US.events(f, n),
    "Q1": lambda f, n: US.subscriptions(f, n, "Q1"),
    "Q3": lambda f, n: US.subscriptions(f, n, "Q3", interval=500),
    "operations": lambda f, n: US.operations(f, n, mu=1000, queries="Q2"),
}


def column(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(batch[name].to_numpy(zero_copy_only=False))


def numbers(posts: Posts, texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(row, word) of every word in the texts, operators left out."""
    words = pc.split_pattern_regex(texts, " AND | OR | ")
    found = pc.index_in(words.flatten(), value_set=posts.vocabulary())
    assert found.null_count == 0
    return pc.list_parent_indices(words).to_numpy(), found.to_numpy()


def top_words(posts: Posts) -> np.ndarray:
    top = np.zeros(posts.words, bool)
    top[np.argsort(-posts.frequencies())[: posts.words // 100]] = True
    return top


@pytest.mark.parametrize("kind", CHANGES)
@settings(deadline=None, max_examples=20)  # the first call compiles
@given(first_id=st.integers(0, 10**10), counts=st.lists(st.integers(0, 2000), min_size=1, max_size=4))
def test_a_replay_gives_the_same_rows_however_the_range_is_cut(kind: str, first_id: int, counts: list[int]) -> None:
    make = CHANGES[kind]
    starts = first_id + np.cumsum([0, *counts[:-1]])
    pieces = [make(int(start), count) for start, count in zip(starts, counts, strict=True)]
    whole = pa.Table.from_batches([make(first_id, sum(counts))])
    assert pa.Table.from_batches(pieces).combine_chunks().equals(whole.combine_chunks())


def test_the_same_seed_gives_the_same_words_and_another_seed_others() -> None:
    copy, other = pickle.loads(pickle.dumps(US)), dataclasses.replace(US, seed=8)
    assert copy.events(50, 500).equals(US.events(50, 500))
    assert not set(US.events(0, 500)["text"].to_pylist()) & set(other.events(0, 500)["text"].to_pylist())
    assert US.subscriptions(0, 500)["keywords"] != other.subscriptions(0, 500)["keywords"]


def test_rows_have_the_columns_of_the_model_and_posts_are_tweets_with_words() -> None:
    assert US.events(3, 5).schema.equals(POST)
    assert US.events(3, 5).drop_columns(["text"]).equals(US.tweets.events(3, 5))
    assert US.subscriptions(3, 5).schema.equals(OPERATION)
    assert US.operations(3, 5, 10).schema.equals(OPERATION)
    for none in (US.events(3, 0), US.subscriptions(3, 0, "Q3"), US.operations(3, 0, 10)):
        assert none.num_rows == 0
        none.validate(full=True)


def test_posts_have_ten_to_fifteen_words_of_the_vocabulary() -> None:
    posts = US.events(0, 20_000)
    posts.validate(full=True)
    row, _ = numbers(US, posts["text"])
    lengths = np.bincount(row)
    assert np.unique(lengths).tolist() == [10, 11, 12, 13, 14, 15]
    assert lengths.mean() == pytest.approx(12.5, abs=0.1)


def test_no_two_words_are_spelt_the_same_and_none_is_an_operator() -> None:
    words = vocabulary(WORDS_MAX)
    assert pc.count_distinct(words).as_py() == WORDS_MAX
    assert pc.all(pc.match_substring_regex(words, "^([b-z][aeiou]){1,3}$")).as_py()


@pytest.mark.parametrize(("exponent", "shift"), [(1.0, 0.0), (1.3, 0.0), (1.1, 20.0)])
def test_words_follow_a_power_law(exponent: float, shift: float) -> None:
    one_language = dataclasses.replace(US, regional_share=0.0, exponent=exponent, shift=shift)
    _, words = numbers(one_language, one_language.events(0, 200_000)["text"])
    counts = np.sort(np.bincount(words))[::-1]
    ranks = np.unique(np.geomspace(1, 2000, 60).astype(int))
    slope = np.polyfit(np.log(ranks + shift), np.log(counts[ranks - 1]), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.05)


def test_frequencies_are_those_of_the_posts_and_the_top_percent_is_over_half_of_them() -> None:
    posts = US.events(0, 300_000)
    _, words = numbers(US, posts["text"])
    seen, said = np.bincount(words, minlength=US.words) / len(words), US.frequencies()
    assert said.sum() == pytest.approx(1.0)
    assert np.corrcoef(seen, said)[0, 1] > 0.999
    assert seen[top_words(US)].sum() == pytest.approx(0.56, abs=0.02)


def test_neighbours_speak_more_alike_than_people_far_apart() -> None:
    """Term vectors of boxes three degrees wide: next to one in the west, further off, and at the other coast."""
    posts = EVEN.events(0, 600_000)
    x, y = column(posts, "x"), column(posts, "y")

    def term_vector(west: float) -> Floats:
        inside = (x >= west) & (x < west + 3) & (y > 36) & (y < 39)
        _, words = numbers(EVEN, posts["text"].filter(pa.array(inside)))
        vector = np.bincount(words, minlength=EVEN.words).astype(float)
        return np.asarray(vector / np.linalg.norm(vector))

    home = term_vector(-120)
    alike = [float(home @ term_vector(west)) for west in (-117, -111, -93, -75)]
    assert alike[0] > alike[1] + 0.03
    assert alike[1] > max(alike[2:]) + 0.01
    assert max(alike[2:]) < 0.82
    one_language = dataclasses.replace(EVEN, regional_share=0.0)
    posts = one_language.events(0, 600_000)
    assert float(term_vector(-120) @ term_vector(-75)) > 0.95


@pytest.mark.parametrize(("queries", "longest_km"), [("Q1", 50.0), ("Q2", 100.0)])
@pytest.mark.parametrize("country", ["US", "GB", "NO"])
def test_queries_are_squares_of_up_to_so_many_kilometres(queries: str, longest_km: float, country: str) -> None:
    posts = Posts(seed=3, country=country)
    subs = posts.subscriptions(0, 20_000, queries)  # type: ignore[arg-type]
    xmin, ymin, xmax, ymax = (column(subs, side) for side in SIDES)
    whole = (xmin > posts.bounds[0]) & (ymin > posts.bounds[1]) & (xmax < posts.bounds[2]) & (ymax < posts.bounds[3])
    assert whole.mean() > 0.9
    height = (ymax - ymin)[whole] * KM_PER_DEGREE
    width = (xmax - xmin)[whole] * KM_PER_DEGREE * np.cos(np.radians((ymin + ymax) / 2))[whole]
    assert width == pytest.approx(height, rel=1e-6)
    assert 1.0 <= height.min() < 1.1
    assert longest_km - 0.2 < height.max() <= longest_km + 1e-9
    assert height.mean() == pytest.approx((1 + longest_km) / 2, rel=0.02)
    for low, high, limit in ((xmin, xmax, posts.bounds[::2]), (ymin, ymax, posts.bounds[1::2])):
        assert (limit[0] <= low).all()
        assert (low < high).all()
        assert (high <= limit[1]).all()


def test_the_cosine_of_our_own_is_the_cosine() -> None:
    assert [cosine(float(d)) for d in range(-90, 91)] == pytest.approx(np.cos(np.radians(range(-90, 91))), abs=1e-9)


def test_queries_lie_where_the_posts_are() -> None:
    posts = Posts(seed=3, country="GB", burst_share=0.0)
    events, subs = posts.events(0, 50_000), posts.subscriptions(0, 50_000)
    x, y = column(events, "x"), column(events, "y")
    at_x, at_y = ((column(subs, f"{a}min") + column(subs, f"{a}max")) / 2 for a in "xy")
    in_london = ((np.abs(x + 0.13) < 0.5) & (np.abs(y - 51.5) < 0.3)).mean()
    assert in_london > 0.1
    assert ((np.abs(at_x + 0.13) < 0.5) & (np.abs(at_y - 51.5) < 0.3)).mean() == pytest.approx(in_london, rel=0.1)


def test_a_query_has_one_to_three_different_keywords_and_one_operator() -> None:
    texts = US.subscriptions(0, 30_000)["keywords"].to_pylist()
    assert all(re.fullmatch(r"[a-z]+(( AND [a-z]+){0,2}|( OR [a-z]+){0,2})", text) for text in texts)
    keywords = [re.split(" AND | OR ", text) for text in texts]
    assert all(len(set(words)) == len(words) for words in keywords)
    assert np.bincount([len(words) for words in keywords])[1:] == pytest.approx(10_000, rel=0.05)
    assert sum("AND" in text for text in texts) == pytest.approx(10_000, rel=0.05)


def test_keywords_of_q1_are_as_frequent_as_words_of_posts_and_local_like_them() -> None:
    _, asked = numbers(US, US.subscriptions(0, 300_000)["keywords"])
    counts = np.bincount(asked, minlength=US.words) / len(asked)
    assert np.corrcoef(counts, US.frequencies())[0, 1] > 0.99
    subs, posts = EVEN.subscriptions(0, 200_000), EVEN.events(0, 100_000)
    vectors = []
    for rows, x, texts in ((subs, "xmin", "keywords"), (posts, "x", "text")):
        for low, high in ((-123, -116), (-76, -69)):
            inside = (column(rows, x) > low) & (column(rows, x) < high)
            vectors.append(np.bincount(numbers(EVEN, rows[texts].filter(pa.array(inside)))[1], minlength=EVEN.words))
    west_asked, east_asked, west, east = (v / np.linalg.norm(v) for v in vectors)
    assert west_asked @ west > west_asked @ east + 0.03
    assert east_asked @ east > east_asked @ west + 0.03


def test_each_query_of_q2_has_a_keyword_outside_the_top_percent() -> None:
    top = top_words(US)
    for queries, rare_share in (("Q1", (0.5, 0.8)), ("Q2", (1.0, 1.0))):
        row, words = numbers(US, US.subscriptions(0, 50_000, queries)["keywords"])  # type: ignore[arg-type]
        has_rare = np.zeros(50_000, bool)
        np.logical_or.at(has_rare, row, ~top[words])
        assert rare_share[0] <= has_rare.mean() <= rare_share[1]


def kinds_of_regions(first_id: int, count: int, interval: int) -> np.ndarray:
    """For each of the 100 regions: 1 or 2, from what its queries of Q3 look like; it must not be both."""
    q1, q2, q3 = (EVEN.subscriptions(first_id, count, q, interval).to_pylist() for q in ("Q1", "Q2", "Q3"))
    kinds = np.zeros(100, int)
    for one, two, row in zip(q1, q2, q3, strict=True):
        assert row in (one, two)
        x, y = (one["xmin"] + one["xmax"]) / 2, (one["ymin"] + one["ymax"]) / 2
        column, line = (x - STATES[0]) / 59 * 10, (STATES[3] - y) / 26 * 10
        if min(column % 1, line % 1) < 0.1 or max(column % 1, line % 1) > 0.9:
            continue  # cut off at the edge, its centre may seem to lie next door
        region = int(line) * 10 + int(column)
        assert kinds[region] in (0, 1 if row == one else 2)
        kinds[region] = 1 if row == one else 2
    assert kinds.all()
    return kinds


def test_a_tenth_of_the_regions_of_q3_switches_with_each_interval() -> None:
    kinds = [kinds_of_regions(k * 3000, 3000, interval=3000) for k in (0, 1, 2, 10, 20)]
    assert np.bincount(kinds[0]).tolist() == [0, 50, 50]
    assert (kinds[0] != kinds[1]).sum() == 10
    assert (kinds[1] != kinds[2]).sum() == 10
    assert (kinds[0] != kinds[2]).sum() == 20
    assert (kinds[0] != kinds[3]).all()
    assert (kinds[0] == kinds[4]).all()
    assert (kinds_of_regions(60_000, 3000, interval=0) == kinds[0]).all()


def test_a_share_of_the_queries_can_have_no_words_or_no_place() -> None:
    mixed = dataclasses.replace(US, text_only_share=0.2, space_only_share=0.3)
    subs, plain = mixed.subscriptions(0, 20_000), US.subscriptions(0, 20_000)
    everywhere = np.logical_and.reduce([column(subs, s) == b for s, b in zip(SIDES, STATES, strict=True)])
    silent = subs["keywords"].is_null().to_numpy(zero_copy_only=False)
    assert everywhere.mean() == pytest.approx(0.2, abs=0.01)
    assert silent.mean() == pytest.approx(0.3, abs=0.01)
    assert not (everywhere & silent).any()
    other = pa.array(~(everywhere | silent))
    assert subs.filter(other).equals(plain.filter(other))
    assert plain["keywords"].null_count == 0


@pytest.mark.parametrize("mu", [1, 2, 3, 10, 137, 1000])
def test_as_many_queries_come_as_go_and_each_goes_once(mu: int) -> None:
    live = set(range(mu))
    used = set(live)
    changes = US.operations(0, 8 * mu + 3, mu)
    assert len(changes) == 8 * mu + 3
    for op, sub_id in zip(changes["op"].to_pylist(), changes["sub_id"].to_pylist(), strict=True):
        if op == "register":
            assert sub_id not in used
            live.add(sub_id)
            used.add(sub_id)
        else:
            live.remove(sub_id)  # KeyError: cancelled before it was registered, or twice
        assert mu <= len(live) <= mu + 1


@pytest.mark.parametrize("mean", [100, 5000, 100_000])
def test_a_query_lives_as_long_as_a_normal_distribution_says(mean: int) -> None:
    ids = np.arange(3 * mean, 103 * mean)
    departures = Lifetimes(mean, seed=5).departures(ids)
    lives = departures - (ids - mean)  # query `mean + n` comes with arrival n
    assert lives.mean() == pytest.approx(mean, rel=0.01)
    assert lives.std() == pytest.approx(0.2 * mean, rel=0.02)
    assert lives.min() > 0
    around = (np.quantile(lives, [0.023, 0.159, 0.5, 0.841, 0.977]) - mean) / (0.2 * mean)
    assert around == pytest.approx([-2, -1, 0, 1, 2], abs=0.1)
    assert (Lifetimes(mean, seed=5).departing(departures) == ids).all()
    assert (Lifetimes(mean, seed=6).departures(ids) != departures).mean() > 0.9


def test_a_registration_in_the_churn_is_the_query_of_that_id_and_a_cancel_has_nothing_but_the_id() -> None:
    changes = US.operations(10, 20, mu=100, queries="Q3", interval=7).to_pylist()
    born = [row for row in changes if row["op"] == "register"]
    gone = [row for row in changes if row["op"] == "cancel"]
    assert born == US.subscriptions(105, 10, "Q3", interval=7).to_pylist()
    assert all(row[name] is None for row in gone for name in (*SIDES, "keywords"))


def test_five_posts_come_with_each_change() -> None:
    cuts = [0, 3, 4, 5, 11, 1000, 1001]
    changes = np.diff([US.changes_before(cut) for cut in cuts])
    assert changes.tolist() == [1, 0, 0, 2, 197, 1]
    assert US.changes_before(10**6) == 10**6 // POSTS_PER_CHANGE


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"words": 10}, "words"),
        ({"words": WORDS_MAX + 1}, "words"),
        ({"regional_share": 1.5}, "regional_share"),
        ({"exponent": float("nan")}, "exponent"),
        ({"shift": -1.0}, "shift"),
        ({"text_only_share": 0.6, "space_only_share": 0.5}, "space_only_share"),
        ({"country": "Germny"}, "Germany"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Posts(**wrong)  # type: ignore[arg-type]


def test_rows_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="id -1"):
        US.operations(-1, 5, 10)
    with pytest.raises(InputError, match="mean lifetime of 0"):
        US.operations(0, 2, 0)
    with pytest.raises(InputError, match="limit 16000000"):
        US.events(0, 16_000_001)
    with pytest.raises(InputError, match="'Q4'"):
        US.subscriptions(0, 1, "Q4")  # type: ignore[arg-type]
