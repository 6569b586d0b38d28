"""Terms divided so that few events and subscriptions have terms in two shares: a partition of a hypergraph.

A vertex is a term; its weight is that of the events that contain it and the subscriptions indexed under it. A net is an
event, or a subscription with several conjunctions, and joins its terms. A net with terms in λ shares is sent λ times,
so Σ (λ - 1), which the partitioner minimises, is the number of needless copies. PS2Stream §VI-B, after Cambazoglu et
al. (TWEB 2013), whose nets are queries.

The partitioner is Mt-KaHyPar: multilevel, maintained, MIT, with wheels for Linux and macOS on PyPI. KaHyPar itself is
GPL, and METIS knows only graphs: with a clique for each event the objective would be another. Only the deterministic
preset gives the same shares on every call; it takes ten times as long as the default, so it sees a part of the sample.
"""

from functools import cache
from typing import Any

import numpy as np

from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import Place, expect, plan_of
from geoswarm.control.layout.terms import NO_SHARE, TermShares
from geoswarm.control.layout.text_sample import Lists, TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import MachineError

IMBALANCE = 0.03
"""The share above the average that a share may weigh: the partitioner's usual value."""
NETS_MAX = 6_000
"""The most events, and the most subscriptions, that become nets: 12 000 nets take three seconds, 40 000 thirty."""


def by_hypergraph(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0 with one rectangle."""
    expect(grid, executors, sample)
    place = Place(Unit.whole(sample).box, tuple(range(executors)), _shares(executors, sample, costs))
    return plan_of(executors, sample, [place])


def _shares(executors: int, sample: TextSample, costs: Costs) -> TermShares:
    found = np.full(sample.terms, NO_SHARE, np.int16)
    posted = np.flatnonzero(sample.posted)
    if executors == 1:
        return found
    per_query = costs.c3_insertion + costs.c4_deletion * sample.deletions
    unit = min(cost for cost in (costs.c2_event, per_query) if cost > 0)
    event_nets, query_nets = _nets(sample.asked), _nets(sample.postings)
    nets = event_nets + query_nets
    net_weights = [round(costs.c2_event / unit)] * len(event_nets) + [round(per_query / unit)] * len(query_nets)
    said, indexed = (np.bincount(lists.terms, minlength=sample.terms) for lists in (sample.asked, sample.postings))
    weights = np.maximum(1, np.round((said * costs.c2_event + indexed * per_query) / unit)).astype(np.int64)
    joined = np.unique(np.concatenate([np.empty(0, np.int64), *nets]))
    totals = np.zeros(executors, np.int64)
    if len(joined) > executors:
        places = [np.searchsorted(joined, net).tolist() for net in nets]
        found[joined] = _partition(places, net_weights, weights[joined].tolist(), executors)
        totals += np.bincount(found[joined], weights[joined], minlength=executors).astype(np.int64)
    alone = posted[found[posted] == NO_SHARE]
    for term in alone[np.argsort(-weights[alone], kind="stable")].tolist():  # terms in no net go to the lightest share
        found[term] = share = int(np.argmin(totals))
        totals[share] += weights[term]
    return found


def _nets(lists: Lists) -> list[Ints]:
    several = np.flatnonzero(np.diff(lists.offsets) > 1)
    if len(several) > NETS_MAX:
        several = several[np.linspace(0, len(several) - 1, NETS_MAX).astype(np.int64)]
    return [lists.terms[lists.offsets[i] : lists.offsets[i + 1]].astype(np.int64) for i in several]


def _partition(nets: list[list[int]], net_weights: list[int], weights: list[int], blocks: int) -> list[int]:
    module, library = _library()
    context = library.context_from_preset(module.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(blocks, IMBALANCE, module.Objective.KM1)
    context.logging = False
    module.set_seed(0)
    graph = library.create_hypergraph(context, len(weights), len(nets), nets, weights, net_weights)
    found: list[int] = graph.partition(context).get_partition()
    return found


@cache
def _library() -> tuple[Any, Any]:
    """Loads the partitioner once per process, with one thread, because a layout is drawn beside a running stream."""
    try:
        import mtkahypar
    except ImportError:
        raise MachineError(
            "ps2-hypergraph needs Mt-KaHyPar: install it with `pip install geoswarm[hypergraph]`, or use another layout"
        ) from None
    return mtkahypar, mtkahypar.initialize(1, False)
