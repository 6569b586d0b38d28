"""The tutorial does what it says. Its steps on Spark and with Kafka are in `tests/run/kafka/test_tutorial_there.py`."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from followed_page import BLOCK, Reader, comparable, sections
from geoswarm.lab.workload import fleet
from geoswarm.service.init import EXAMPLES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


@pytest.mark.slow
def test_every_step_without_java_gives_what_the_tutorial_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader, found = Reader(), sections(PAGE)
    for title in list(found)[1:4]:
        done = reader.follow(found[title])
        assert len(done) > 1
        for step, came in done:
            assert comparable(came) == comparable(step.shown), step.code
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("fleet.png", "yard.png"))


def test_the_example_is_what_its_generator_makes() -> None:
    """If not: python -m geoswarm.lab.workload.fleet"""
    assert {name: (EXAMPLES / "fleet" / name).read_text() for name in fleet.sample_files()} == fleet.sample_files()


def test_settings_that_the_tutorial_shows_are_those_of_the_example() -> None:
    files = [tomllib.loads(file.read_text()) for file in (EXAMPLES / "fleet.toml", EXAMPLES / "fleet" / "kafka.toml")]
    shown = [tomllib.loads(text) for kind, text in BLOCK.findall(PAGE.read_text()) if kind == "toml"]
    for block, settings in zip(shown, files, strict=True):
        assert all(settings[name].items() >= section.items() for name, section in block.items())
    assert files[0]["events"]["columns"] == files[1]["events"]["columns"]
    assert files[0]["tuning"] == files[1]["tuning"]


def test_the_table_of_fences_says_what_they_ask_for() -> None:
    asked = [feature["properties"] for feature in fleet.fences()["features"]]
    said = 0
    for name, user, text in re.findall(
        r"^\| ([\w ,]+) \| (\w[\w ]*) \| (.*) \|$", sections(PAGE)["2. The fleet"], re.M
    ):
        own = [each for each in asked if each["payload"]["name"] == name]
        assert own, name
        assert {each["user"] for each in own} == {user}
        for column, value in re.findall(r"`(\w+) = (.*?)`", text):
            assert all(each[column] == json.loads(value) for each in own)
            said += 1
    assert said == 8


def test_what_the_tutorial_installs_is_there() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (extras,) = re.findall(r"pip install '\.\[(.*)\]'", PAGE.read_text())
    assert set(extras.split(",")) <= set(packages)
