"""`geoswarm explain` tells how a plan came about."""

import json
import re
import shutil
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import strategy
from geoswarm.flow.observe import LoadReport, count_points
from geoswarm.flow.route import route
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.service.cli import app
from geoswarm.store.checkpoint import Checkpoint
from worlds import events


@pytest.fixture(scope="module")
def checkpoint_of_rounds(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint whose journal has twelve rounds of SWARM on posts of the world."""
    root = str(tmp_path_factory.mktemp("explain"))
    checkpoint = Checkpoint(root, Contract(columns=200, rows=200, executors=6), Tuning())
    checkpoint.submit(Tweets(seed=3).subscriptions(0, 5000).select(["op", "sub_id", "xmin", "ymin", "xmax", "ymax"]))
    checkpoint.fold(0)
    loop = ControlLoop(strategy("swarm"), checkpoint.plan, 15.0, checkpoint)
    for number in range(13):
        report = LoadReport()
        for parcel in route(Tweets(seed=3).events(number * 5000, 5000), loop.plan):
            report.add_stat(parcel.partition, count_points(parcel.events, loop.plan, parcel.partition))
        outcome = loop.add_batch([], [], report, number * 15.0)
        if outcome is not None:
            checkpoint.journal.append(outcome.entry)
    checkpoint.close()
    return root


def test_every_round_is_explained(checkpoint_of_rounds: str) -> None:
    done = CliRunner().invoke(app, ["explain", checkpoint_of_rounds])
    assert done.exit_code == 0
    assert done.stdout.count("\nround ") + 1 == 12
    assert "hands" in done.stdout


def test_one_plan_is_explained_from_the_plan_before_it(checkpoint_of_rounds: str) -> None:
    entries = json.loads(CliRunner().invoke(app, ["explain", checkpoint_of_rounds, "--json"]).stdout)
    epochs = [entry["epoch_next"] for entry in entries if "epoch_next" in entry]
    assert epochs == list(range(1, len(epochs) + 1))
    last = json.loads(CliRunner().invoke(app, ["explain", checkpoint_of_rounds, str(epochs[-1]), "--json"]).stdout)
    assert [entry.get("epoch_next") for entry in last][-1] == epochs[-1]
    assert all("epoch_next" not in entry for entry in last[:-1])
    assert (
        f"plan {epochs[-1]} from the next batch on"
        in CliRunner().invoke(app, ["explain", checkpoint_of_rounds, str(epochs[-1])]).stdout
    )


def test_a_plan_that_does_not_exist_is_an_error_that_lists_those_that_do(checkpoint_of_rounds: str) -> None:
    done = CliRunner().invoke(app, ["explain", checkpoint_of_rounds, "999"])
    assert done.exit_code == 2
    assert "does not show how plan 999 came about: plans 1 to" in done.stderr


def test_a_journal_written_before_gives_the_sentences_it_gave_then(tmp_path: Path) -> None:
    """Rounds of two strategies, one of which was refused, keys that were scaled and rebalanced."""
    Checkpoint(str(tmp_path), Contract(executors=4), Tuning()).close()
    (tmp_path / "journal").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).parents[1] / "store" / "journal_before.jsonl", tmp_path / "journal" / "00000000.jsonl")
    rounds = CliRunner().invoke(app, ["explain", str(tmp_path)], env={"COLUMNS": "300"}).stdout
    keys = CliRunner().invoke(app, ["explain", str(tmp_path), "--operator", "count"], env={"COLUMNS": "300"}).stdout
    for sentence in (
        "  executor 3 (cost 2.04e+05) hands 1.25e+04 to executor 1 (cost 1.98e+04) by a split",
        "  split partition 6, axis column, after 36, executors [3, 1]",
        "  plan 1 from the next batch on, estimated maximum 2.04e+05 -> 1.89e+05",
        "  decision scaled from 2 to 3 executors",
        "  divide partition 0, terms 2 shares, 2 terms by name, executors [0, 1]",
        "  refused: plan 1 raises the estimated maximum from 12 to 13: plan 0 stays",
    ):
        assert sentence in rounds.splitlines()
    assert keys.splitlines() == [
        "scaled from 3 to 5 executors: plan 2",
        "round 1, mixed: rebalanced (busiest of 5 executors 1.40 times the mean)",
        "  6 of 275 keys go elsewhere, with 2.5% of the state, which stays where it lies; "
        "the table has 16 entries of 3000",
        "  plan 3 from the next batch on, busiest 1.08 times the mean",
        "  keys in parts, by their ids: 359759859675409748 in 3",
    ]


def test_what_an_event_costs_is_said_with_a_sentence_for_each_round(tmp_path: Path) -> None:
    rng, moments = np.random.default_rng(1), count(0, 20)
    with gs.LocalEngine(Contract(executors=3), checkpoint=str(tmp_path), clock=lambda: float(next(moments))) as engine:
        engine.subscribe(1, (0.0, 0.0, 90.0, 90.0))
        tables = [pa.table(events(rng, 300, first_id=1000 * b)) for b in range(6)]
        engine.start(events=tables, sink=gs.sinks.Memory(), available_now=True).wait()
    told = CliRunner().invoke(app, ["explain", str(tmp_path)], env={"COLUMNS": "300"}).stdout
    assert "first plan, drawn from batch 0" in told
    assert told.count("  the costliest executor had ") >= 4
    assert re.search(r"\ncost: executors spent [\d.]+ µs of CPU per event in batch 5; beyond matching, a task", told)
