"""A kd-tree by load, a leaf for each executor: the best of PS2Stream's space partitionings (§VI-B).

Words are used only to leave out events that no subscription asks for. `hybrid.py` may also divide by words.
"""

from geoswarm.control.layout.kd_cuts import kd_parts
from geoswarm.control.layout.load_model import COSTS, Costs
from geoswarm.control.layout.places import expect
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan


def kd_tree(grid: Grid, executors: int, sample: TextSample, *, costs: Costs = COSTS) -> Plan:
    """A plan of epoch 0. With more executors than cells, some own nothing."""
    expect(grid, executors, sample)
    tree = kd_parts(Unit.whole(sample), executors, costs)
    for executor, leaf in enumerate(tree.leaves()):
        leaf.executor = executor
    return tree.to_plan(executors)
