"""`geoswarm bench`: list the benchmarks by paper, or run one of them (`service/cli/late_commands.py` finds it).

Decides nothing: `kit/catalogue.py` finds them and `kit/harness.py` runs them.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geoswarm.errors import SettingsError

LIST = "list"
app = typer.Typer(add_completion=False)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark, or `list`.")] = LIST,
    scale: Annotated[str, typer.Option(help="small (within two minutes) or full.")] = "small",
    seed: Annotated[int, typer.Option(help="The workload's seed.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure here, as PNG.")] = None,
) -> None:
    """Run one benchmark, or list them all by paper."""
    from geoswarm.lab.bench.kit.harness import Scale, run_benchmark  # here: help comes at once

    if name == LIST:
        print_list(Console())
        return
    if scale not in list(Scale):
        raise SettingsError(f"no scale is called {scale!r}: say {' or '.join(Scale)}")
    with ending_in_order():
        run_benchmark(name, Scale(scale), seed, json_file, plot)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A benchmark that is stopped by SIGTERM, or by its terminal's end, leaves its blocks as after Ctrl-C: it ends the
    processes that it has started and removes the folders that it has made. Under nohup it goes on."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    stopping = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in stopping:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in stopping:
            signal.signal(each, signal.SIG_DFL)


def print_list(console: Console) -> None:
    """A heading for each paper, and a line for each of its benchmarks: its name, its figure, and what it measures."""
    from geoswarm.lab.bench.kit.catalogue import papers

    for paper in papers():
        console.print(f"\n[bold underline]{escape(paper.title)}[/]", highlight=False)
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="bold")
        has_figures = any(benchmark.where for benchmark in paper.benchmarks)
        if has_figures:
            table.add_column(no_wrap=True)
        table.add_column()
        for benchmark in paper.benchmarks:
            where = [benchmark.where] if has_figures else []
            table.add_row(*(escape(cell) for cell in (benchmark.name, *where, benchmark.sentence.rstrip("."))))
        console.print(table)
