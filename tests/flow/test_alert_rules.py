"""`confirm` and `cooldown` are read as they are meant, or refused with what to write; the docs say the same."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoswarm
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.alert_rules import read_confirm, read_cooldown, show_confirm, show_cooldown
from geoswarm.core.subscriptions.attributes import (
    CONFIRM,
    COOLDOWN,
    EXIT_BUFFER,
    OPERATION,
    operation_table,
    registration,
)
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations, validate_operations

WORLD = Grid(-180.0, -90.0, 180.0, 90.0, columns=10, rows=10)
RUNNING = Path(geoswarm.__file__).parents[2] / "docs/running.md"
BOX = (0.0, 0.0, 1.0, 1.0)


def judge(*, world: Grid = WORLD, **said: Any) -> list[dict[str, Any]]:
    dead = DeadLetters("operation", 0)
    rows = conform_operations(operation_table([registration(7, BOX, **said)])).to_batches()[0]
    validate_operations(rows, world, 0, dead)
    letters: list[dict[str, Any]] = dead.table().to_pylist()
    return letters


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        ("1 fix", 1, "1 fix"),
        ("3 fixes", 3, "3 fixes"),
        (" 1000fixes ", 1000, "1000 fixes"),
        ("20 s", -20_000_000, "20 s"),
        ("0.25 min", -15_000_000, "15 s"),
        ("0.0000015 s", -2, "0.000002 s"),
        ("1 day", -86_400_000_000, "86400 s"),
        ("2 Hours", -7_200_000_000, "7200 s"),
    ],
)
def test_a_confirm_is_fixes_or_a_time(text: str, code: int, shown: str) -> None:
    assert read_confirm(text) == code
    assert show_confirm(code) == shown
    assert judge(on="enter", confirm=text) == []


def test_a_cooldown_is_a_time() -> None:
    assert read_cooldown("1.5 min") == 90_000_000
    assert show_cooldown(90_000_000) == "90 s"
    assert show_cooldown(1_500_000) == "1.5 s"
    assert show_cooldown(0) is show_confirm(0) is None
    assert judge(on="dwell(5)", cooldown="30 days") == []


def test_what_is_shown_registers_the_same_again() -> None:
    for seconds in (0.000001, 0.1, 1.5, 86_399.999999):
        assert read_confirm(show_confirm(-round(seconds * 1e6)) or "") == -round(seconds * 1e6)


def _rows_of_the_docs() -> list[tuple[str, str, str]]:
    """The column, its value and why it is refused, of each row of the table."""
    found = re.findall(r'^\| `(confirm|cooldown) = "([^"]*)"`[^|]*\| (.*) \|$', RUNNING.read_text(), re.MULTILINE)
    assert len(found) == 13
    return found


@pytest.mark.parametrize(("name", "text", "why"), _rows_of_the_docs())
def test_bad_rules_are_refused_as_the_docs_say(name: str, text: str, why: str) -> None:
    alone = "is on inside" in why
    asked: dict[str, Any] = {name: text, "on": "exit"}
    if alone:
        asked["on"] = "inside" if name == "cooldown" else None
    (letter,) = judge(**asked)
    assert letter["reason"] == name
    assert letter["detail"] == (why if alone else f"{name} of subscription 7 is {text!r}: {why}")


def _bad_buffers_of_the_docs() -> list[tuple[float, str, str]]:
    found = re.findall(r"^\| `exit_buffer_m = (\S+)`([^|]*)\| (.*) \|$", RUNNING.read_text(), re.MULTILINE)
    assert len(found) == 6
    return [(float(metres), where, why) for metres, where, why in found]


@pytest.mark.parametrize(("metres", "where", "why"), _bad_buffers_of_the_docs())
def test_bad_buffers_are_refused_as_the_docs_say(metres: float, where: str, why: str) -> None:
    world = Grid(0.0, 0.0, 5000.0, 5000.0, columns=10, rows=10) if "degrees" in where else WORLD
    (letter,) = judge(world=world, on=None if "without" in where else "exit", exit_buffer_m=metres)
    assert (letter["reason"], letter["detail"]) == ("exit_buffer", why)


def test_a_buffer_is_kept_to_the_millimetre() -> None:
    dead = DeadLetters("operation", 0)
    rows = [registration(7, BOX, on="exit", exit_buffer_m=metres) for metres in (0.001, 12.3456, 100_000.0, None)]
    validated = validate_operations(conform_operations(operation_table(rows)).to_batches()[0], WORLD, 0, dead)
    assert not len(dead)
    assert validated[EXIT_BUFFER].tolist() == [1, 12_346, 100_000_000, 0]
    assert EXIT_BUFFER.show(validated[EXIT_BUFFER])["exit_buffer_m"].to_pylist() == [0.001, 12.346, 100_000.0, None]


@pytest.mark.parametrize("text", ["", " ", "fixes", "s 3", "3", "3 fixes!", "nan s", "1e3 s", "٣ s", "3 s 4", "9" * 16])
def test_nonsense_is_refused_at_its_character(text: str) -> None:
    (letter,) = judge(on="enter", confirm=text)
    assert letter["reason"] == "confirm"
    assert "at character " in letter["detail"]
    assert len(judge(on="enter", cooldown=text)) == 1


def test_a_rule_that_is_not_even_text_is_a_dead_letter() -> None:
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    batch = conform_operations(operation_table([registration(7, BOX, on="enter")])).to_batches()[0]
    for name in ("confirm", "cooldown"):
        dead = DeadLetters("operation", 0)
        validate_operations(batch.set_column(OPERATION.get_field_index(name), name, column), WORLD, 0, dead)
        assert dead.table()["reason"].to_pylist() == [name]


def test_only_the_rows_that_are_wrong_are_refused() -> None:
    rows = [
        registration(1, BOX, on="enter", confirm="2 fixes", cooldown="1 s"),
        registration(2, BOX, on="enter", confirm="none"),
        registration(3, BOX),
        registration(4, BOX, on="exit", confirm="5 s"),
        {"op": "cancel", "sub_id": 5, "confirm": "whatever"},
    ]
    dead = DeadLetters("operation", 0)
    validated = validate_operations(conform_operations(operation_table(rows)).to_batches()[0], WORLD, 0, dead)
    assert validated.fit.tolist() == [True, False, True, True, True]
    assert validated[CONFIRM].tolist()[:4] == [2, 0, 0, -5_000_000]
    assert validated[COOLDOWN].tolist()[:4] == [1_000_000, 0, 0, 0]
