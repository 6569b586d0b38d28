"""A stream as a strategy sees it, round after round, without an engine: what the laws of `test_laws.py` are held to.

One seed is one world. It has crowds that move, words that some ask for, calm rounds and empty ones, subscriptions that
come and go, executors that join and leave. What a partition took is counted by the plan in force, divided terms
included, with some noise as on a real machine. A partition that met no event is in no report, as in the engine.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.control.balance.tally import tally
from geoswarm.control.coordinator import RoundOutcome
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.loop import ControlLoop
from geoswarm.control.strategy import Decision, RoundReport, Sample, Strategy
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.cell_counts import CellCounts
from geoswarm.flow.observe import Load, LoadReport, Quote, count_points
from geoswarm.model import EVENT
from worlds import expression, sentence

ROUND_S = 15.0
EVENTS_MAX, QUERIES_MAX = 400, 60
SELDOM = "_every_rounds"
"""The end of parameters that make a strategy act seldom: in a short world it has to act often."""


def make(kind: type[Strategy], rng: np.random.Generator) -> Strategy:
    """With every parameter at its default, but what is done once in hundreds of rounds is done every few."""
    seldom = [name for name in inspect.signature(kind).parameters if name.endswith(SELDOM)]
    return kind(**{name: int(rng.integers(1, 4)) for name in seldom})


class Queries:
    """The subscriptions in force."""

    def __init__(self) -> None:
        self.rects: Floats = np.empty((0, 4))
        self.keywords: list[str | None] = []

    def change(self, came: Floats, keywords: list[str | None], kept: Ints) -> None:
        self.rects = np.concatenate([self.rects[kept], came])
        self.keywords = [self.keywords[i] for i in kept] + keywords

    def live_rects(self) -> Floats:
        return self.rects

    def some_queries(self, most: int) -> tuple[Floats, pa.StringArray]:
        return self.rects[:most], pa.array(self.keywords[:most], pa.string())

    def live_count(self) -> int:
        return len(self.live_rects())


class Question(NamedTuple):
    """One question that a strategy was asked, and what it answered."""

    plan: Plan
    report: RoundReport
    decision: Decision


@dataclass
class World:
    seed: int

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.seed, 17))
        columns, rows = (int(side) for side in self.rng.integers(1, 16, 2))
        self.grid = Grid(0.0, 0.0, 1.0, 1.0, columns=columns, rows=rows)
        self.executors = int(self.rng.integers(1, 10))
        self.has_words = bool(self.rng.random() < 0.6)
        self.queries, self.hot = Queries(), self.rng.random(2)
        self._operate(int(self.rng.integers(0, QUERIES_MAX)) if self.rng.random() < 0.8 else 0)

    def sample(self) -> Sample:
        """What may be known beforehand: a lot, little, or nothing at all."""
        points = self.points(int(self.rng.choice([0, 1, 300])))
        rects = self._rects(int(self.rng.choice([0, 1, 50])))
        texts = pa.array([sentence(self.rng) for _ in points], pa.string())
        return Sample(points, rects, texts, pa.array(self._keywords(len(rects)), pa.string()))

    def play(self, strategy: Strategy, plan: Plan, rounds: int) -> Iterator[tuple[list[Question], RoundOutcome]]:
        """The strategy in charge, and what became of each of its answers. It is asked what an engine would ask it."""
        asked: list[Question] = []
        decide = strategy.rebalance

        def rebalance(plan: Plan, report: RoundReport) -> Decision:
            asked.append(Question(plan, report, decide(plan, report)))
            return asked[-1].decision

        strategy.rebalance = rebalance  # type: ignore[method-assign]
        loop = ControlLoop(strategy, plan, ROUND_S, self.queries)
        loop.add_batch([], [], LoadReport(), 0.0)  # the first batch is not counted
        for number in range(1, rounds + 1):
            self._drift()
            if self.rng.random() < 0.25:
                yield [], loop.scale(int(self.rng.integers(1, 10)))
            came, went = self._operate(int(self.rng.integers(0, 12)))
            points = self.points(int(self.rng.integers(1, EVENTS_MAX)) if self.rng.random() < 0.9 else 0)
            texts = pa.array([sentence(self.rng) for _ in points], pa.string())
            if loop.plans_batches:
                yield [], loop.plan_batch(number, self.events_of_cell(points))
            asked.clear()
            report = self._report(loop.plan, points, texts, counts_points=loop.needs_stats)
            outcome = loop.add_batch([came], [went], report, ROUND_S * number)
            assert outcome is not None, "a round is over"
            yield asked, outcome

    def events_of_cell(self, points: Floats) -> Ints:
        counted: Ints = np.bincount(self.grid.locate(*points.T), minlength=self.grid.cells)
        return counted

    def _report(self, plan: Plan, points: Floats, texts: pa.StringArray, *, counts_points: bool) -> LoadReport:
        """Of a round that is one batch."""
        report = LoadReport(events_in=len(points))
        cells = self.grid.locate(*points.T)
        slots = plan.route(cells)
        if plan.siblings:
            rects, keywords = self.queries.some_queries(len(self.queries.rects))
            counted = tally(plan, TextSample.of(self.grid, points, rects, texts, keywords))
            events, checks = counted.events, counted.checks
        else:
            events = np.bincount(slots, minlength=len(plan.partitions)).astype(np.float64)
            boxes = self.grid.cover(*self.queries.rects.T)
            rows, columns = np.divmod(cells.astype(np.int64), self.grid.columns)
            meets = (boxes.row0 <= rows[:, None]) & (rows[:, None] <= boxes.row1)
            meets &= (boxes.col0 <= columns[:, None]) & (columns[:, None] <= boxes.col1)
            checks = np.bincount(slots, meets.sum(axis=1), minlength=len(plan.partitions)).astype(np.float64)
        report.cells = CellCounts.of(cells.astype(np.int64), np.ones(len(cells)), np.zeros(len(cells)))
        took_us = (3 * events + checks) * self.rng.lognormal(0.0, 0.2, len(events))
        for slot in np.flatnonzero(events).tolist():
            part, visits = plan.partitions[slot], int(events[slot])
            for owner in part.owners:
                share = Load(visits // len(part.owners), 0, 0, int(np.ceil(took_us[slot] / len(part.owners))))
                report.add(part.id, owner, share)
            if counts_points:
                report.add_stat(part.id, count_points(_batch(points[slots == slot]), plan, part.id))
        if self.has_words:
            report.said = [Quote(x, y, text) for (x, y), text in zip(points.tolist(), texts.to_pylist(), strict=True)]
        return report

    def _drift(self) -> None:
        if self.rng.random() < 0.2:
            self.hot = self.rng.random(2)

    def points(self, n: int) -> Floats:
        """Half of them anywhere, half in a hotspot, which may be one cell."""
        points = self.rng.random((n, 2))
        spread = float(self.rng.choice([0.0, 0.07]))
        points[: n // 2] = (self.hot + self.rng.normal(0, spread, (n // 2, 2))).clip(0, 1)
        return points

    def _rects(self, n: int) -> Floats:
        """Most in the hotspot: elsewhere there are partitions without subscriptions."""
        centres = self.points(n)
        return np.concatenate([centres - 0.05, centres + 0.05], axis=1).clip(0, 1)

    def _keywords(self, n: int) -> list[str | None]:
        words = [expression(self.rng) if self.rng.random() < 0.7 else None for _ in range(n)]
        return words if self.has_words else [None] * n

    def _operate(self, n: int) -> tuple[Floats, Floats]:
        """So many subscriptions come, and some go."""
        stays = self.rng.random(len(self.queries.rects)) < 0.9
        came, went = self._rects(n), self.queries.rects[~stays]
        self.queries.change(came, self._keywords(n), np.flatnonzero(stays))
        return came, went


def _batch(points: Floats) -> Any:
    ids = pa.array(np.arange(len(points)))
    return pa.RecordBatch.from_arrays([ids, ids.cast(EVENT.field("ts").type), *map(pa.array, points.T)], schema=EVENT)
