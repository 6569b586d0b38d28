"""The worlds of `auto.py`: a stream of each paper, calm at first, and the strategy that its paper would use there.

hotspot, moving, hot-cell   SWARM's crowds, with the subscriptions that come along
crowd                       the same, where nobody subscribes
words                       PS2Stream's Q3, a tenth of whose regions switch while queries come and go
collisions                  Distributor's polygons; then most of the stream is in the cells of three executors
attack                      Guard's attackers, with Guard on
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract
from geoswarm.control.registry import first_plan
from geoswarm.control.strategy import Sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.guard.limits import GuardSettings
from geoswarm.lab.bench.guard.half_hours import BURST_SHARE
from geoswarm.lab.bench.kit.engine_race import CELLS_PER_SIDE, ROUND_S, RaceStream, hotspot_stream
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.workload.attack import Attackers
from geoswarm.lab.workload.collisions import Collisions
from geoswarm.lab.workload.crowds import NormalUsers
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.postcodes import BOUNDS, britain
from geoswarm.lab.workload.posts import POSTS_PER_CHANGE, Posts
from geoswarm.lab.workload.skew import hot_executors
from geoswarm.lab.workload.traffic import Traffic
from geoswarm.lab.workload.tweets import Tweets

CORNER = (0.2, 0.2)
CELL_SHARE = 0.0009
"""The side of a hot cell: less than a thousandth of the world's, and so one cell of a grid of 1000 × 1000, or four."""
HOT_CELL_QUERIES = 4_000
"""In a hot cell, at most: each event there meets nearly all of them."""
SKEW = 0.7
"""Of the publications, in the cells of three executors of sixteen: the largest of the paper."""
COLLISION_MACHINES = 16
PUBLICATIONS_SHARE, POLYGONS_SHARE = 10, 60
"""Publications and polygons are dearer than points: so many times fewer are drawn. With 3,333 publications in a batch
each of 22 executors has 150, and the busiest, by chance alone, 1.15 of the mean; with 20,000 it has 1.07."""
CHANGES_SHARE = 1e-3
"""Changes of attackers in a second, of all queries: 600 to a million in the thesis."""
PAPER_OF = {"words": "ps2-adjusted", "collisions": "distributor"}
"""The strategy of the world's paper; in all others SWARM as printed."""
SWITCHES = 20
"""Q3 switches a tenth of its regions with every twentieth of the standing queries."""


class WorldSizes(NamedTuple):
    subscriptions: int
    batch_events: int
    calm_batches: int
    """Before the step, which then stays."""
    batches: int
    machines: int


def paper_of(world: str) -> str:
    return PAPER_OF.get(world, "swarm")


def stream_of(world: str, sizes: WorldSizes, seed: int) -> RaceStream:
    """Nobody has a history."""
    if world in DRAWN:
        return DRAWN[world](sizes, seed)
    workload = Hotspots(_tweets(sizes, seed), (spot_of(world, sizes),))
    return hotspot_stream(workload, sizes.subscriptions, has_history=False)


def _tweets(sizes: WorldSizes, seed: int) -> Tweets:
    return Tweets(seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S)


def spot_of(world: str, sizes: WorldSizes) -> Hotspot:
    """What comes after the calm batches, at once."""
    start_s, life_s = sizes.calm_batches * ROUND_S, (sizes.batches - sizes.calm_batches + 1) * ROUND_S
    crowd = sizes.subscriptions // 5
    if world == "crowd":  # nobody there subscribes to anything
        return Hotspot(CORNER, start_s, life_s, 0, intensity="step")
    if world == "hot-cell":
        queries = min(crowd // 10, HOT_CELL_QUERIES)
        return Hotspot(CORNER, start_s, life_s, queries, intensity="step", side_share=CELL_SHARE)
    drift = (0.5, 0.5) if world == "moving" else (0.0, 0.0)
    return Hotspot(CORNER, start_s, life_s, crowd, intensity="step", drift=drift)


def _words(sizes: WorldSizes, seed: int) -> RaceStream:
    posts = Posts(seed=seed, country="US", bounds=US, events_per_s=sizes.batch_events / ROUND_S)
    live, changes = sizes.subscriptions, sizes.batch_events // POSTS_PER_CHANGE
    interval = max(1, live // SWITCHES)
    return RaceStream(
        posts.bounds,
        posts.start_s,
        posts.subscriptions(0, live, "Q3", interval),
        lambda n: posts.events(n * sizes.batch_events, sizes.batch_events),
        lambda n: posts.operations(n * changes, changes, live, "Q3", interval),
    )


def _collisions(sizes: WorldSizes, seed: int) -> RaceStream:
    country, events = britain(), sizes.batch_events // PUBLICATIONS_SHARE
    collisions = Collisions(country, seed=seed, events_per_s=events / ROUND_S)
    grid = Grid.of(Contract(bounds=BOUNDS, columns=CELLS_PER_SIDE, rows=CELLS_PER_SIDE))
    level = first_plan("distributor", Sample(country.places, np.empty((0, 4))), grid, COLLISION_MACHINES)
    hot = hot_executors(level, country.places, np.random.default_rng(seed))

    def publications(n: int) -> pa.RecordBatch:
        skewed = {} if n < sizes.calm_batches else {"hot": hot, "share": SKEW}
        return collisions.publications(n * events, events, **skewed)  # type: ignore[arg-type]

    standing = collisions.subscriptions(0, sizes.subscriptions // POLYGONS_SHARE)
    return RaceStream(BOUNDS, collisions.start_s, standing, publications, lambda _: _no_operations())


def _no_operations() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=OPERATION)


def _attacked(sizes: WorldSizes, seed: int) -> RaceStream:
    stream, theirs = replace(_tweets(sizes, seed), burst_share=BURST_SHARE), sizes.subscriptions // 10
    pace = CHANGES_SHARE * sizes.subscriptions
    normal = NormalUsers(stream, queries=sizes.subscriptions - theirs, changes_per_s=pace)
    party = Attackers(stream, queries=theirs, changes_per_s=pace, start_s=sizes.calm_batches * ROUND_S)
    traffic = Traffic(stream, (normal, party))
    return RaceStream(
        stream.bounds,
        stream.start_s,
        traffic.standing(),
        lambda n: traffic.events(n * sizes.batch_events, sizes.batch_events),
        lambda n: traffic.operations(n * ROUND_S, (n + 1) * ROUND_S),
        guard=GuardSettings(seed=seed),
    )


DRAWN: dict[str, Callable[[WorldSizes, int], RaceStream]] = {
    "words": _words,
    "collisions": _collisions,
    "attack": _attacked,
}
