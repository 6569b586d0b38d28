"""The demo tells what its journal says, in the terminal and in pictures."""

import io
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from geoswarm.config import Contract
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.outcome import RoundEntry
from geoswarm.core.space.change import Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.lab.demo.feed import AHEAD, Feed
from geoswarm.lab.demo.scenario import DemoScenario, run_demo
from geoswarm.lab.demo.story import Story
from geoswarm.lab.demo.view import DemoView, sparkline
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import from_workload
from geoswarm.run.sinks import Noop
from geoswarm.service.cli import app
from geoswarm.store.journal.entries import BatchEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


GRID = Contract(columns=8, rows=8, executors=4)
FIRST = uniform(Grid.of(GRID), 4)
BUSY = FIRST.partitions[0]
CUT = FIRST.split(BUSY.id, "row", BUSY.row0, (0, 1))
PLANS = {plan.epoch: plan for plan in (FIRST, CUT)}


def batch(number: int, plan: Plan, cpu_us: list[int], events: int = 400) -> BatchEntry:
    """`cpu_us` of the plan's partitions."""
    report = LoadReport(events_in=events)
    each = events // len(cpu_us)
    for partition, cpu in zip(plan.partitions, cpu_us, strict=True):
        report.add(partition.id, partition.executor, Load(each, each // 2, each, cpu))
    return BatchEntry(
        number,
        now_us=number * 1_000_000,
        batch_s=0.5,
        subscriptions=7,
        plan_epoch=plan.epoch,
        matched=events // 2,
        matches=events,
        events_in=report.events_in,
        partitions=report.partitions,
        executors=report.executors,
    )


def wait_until(is_so: Callable[[], object]) -> None:
    ends_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


@pytest.fixture
def story() -> Story:
    """The first partition has most to do, until half of its work goes to executor 1."""
    told = Story(Tweets(events_per_s=1.0), 0, GRID, PLANS.__getitem__)
    halves = [1000 if BUSY.id in p.parent else 100 for p in CUT.partitions]
    told.add([batch(0, FIRST, [100, 100, 100, 100]), batch(1, FIRST, [1700, 100, 100, 100])])
    told.add([batch(number, CUT, halves, events=500) for number in range(2, 8)])
    split = Split(BUSY.id, "row", BUSY.row0, (0, 1))
    kept = RoundEntry(1, "swarm", 0, "kept")
    told.rounds = [kept, RoundEntry(2, "swarm", 0, "applied", changes=(split,), epoch_next=1)]
    return told


def test_balance_is_the_busiest_over_the_mean_batch_by_batch(story: Story) -> None:
    assert story.skews[:2] == [1.0, pytest.approx(1700 / 500)]
    assert story.skews[2:] == [pytest.approx(1100 / 575)] * 6  # executor 1 has a half and what it had
    assert story.skew_first == pytest.approx(1700 / 500)  # without the batch in which workers start
    assert story.skew_last == pytest.approx(1100 / 575)


def test_what_the_first_plan_would_have_done_is_computed_from_the_same_times(story: Story) -> None:
    assert story.skews_kept[:2] == story.skews[:2]
    assert story.skews_kept[2:] == [pytest.approx(2000 / 575)] * 6


def test_the_plans_are_reported_in_numbers(story: Story) -> None:
    assert story.plans_sentence == (
        "The plan was redrawn 1 time while the stream ran (1 split; from 4 partitions to 5), and no subscription was "
        "copied for it. The busiest of 4 executors did 3.4 times the mean under the first plan and 1.9 times in the "
        "last 5 batches, where the first plan would have left it at 3.5 times (1.0 is balance)."
    )


def test_a_run_too_short_for_a_second_plan_is_reported_too() -> None:
    told = Story(Tweets(events_per_s=1.0), 0, GRID, PLANS.__getitem__)
    told.add([batch(0, FIRST, [300, 100, 100, 100])])
    assert told.plans_sentence == (
        "One plan of 4 partitions was in force throughout: the busiest of 4 executors did 2.0 times the mean."
    )


def test_speeds_leave_out_the_first_batch_and_totals_do_not(story: Story) -> None:
    assert story.rates == pytest.approx((3400 / 6.5, 3400 / 6.5))
    assert story.totals.events == 3800
    said = "8 batches: 3,800 events in, 1,900 matched, 1,900 unmatched, 0 dead letters; 3,800 matches"
    assert story.totals_sentence == said


def test_the_map_holds_every_event_of_its_batches_in_its_cell(story: Story) -> None:
    counts = story.events_per_cell([1, 2])
    drawn = story.workload.events(400, 900)
    cells = FIRST.grid.locate(drawn.column("x").to_numpy(), drawn.column("y").to_numpy())
    assert counts.sum() == 900
    assert counts.ravel().tolist() == np.bincount(cells, minlength=64).tolist()


def test_posts_are_written_a_little_ahead_and_removed_behind(tmp_path: Path) -> None:
    folder, rows = tmp_path / "posts", 40

    def ends() -> list[int]:
        return sorted(int(file.stem) for file in folder.glob("*.parquet"))

    with Feed(Tweets(), folder, 80, rows) as feed:
        wait_until(lambda: len(ends()) == AHEAD)
        first = pq.read_table(folder / f"{120:015d}.parquet")
        feed.go_on(200)
        wait_until(lambda: ends() == [200 + rows * i for i in range(AHEAD + 1)])
    assert first.equals(pa.Table.from_batches([Tweets().events(80, rows)]))
    with Feed(Tweets(), folder, 240, rows) as feed:  # what is there already is not drawn again
        feed.go_on(240)
        wait_until(lambda: ends() == [240 + rows * i for i in range(AHEAD + 1)])
    assert pq.read_table(folder).column("event_id").to_pylist() == list(range(200, 240 + rows * AHEAD))


def test_a_feed_that_cannot_write_says_so_to_who_waits(tmp_path: Path) -> None:
    folder = tmp_path / "posts"
    with Feed(Tweets(), folder, 0, 40) as feed:
        wait_until(lambda: len(list(folder.glob("*.parquet"))) == AHEAD)
        shutil.rmtree(folder)
        with pytest.raises(FileNotFoundError):
            wait_until(lambda: feed.go_on(80))


@pytest.mark.parametrize("checkpoint", ["s3://bucket/state", "another"])
def test_a_checkpoint_that_is_no_demos_is_refused(spark: "SparkSession", tmp_path: Path, checkpoint: str) -> None:
    folder = checkpoint if "://" in checkpoint else str(tmp_path / checkpoint)
    if "://" not in checkpoint:
        with LocalEngine(DemoScenario(executors=4).contract, checkpoint=folder) as engine:
            events = from_workload(Tweets(), rows_per_batch=10, rows_total=10)
            engine.start(events=events, sink=Noop(), available_now=True).wait()
    with pytest.raises(SettingsError, match=r"folder posts|needs a folder"):
        run_demo(DemoScenario(executors=4, checkpoint=folder), tmp_path / "report", Console(quiet=True))


def test_a_terminal_sees_a_live_view_and_a_log_sees_lines(story: Story) -> None:
    line = "plan 1 of 5 partitions, busiest executor 1.9 times the mean (3.4 at first)\n"
    for is_terminal, wanted in ((True, "3.4 at first · 3.5 if kept"), (False, line)):
        said = io.StringIO()
        with DemoView(story, 10, Console(file=said, force_terminal=is_terminal, width=80)) as view:
            view.show()
        assert wanted in said.getvalue()
        assert ("\x1b[" in said.getvalue()) == is_terminal


def test_a_sparkline_rises_from_zero_to_its_largest() -> None:
    assert sparkline([0.0, 4.0, 8.0]) == "▁▅█"
    assert sparkline([]) == ""
    assert sparkline([0.0]) == "▁"


def test_the_demo_leaves_a_report_and_goes_on_from_its_checkpoint(spark: "SparkSession", tmp_path: Path) -> None:
    report, checkpoint = tmp_path / "report", str(tmp_path / "state")
    sizes = ["--seconds", "3", "--subscriptions", "2000", "--executors", "4"]
    arguments = ["--debug", "demo", *sizes, "--report", str(report), "--checkpoint", checkpoint]
    before = dict.fromkeys(("batches", "events", "matched", "matches"), 0)
    for _ in range(2):
        shown = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "300"})
        assert shown.exit_code == 0
        for name in ("load-map", "balance", "executors", "timeline"):
            assert (report / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert (report / "report.html").read_text().count("data:image/png;base64,") == 4

        found = json.loads(CliRunner().invoke(app, ["status", checkpoint, "--json"]).stdout)
        new = {name: found[name] - count for name, count in before.items()}
        assert new["events"] > 0
        said = " ".join(shown.stdout.split())
        assert f"{new['batches']:,} batches: {new['events']:,} events in, {new['matched']:,} matched" in said
        assert f"{new['matches']:,} matches" in said
        assert "the busiest of 4 executors did" in said.lower()
        before = {name: found[name] for name in before}
    assert "the checkpoint holds 2,000 subscriptions: going on with them" in said
