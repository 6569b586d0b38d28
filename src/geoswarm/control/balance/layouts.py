"""PS2Stream's seven layouts as strategies that never change a plan: what an adaptive one is measured against.

They differ only in the first plan (`control/layout/`), which all draw from a sample with words, by the costs of this
engine (`control/layout/load_model.py`). PS2Stream §IV-B, §VI-B.
"""

from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from geoswarm.control.balance.static import Static
from geoswarm.control.layout.by_frequency import by_frequency
from geoswarm.control.layout.by_hypergraph import by_hypergraph
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.grid_cells import grid_cells
from geoswarm.control.layout.hybrid import DELTA, SIGMA, hybrid
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.load_model import ENGINE, Costs
from geoswarm.control.layout.r_tree import r_tree
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.strategy import Sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError
from geoswarm.parameters import check_arguments

HybridSigma = Annotated[float, Field(gt=1, description="σ of the layout: most load over least, where cutting ends")]
HybridDelta = Annotated[
    float, Field(ge=0, le=1, description="δ: below this similarity of events and queries, a part is divided by words")
]
HybridLeaves = Annotated[int | None, Field(ge=1, description="θ: leaves of the tree; none: 16 for each executor")]


class Layout(Protocol):
    def __call__(self, grid: Grid, executors: int, sample: TextSample, *, costs: Costs = ...) -> Plan: ...


class _FromWords(Static):
    name: ClassVar[str]
    draws_from_sample = True
    layout: ClassVar[Layout]

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return type(self).layout(grid, executors, _with_words(self.name, grid, sample), costs=ENGINE)


class GridCells(_FromWords):
    """Divides the map into equal cells, which are dealt out by load."""

    name = "ps2-grid"
    layout = staticmethod(grid_cells)


class KdTree(_FromWords):
    """Cuts the map as a kd-tree does, into parts of equal load."""

    name = "ps2-kd-tree"
    layout = staticmethod(kd_tree)


class RTree(_FromWords):
    """Cuts the map as the packing of an R-tree does."""

    name = "ps2-r-tree"
    layout = staticmethod(r_tree)


class ByFrequency(_FromWords):
    """Deals the words of the whole map out by how often events contain them."""

    name = "ps2-frequency"
    layout = staticmethod(by_frequency)


class ByHypergraph(_FromWords):
    """Deals words out so that those that go together stay together, as a hypergraph partitioner finds them."""

    name = "ps2-hypergraph"
    layout = staticmethod(by_hypergraph)


class ByMetric(_FromWords):
    """Deals words out one after the other, each to where it adds the least load."""

    name = "ps2-metric"
    layout = staticmethod(by_metric)


class Hybrid(_FromWords):
    """Divides by space where that is cheaper, and by words where events and queries differ in theirs."""

    name = "ps2-hybrid"
    layout = staticmethod(hybrid)

    @check_arguments
    def __init__(
        self, *, sigma: HybridSigma = SIGMA, delta: HybridDelta = DELTA, leaves_max: HybridLeaves = None
    ) -> None:
        self.sigma, self.delta, self.leaves_max = sigma, delta, leaves_max

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        text = _with_words(self.name, grid, sample)
        return hybrid(
            grid, executors, text, costs=ENGINE, sigma=self.sigma, delta=self.delta, leaves_max=self.leaves_max
        )


def _with_words(name: str, grid: Grid, sample: Sample | None) -> TextSample:
    if sample is None or sample.texts is None or sample.keywords is None:
        lacks = "no sample" if sample is None else "a sample without texts or keywords"
        raise InputError(
            f"{name} draws its plan from words as well as places, and has {lacks}: give one with points and their "
            "texts, rects and their keywords, such as 50 k of each"
        )
    return TextSample.of(grid, sample.points, sample.rects, sample.texts, sample.keywords)
