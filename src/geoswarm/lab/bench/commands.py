"""`geoswarm bench`, as the command line finds it (`service/cli/late_commands.py`).

What is heavy is imported when a benchmark runs, so that `geoswarm --help` comes at once.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geoswarm.errors import SettingsError

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="A benchmark, or `list`.")] = "list",
    scale: Annotated[str, typer.Option(help="small (within a minute) or full.")] = "small",
    seed: Annotated[int, typer.Option(help="The workload's seed.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure here, as PNG.")] = None,
) -> None:
    """Run one benchmark, or list them all."""
    from geoswarm.lab.bench.kit import harness

    if name == "list":
        table = Table("benchmark", "what it measures", box=None)
        for each in harness.bench_names():
            table.add_row(f"[bold]{each}[/]", escape(harness.describe(each)))
        Console().print(table)
        return
    if scale not in list(harness.Scale):
        raise SettingsError(f"no scale is called {scale!r}: say {' or '.join(harness.Scale)}")
    harness.run_benchmark(name, harness.Scale(scale), seed, json_file, plot)
