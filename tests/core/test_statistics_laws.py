"""Every statistic merges associatively: what two tasks counted adds up to what one task would have counted.

A statistic is any class of the package that defines `+`; a new one is found by existing, and asks for a line in `FILL`.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm
from geoswarm.core.space.grid import CellBox
from geoswarm.core.stats.aqwa import Aqwa
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.core.stats.sketches import DistinctSketch, QuantileSketch, TopSketch
from geoswarm.core.stats.triostat import Box, TrioStat
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.tokens import tokenize
from geoswarm.flow.observe import COUNT_NAMES, NO_LOAD, Load, LoadReport, Quote
from geoswarm.run.sim.spans import Span
from worlds import sentence

ROWS, COLUMNS = 6, 9
ROOMS = ("core", "flow", "control", "guard", "store", "run.sim")
"""Rooms that count, none of which needs Spark."""


def statistics() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for room in ROOMS:
        package = importlib.import_module(f"{geoswarm.__name__}.{room}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            members = inspect.getmembers(importlib.import_module(info.name), inspect.isclass)
            found |= {name: kind for name, kind in members if kind.__module__ == info.name and "__add__" in vars(kind)}
    return found


def boxes(rng: np.random.Generator, n: int) -> CellBox:
    rows, columns = (np.sort(rng.integers(0, side, (2, n)), axis=0) for side in (ROWS, COLUMNS))
    return CellBox(rows[0], columns[0], rows[1], columns[1])


def triostat(rng: np.random.Generator) -> TrioStat:
    """The round under way only: of several, one may hold what is older."""
    stat = TrioStat.empty(Box(0, 0, ROWS - 1, COLUMNS - 1))
    stat.add_points(rng.integers(0, ROWS, 20), rng.integers(0, COLUMNS, 20))
    stat.add_queries(boxes(rng, 5))
    return stat


def aqwa(rng: np.random.Generator) -> Aqwa:
    stat = Aqwa.empty(ROWS, COLUMNS)
    stat.add_points(rng.integers(0, ROWS * COLUMNS, 20).astype(np.int32))
    stat.add_queries(boxes(rng, 5))
    return stat


def term_counts(rng: np.random.Generator) -> TermCounts:
    counts = TermCounts.empty(64)
    counts.add(tokenize(pa.array([sentence(rng) for _ in range(10)], pa.string())))
    return counts


def cell_counts(rng: np.random.Generator) -> CellCounts:
    counts = rng.integers(0, 99, (2, 12)).astype(np.float64)
    return CellCounts.of(rng.integers(0, ROWS * COLUMNS, 12), *counts)


def sketch(kind: Any) -> Callable[[np.random.Generator], Any]:
    """Few values, whose sketches are exact."""

    def fill(rng: np.random.Generator) -> Any:
        filled = kind.empty()
        filled.add(pa.array(rng.integers(0, 30, 20)))
        return filled

    return fill


def load(rng: np.random.Generator) -> Load:
    return Load(*rng.integers(0, 99, 4).tolist())


def load_report(rng: np.random.Generator) -> LoadReport:
    counts: dict[str, Any] = {name: int(rng.integers(0, 99)) for name in COUNT_NAMES}
    report = LoadReport(**counts)
    for _ in range(4):
        report.add(int(rng.integers(3)), int(rng.integers(2)), load(rng))
        report.add_stat(int(rng.integers(3)), triostat(rng))
    report.cells = cell_counts(rng)
    report.said = [Quote(float(rng.random()), 0.5, sentence(rng))]
    return report


def span(rng: np.random.Generator) -> Span:
    """Spans follow one another, so their means are weighed by whole seconds here: fractions would be rounded."""
    given: dict[str, Any] = {field.name: int(rng.integers(1, 9)) for field in fields(Span)}
    return Span(**given | {"busy_s": (1.0, 2.0), "span_s": 4, "queries": 8, "partitions": 3, "start_s": 0})


FILL: dict[str, tuple[Callable[[np.random.Generator], Any], Any]] = {
    "Aqwa": (aqwa, Aqwa.empty(ROWS, COLUMNS)),
    "CellCounts": (cell_counts, CellCounts.none()),
    "Load": (load, NO_LOAD),
    "DistinctSketch": (sketch(DistinctSketch), DistinctSketch.empty()),
    "LoadReport": (load_report, LoadReport()),
    "QuantileSketch": (sketch(QuantileSketch), QuantileSketch.empty()),
    "Span": (span, None),
    "TopSketch": (sketch(TopSketch), TopSketch.empty()),
    "TermCounts": (term_counts, TermCounts.empty(64)),
    "TrioStat": (triostat, TrioStat.empty(Box(0, 0, ROWS - 1, COLUMNS - 1))),
}
"""How one is filled, and one that is empty. A `Span` is of some time, and none is empty."""


def plain(value: Any) -> Any:
    """Values that `==` compares, whatever the statistic keeps them in."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, DistinctSketch):
        return value.read(), value.to_bytes()
    if isinstance(value, QuantileSketch):
        return [value.read(rank) for rank in np.linspace(0, 1, 21).tolist()]
    if isinstance(value, TopSketch):
        return value.read(100)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return plain(vars(value)) if hasattr(value, "__dict__") else value


def test_every_statistic_is_found_and_can_be_filled() -> None:
    assert set(statistics()) == set(FILL), "say in FILL how the new one is filled"


@pytest.mark.parametrize("name", sorted(statistics()))
@pytest.mark.parametrize("seed", range(5))
def test_every_statistic_merges_associatively(name: str, seed: int) -> None:
    (fill, empty), rng = FILL[name], np.random.default_rng(seed)
    a, b, c = (fill(rng) for _ in range(3))
    before = plain([a, b, c])
    assert plain((a + b) + c) == plain(a + (b + c))
    assert plain([a, b, c]) == before, "what was merged is as it was"
    if empty is not None:
        assert plain(empty + a) == plain(a + empty) == plain(a)


@pytest.mark.parametrize("name", sorted(set(statistics()) - {"Load", "Span"}))
@pytest.mark.parametrize("seed", range(5))
def test_what_many_tasks_counted_does_not_depend_on_who_is_merged_first(name: str, seed: int) -> None:
    (fill, empty), rng = FILL[name], np.random.default_rng(seed)
    parts = [fill(rng) for _ in range(6)]
    pairs = [parts[i] + parts[i + 1] for i in range(0, 6, 2)]
    assert plain(reduce(add, pairs)) == plain(reduce(add, parts, empty))
