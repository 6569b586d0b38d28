"""Run one benchmark, and write down what it measured. `catalogue.py` finds them, and says what a benchmark is.

Measures nothing by itself. A benchmark's file has

    SIZES = {Scale.SMALL: PipelineSizes(...), Scale.FULL: PipelineSizes(...)}
    def measure(sizes: PipelineSizes, seed: int, report: Progress) -> Result
    def plot(result: Result) -> Figure                                          if it draws (see `plots.py`)

and, where it is a table of figures, `measure(row, sizes, seed, report)` and `plot(row, result)`; rows that need sizes
of their own have them as `row.sizes`. The result becomes one JSON object with `name`, `config`, `machine`, `rows` and
`summary`, which has one number per claim, under the same keys at both scales.
"""

import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.bench.kit.catalogue import PACKAGE, Benchmark, find
from geoswarm.lab.bench.kit.machine import machine
from geoswarm.lab.bench.kit.plots import style
from geoswarm.run.shown_rows import show_rows


class Scale(StrEnum):
    SMALL = "small"
    """The benchmark ends within two minutes on two quiet cores, most within one."""
    FULL = "full"
    """The benchmark is as large as the paper's, or as the machine allows."""


Progress = Callable[[str], None]
"""Called with what is being measured now."""


@dataclass(frozen=True)
class Result:
    rows: list[dict[str, Any]]
    """One per point of the figure; the keys are the columns of the table."""
    summary: dict[str, float]
    """One number per claim."""
    config: dict[str, Any] = field(default_factory=dict)


def run_benchmark(
    name: str,
    scale: Scale = Scale.SMALL,
    seed: int = 0,
    json_path: Path | None = None,
    plot_path: Path | None = None,
    quiet: bool = False,
    *,
    package: str = PACKAGE,
) -> dict[str, Any]:
    """Run one benchmark; print its tables, write its files, and return what the JSON file holds."""
    found = find(name, package)
    # A run may take an hour: what would fail after it is refused before it.
    for path in (json_path, plot_path):
        if path is not None and not path.parent.is_dir():
            raise SettingsError(f"cannot write {path.name}: the folder {path.parent} does not exist, create it first")
    if plot_path is not None and not found.draws:
        raise SettingsError(f"benchmark {name} draws no figure: leave --plot out")

    module, row = load(found)
    console = Console(stderr=True, quiet=quiet)
    with console.status(f"{name}: starting") as status:
        sizes = sizes_of(found)[scale]
        result: Result = module.measure(*row, sizes, seed, lambda what: status.update(f"{name}: {what}"))
    record = _record(name, scale, seed, result)
    if not quiet:
        _print(record, Console())
    if json_path is not None:
        json_path.write_text(json.dumps(record, indent=2) + "\n")
    if plot_path is not None:
        with style():
            module.plot(*row, result).savefig(plot_path, format="png")
    return record


def load(benchmark: Benchmark) -> tuple[Any, tuple[Any, ...]]:
    """The module, and the row of its table, which `measure` and `plot` are given first; () if it has no table."""
    module = importlib.import_module(benchmark.module)
    return module, (module.FIGURES[benchmark.name],) if benchmark.is_row else ()


def sizes_of(benchmark: Benchmark) -> Mapping[Scale, Any]:
    """The sizes at both scales: those of the row, if it has its own, and else those of the file."""
    module, row = load(benchmark)
    own: Mapping[Scale, Any] | None = getattr(row[0], "sizes", None) if row else None
    return module.SIZES if own is None else own


def interleave(
    contestants: Mapping[str, Callable[[], float]], repeats: int, rng: np.random.Generator
) -> dict[str, list[float]]:
    """Measure all contestants in turn, `repeats` times, each turn in a new order.

    The i-th figures of two contestants were taken close together, so a machine that slows down for a while
    slows both, and their `ratio` holds.
    """
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for i in rng.permutation(len(contestants)):
            name = list(contestants)[i]
            measured[name].append(float(contestants[name]()))
    return measured


def best(durations_s: Sequence[float]) -> float:
    """The shortest: what the machine can do when nothing disturbs it."""
    return min(durations_s)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio(values: Sequence[float], baseline: Sequence[float]) -> float:
    """The median of the turn-by-turn ratios of two interleaved contestants."""
    return statistics.median(v / b for v, b in zip(values, baseline, strict=True))


def cpu_s() -> float:
    """CPU time of this thread so far; unlike the wall clock, it does not count what the neighbours do."""
    return time.thread_time()


def _record(name: str, scale: Scale, seed: int, result: Result) -> dict[str, Any]:
    if not result.rows:
        raise InputError(f"benchmark {name} returned no rows: it measured nothing, so nothing was written")
    unusable = [key for key, value in result.summary.items() if not math.isfinite(value)]
    if unusable:
        raise InputError(f"benchmark {name} has no finite figure for {', '.join(unusable)}: nothing was written")
    record = {
        "name": name,
        "config": {"scale": str(scale), "seed": seed, **result.config},
        "machine": machine(),
        "rows": result.rows,
        "summary": {key: float(value) for key, value in result.summary.items()},
    }
    return _plain(record)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """The value as JSON has it: numpy's numbers become Python's, and what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _print(record: Mapping[str, Any], console: Console) -> None:
    columns = list(dict.fromkeys(key for row in record["rows"] for key in row))
    texts = {column: pa.array([_text(row.get(column)) for row in record["rows"]], pa.string()) for column in columns}
    show_rows(console, pa.table(texts), f"{record['name']} ({record['config']['scale']})")
    summary = Table("key", "value", title="summary", title_justify="left")
    summary.columns[1].justify = "right"
    for key, value in record["summary"].items():
        summary.add_row(key, _text(value))
    console.print(summary)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
