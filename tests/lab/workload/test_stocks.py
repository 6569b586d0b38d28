"""Trades that burst and words that drift: exact replay, the frequencies that were asked for, and how they change."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.posts import Posts
from geoswarm.lab.workload.stocks import TRADE, Stocks
from geoswarm.lab.workload.topics import Topics, terms

CALM = Stocks(seed=3, burst_every=0)
POSTS = Posts(seed=2, words=5_000, regional_share=0.0)


def shares_of(rows: pa.RecordBatch, stocks: int) -> np.ndarray:
    return np.bincount(rows.column("key").to_numpy(), minlength=stocks) / len(rows)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**40), interval=st.integers(0, 10_000), n=st.integers(0, 500))
def test_an_interval_of_trades_can_be_drawn_again_and_another_differs(seed: int, interval: int, n: int) -> None:
    rows = Stocks(seed=seed).rows(interval, n)
    assert rows.schema == TRADE
    assert rows.equals(Stocks(seed=seed).rows(interval, n))
    if n > 50:
        assert rows.column("key") != Stocks(seed=seed).rows(interval + 1, n).column("key")
        assert rows.column("key") != Stocks(seed=seed + 1).rows(interval, n).column("key")


def test_trades_lie_in_their_interval_in_order_and_no_two_share_an_id() -> None:
    some = [CALM.rows(interval, 1000) for interval in (0, 1, 7)]
    for interval, rows in zip((0, 1, 7), some, strict=True):
        seconds = rows.column("ts").cast(pa.int64()).to_numpy() / 1e6 - CALM.start_s
        assert (np.diff(seconds) >= 0).all()
        assert 10 * interval <= seconds[0] < seconds[-1] < 10 * (interval + 1)
    ids = np.concatenate([rows.column("row_id").to_numpy() for rows in some])
    assert len(np.unique(ids)) == len(ids)


def test_a_calm_market_follows_the_power_law_and_stays_as_it_is() -> None:
    ranked = np.sort(CALM.shares(0))[::-1]
    assert len(ranked) == 1036
    assert ranked[0] / ranked[99] == pytest.approx(100**0.8)
    assert (CALM.shares(0) == CALM.shares(500)).all()
    drawn = shares_of(CALM.rows(4, 200_000), 1036)
    heavy = CALM.shares(4) > 0.005
    assert drawn[heavy] == pytest.approx(CALM.shares(4)[heavy], rel=0.15)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bursts_start_and_end_between_two_intervals_at_full_height(seed: int) -> None:
    market = Stocks(seed=seed)
    seen = {(b.first, b.last): b for interval in range(200) for b in market.bursts(interval)}
    assert 15 <= len(seen) <= 18  # one in twelve intervals
    for burst in seen.values():
        assert 2 <= burst.last - burst.first + 1 <= market.burst_last_max
        assert 2 <= len(burst.stocks) <= market.burst_stocks_max
        assert 0.03 < burst.shares.sum() < 0.07
    alone = next(b for b in seen.values() if b.first > 0 and _is_alone(market, b))
    stock = alone.stocks[np.argmax(alone.shares)]
    before, during, after = (
        market.shares(i)[stock] for i in (alone.first - 1, (alone.first + alone.last) // 2, alone.last + 1)
    )
    assert during == pytest.approx(market.shares(alone.first)[stock])
    assert during - max(before, after) == pytest.approx(alone.shares.max(), rel=0.1)
    assert market.shares(alone.first).sum() == pytest.approx(1.0)


def _is_alone(market: Stocks, burst: object) -> bool:
    first, last = burst.first, burst.last  # type: ignore[attr-defined]
    return all(len(market.bursts(i)) == (first <= i <= last) for i in range(first - 1, last + 2))


def test_few_trades_of_a_stock_are_of_the_same_account() -> None:
    rows = CALM.rows(0, 20_000)
    pairs = pa.table(rows).group_by(["key", "account"]).aggregate([([], "count_all")])["count_all"].to_numpy()
    assert 20 < (pairs * (pairs - 1) // 2).sum() < 1000


@pytest.mark.parametrize("wrong", [{"stocks": 0}, {"skew": -1.0}, {"burst_share": 0.9}, {"burst_last_max": 1}])
def test_a_market_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        dataclasses.replace(CALM, **wrong)
    with pytest.raises(InputError, match="interval -1"):
        CALM.rows(-1, 5)


def test_the_words_of_posts_are_rows_of_their_own() -> None:
    posts = POSTS.events(40, 50)
    rows = terms(posts)
    texts = [text.split(" ") for text in posts.column("text").to_pylist()]
    assert rows.column("key").to_pylist() == [word for text in texts for word in text]
    assert len(pc.unique(rows.column("row_id"))) == len(rows)
    first = rows.slice(0, len(texts[0]))
    assert set(first.column("ts").to_pylist()) == {posts.column("ts")[0].as_py()}


def test_without_drift_an_interval_says_what_its_posts_say() -> None:
    still = Topics(POSTS, drift_share=0.0)
    assert still.rows(3, 20).equals(terms(POSTS.events(60, 20)))


def test_frequencies_drift_slowly_and_words_are_never_lost() -> None:
    topics = Topics(POSTS, drift_share=0.1)
    ranks = np.arange(POSTS.words) + 1
    for interval in (1, 8):
        places = topics.places(interval)
        assert (np.sort(places) == np.arange(POSTS.words)).all()
        changed = places != topics.places(interval - 1)
        assert 0.06 < changed.mean() <= 0.1
        before = np.argsort(topics.places(interval - 1))
        stood = ranks[np.argsort(places)] / ranks[before]  # of each word, how far it came up or down
        assert stood.min() >= 0.45
        assert stood.max() <= 2.2
    far = (topics.places(8) != np.arange(POSTS.words)).mean()
    assert 0.3 < far < 0.8


def test_drifting_words_come_as_often_as_the_words_that_they_replace() -> None:
    topics = Topics(POSTS)
    rows, said = topics.rows(5, 2000), terms(POSTS.events(5 * 2000, 2000))
    assert rows.equals(topics.rows(5, 2000))
    counts = [sorted(r.column("key").value_counts().field("counts").to_pylist()) for r in (rows, said)]
    assert counts[0] == counts[1]
    assert rows.column("key") != said.column("key")
    with pytest.raises(SettingsError, match="drift_share"):
        Topics(POSTS, drift_share=2.0)
