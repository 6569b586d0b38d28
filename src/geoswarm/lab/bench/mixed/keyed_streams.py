"""The paper's two real streams as they are made here, with the operators that run on them: for Figures 14 and 15.

Measures nothing. *Social*: words of posts that drift, counted (`lab/workload/topics.py`). *Stock*: trades with bursts,
joined with themselves by stock to find accounts that trade it often (`lab/workload/stocks.py`). A round is a batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.self_join import SelfJoin
from geoswarm.lab.workload.posts import Posts
from geoswarm.lab.workload.stocks import Stocks
from geoswarm.lab.workload.topics import Topics

WINDOW = 5
WORDS = 180_000


class Stream(NamedTuple):
    name: str
    operator: Operator
    batches: Callable[[int], pa.Table]
    can_split: bool
    """Whether PKG can run it."""


def social(posts: int, seed: int) -> Stream:
    """So many posts in a round, a dozen words each."""
    topics = Topics(Posts(seed=seed, words=WORDS, regional_share=0.0))
    return Stream("social", Count(window=WINDOW), lambda n: pa.table(topics.rows(n, posts)), True)


def stock(trades: int, seed: int) -> Stream:
    market = Stocks(seed=seed)
    join = SelfJoin(id="row_id", value="account", ts=None, band=0.0, window=WINDOW)
    return Stream("stock", join, lambda n: pa.table(market.rows(n, trades)), False)
