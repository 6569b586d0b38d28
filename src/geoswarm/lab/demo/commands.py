"""`geoswarm demo`, as the command line finds it (`service/cli/late_commands.py`).

What is heavy is imported when the demo runs, so that `geoswarm --help` comes at once.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="How long the stream runs; 30, or less on a slow machine.")
    ] = None,
    subscriptions: Annotated[int, typer.Option(min=1, help="Standing rectangles.")] = 500_000,
    executors: Annotated[int, typer.Option(min=1, max=256, help="Logical machines.")] = 16,
    seed: Annotated[int, typer.Option(help="Another seed, another day.")] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Keep the state here; else it is thrown away.")] = None,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo-report"),
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable, nothing else on stdout.")] = False,
) -> None:
    """Run the engine on a generated workload, live in the terminal, and write a report with pictures."""
    from geoswarm.lab.demo.scenario import DemoScenario, run_demo

    scenario = DemoScenario(
        seconds=seconds, subscriptions=subscriptions, executors=executors, seed=seed, checkpoint=checkpoint
    )
    story = run_demo(scenario, report, Console(quiet=as_json))
    if as_json:
        print(json.dumps(story.totals.to_json()))
