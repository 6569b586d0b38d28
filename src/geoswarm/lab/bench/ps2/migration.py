"""PS2Stream Figures 12 to 15: four ways to choose the cells that migrate, each in a world of its own.

The figures differ in the numbers of queries, in the ways and in what they show (`FIGURES`). All start from the same
plan, which has settled for some hours; from then on a step is an hour of posts, and when L_max / L_min passes σ, the
most loaded worker hands over what brings the two back to σ: with few bytes to move, that is all that Definition 4 asks
for.

`choose_ms` is real: CPU time on this machine, the best of several tries, on the cells that GR had to choose from, with
sizes to the byte. It is charged to the worker that chooses. Within the simulation DP gets sizes in KiB.

`gr_bytes_vs_...` compares what the ways choose from the same cells: all of a worker's, as in Definition 4.
`..._in_runs` compares the mean migration of whole runs: each way then has cells of its own making, cells that would
only change places are not offered to any (`control/balance/adjust.py`), and what Phase I and hot cells move is in it,
too.

In Fig. 13 DP is tried, too. In the paper it ran out of memory; here it is refused where its table is larger than
`DP_BYTES_MAX`, a bit per entry, and `dp_refused` counts that.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geoswarm.control.balance.adjust import MigrationProblem, Ps2Adjusted
from geoswarm.control.balance.migration import WAYS, Choice, gr
from geoswarm.control.balance.seen import Seen
from geoswarm.errors import InputError
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, cpu_s
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.ps2.worlds import (
    OFFERED_SHARE,
    AdjustmentOptions,
    AdjustmentSizes,
    adjusting_strategy,
    post_stream,
    settle_machines,
)
from geoswarm.run.sim.words import Machines, MachinesSetup
from geoswarm.run.sim.words_spans import figures_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {
    Scale.SMALL: AdjustmentSizes(40_000, 12_000, 6, 24, 0.025, 3600.0),
    Scale.FULL: AdjustmentSizes(200_000, 20_000, 24, 240, 0.025, 3600.0),
}
UNIT_BYTES = 1024
TRIES = 3
PROBLEMS_TIMED = 3
REST = ("gr", "si", "ra")
RowDicts = Sequence[dict[str, Any]]


class RecordingStrategy(Ps2Adjusted):
    """Keeps the problems that it had to solve, as the paper has them: with all cells of the most loaded worker."""

    problems: list[MigrationProblem]

    def problem(self, seen: Seen, high: int, low: int) -> MigrationProblem:
        found = super().problem(seen, high, low)
        mine = seen.slots_held_by(high)
        self.problems.append(MigrationProblem(mine, seen.times[mine], seen.sizes[mine], found.wanted))
        return found


class Arena(NamedTuple):
    queries: int
    setup: MachinesSetup
    start: Machines
    problems: list[MigrationProblem]
    """The problems that GR had to solve from there on."""


def arenas(mus: Sequence[int], sizes: AdjustmentSizes, seed: int, report: Progress) -> Iterator[Arena]:
    report("drawing the world")
    stream = post_stream(sizes, seed, "Q1", mus[0])
    for mu in mus:
        world, setup = stream.standing_for(mu // sizes.live), MachinesSetup()
        report(f"{mu} queries: settling")
        start, taken_per_s = settle_machines(world, setup, sizes, seed)
        setup = replace(setup, offered_per_s=OFFERED_SHARE * taken_per_s)
        recording = adjusting_strategy(world, setup, AdjustmentOptions(), RecordingStrategy)
        assert isinstance(recording, RecordingStrategy)
        recording.problems = []
        start.fork(recording, setup).run(sizes.settle_steps)
        problems = [problem for problem in recording.problems if len(problem.slots)]
        if not problems:
            raise InputError(f"the workers were never out of balance with {mu} queries: simulate more steps")
        yield Arena(mu, setup, start, problems)


def run_ways(
    mus: Sequence[int], ways: Sequence[str], sizes: AdjustmentSizes, seed: int, report: Progress
) -> list[dict[str, Any]]:
    """A row for each number of queries and way."""
    rows: list[dict[str, Any]] = []
    for arena in arenas(mus, sizes, seed, report):
        for way in ways:
            report(f"{arena.queries} queries: {way}")
            choice = _choice_row(arena, way, seed)
            options = AdjustmentOptions(way=way, size_unit_bytes=UNIT_BYTES if way == "dp" else 1)
            ours = adjusting_strategy(arena.start.stream, arena.setup, options)
            spans = arena.start.fork(ours, arena.setup, (choice["choose_ms"] or 0.0) / 1e3).run(sizes.settle_steps)
            rows.append(choice | dict(figures_of(spans)) | {"total_mb": sum(span.moved_bytes for span in spans) / 1e6})
    return rows


def time_choices(mus: Sequence[int], sizes: AdjustmentSizes, seed: int, report: Progress) -> list[dict[str, Any]]:
    """Rows of what choosing takes, without the runs."""
    return [_choice_row(arena, way, seed) for arena in arenas(mus, sizes, seed, report) for way in WAYS]


def _choice_row(arena: Arena, way: str, seed: int) -> dict[str, Any]:
    choose_ms, size_bytes = choose_cells(way, arena.problems, seed)
    return {
        "queries": arena.queries,
        "way": way,
        "cells": float(np.mean([len(problem.slots) for problem in arena.problems])),
        "choose_ms": choose_ms,
        "same_cells_mb": size_bytes / len(arena.problems) / 1e6,
    }


def choose_cells(way: str, problems: Sequence[MigrationProblem], seed: int) -> tuple[float | None, int]:
    """Milliseconds for a choice, None if it does not fit into memory; and the bytes of all choices."""

    def choose(problem: MigrationProblem, unit_bytes: int = 1) -> Choice:
        return WAYS[way](problem.loads, -(-problem.sizes // unit_bytes), problem.wanted, np.random.default_rng(seed))

    size_bytes = 0
    for problem in problems:  # also compiles what is timed below
        cells = choose(problem, UNIT_BYTES if way == "dp" else 1).cells
        size_bytes += int(problem.sizes[cells].sum())
    hardest = sorted(problems, key=_table_bytes, reverse=True)[:PROBLEMS_TIMED]
    took_ms = []
    for problem in hardest:
        tries = []
        for _ in range(1 if way == "dp" else TRIES):
            start_s = cpu_s()
            try:
                choose(problem)
            except InputError:
                return None, size_bytes
            tries.append(1e3 * (cpu_s() - start_s))
        took_ms.append(best(tries))
    return sum(took_ms) / len(took_ms), size_bytes


def _table_bytes(problem: MigrationProblem) -> int:
    """What DP has to fill in: cells times the bytes that GR needs."""
    bound = gr(problem.loads, problem.sizes, problem.wanted, np.random.default_rng(0))
    return len(problem.slots) * bound.size_bytes


def gr_ratios(rows: Sequence[dict[str, Any]], column: str, what: str, suffix: str = "") -> dict[str, float]:
    """GR over each rival, the geometric mean over all numbers of queries: `gr_bytes_vs_si` and so on."""
    found: dict[str, float] = {}
    for rival in dict.fromkeys(row["way"] for row in rows if row["way"] != "gr"):
        pairs = [
            (_of(rows, row["queries"], "gr")[column], row[column])
            for row in rows
            if row["way"] == rival and row[column]
        ]
        if pairs:
            found[f"gr_{what}_vs_{rival}{suffix}"] = statistics.geometric_mean(ours / theirs for ours, theirs in pairs)
    return found


def _of(rows: Sequence[dict[str, Any]], queries: int, way: str) -> dict[str, Any]:
    return next(row for row in rows if row["queries"] == queries and row["way"] == way)


def _config(sizes: AdjustmentSizes) -> dict[str, Any]:
    return {
        **sizes._asdict(),
        "sigma": AdjustmentOptions().sigma,
        "costs": vars(MachinesSetup().costs),
        "offered_share": OFFERED_SHARE,
    }


def _all_claims(rows: RowDicts) -> dict[str, float]:
    moved = gr_ratios(rows, "same_cells_mb", "bytes") | gr_ratios(rows, "migrated_mb", "bytes", "_in_runs")
    return moved | gr_ratios(rows, "choose_ms", "time")


def _time_claims(rows: RowDicts) -> dict[str, float]:
    return gr_ratios(rows, "same_cells_mb", "bytes") | {
        "gr_choose_ms": max(row["choose_ms"] for row in rows if row["way"] == "gr"),
        "dp_refused": float(sum(row["choose_ms"] is None for row in rows if row["way"] == "dp")),
    }


def _cost_claims(rows: RowDicts) -> dict[str, float]:
    moved = gr_ratios(rows, "same_cells_mb", "bytes") | gr_ratios(rows, "migrated_mb", "bytes", "_in_runs")
    return moved | gr_ratios(rows, "migration_s", "time", "_in_runs")


def _latency_claims(rows: RowDicts) -> dict[str, float]:
    return {f"delayed_pct_{row['way']}_{row['queries']}": 100.0 - row["below_100ms_pct"] for row in rows}


@dataclass(frozen=True)
class MigrationFigure(FigureRow):
    title: str
    queries: tuple[int, ...]
    ways: tuple[str, ...]
    columns: dict[str, str]
    """The panels: columns, and what their axes are called."""
    summarise: Callable[[RowDicts], dict[str, float]]
    chooses_only: bool = False
    """Whether only the choice is timed, and nothing is run."""


LATENCY = {"below_100ms_pct": "below 100 ms (%)", "to_1s_pct": "100 ms to 1 s (%)", "above_1s_pct": "above 1 s (%)"}
COST = {"migrated_mb": "migrated at once (MB)", "migration_s": "migration (s)"}
TIME = {"choose_ms": "choosing cells (ms)"}
ONE, LARGE = (1_000_000,), (5_000_000, 10_000_000)
FIGURES = {
    "ps2-fig12": MigrationFigure(
        "PS2Stream Fig. 12",
        "choosing cells to migrate by DP, GR, SI and RA at 1 M queries: time, bytes, delayed tuples",
        "1 M queries",
        ONE,
        tuple(WAYS),
        TIME | COST | LATENCY,
        _all_claims,
    ),
    "ps2-fig13": MigrationFigure(
        "PS2Stream Fig. 13",
        "the time to choose cells to migrate at 5 M and 10 M queries, for GR, SI and RA",
        "Choosing cells",
        LARGE,
        tuple(WAYS),
        TIME,
        _time_claims,
        chooses_only=True,
    ),
    "ps2-fig14": MigrationFigure(
        "PS2Stream Fig. 14",
        "how much migrates at once, and how long it takes, at 5 M and 10 M queries, for GR, SI and RA",
        "Migration",
        LARGE,
        REST,
        COST,
        _cost_claims,
    ),
    "ps2-fig15": MigrationFigure(
        "PS2Stream Fig. 15",
        "tuples below 100 ms, up to 1 s and above while cells migrate, at 5 M and 10 M queries",
        "Latency while cells migrate",
        LARGE,
        REST,
        LATENCY,
        _latency_claims,
    ),
}


def measure(shown: MigrationFigure, sizes: AdjustmentSizes, seed: int, report: Progress) -> Result:
    if shown.chooses_only:
        rows = time_choices(shown.queries, sizes, seed, report)
    else:
        rows = run_ways(shown.queries, shown.ways, sizes, seed, report)
    return Result(rows, shown.summarise(rows), _config(sizes))


def plot(shown: MigrationFigure, result: Result) -> "Figure":
    """A panel for each column, a group of bars for each number of queries, a bar for each way."""
    drawn, panels = figure(len(shown.columns), width_in=4.6)
    rows = result.rows
    ways = list(dict.fromkeys(row["way"] for row in rows))
    mus = list(dict.fromkeys(row["queries"] for row in rows))
    for axes, (column, label) in zip(panels, shown.columns.items(), strict=True):
        for i, way in enumerate(ways):
            values = [_of(rows, mu, way)[column] or 0.0 for mu in mus]
            axes.bar(np.arange(len(mus)) + i / (len(ways) + 1), values, 1 / (len(ways) + 1), label=way.upper())
        axes.set_xticks(np.arange(len(mus)) + 0.3, [f"{mu // 1_000_000} M" for mu in mus])
        axes.set(xlabel="queries", ylabel=label)
        if shown.chooses_only:
            axes.set_yscale("log")
    panels[0].set_title(f"{shown.title} ({shown.where})")
    panels[-1].legend()
    return drawn
