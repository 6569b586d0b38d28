"""The command line: `geoswarm init | run | demo | join | bench | doctor | dead-letters | explain | users | ...`.

Prints what other files found out; does nothing by itself. Commands of the lab, such as `demo` and `bench`, and of other
packages come from `late_commands.py`. Spark is not imported before a command needs it, so that help and errors come at
once. What went wrong is one red line on stderr and exit code 2; `--debug` shows where.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geoswarm.errors import GeoswarmError, SettingsError
from geoswarm.service.cli.late_commands import LateGroup
from geoswarm.version import __version__

ERROR, CRASH = 2, 1
"""Exit codes: something the user can mend; something that should not happen."""

CAUSE = re.compile(r"(?:Caused by: )?[\w.$]*(?:Error|Exception): \S")
CAUSE_CHARACTERS_MAX = 300

out, err = Console(), Console(stderr=True)


class _Commands(LateGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (GeoswarmError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            _complain(str(error) if isinstance(error, SettingsError) else _one_line(str(error)))
            raise typer.Exit(ERROR) from None
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if ctx.params.get("debug") or type(error).__module__.startswith("typer."):
                raise
            say = _one_line(str(error) or "no message")
            _complain(f"{type(error).__name__}: {say} (`geoswarm --debug ...` shows where)")
            raise typer.Exit(CRASH) from None


def _complain(message: str) -> None:
    for line in message.splitlines():
        err.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True, highlight=False)


def _one_line(message: str) -> str:
    """Spark tells a failure with all its stack traces: keep how it opens, and the last cause that it names."""
    first, *rest = message.strip().splitlines()
    causes = [line.strip() for line in rest if CAUSE.match(line.strip())]
    return f"{first} ({causes[-1][:CAUSE_CHARACTERS_MAX]})" if causes else first


app = typer.Typer(
    cls=_Commands,
    help="Millions of standing geo-subscriptions meet a stream on Spark, and every match goes out once.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable, nothing else on stdout.")]
CheckpointFolder = Annotated[str, typer.Argument(help="The folder that an engine uses, or used.")]


@app.callback(invoke_without_command=True)
def main(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    if version:
        print(f"geoswarm {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where the files go; made if it does not exist.")] = Path("pipeline"),
    example: Annotated[str, typer.Option(help="Which example: start has events and subscriptions with it.")] = "start",
) -> None:
    """Write a settings file that runs, with its folders. Overwrites nothing."""
    from geoswarm.service.init import describe, write_example

    _say(describe(write_example(folder, example)))


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
    from geoswarm.service.strategies import found_strategies, strategies_table

    if as_json:
        print(json.dumps(found_strategies()))
    else:
        out.print(strategies_table(found_strategies()))


@app.command()
def doctor(
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark once; about 10 s.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the checkpoint will be.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what this machine has and lacks, and what to do about it. Exit code 1 if something would fail."""
    from geoswarm.service.doctor import examine, render

    findings = examine(folder, start_spark=spark)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        out.print(render(findings))
    if any(finding.ok == "fail" for finding in findings):
        raise typer.Exit(1)


@app.command()
def key(new_file: Annotated[Path, typer.Argument(help="Where the key goes; must not exist.")]) -> None:
    """Make a key to encrypt with, in a file that only you can read. Who loses it loses its checkpoints."""
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
    master: Annotated[str, typer.Option(help="Spark's.")] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Say which point, or area, lies in which region, once and for all of them: a spatial join on Spark."""
    from geoswarm.service.cli.join_files import join_files

    told = join_files(
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
        print(json.dumps(told))
    else:
        out.print(
            f"{told['pairs']:,} pairs of {told['points']:,} points and {told['regions']:,} regions, "
            f"{told['refused']:,} of which could not be used, in {told['seconds']:.1f} s: {output}"
        )


@app.command("dead-letters")
def dead_letters(
    checkpoint: CheckpointFolder,
    last: Annotated[int, typer.Option(min=0, help="How many of the newest rows to show.")] = 10,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the rows that were turned away: how many for which reason, then the newest."""
    from geoswarm.service.watch import dead_rows

    rows = dead_rows(checkpoint, reason)
    counts = Counter((row["kind"], row["reason"]) for row in rows)
    newest = rows[-last:] if last else []
    if as_json:
        by_reason = [{"kind": k, "reason": r, "count": n} for (k, r), n in counts.most_common()]
        print(json.dumps({"count": len(rows), "by_reason": by_reason, "rows": newest}))
        return
    if not rows:
        out.print("no dead letters" + (f" with reason {reason}" if reason else ""))
        return
    table = Table("kind", "reason", title=f"{len(rows):,} dead letters", title_justify="left")
    table.add_column("count", justify="right")
    for (kind, why), count in counts.most_common():
        table.add_row(kind, why, f"{count:,}")
    out.print(table)
    for row in reversed(newest):
        batch = "outside any batch" if row["batch_id"] < 0 else f"batch {row['batch_id']}"
        out.print(f"[bold]{batch}[/], {row['kind']}, {escape(row['detail'])}", soft_wrap=True, highlight=False)
        out.print(f"  [dim]{escape(row['row'])}[/]", soft_wrap=True, highlight=False)


@app.command()
def explain(
    checkpoint: CheckpointFolder,
    plan: Annotated[int | None, typer.Argument(help="The epoch of a plan; without it, every round is told.")] = None,
    operator: Annotated[str | None, typer.Option(help="A keyed operator: tell how its keys were dealt out.")] = None,
    user: Annotated[str | None, typer.Option(help="A user: tell what Guard holds against them, and why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how a plan came about: what was measured, decided and refused, round by round. Or why a user is blocked."""
    from geoswarm.service.explain import key_rounds, key_sentences, rounds, sentences
    from geoswarm.service.watch import existing
    from geoswarm.store.journal.writer import entry_json

    if plan is not None and operator is not None:
        raise SettingsError("a PLAN is one of places, an --operator has plans of its own: give one of the two")
    storage = existing(checkpoint)
    if user is not None:
        if plan is not None or operator is not None:
            raise SettingsError("a --user has neither a PLAN nor an --operator: give one of the three")
        from geoswarm.service.users import user_record, user_sentences

        record = user_record(storage, user)
        _say([json.dumps(record.to_json())] if as_json else user_sentences(record))
        return
    entries = rounds(storage, plan) if operator is None else []
    key_entries = key_rounds(storage, operator) if operator is not None else []
    if as_json:
        print(json.dumps([entry_json(entry) for entry in (*entries, *key_entries)]))
        return
    _say(sentences(entries) if operator is None else key_sentences(key_entries))
    if not entries and operator is None:
        out.print("no round has ended yet: the first plan is in force")


@app.command()
def status(checkpoint: CheckpointFolder, as_json: AsJson = False) -> None:
    """Say what a checkpoint holds and what its engine has done; it may be running."""
    from geoswarm.service.cli.run_view import status_table
    from geoswarm.service.watch import status as status_of

    found = status_of(checkpoint)
    if as_json:
        print(json.dumps(found))
    else:
        out.print(status_table(found))


@app.command()
def users(
    checkpoint: CheckpointFolder,
    most: Annotated[int, typer.Option(min=0, help="How many of those who have or ask for most to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List users: who is blocked, suspected or exempt, and who has or asks for most. The engine may be running."""
    from geoswarm.service.users import overview, users_table
    from geoswarm.service.watch import existing

    found = overview(existing(checkpoint), most)
    if as_json:
        print(json.dumps(found))
    else:
        out.print(users_table(found))
        _say(found["notes"])


User = Annotated[str, typer.Argument(help="As operations name the user.")]


@app.command()
def block(
    checkpoint: CheckpointFolder,
    user: User,
    why: Annotated[str, typer.Option(help="For the user's dead letters, and for whoever asks later.")] = "",
    remove: Annotated[str, typer.Option(help="Of the user's standing queries: nothing, recent or all.")] = "nothing",
) -> None:
    """Refuse what a user asks for, from the next batch on."""
    _command(checkpoint, "block", user, why, remove)


@app.command()
def unblock(checkpoint: CheckpointFolder, user: User) -> None:
    """Let a user in again, and forget what was held against them."""
    _command(checkpoint, "unblock", user)


@app.command()
def exempt(
    checkpoint: CheckpointFolder,
    user: User,
    undo: Annotated[bool, typer.Option("--undo", help="The user is like all others again.")] = False,
) -> None:
    """Never block a user, and set no limits."""
    _command(checkpoint, "unexempt" if undo else "exempt", user)


def _command(checkpoint: str, command: str, user: str, why: str = "", remove: str = "nothing") -> None:
    from geoswarm.service.users import give
    from geoswarm.service.watch import existing

    _say([give(existing(checkpoint), command, user, why, remove)])


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True, highlight=False, markup=False)
