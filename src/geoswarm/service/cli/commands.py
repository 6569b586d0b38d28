"""The command line: `geoswarm init | run | demo | join | bench | doctor | dead-letters | explain | users | ...`.

Commands print what other files found out. Here are those that start something or look at the machine; commands about a
checkpoint are in `checkpoint_commands.py`, `past_commands.py` and `subscription_commands.py`. Spark is not imported
before a command needs it, so that help and errors come at once.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from geoswarm.service.cli import checkpoint_commands, draw_command, past_commands, subscription_commands
from geoswarm.service.cli.program import AsJson, err, out, print_lines
from geoswarm.service.cli.program import app as app


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where the files go; made if it does not exist.")] = Path("pipeline"),
    example: Annotated[str, typer.Option(help="Which example: start has events and subscriptions with it.")] = "start",
) -> None:
    """Write a settings file that runs, with its folders. Overwrites nothing."""
    from geoswarm.service.init import describe, write_example

    print_lines(describe(write_example(folder, example)))


@app.command()
def run(
    settings_file: Annotated[Path, typer.Argument(help="A pipeline in TOML; see examples/.")],
    local: Annotated[bool, typer.Option("--local", help="In this process, without Spark and without Java.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until it ends or Ctrl-C stops it; start again and it goes on where it was."""
    from geoswarm.service.cli.run_view import run_pipeline
    from geoswarm.service.cli.settings_file import read_settings

    run_pipeline(read_settings(settings_file), out, err, local=local, as_json=as_json)


@app.command()
def strategies(as_json: AsJson = False) -> None:
    """List what can balance a stream: strategies and planners of keys, with their parameters and defaults."""
    from geoswarm.service.strategies import list_strategies, strategies_table

    if as_json:
        print(json.dumps(list_strategies()))
    else:
        out.print(strategies_table(list_strategies()))


@app.command()
def doctor(
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark once; about 10 s.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the checkpoint will be.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what this machine has and lacks, and what to do about it. Exit code 1 if something would fail."""
    from geoswarm.service.doctor import examine, render

    findings = examine(folder, start_spark=spark)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        out.print(render(findings))
    if any(finding.ok == "fail" for finding in findings):
        raise typer.Exit(1)


@app.command()
def warm(
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Also what makes Spark start faster.")] = True,
) -> None:
    """Compile all kernels now, once for this installation: for images, and for a first start without waiting."""
    from geoswarm.service.warm_up import warm_up

    warm_up(out, spark=spark)


@app.command()
def key(new_file: Annotated[Path, typer.Argument(help="Where the key goes; must not exist.")]) -> None:
    """Make a key to encrypt with, in a file that only you can read. Without the key, its checkpoints are lost."""
    from geoswarm.store.key_source import KEY_FILE, make_key_file

    made = make_key_file(new_file)
    out.print(
        f"key {made.id} is in {new_file}: keep a copy elsewhere, and set {KEY_FILE}={new_file.absolute()}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


@app.command()
def join(
    points: Annotated[Path, typer.Argument(help="A file or folder of points: Parquet, CSV with a header, JSON lines.")],
    regions: Annotated[Path, typer.Argument(help="A file of regions: GeoParquet or GeoJSON.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the pairs, as Parquet; must not exist.")],
    x: Annotated[str, typer.Option(help="The column with the longitude.")] = "x",
    y: Annotated[str, typer.Option(help="The column with the latitude.")] = "y",
    geometry: Annotated[str | None, typer.Option(help="A column with areas, instead of x and y.")] = None,
    predicate: Annotated[
        str, typer.Option(help="How a region lies to a point or area: intersects, contains, within or covers.")
    ] = "intersects",
    region_id: Annotated[str | None, typer.Option("--id", help="The column or property with a region's id.")] = None,
    master: Annotated[str, typer.Option(help="The address of Spark's master.")] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Find which point, or area, lies in which region: a spatial join on Spark."""
    from geoswarm.service.cli.join_files import join_files

    result = join_files(
        points,
        regions,
        output,
        x=x,
        y=y,
        geometry=geometry,
        predicate=predicate,
        region_id=region_id,
        master=master,
    )
    if as_json:
        print(json.dumps(result))
    else:
        out.print(
            f"{result['pairs']:,} pairs of {result['points']:,} points and {result['regions']:,} regions, "
            f"{result['refused']:,} of which could not be used, in {result['seconds']:.1f} s: {output}"
        )


# help lists them after the others
for function in (
    *checkpoint_commands.COMMANDS,
    *past_commands.COMMANDS,
    *subscription_commands.COMMANDS,
    *draw_command.COMMANDS,
):
    app.command(function.__name__.replace("_", "-"))(function)
