"""What a person meets at the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geoswarm
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import SettingsError, StreamError
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.service.cli import app
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import BatchEntry, RunTotals
from geoswarm.store.scale_requests import waiting_requests
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

runner = CliRunner()
NOW_US = 1_700_000_000_000_000


def operations(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=OPERATION)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """One subscription, and three operations that were turned away."""
    folder = str(tmp_path / "state")
    held = Checkpoint(folder, Contract(executors=4), Tuning())
    box = {"xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}
    held.submit(operations({"op": "register", "sub_id": 1, **box}))
    held.fold(NOW_US)
    again, gone = {"op": "register", "sub_id": 1, **box}, {"op": "cancel", "sub_id": 99}
    held.submit(operations(again, gone, again))
    held.fold(NOW_US)
    held.close()
    return folder


def test_the_bare_command_shows_help_and_the_version_has_its_option() -> None:
    bare = runner.invoke(app, [])
    assert bare.exit_code == 0
    assert "dead-letters" in bare.stdout
    assert runner.invoke(app, ["--version"]).stdout == f"geoswarm {geoswarm.__version__}\n"


@pytest.mark.slow
def test_help_comes_without_loading_spark() -> None:
    program = "import sys, geoswarm.service.cli; sys.exit('pyspark' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=environment()).returncode == 0


def test_dead_letters_are_counted_by_reason_and_then_shown(checkpoint: str) -> None:
    shown = runner.invoke(app, ["dead-letters", checkpoint, "--last", "2"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "3 dead letters" in shown.stdout
    counts = [line.replace("│", " ").split() for line in shown.stdout.splitlines() if line.startswith("│")]
    assert counts == [["operation", "duplicate", "2"], ["operation", "unknown-id", "1"]]
    assert shown.stdout.count("outside any batch") == 2


def test_dead_letters_of_one_reason_are_machine_readable(checkpoint: str) -> None:
    shown = runner.invoke(app, ["dead-letters", checkpoint, "--reason", "unknown-id", "--json"])
    found = json.loads(shown.stdout)
    assert found["count"] == 1
    assert found["by_reason"] == [{"kind": "operation", "reason": "unknown-id", "count": 1}]
    assert json.loads(found["rows"][0]["row"])["sub_id"] == 99


def test_a_reason_that_does_not_exist_is_refused_with_those_that_do(checkpoint: str) -> None:
    shown = runner.invoke(app, ["dead-letters", checkpoint, "--reason", "dupe"])
    assert shown.exit_code == 2
    assert "duplicate" in shown.stderr


def test_a_checkpoint_without_dead_letters_says_so(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path), Contract(), Tuning()).close()
    assert runner.invoke(app, ["dead-letters", str(tmp_path)]).stdout == "no dead letters\n"


def test_executors_are_asked_for_and_what_cannot_be_is_refused(checkpoint: str, tmp_path: Path) -> None:
    said = runner.invoke(app, ["scale", checkpoint, "16"])
    assert (said.exit_code, said.stdout[:36]) == (0, "16 executors from the next batch on:")
    assert waiting_requests(Storage(checkpoint)).newest is not None
    for given, message in (
        ([checkpoint, "0"], "error: 0 executors: use 1 to 4096"),
        ([checkpoint, "5000"], "error: 5000 executors: use 1 to 4096"),
        ([str(tmp_path / "nowhere"), "4"], "is no checkpoint"),
    ):
        refused = runner.invoke(app, ["scale", *given])
        assert refused.exit_code == 2
        assert message in refused.stderr
    assert len(waiting_requests(Storage(checkpoint)).names) == 1


def test_looking_at_a_folder_that_is_no_checkpoint_does_not_make_one(tmp_path: Path) -> None:
    for command in ("status", "dead-letters"):
        shown = runner.invoke(app, [command, str(tmp_path / "nowhere")])
        assert (shown.exit_code, shown.stdout) == (2, "")
        assert shown.stderr.startswith("error: ")
        assert "is no checkpoint" in shown.stderr
    assert not (tmp_path / "nowhere").exists()


def test_status_reads_a_checkpoint_that_an_engine_holds(tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    held = Checkpoint(folder, Contract(executors=4), Tuning())
    totals = RunTotals(batches=1, events=100, dead=40, matched=50, matches=70)
    held.journal.append(
        BatchEntry(0, totals, now_us=NOW_US, events_in=100, dead=40, matched=50, matches=70, batch_s=0.5)
    )
    found = json.loads(runner.invoke(app, ["status", folder, "--json"]).stdout)
    assert (found["batches"], found["events"], found["matches"], found["dead"]) == (1, 100, 70, 40)
    assert (found["engines"], found["last_process"]) == (1, str(os.getpid()))
    assert "100 (50 matched, 40 dead letters)" in runner.invoke(app, ["status", folder]).stdout
    held.fence.check()  # still the owner
    held.close()


@pytest.mark.slow
def test_the_doctor_is_machine_readable_and_fails_when_something_would(tmp_path: Path) -> None:
    shown = runner.invoke(app, ["doctor", "--json", "--folder", str(tmp_path)])
    assert shown.exit_code == 0
    assert {finding["name"] for finding in json.loads(shown.stdout)} > {"Java", "disk"}
    (tmp_path / "file").touch()
    assert runner.invoke(app, ["doctor", "--folder", str(tmp_path / "file")]).exit_code == 1


@pytest.mark.slow
def test_benchmarks_are_listed_and_a_wrong_name_or_scale_is_refused() -> None:
    assert "kernel" in runner.invoke(app, ["bench", "list"]).stdout
    assert "kernel" in runner.invoke(app, ["bench", "kernal"]).stderr
    wrong = runner.invoke(app, ["bench", "kernel", "--scale", "huge"])
    assert (wrong.exit_code, wrong.stderr) == (2, "error: no scale is called 'huge': say small or full\n")


def test_an_error_is_one_line_and_debug_shows_where(tmp_path: Path) -> None:
    plain = runner.invoke(app, ["run", str(tmp_path / "no.toml")])
    assert (plain.exit_code, plain.stdout, plain.stderr.count("\n")) == (2, "", 1)
    told = runner.invoke(app, ["--debug", "run", str(tmp_path / "no.toml")])
    assert isinstance(told.exception, SettingsError)


def test_a_failure_told_by_spark_at_length_becomes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        told = (
            "the stream ended: Query failed\n\tat org.Thing(Thing.scala:1)\nCaused by: java.io.IOException: disk full"
        )
        raise StreamError(f"{told}\n\tat java.base/java.lang.Thread.run(Thread.java:840)")

    monkeypatch.setattr("geoswarm.service.watch.status", fail)
    shown = runner.invoke(app, ["status", "anywhere"])
    assert shown.exit_code == 2
    want = "error: the stream ended: Query failed (Caused by: java.io.IOException: disk full)\n"
    assert shown.stderr == want


def pipeline(folder: Path, sink: str, trigger: str = "available_now = true") -> Path:
    workload = Tweets(seed=3)
    pq.write_table(pa.Table.from_batches([workload.subscriptions(0, 500)]), folder / "subs.parquet")
    (folder / "in").mkdir()
    pq.write_table(pa.Table.from_batches([workload.events(0, 2000)]), folder / "in" / "a.parquet")
    file = folder / "pipeline.toml"
    file.write_text(
        '[checkpoint]\npath = "state"\n[contract]\nexecutors = 4\n[subscriptions]\npath = "subs.parquet"\n'
        f'[events]\nkind = "files"\npath = "in"\n[sink]\n{sink}\n[trigger]\n{trigger}\n'
    )
    return file


def test_a_pipeline_of_files_runs_from_its_settings_and_goes_on_where_it_was(
    spark: "SparkSession", tmp_path: Path
) -> None:
    file = pipeline(tmp_path, 'kind = "parquet"\npath = "out"')
    first = runner.invoke(app, ["--debug", "run", str(file), "--json"], catch_exceptions=False)
    *batches, summary = [json.loads(line) for line in first.stdout.splitlines()]
    workload, oracle = Tweets(seed=3), Oracle((-180.0, -90.0, 180.0, 90.0))
    oracle.operate(pa.Table.from_batches([workload.subscriptions(0, 500)]), 0)
    want = oracle.match(pa.Table.from_batches([workload.events(0, 2000)]), 0)
    assert len(want) > 100
    assert set(pairs_of([pq.read_table(f) for f in (tmp_path / "out").glob("*/*.parquet")])) == want
    assert [batch["kind"] for batch in batches] == ["batch"]
    assert (summary["events"], summary["matches"], summary["stopped"]) == (2000, len(want), False)

    pq.write_table(pa.Table.from_batches([workload.events(2000, 1000)]), tmp_path / "in" / "b.parquet")
    again = runner.invoke(app, ["--debug", "run", str(file)], catch_exceptions=False, env={"COLUMNS": "200"})
    assert "done: 1 batch, 1,000 events" in again.stdout
    assert "subscriptions loaded" not in again.stderr  # they rest in the checkpoint
    whole = json.loads(runner.invoke(app, ["status", str(tmp_path / "state"), "--json"]).stdout)
    assert (whole["events"], whole["subscriptions"], whole["batches"]) == (3000, 500, 2)


@pytest.mark.cluster
def test_ctrl_c_ends_a_run_cleanly_with_its_summary(tmp_path: Path) -> None:
    file = pipeline(tmp_path, 'kind = "parquet"\npath = "out"', "every_s = 0.1")
    command = [sys.executable, "-m", "geoswarm.service.cli", "run", str(file), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        *_, last = running.stdout.read().splitlines()
        assert running.wait(60) == 0
    summary = json.loads(last)
    assert (first["kind"], summary["kind"], summary["stopped"], summary["events"]) == ("batch", "summary", True, 2000)


def environment() -> dict[str, str]:
    source = str(Path(geoswarm.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
