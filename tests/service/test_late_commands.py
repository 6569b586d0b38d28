"""Commands of rooms above and of other packages are found by name."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

from geoswarm.service.cli import app
from geoswarm.service.cli.late_commands import GROUP, SHIPPED, LateCommands, LateGroup

runner = CliRunner()
ROOT = Path(__file__).parents[2]


def place(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


class Some(LateGroup):
    late: ClassVar[LateCommands] = LateCommands(
        {
            "greet": place("greet", "test_late_commands:greet"),
            "away": place("away", "no.such.module:app"),
            "typo": place("typo", "test_late_commands:nothing"),
        }
    )


some = typer.Typer(cls=Some)


@some.command()
def stay() -> None:
    """Be there from the start."""
    print("here")


@some.callback()
def main() -> None: ...


def greet(name: str) -> None:
    """Say a word."""
    print(f"good day, {name}")


def test_what_is_shipped_is_what_the_package_declares() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert declared == SHIPPED


def test_a_function_of_another_package_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "test_late_commands", sys.modules[__name__])
    assert runner.invoke(some, ["greet", "sun"]).stdout == "good day, sun\n"


def test_a_command_that_cannot_be_loaded_says_so_and_breaks_no_other() -> None:
    shown = runner.invoke(some, ["--help"])
    assert shown.exit_code == 0
    assert "Cannot be loaded from no.such.module:app" in shown.stdout
    assert runner.invoke(some, ["stay"]).stdout == "here\n"
    refused = runner.invoke(some, ["away"])
    assert refused.exit_code != 0
    assert "no.such.module" in str(refused.exception)


def test_a_command_nearly_named_right_is_suggested() -> None:
    assert "'bench'" in runner.invoke(app, ["bnch"]).stderr


def test_help_lists_late_commands_without_loading_what_is_heavy() -> None:
    program = """
import sys
from typer.testing import CliRunner
from geoswarm.service.cli import app
shown = CliRunner().invoke(app, ["--help"]).stdout
assert "demo" in shown and "bench" in shown and "Cannot be loaded" not in shown, shown
assert not {"pyspark", "numba", "matplotlib", "pyarrow"} & set(sys.modules)
"""
    assert (
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}).returncode
        == 0
    )
