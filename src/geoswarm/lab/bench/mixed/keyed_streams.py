"""The paper's two real streams as they are made here, with the operators that run on them: for Figures 14 and 15.

Measures nothing. *Social*: words of posts that drift, counted (`lab/workload/topics.py`). *Stock*: trades with bursts,
joined with themselves by stock to find accounts that trade it often (`lab/workload/stocks.py`). A round is a batch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.self_join import SelfJoin
from geoswarm.lab.bench.kit.harness import Result
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.posts import Posts
from geoswarm.lab.workload.stocks import Stocks
from geoswarm.lab.workload.topics import Topics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW = 5
WORDS = 180_000


class KeyedWorkload(NamedTuple):
    name: str
    operator: Operator
    batches: Callable[[int], pa.Table]
    counts: bool
    """Whether it is a count, which PKG can run."""


def social(posts: int, seed: int) -> KeyedWorkload:
    """A round has so many posts of a dozen words each."""
    topics = Topics(Posts(seed=seed, words=WORDS, regional_share=0.0))
    return KeyedWorkload("social", Count(window=WINDOW), lambda n: pa.table(topics.rows(n, posts)), True)


def stock(trades: int, seed: int) -> KeyedWorkload:
    market = Stocks(seed=seed)
    join = SelfJoin(id="row_id", value="account", ts=None, band=0.0, window=WINDOW)
    return KeyedWorkload("stock", join, lambda n: pa.table(market.rows(n, trades)), False)


def draw_streams(result: Result, where: str, x: str, label: str) -> "Figure":
    """A panel for each stream, a line for each planner."""
    drawn, panels = figure(2, width_in=5.6)
    for axes, stream in zip(panels, ("social", "stock"), strict=True):
        here = [row for row in result.rows if row["stream"] == stream]
        for name in dict.fromkeys(row["planner"] for row in here):
            of = [row for row in here if row["planner"] == name]
            axes.plot([row[x] for row in of], [row["rows_per_s"] / 1e6 for row in of], label=name)
        axes.set(xlabel=label, ylabel="M rows/s, projected", ylim=(0, None), title=f"{stream} ({where})")
    panels[0].legend()
    return drawn
