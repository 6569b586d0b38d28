"""PS2Stream's seven layouts as strategies that never change a plan: what an adaptive one is measured against.

They differ in the first plan only (`control/layout/`), and all draw it from a sample with words, by what things cost on
this engine (`control/layout/load_model.py`). PS2Stream §IV-B, §VI-B.
"""

from typing import ClassVar, Protocol

from geoswarm.control.balance.static import Static
from geoswarm.control.layout.by_frequency import by_frequency
from geoswarm.control.layout.by_hypergraph import by_hypergraph
from geoswarm.control.layout.by_metric import by_metric
from geoswarm.control.layout.grid_cells import grid_cells
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.kd_tree import kd_tree
from geoswarm.control.layout.load_model import ENGINE, Costs
from geoswarm.control.layout.r_tree import r_tree
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.strategy import Sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError


class Layout(Protocol):
    def __call__(self, grid: Grid, executors: int, sample: TextSample, *, costs: Costs = ...) -> Plan: ...


class _FromWords(Static):
    name: ClassVar[str]
    layout: ClassVar[Layout]

    def first_plan(self, grid: Grid, executors: int, sample: Sample | None = None) -> Plan:
        return type(self).layout(grid, executors, _with_words(self.name, grid, sample), costs=ENGINE)


class GridCells(_FromWords):
    name = "ps2-grid"
    layout = staticmethod(grid_cells)


class KdTree(_FromWords):
    name = "ps2-kd-tree"
    layout = staticmethod(kd_tree)


class RTree(_FromWords):
    name = "ps2-r-tree"
    layout = staticmethod(r_tree)


class ByFrequency(_FromWords):
    name = "ps2-frequency"
    layout = staticmethod(by_frequency)


class ByHypergraph(_FromWords):
    name = "ps2-hypergraph"
    layout = staticmethod(by_hypergraph)


class ByMetric(_FromWords):
    name = "ps2-metric"
    layout = staticmethod(by_metric)


class Hybrid(_FromWords):
    name = "ps2-hybrid"
    layout = staticmethod(hybrid)


def _with_words(name: str, grid: Grid, sample: Sample | None) -> TextSample:
    if sample is None or sample.texts is None or sample.keywords is None:
        lacks = "no sample" if sample is None else "a sample without texts or keywords"
        raise InputError(
            f"{name} draws its plan from words as well as places, and has {lacks}: give one with points and their "
            "texts, rects and their keywords, such as 50 k of each"
        )
    return TextSample.of(grid, sample.points, sample.rects, sample.texts, sample.keywords)
