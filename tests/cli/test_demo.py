"""The demo tells what its journal says, in the terminal and in pictures."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from geoswarm.cli import app
from geoswarm.cli.watch import Batch
from geoswarm.config import Contract
from geoswarm.demo.story import Story
from geoswarm.demo.view import DemoView, sparkline
from geoswarm.workload.tweets import Tweets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(number: int, cpu_us: list[int], events: int = 400) -> Batch:
    each = events // len(cpu_us)
    loads = {str(i): [i, each, each // 2, each, cpu] for i, cpu in enumerate(cpu_us)}
    sums = {"events_in": events, "dead": 0, "matched": events // 2, "matches": events, "route_cpu_us": 0}
    return {
        "batch": number,
        "now_us": number * 1_000_000,
        "batch_s": 0.5,
        "subscriptions": 7,
        "partitions": loads,
        **sums,
    }


@pytest.fixture
def story() -> Story:
    told = Story(Tweets(events_per_s=1.0), 0, Contract(columns=8, rows=8, executors=4))
    told.add([batch(0, [100, 100, 100, 100]), batch(1, [2500, 100, 200, 300])])
    return told


def test_skew_is_the_busiest_over_the_mean(story: Story) -> None:
    assert story.cpu_s.tolist() == [0.0026, 0.0002, 0.0003, 0.0004]
    assert story.skew == pytest.approx(2.6 / 0.875)
    assert story.half_of_work == 1


def test_speeds_leave_out_the_first_batch_and_totals_do_not(story: Story) -> None:
    assert story.rates == (800.0, 800.0)
    assert story.totals.events == 800
    assert story.totals_sentence == "2 batches: 800 events in, 400 matched, 400 unmatched, 0 dead letters; 800 matches"


def test_the_map_holds_every_streamed_event_in_its_cell(story: Story) -> None:
    counts = story.events_per_cell()
    drawn = story.workload.events(0, 800)
    grid = story.plan.grid
    cells = grid.locate(drawn.column("x").to_numpy(), drawn.column("y").to_numpy())
    assert counts.sum() == 800
    assert counts.ravel().tolist() == np.bincount(cells, minlength=64).tolist()


def test_a_terminal_sees_a_live_view_and_a_log_sees_lines(story: Story) -> None:
    for is_terminal, wanted in ((True, "busiest of 4 executors"), (False, "executor 0 busiest with 74% of the CPU\n")):
        said = io.StringIO()
        with DemoView(story, 10, Console(file=said, force_terminal=is_terminal, width=100)) as view:
            view.show()
        assert wanted in said.getvalue()
        assert ("\x1b[" in said.getvalue()) == is_terminal


def test_a_sparkline_rises_from_zero_to_its_largest() -> None:
    assert sparkline([0.0, 4.0, 8.0]) == "▁▅█"
    assert sparkline([]) == ""
    assert sparkline([0.0]) == "▁"


def test_the_demo_leaves_a_report_whose_totals_are_the_journals(spark: "SparkSession", tmp_path: Path) -> None:
    report, checkpoint = tmp_path / "report", str(tmp_path / "state")
    sizes = ["--seconds", "3", "--subscriptions", "2000", "--executors", "4"]
    arguments = ["--debug", "demo", *sizes, "--report", str(report), "--checkpoint", checkpoint]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "300"})
    assert shown.exit_code == 0
    for name in ("load-map", "executors", "timeline"):
        assert (report / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (report / "report.html").read_text().count("data:image/png;base64,") == 3

    found = json.loads(CliRunner().invoke(app, ["status", checkpoint, "--json"]).stdout)
    assert found["events"] > 0
    said = f"{found['batches']:,} batches: {found['events']:,} events in, {found['matched']:,} matched"
    assert said in " ".join(shown.stdout.split())
    assert f"{found['matches']:,} matches" in " ".join(shown.stdout.split())
    assert "executors do half of the work" in " ".join(shown.stdout.split())
