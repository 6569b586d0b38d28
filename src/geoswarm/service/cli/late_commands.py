"""Commands of rooms above this one, or of other packages: found by name, and loaded when they are used.

The lab is above the service, so nothing here imports it. A command is an entry point of the group `geoswarm.commands`:
a name, and where its typer app or function is. Those that come with geoswarm are also in `SHIPPED`, so that they work
in a source tree that was not installed. A module that is named here should import what is heavy inside its functions,
because help loads all of them.

    [project.entry-points."geoswarm.commands"]
    bench = "geoswarm.lab.bench.commands:app"
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from geoswarm.errors import SettingsError

if TYPE_CHECKING:
    from typer._click import Command, Context

GROUP = "geoswarm.commands"
SHIPPED = {
    "demo": "geoswarm.lab.demo.commands:app",
    "bench": "geoswarm.lab.bench.commands:app",
}
"""The same as in pyproject.toml; a test compares them."""
COMPLETION = ("install_completion", "show_completion")
"""Options that typer adds to every program; they are removed from a command of another program."""


@dataclass(frozen=True)
class LateCommands:
    """The places that commands are loaded from, by name."""

    places: Mapping[str, EntryPoint]

    @classmethod
    def of(cls, group: str, shipped: Mapping[str, str]) -> "LateCommands":
        """The commands that installed packages declare; another package cannot replace a shipped command."""
        declared = {entry.name: entry for entry in entry_points(group=group)}
        return cls(declared | {name: EntryPoint(name, value, group) for name, value in shipped.items()})

    def load(self, name: str) -> "Command":
        """The command, or one that reports why it cannot be used, so that other commands still work."""
        place = self.places[name]
        try:
            return _command(name, place.load())
        except Exception as error:
            return _command(name, _refusal(name, place.value, error))


class LateGroup(TyperGroup):
    """A typer group that also has late commands."""

    @cached_property
    def late(self) -> LateCommands:
        return LateCommands.of(GROUP, SHIPPED)

    def list_commands(self, ctx: "Context") -> list[str]:
        own = super().list_commands(ctx)
        return own + [name for name in self.late.places if name not in own]

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        own = super().get_command(ctx, cmd_name)
        return self.late.load(cmd_name) if own is None and cmd_name in self.late.places else own

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        if self.get_command(ctx, args[0]) is None:  # typer suggests names like a wrong one: add all names
            for name in self.late.places:
                self.commands.setdefault(name, self.late.load(name))
        return super().resolve_command(ctx, args)


def _command(name: str, found: Any) -> "Command":
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer()
        app.command(name)(found)
    command = typer.main.get_command(app)
    command.name = name
    command.params = [param for param in command.params if param.name not in COMPLETION]
    return command


def _refusal(name: str, place: str, error: Exception) -> Callable[[], None]:
    def refuse() -> None:
        raise SettingsError(
            f"command {name} cannot be loaded from {place} ({type(error).__name__}: {error}): "
            "mend or remove the package that declares it"
        )

    refuse.__doc__ = f"Cannot be loaded from {place}."
    return refuse
