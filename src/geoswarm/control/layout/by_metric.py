"""Terms divided by a metric of the load they cause together: the best of PS2Stream's text partitionings (§VI-B).

The paper names S³-TM (Basik et al., VLDB Journal 2015) and reports only that it "uses a metric function". There, words
are given to matchers one by one, the most frequent first; the metric is the matcher's load after it, counted on the
graph of words and posts, so that a post that another of its words already sends there adds nothing. Here the load is
that of Definition 1, so subscriptions count beside posts. `terms.py` has the loop.
"""

from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import Place, expect, plan_of
from geoswarm.control.layout.terms import by_load
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan


def by_metric(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0 with one rectangle."""
    expect(grid, executors, sample)
    whole = Unit.whole(sample)
    place = Place(whole.box, tuple(range(executors)), by_load(whole, executors, costs))
    return plan_of(executors, sample, [place])
