"""Aggregates of a settings file: `[aggregates]` and its sink, a stream without one, and what status and explain say."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from aggregate_worlds import AggregateWorld, answers_of
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import SettingsError
from geoswarm.run.sinks import Parquet
from geoswarm.service.cli import app
from geoswarm.service.cli.settings_file import PipelineSettings, read_settings
from worlds import write_files

SETTINGS = """\
[checkpoint]
path = "state"

[contract]
columns = 30
rows = 20

[events]
kind = "files"
path = "events"
extra = "v double, n int, kind string"
files_per_batch = 1

[operations]
kind = "files"
path = "operations"

[sink]
kind = "parquet"
path = "matches"

[trigger]
available_now = true
"""
AGGREGATES = """
[aggregates]
lateness_s = 4
ahead_s = 1e7

[aggregates.sink]
kind = "parquet"
path = "answers"
"""
WORLD = AggregateWorld(3)


def put(sub_id: int, aggregate: str | None = "count", **said: Any) -> dict[str, object]:
    counts: dict[str, Any] = {"aggregate": aggregate, "window": "tumbling(5 s)"} if aggregate else {}
    return registration(sub_id, (-20.0, -20.0, 20.0, 20.0), **counts, **said)


def write(folder: Path, settings: str, *operations: dict[str, object], batches: int = 6) -> Path:
    asked = operation_table(list(operations))
    write_files(folder / "operations", [asked if number == 0 else asked.slice(0, 0) for number in range(batches)])
    names = ["event_id", "ts", "x", "y", "v", "n", "kind"]
    write_files(folder / "events", [WORLD.events(number).select(names) for number in range(batches)])
    file = folder / "pipeline.toml"
    file.write_text(settings)
    return file


def run(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.slow
def test_a_settings_file_sends_answers_to_their_sink(tmp_path: Path) -> None:
    file = write(
        tmp_path, SETTINGS + AGGREGATES, put(1), put(2, "avg(v)", group_by="kind"), put(3, "median(v)"), put(4, None)
    )
    said = run("run", str(file), "--local")
    answers, matches = Parquet(str(tmp_path / "answers")).read(), Parquet(str(tmp_path / "matches")).read()
    assert set(answers["sub_id"].to_pylist()) == {1, 2}
    assert {sub for subs in matches["sub_ids"].to_pylist() for sub in subs} == {4}
    times = pa.concat_tables([WORLD.events(number).select(["ts", "x"]) for number in range(6)]).drop_null()
    whole = [row for row in answers_of(answers) if row[0] == 1]
    for _, _, _, start_us, end_us, count, value, _ in whole:
        at_us = times["ts"].cast(pa.int64()).to_numpy()
        assert (end_us - start_us, value) == (5_000_000, count)
        assert count <= ((at_us >= start_us) & (at_us < end_us)).sum()
    assert whole
    assert f"{len(answers)} answers" in said
    state = str(tmp_path / "state")
    status = json.loads(run("status", state, "--json"))
    assert status["answers"] == len(answers)
    assert "rows held for open windows" in run("status", state)
    assert f"aggregates: {len(answers)} answers" in run("explain", state)
    assert "median is no aggregate" in run("dead-letters", state).replace("\n", " ")


@pytest.mark.slow
def test_operations_of_a_stream_without_a_sink_are_dead_letters_and_its_start_is_refused_while_some_count(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, SETTINGS, put(1), put(4, None))
    run("run", str(file), "--local")
    assert "this stream has nowhere to put the rows" in run("dead-letters", str(tmp_path / "state"))
    matches = Parquet(str(tmp_path / "matches")).read()
    assert {sub for subs in matches["sub_ids"].to_pylist() for sub in subs} == {4}
    file.write_text(SETTINGS + AGGREGATES)
    pq.write_table(operation_table([put(5)]), tmp_path / "operations" / "9.parquet")
    run("run", str(file), "--local")
    file.write_text(SETTINGS)
    found = CliRunner().invoke(app, ["run", str(file), "--local"])
    assert found.exit_code
    assert "[aggregates.sink]" in found.output.replace("\n", " ")


@pytest.mark.slow
def test_a_column_that_the_stream_has_not_is_a_dead_letter_with_the_nearest_name(tmp_path: Path) -> None:
    file = write(tmp_path, SETTINGS + AGGREGATES, put(1, "sum(kin)"), put(2, "sum(kind)"), put(3))
    run("run", str(file), "--local")
    said = run("dead-letters", str(tmp_path / "state"))
    assert "no column 'kin'" in said.replace("\n", " ")
    assert set(Parquet(str(tmp_path / "answers")).read()["sub_id"].to_pylist()) == {3}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[aggregates]\nlateness_s = 3\n", "[aggregates] lacks the key 'sink'"),
        ('[aggregates]\nlateness_s = -1\n[aggregates.sink]\nkind = "console"\n', "[aggregates] lateness_s is -1"),
        ('[aggregates]\nlate = 1\n[aggregates.sink]\nkind = "console"\n', "[aggregates] has no key 'late'"),
        ('[aggregates.sink]\nkind = "parket"\n', "[aggregates.sink] has no kind 'parket'"),
        ('[aggregates.sink]\npath = "parket"\n', "[aggregates.sink] lacks the key 'kind'"),
    ],
)
def test_a_wrong_section_is_explained(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, text)
    assert wanted in str(refused.value)


def test_the_settings_of_the_section_are_those_of_the_tuning(tmp_path: Path) -> None:
    settings = read(tmp_path, AGGREGATES)
    assert settings.tuning.aggregates.lateness_us == 4_000_000
    assert settings.aggregates is not None
    assert settings.aggregates.sink.options["path"] == str(tmp_path / "answers")
    assert not settings.needs_kafka
    topic = '[aggregates.sink]\nkind = "kafka"\nbootstrap = "x:1"\ntopic = "y"\n'
    assert read(tmp_path, topic).needs_kafka


def read(folder: Path, text: str) -> PipelineSettings:
    for name in ("events", "operations"):
        (folder / name).mkdir(exist_ok=True)
    file = folder / "pipeline.toml"
    file.write_text(SETTINGS + text)
    return read_settings(file)
