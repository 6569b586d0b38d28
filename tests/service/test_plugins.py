"""What another package brings along is found by name, with its parameters, and nothing is installed for it."""

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from geoswarm.config import KeyTuning
from geoswarm.control.keyed.registry import PLANNERS, resolve_planner
from geoswarm.control.registry import STRATEGIES, first_plan, resolve_strategy, strategies, strategy
from geoswarm.core.space.grid import Grid
from geoswarm.errors import SettingsError
from geoswarm.flow.keyed.registry import OPERATORS
from geoswarm.run.registry import SINKS, WORKLOAD_PLACES, WORKLOADS
from geoswarm.service import launch
from geoswarm.service.cli.settings_file import read_settings
from geoswarm.service.cli.settings_sections import ClassSetting
from geoswarm.service.strategies import list_strategies
from geoswarm.store import plans
from geoswarm.store.storage import Storage
from plugin_package import MODULE, PACKAGE, write_plugin_package

SETTINGS = """\
[checkpoint]
path = "state"

[tuning]
strategy = "tiny-round-robin"
options = { every_rounds = 2 }

[events]
kind = "tiny-diagonal"
bounds = [0, 0, 5, 5]
rows_total = 1000

[sink]
kind = "tiny-lines"
path = "matches"

[[stages]]
operator = "tiny-parity"
window = 3
sink = { kind = "tiny-lines", path = "counts", prefix = "parity" }

[stages.tuning]
planner = "tiny-lazy"
options = { patience = 9 }

[trigger]
available_now = true
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from on_path(tmp_path / "site", monkeypatch)


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(write_plugin_package(folder)))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]


def test_settings_name_things_of_another_package_and_give_them_parameters(plugins: Path, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(SETTINGS)
    settings = read_settings(file)
    chosen = resolve_strategy(settings.tuning.strategy, settings.tuning.options)
    assert (chosen.name, vars(chosen)) == ("tiny-round-robin", {"every_rounds": 2})
    assert first_plan(chosen, None, Grid(0.0, 0.0, 1.0, 1.0, columns=4, rows=4), 2).drawn_by == "tiny-round-robin"
    assert settings.sink == ClassSetting("tiny-lines", {"path": str(tmp_path / "matches")})
    (stage,) = launch._stages(settings, Console(quiet=True))
    assert type(stage.operator).__name__ == "Parity"
    assert (stage.operator.name, stage.operator.window) == ("parity", 3)
    assert vars(stage.sink) == {"path": tmp_path / "counts", "prefix": "parity"}
    planner = resolve_planner(stage.tuning, window=3)
    assert (planner.name, getattr(planner, "patience", None), planner.limits.window) == ("tiny-lazy", 9, 3)
    workload = WORKLOADS.make("tiny-diagonal", {"bounds": [0, 0, 5, 5]})
    assert workload.events(10, 3).column("event_id").to_pylist() == [10, 11, 12]


WRONG = {
    "a parameter that is out of range": (
        ("every_rounds = 2", "every_rounds = 0"),
        "line 6: [tuning.options] every_rounds is 0: give 1 or more",
    ),
    "a parameter of a sink that is not known": (
        ('prefix = "parity"', "prefx = 1"),
        "line 20: [stages.sink] has no key 'prefx': did you mean 'prefix'?",
    ),
    "a sink without its path": (('path = "matches"', ""), "line 13: [sink] lacks the key 'path': add it"),
    "an operator with a name that is nearly right": (
        ('"tiny-parity"', '"tiny-party"'),
        "line 18: [[stages]] has no operator 'tiny-party': did you mean 'tiny-parity'?",
    ),
    "a planner's parameter": (
        ("patience = 9", "patence = 9"),
        "[stages.tuning] planner tiny-lazy has no parameter 'patence': did you mean 'patience'?",
    ),
    "a strategy that cannot be imported": (
        ('"tiny-round-robin"', '"tiny-broken"'),
        "line 5: [tuning] strategy 'tiny-broken' of package tiny-geo cannot be imported from tiny_geo.missing:Nothing "
        "(ModuleNotFoundError: No module named 'tiny_geo.missing'): mend that package, or remove it",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_them_is_said_with_line_and_remedy(
    plugins: Path, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(SETTINGS.replace(*change))
    with pytest.raises(SettingsError) as raised:
        read_settings(file)
    assert message in str(raised.value)


def test_one_that_cannot_be_imported_breaks_no_other_and_is_listed_with_the_reason(plugins: Path) -> None:
    assert strategy("swarm").name == "swarm"
    assert "tiny-broken" not in strategies()
    found = {entry["name"]: entry for entry in list_strategies()["strategies"]}
    assert "No module named 'tiny_geo.missing'" in found["tiny-broken"]["problem"]
    mine = found["tiny-round-robin"]
    assert (mine["package"], mine["sentence"]) == (
        PACKAGE,
        "Hands the first partition to the next executor, every so many rounds.",
    )
    assert mine["parameters"][0]["description"] == "rounds between moves"


def test_ours_cannot_be_replaced_and_two_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"geoswarm.strategies": {"swarm": "strategy:RoundRobin", "tiny-round-robin": "strategy:RoundRobin"}}
    for number, package in enumerate((PACKAGE, "tiny-copy")):
        monkeypatch.syspath_prepend(str(write_plugin_package(tmp_path / str(number), points, package)))
    assert type(strategy("swarm")).__name__ == "Swarm"
    hidden = [entry for entry in STRATEGIES.entries() if entry.name == "swarm" and entry.problem]
    assert {entry.package for entry in hidden} == {PACKAGE, "tiny-copy"}
    with pytest.raises(SettingsError, match=r"'tiny-round-robin' is in 2 packages, .*: remove all but one"):
        strategy("tiny-round-robin")


def test_what_is_no_strategy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"geoswarm.strategies": {"tiny-lines": "sink:Lines", "other": "strategy:RoundRobin"}}
    monkeypatch.syspath_prepend(str(write_plugin_package(tmp_path, points)))
    with pytest.raises(SettingsError, match=r"is no strategy: tiny_geo\.sink:Lines has no name, needs_stats"):
        strategy("tiny-lines")
    with pytest.raises(SettingsError, match="calls itself 'tiny-round-robin': give the class and its entry point one"):
        strategy("other")
    with pytest.raises(SettingsError, match="there is no planner of keys 'tiny-lazy'"):
        resolve_planner(KeyTuning(planner="tiny-lazy"), window=1)


def test_they_run_by_name_through_settings(plugins: Path, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(SETTINGS + "[contract]\ncolumns = 20\nrows = 20\nexecutors = 3\n")
    settings = read_settings(file)
    with launch.build_engine(settings, local=True) as engine:
        engine.subscribe(7, (0.0, 0.0, 2.5, 2.5))
        launch.start(engine, settings, Console(quiet=True), local=True).wait()
        plan, _ = plans.newest(Storage(settings.checkpoint.path))
        assert plan.drawn_by == "tiny-round-robin"
    (matches,) = (tmp_path / "matches").glob("batch-*.jsonl")
    assert len(matches.read_text().splitlines()) == 501, "half of the way, both ends included"
    (counts,) = (tmp_path / "counts").glob("parity-*.jsonl")
    rows = [json.loads(line) for line in counts.read_text().splitlines()]
    assert sorted((row["key"], row["count"]) for row in rows) == [(0, 500), (1, 500)]


def test_the_workloads_that_ship_are_declared_as_entry_points_too() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["geoswarm.workloads"] == WORKLOAD_PLACES


def test_all_groups_are_searched(plugins: Path) -> None:
    assert "tiny-lines" in SINKS.names()
    assert "tiny-parity" in OPERATORS.names()
    assert "tiny-lazy" in PLANNERS.names()
    assert "tiny-diagonal" in WORKLOADS.names()
