"""Terms divided by their frequency: each, the commonest first, goes to the executor with the least so far.

It ignores places, and which words go together (`by_metric.py`, `by_hypergraph.py`). PS2Stream §VI-B: "uses the
frequency values of the terms".
"""

import heapq

import numpy as np

from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import Place, expect, plan_of
from geoswarm.control.layout.terms import NO_SHARE
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan


def by_frequency(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0 with one rectangle. Terms that no subscription asks for cause no load and are not dealt."""
    expect(grid, executors, sample)
    posted, said = np.flatnonzero(sample.posted), sample.said_counts
    share_of_term = np.full(sample.terms, NO_SHARE, np.int16)
    lightest = [(0, share) for share in range(executors)]
    for term in posted[np.argsort(-said[posted], kind="stable")].tolist():
        total, share = lightest[0]
        share_of_term[term] = share
        heapq.heapreplace(lightest, (total + max(1, int(said[term])), share))  # unused words are dealt, too
    return plan_of(executors, sample, [Place(Unit.whole(sample).box, tuple(range(executors)), share_of_term)])
