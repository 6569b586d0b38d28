"""`geoswarm strategies` lists what can balance a stream, with parameters, defaults and a sentence each."""

import json

from typer.testing import CliRunner

from geoswarm.control.keyed.registry import planners
from geoswarm.control.registry import strategies
from geoswarm.service.cli import app


def test_every_strategy_and_planner_is_listed_with_its_parameters_and_defaults() -> None:
    found = json.loads(CliRunner().invoke(app, ["strategies", "--json"]).stdout)
    assert [entry["name"] for entry in found["strategies"]] == sorted(strategies())
    assert [entry["name"] for entry in found["planners"]] == sorted(planners())
    swarm = next(entry for entry in found["strategies"] if entry["name"] == "swarm")
    assert swarm["sentence"].startswith("Hands work from the costliest executor to the cheapest")
    defaults = {parameter["name"]: parameter["default"] for parameter in swarm["parameters"]}
    assert defaults == {"beta": 20, "merge_every_rounds": 1200, "subset_share_min": 0.0}
    assert {entry["name"] for entry in found["planners"] if entry["only_compares"]} == {"pkg", "ideal"}


def test_the_list_is_readable_without_knowing_the_code() -> None:
    shown = " ".join(CliRunner().invoke(app, ["strategies"], env={"COLUMNS": "200"}).stdout.split())
    assert "beta = 20 β: rounds of the same decision before the other is tried (whole number)" in shown
    assert 'way = "gr" DP, GR, SI or RA: how partitions to migrate are chosen' in shown
    assert "Every planner also heeds theta_max = 0.08, table_max = 3000, beta = 1.5" in shown
    assert "[tuning.options]" in shown
