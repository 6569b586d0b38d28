"""What operators do about users at the command line."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import SettingsError
from geoswarm.guard.limits import GuardSettings
from geoswarm.guard.rules import GuardRules
from geoswarm.service.cli import app
from geoswarm.service.cli.settings_file import read_settings
from geoswarm.store.checkpoint import Checkpoint

runner = CliRunner()
NOW_US = 1_700_000_000_000_000
BOX = {"xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}


def open_checkpoint(folder: str, guard: GuardRules | None) -> Checkpoint:
    return Checkpoint(folder, Contract(executors=4), Tuning(), guard=guard)


def output_of(*words: str, fails: bool = False) -> str:
    done = runner.invoke(app, list(words), env={"COLUMNS": "200"})
    assert done.exit_code == (2 if fails else 0), done.output
    return done.stderr if fails else done.stdout


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Ana has two subscriptions, Ben one."""
    folder = str(tmp_path / "state")
    held = open_checkpoint(folder, GuardRules())
    rows = [{"op": "register", "sub_id": i, "user": user, **BOX} for i, user in enumerate(("ana", "ana", "ben"))]
    held.submit(pa.Table.from_pylist(rows, schema=OPERATION))
    held.fold(NOW_US)
    held.close()
    return folder


def run_empty_batch(folder: str) -> None:
    held = open_checkpoint(folder, GuardRules())
    held.fold(NOW_US + 1_000_000)
    held.close()


def test_users_are_listed_with_what_they_have_and_who_is_blocked(checkpoint: str) -> None:
    output_of("block", checkpoint, "ben", "--why", "spam [see ticket 7]")
    output_of("exempt", checkpoint, "fleet")
    before: dict[str, Any] = json.loads(output_of("users", checkpoint, "--json"))
    assert before["notes"] == ["waits for the next batch: block ben", "waits for the next batch: exempt fleet"]
    run_empty_batch(checkpoint)
    found = {row["user"]: row for row in json.loads(output_of("users", checkpoint, "--json"))["users"]}
    assert {user: (row["state"], row["subscriptions"]) for user, row in found.items()} == {
        "ben": ("blocked", 1),
        "fleet": ("exempt", 0),
        "ana": ("", 2),
    }
    assert (found["ana"]["asked_lately"], found["ben"]["why"]) == (2.0, "spam [see ticket 7]")
    shown = output_of("users", checkpoint)
    assert "2 users have live subscriptions" in shown
    assert "spam [see ticket 7]" in shown
    output_of("unblock", checkpoint, "ben")
    output_of("exempt", checkpoint, "fleet", "--undo")
    run_empty_batch(checkpoint)
    assert {row["state"] for row in json.loads(output_of("users", checkpoint, "--json"))["users"]} == {""}


def test_a_block_by_hand_is_explained_and_may_remove_what_the_user_has(checkpoint: str) -> None:
    assert "the next batch takes it in" in output_of("block", checkpoint, "ana", "--why", "spam", "--remove", "all")
    run_empty_batch(checkpoint)
    lines = output_of("explain", checkpoint, "--user", "ana").splitlines()
    assert "ana is blocked since" in lines[0]
    assert "(spam), and has 0 live subscriptions" in lines[0]
    assert lines[1].endswith("an operator gave the command block (spam)")
    assert json.loads(output_of("explain", checkpoint, "--user", "ana", "--json"))["state"] == "blocked"
    assert "neither blocked nor suspected" in output_of("explain", checkpoint, "--user", "nobody")


def test_what_cannot_be_meant_is_an_error_with_a_remedy(checkpoint: str, tmp_path: Path) -> None:
    assert "use one of nothing, recent, all" in output_of("block", checkpoint, "ana", "--remove", "half", fails=True)
    assert "needs a user" in output_of("block", checkpoint, "", fails=True)
    assert "is no checkpoint" in output_of("users", str(tmp_path / "nowhere"), fails=True)
    assert "give one of the three" in output_of("explain", checkpoint, "3", "--user", "ana", fails=True)


def test_where_guard_was_never_on_it_is_said(tmp_path: Path) -> None:
    folder = str(tmp_path / "plain")
    open_checkpoint(folder, None).close()
    assert "Guard has not been on" in output_of("users", folder)
    assert "Guard has not been on" in output_of("block", folder, "ana")
    assert "Guard has not been on" in output_of("explain", folder, "--user", "ana", fails=True)


def test_a_settings_file_turns_guard_on_and_sets_limits(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    good = '[checkpoint]\npath = "s"\n[events]\nkind = "tweets"\n[sink]\nkind = "console"\n'
    file.write_text(good)
    assert read_settings(file).guard is None
    file.write_text(good + "[guard]\nround_s = 30.0\nuser_operations_per_s = 50\nremove_queries = 'recent'\n")
    want = GuardSettings(round_s=30.0, user_operations_per_s=50.0, remove_queries="recent")
    assert read_settings(file).guard == want
    for text, says in (
        ("user_operation_per_s = 50", r"line 8: \[guard\] has no key 'user_operation_per_s': did you mean"),
        ("user_operations_burst = 10", r"line 7: \[guard\] a burst of 10 operations is less than a second's 200"),
        ("remove_queries = 'some'", r"line 8: .*remove_queries"),
    ):
        file.write_text(good + f"[guard]\n{text}\n")
        with pytest.raises(SettingsError, match=says):
            read_settings(file)
