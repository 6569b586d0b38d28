"""PS2Stream's machines with a stream of posts and a plan that has settled: what its Figures 12 to 16 share.

Measures nothing by itself: `migration.py` and `fig16.py` do. Time is simulated (`run/sim/words.py`), with c1 to c4 as
measured on the engine's index, so a figure depends on its seed alone and not on the machine. The paper has 4
dispatchers, 8 workers and posts of the US; it does not say what its machines take for anything.
"""

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from geoswarm.control.balance.adjust import Ps2Adjusted
from geoswarm.control.layout.blocks import BLOCKS
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.text_sample import Lists, TextSample
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.ps2.bare_keys import count_under
from geoswarm.lab.bench.ps2.bare_queries import (
    BareQueries,
    asked_terms,
    draw_queries,
    numbers_of_words,
    text_sample,
    with_lists,
)
from geoswarm.lab.workload.posts import Posts, QueryKind
from geoswarm.run.sim.words import Machines, MachinesSetup, in_cells
from geoswarm.run.sim.words_spans import throughput
from geoswarm.run.sim.words_stream import TextRun, TextScale

OFFERED_SHARE = 0.7
"""The share that is offered of what the settled machines can take, for latencies: the paper's "moderate" speed."""


class AdjustmentSizes(NamedTuple):
    live: int
    """Queries drawn at once, each of which stands for many."""
    events: int
    """Posts drawn in a step."""
    settle_steps: int
    steps: int
    """Steps after these."""
    change_share: float
    """The share of queries that change in a step."""
    post_s: float
    """Seconds of the posts' own time in a step."""
    cells_per_side: int = 64
    lists_drawn: int = 0
    """Queries drawn as bare keys, to know the lists that there are; only Figure 16 does."""


def post_stream(sizes: AdjustmentSizes, seed: int, queries: QueryKind, mu: int, interval: int = 0) -> TextRun:
    posts = Posts(seed=seed, country="US", bounds=US, events_per_s=sizes.events / sizes.post_s)
    grid = Grid(*US, columns=sizes.cells_per_side, rows=sizes.cells_per_side)
    scale = TextScale(sizes.live, mu // sizes.live, sizes.events, round(sizes.live * sizes.change_share))
    return TextRun(posts, grid, scale, sizes.settle_steps + sizes.steps, queries, interval)


def with_all_lists(stream: TextRun, drawn: int) -> TextRun:
    """The same stream, drawn as bare keys, whose events are sent for the lists that `drawn` queries are on: the run's
    own are too few to have all lists that μ queries have, so that words that are divided would cause too few visits."""
    posts, scale = cast(Posts, stream.posts), stream.scale
    numbers, _ = numbers_of_words(posts)
    kind = cast(QueryKind, stream.queries)
    own = draw_queries(posts, stream.grid, stream.count, kind, numbers, stream.interval)
    text = text_sample(posts, stream.grid, stream.steps * scale.events, own)
    whole = uniform(stream.grid, 1)
    standing = count_under(whole, text, draw_queries(posts, stream.grid, drawn, kind, numbers)).checks
    met = count_under(whole, text, own).checks
    sent = asked_terms(text, (standing > 0) | (met > 0))
    return replace(stream, given=with_lists(text, sent, met), sent=sent)


def hybrid_plan_by_keys(stream: TextRun, setup: MachinesSetup, seed: int) -> Plan:
    """The same as `hybrid_plan` for streams with all lists: the planner knows them, too."""
    assert stream.sent is not None
    text, live = stream.text, stream.scale.live
    rng = np.random.default_rng(seed)
    events = np.sort(rng.permutation(min(text.events, 24 * stream.scale.events))[: 4 * setup.sample_events])
    boxes = CellBox(*(side[:live] for side in text.boxes))
    ends = text.postings.offsets[: live + 1]
    postings = Lists(ends, text.postings.terms[: ends[-1]])
    first = replace(text, boxes=boxes, keywords=postings, postings=postings)
    sides = np.stack(boxes).astype(np.int16)
    checks = count_under(uniform(stream.grid, 1), first, BareQueries(sides, postings)).checks
    sample = with_lists(first, stream.sent, checks).of_events(events)
    costs = replace(setup.sample_costs(stream.scale), by_lists=True)
    return in_cells(hybrid(stream.grid, setup.workers, sample, costs=costs))


def hybrid_plan(stream: TextRun, setup: MachinesSetup, seed: int) -> Plan:
    """Hybrid, from posts of the time while machines settle and the queries that are there at first; in cells."""
    rng = np.random.default_rng(seed)
    queries = rng.permutation(stream.scale.live)[: setup.sample_queries]
    events = rng.permutation(min(stream.text.events, 24 * stream.scale.events))[: 4 * setup.sample_events]
    sample = stream.sample(np.sort(events), queries)
    assert sample.texts is not None
    assert sample.keywords is not None
    text = TextSample.of(stream.grid, sample.points, sample.rects, sample.texts, sample.keywords)
    text = replace(text, blocks_max=BLOCKS**2)  # lists as these machines have them
    costs = replace(setup.sample_costs(stream.scale), by_lists=True)
    return in_cells(hybrid(stream.grid, setup.workers, text, costs=costs))


class AdjustmentOptions(NamedTuple):
    """The settings of a strategy in these worlds; the rest are the paper's."""

    sigma: float = 1.2
    aim: float = 1.2
    pairs_max: int = 1
    way: str = "gr"
    cells_max: int = 4
    global_every_rounds: int = 0
    size_unit_bytes: int = 1
    by_lists: bool = False
    """Whether Phase I and fresh plans are judged by the lists that events meet, as these machines cost. In the paper
    they are judged by Definition 1."""


def adjusting_strategy(
    stream: TextRun, setup: MachinesSetup, options: AdjustmentOptions, kind: type[Ps2Adjusted] = Ps2Adjusted
) -> Ps2Adjusted:
    chosen = options._asdict()
    costs = replace(setup.sample_costs(stream.scale), by_lists=chosen.pop("by_lists"))
    stands_for = stream.scale.live * stream.scale.query_weight / min(setup.sample_queries, stream.scale.live)
    return kind(
        **chosen,
        costs=costs,
        replicates=True,
        query_weight=stands_for,
        seed=stream.posts.seed,
    )


EAGER = AdjustmentOptions(sigma=1.1, aim=1.0, pairs_max=4)


def settle_machines(
    stream: TextRun,
    setup: MachinesSetup,
    sizes: AdjustmentSizes,
    seed: int,
    first: Plan | None = None,
    options: AdjustmentOptions = EAGER,
) -> tuple[Machines, float]:
    """Machines whose plan has been adjusted for a while, several pairs at once, and the tuples per second they take."""
    eager = adjusting_strategy(stream, setup, options)
    machines = Machines(stream, first or hybrid_plan(stream, setup, seed), eager, setup)
    spans = machines.run(0, sizes.settle_steps)
    return machines, throughput(spans[-max(1, sizes.settle_steps // 3) :])
