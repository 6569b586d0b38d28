"""The program `geoswarm` without its commands: how it prints, how errors end it, and options that commands share.

An error is one red line on stderr and exit code 2; `--debug` shows the traceback. Commands are in `commands.py` and
beside it in `checkpoint_commands.py`, `past_commands.py`, `subscription_commands.py` and `draw_command.py`; those of
the lab and of other packages come from `late_commands.py`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from geoswarm.errors import GeoswarmError, SettingsError
from geoswarm.service.cli.late_commands import LateGroup
from geoswarm.version import __version__

ERROR, CRASH = 2, 1
"""Exit codes: for an error that the user can mend, and for one that should not happen."""

CAUSE = re.compile(r"(?:Caused by: )?[\w.$]*(?:Error|Exception): \S")
CAUSE_CHARACTERS_MAX = 300

out, err = Console(), Console(stderr=True)


class _Program(LateGroup):
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
            message = _one_line(str(error) or "no message")
            _complain(f"{type(error).__name__}: {message} (`geoswarm --debug ...` shows where)")
            raise typer.Exit(CRASH) from None


def _complain(message: str) -> None:
    for line in message.splitlines():
        err.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True, highlight=False)


def _one_line(message: str) -> str:
    """The first line of a message and the last cause in it: Spark's messages contain whole stack traces."""
    first, *rest = message.strip().splitlines()
    causes = [line.strip() for line in rest if CAUSE.match(line.strip())]
    return f"{first} ({causes[-1][:CAUSE_CHARACTERS_MAX]})" if causes else first


app = typer.Typer(
    cls=_Program,
    help="Millions of standing geo-subscriptions meet a stream on Spark, and every match goes out once.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable, nothing else on stdout.")]


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


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True, highlight=False, markup=False)
