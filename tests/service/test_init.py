"""`geoswarm init`: from nothing to a pipeline that runs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoswarm.errors import SettingsError
from geoswarm.service.cli import app
from geoswarm.service.cli.settings_file import read_settings
from geoswarm.service.init import EXAMPLES, describe, example_names, write_example

runner = CliRunner()


@pytest.mark.parametrize("name", example_names())
def test_every_example_can_be_written_and_read_back_as_settings(tmp_path: Path, name: str) -> None:
    written = write_example(tmp_path / "new", name)
    assert written.settings_file == tmp_path / "new" / f"{name}.toml"
    assert read_settings(written.settings_file).checkpoint.path.startswith(str(tmp_path))


def test_the_command_says_what_it_wrote_and_what_to_do_next(tmp_path: Path) -> None:
    told = runner.invoke(app, ["init", str(tmp_path / "a b")])
    assert told.exit_code == 0
    *wrote, following = told.stdout.splitlines()
    assert all(line.startswith("wrote ") for line in wrote)
    assert following == f"next: geoswarm run '{tmp_path}/a b/start.toml'"


def test_folders_that_the_settings_name_are_made_and_reported(tmp_path: Path) -> None:
    written = write_example(tmp_path, "files")
    assert [folder.name for folder in written.empty_folders] == ["events", "operations"]
    assert all(folder.is_dir() for folder in written.empty_folders)
    assert f"made {tmp_path}/events/, which is empty: put files with rows into it" in describe(written)


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "start.toml").write_text("mine")
    with pytest.raises(SettingsError, match=r"start\.toml exists already: nothing was written"):
        write_example(tmp_path, "start")
    assert [path.name for path in tmp_path.iterdir()] == ["start.toml"]
    assert (tmp_path / "start.toml").read_text() == "mine"
    with pytest.raises(SettingsError, match="is a file: give a folder"):
        write_example(tmp_path / "start.toml", "start")


def test_an_unknown_example_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match="there is no example 'star': use one of files, fleet, kafka, start, tweets"
    ):
        write_example(tmp_path, "star")
    assert list(tmp_path.iterdir()) == []


def test_the_first_pipeline_gives_matches_at_once(tmp_path: Path, spark: object) -> None:
    settings_file = write_example(tmp_path, "start").settings_file
    done = runner.invoke(app, ["run", str(settings_file), "--json"])
    assert done.exit_code == 0, done.output
    totals = json.loads(done.stdout.splitlines()[-1])
    assert totals["matches"] == 7, totals  # 2 in Paris, 2 in London, 2 by their words, 1 beside the tower
    assert totals["dead"] == 0


def test_sample_files_have_times_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Spark knows milliseconds only, and reads files of one in any order."""
    written = [file for file in write_example(tmp_path, "fleet").files if file.parent.name == "fixes"]
    times_s = [file.stat().st_mtime_ns // 10**9 for file in sorted(written)]
    assert len(times_s) == 3
    assert times_s == sorted(set(times_s))


def test_sample_rows_are_json_lines() -> None:
    files = list(EXAMPLES.rglob("*.json"))
    assert files
    for file in files:
        lines = file.read_text().splitlines()
        bad = [line for line in lines if not line.endswith("}")]
        assert len(bad) == (file.name == "fixes-2.json"), "one is cut off, for the tutorial"
        assert [json.loads(line) for line in lines if line not in bad]
