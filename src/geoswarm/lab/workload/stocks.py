"""Trades of a stock exchange: a few stocks are traded often, most seldom, and some burst without warning.

Rows, not counts (`zipf.py` has those); slow change is `topics.py`. An interval depends on nothing but the parameters,
its number and how many rows are asked of it, so it can be drawn alone and again.

    burst 4   ........##....      start and end between two intervals, at full height
    burst 5   ............####    the next begins `burst_every` intervals later, give or take
              interval ──►

Mixed §V, "Real-World Data": three days of 6 000 000 trades of 1 036 stocks, "abrupt and unexpected bursts on certain
keys"; joined with themselves, by stock, "to find potential high-frequency players with dense buying and selling". So
a trade has an account, and those of one account in one stock are what a join looks for.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.tweets import START_S
from geoswarm.model import TIMESTAMP

TRADE = pa.schema(
    [
        pa.field("row_id", pa.int64(), nullable=False),
        pa.field("ts", TIMESTAMP, nullable=False),
        pa.field("key", pa.int64(), nullable=False),  # the stock
        pa.field("price", pa.float64(), nullable=False),  # in whole cents
        pa.field("volume", pa.int64(), nullable=False),
        pa.field("account", pa.int64(), nullable=False),  # who buys or sells
    ]
)
ROWS_PER_INTERVAL_MAX = 1 << 32
"""A row's id is its interval and, in the low 32 bits, its place in it."""
INTERVALS_MAX = 1 << 31


class Burst(NamedTuple):
    first: int
    """The first interval of the burst."""
    last: int
    stocks: Ints
    shares: Floats
    """The share of each of these stocks in all trades while the burst lasts."""


@dataclass(frozen=True)
class Stocks:
    seed: int = 0
    stocks: int = 1036
    skew: float = 0.8
    """z: the stock of rank r is traded in proportion to r^-z, apart from bursts; the first then has 6 %. The paper
    gives no figure; here plain hash has twice the average on one of 15 executors, as it seems to have there."""
    accounts: int = 100_000
    """The number of accounts; they trade by Zipf's law with z = 0.5, whatever the stock."""
    burst_every: int = 12
    """Intervals from the start of one burst to that of the next, on average; 0 for none."""
    burst_last_max: int = 12
    """The most intervals that a burst lasts, 2 or more."""
    burst_stocks_max: int = 4
    """The most stocks of a burst, 2 or more."""
    burst_share: float = 0.05
    """The share of the stocks of a burst in all trades, on average; it varies by a third."""
    interval_s: float = 10.0
    start_s: float = START_S

    def __post_init__(self) -> None:
        _expect("stocks", self.stocks, 2, 1_000_000)
        _expect("skew", self.skew, 0.0, 10.0)
        _expect("accounts", self.accounts, 1, 1 << 40)
        _expect("burst_every", self.burst_every, 0, 1_000_000)
        _expect("burst_last_max", self.burst_last_max, 2, 1000)
        _expect("burst_stocks_max", self.burst_stocks_max, 2, max(2, self.stocks))
        overlapping = 1 + (self.burst_last_max // self.burst_every if self.burst_every else 0)
        _expect("burst_share", self.burst_share, 0.0, 0.5 / overlapping)
        _expect("interval_s", self.interval_s, 1e-3, 1e6)
        _expect("start_s", self.start_s, 0.0, 1e11)

    def rows(self, interval: int, n: int) -> pa.RecordBatch:
        """The trades of an interval, as `TRADE`, in the order of their time."""
        if not (0 <= interval < INTERVALS_MAX and 0 <= n < ROWS_PER_INTERVAL_MAX):
            raise InputError(f"no {n} trades in interval {interval}: both are 0 or more, below 2^32 and 2^31")
        rng = self._rng(interval, 1)
        cumulative = np.cumsum(self.shares(interval))
        keys = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], "right")
        ts = (self.start_s + self.interval_s * (interval + np.sort(rng.random(n)))) * 1e6
        price = _prices(self)[keys] * (1.0 + 0.02 * np.sin(interval / 7.0 + keys) + 0.002 * rng.standard_normal(n))
        volume = rng.geometric(0.01, n)
        # Zipf with z = 0.5 by inversion: the sum of r^-0.5 up to r goes as its root.
        account = (self.accounts * rng.random(n) ** 2).astype(np.int64)
        columns = (
            (interval << 32) + np.arange(n),
            pa.array(ts.astype(np.int64)).cast(TIMESTAMP),
            keys,
            np.maximum(np.round(price, 2), 0.01),
            volume,
            account,
        )
        return pa.record_batch([pa.array(column) for column in columns], schema=TRADE)

    def shares(self, interval: int) -> Floats:
        """The share of each stock in the trades of an interval."""
        shares = _calm(self).copy()
        bursts = self.bursts(interval)
        shares *= 1.0 - sum(float(burst.shares.sum()) for burst in bursts)
        for burst in bursts:
            shares[burst.stocks] += burst.shares
        return shares

    def bursts(self, interval: int) -> list[Burst]:
        """The bursts that are active in an interval."""
        if self.burst_every == 0:
            return []
        number, back = interval // self.burst_every, 1 + self.burst_last_max // self.burst_every
        some = (self._burst(n) for n in range(max(0, number - back), number + 1))
        return [burst for burst in some if burst.first <= interval <= burst.last]

    def _burst(self, number: int) -> Burst:
        rng = self._rng(number, 2)
        first = number * self.burst_every + int(rng.integers(self.burst_every))
        last = first + int(rng.integers(2, self.burst_last_max + 1)) - 1
        stocks = rng.choice(self.stocks, rng.integers(2, self.burst_stocks_max + 1), replace=False)
        share = self.burst_share * rng.uniform(2 / 3, 4 / 3)
        return Burst(first, last, stocks, share * rng.dirichlet(np.full(len(stocks), 4.0)))

    def _rng(self, number: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number, purpose])


@lru_cache(maxsize=8)
def _calm(stocks: Stocks) -> Floats:
    """The share of each stock in the trades without bursts; ranks are random."""
    weights = np.arange(1, stocks.stocks + 1, dtype=np.float64) ** -stocks.skew
    shares: Floats = stocks._rng(0, 3).permutation(weights / weights.sum())
    return shares


@lru_cache(maxsize=8)
def _prices(stocks: Stocks) -> Floats:
    prices: Floats = np.exp(stocks._rng(0, 4).uniform(np.log(2.0), np.log(400.0), stocks.stocks))
    return prices


def _expect(key: str, value: Any, low: float, high: float) -> None:
    if not low <= value <= high:  # also true for NaN
        raise SettingsError(f"{key} of the stocks is {value}: give a value from {low:g} to {high:g}")
