"""`geoswarm demo`: a day of posts over the world is matched with subscriptions, some of which change meanwhile.

It runs the real engine and needs no input: `feed.py` writes the posts while they are matched, `view.py` shows it while
it runs, `report.py` describes it afterwards.
The first plan is drawn from the first batch, and follows the load from there on.
"""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from geoswarm.config import Contract, Tuning
from geoswarm.control.outcome import RoundEntry
from geoswarm.errors import GeoswarmError, SettingsError
from geoswarm.lab.demo.feed import Feed
from geoswarm.lab.demo.report import write_report
from geoswarm.lab.demo.story import Story
from geoswarm.lab.demo.view import DemoView
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sinks import Noop
from geoswarm.service import launch
from geoswarm.store import plans
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from geoswarm.run.spark.engine import Engine

COLUMNS, ROWS = 1440, 720
"""The grid: cells of a quarter of a degree."""
SIDE_SHARE = 0.0002
"""Rectangles of about 8 km: a part of a city, which a handful of subscriptions share."""
EVENTS_PER_S = 100.0
"""Events per second of stream time. The engine is much faster, so half a minute shows most of a day."""
ROWS_PER_BATCH = 150_000
CHANGES_PER_S = 1000
TUNING = Tuning(strategy="auto-places", round_s=2.0, driver_bytes_max=0)
"""Short rounds: half a minute should see several plans, and hours of the stream's day pass in each of them. Every batch
is run by tasks, as on a cluster."""
POSTS = "posts"
"""The folder of the posts, in that of the checkpoint."""
WRITE_ROWS = 500_000
STREAM_S, STREAM_S_MIN, TOTAL_S = 30.0, 10.0, 95.0
"""Limits that keep the demo short on a machine that starts slowly, since it is busy or compiles the kernels."""


@dataclass(frozen=True)
class DemoScenario:
    seconds: float | None = None
    """Seconds of the stream; None: STREAM_S, or less, so that the demo ends within TOTAL_S."""
    subscriptions: int = 500_000
    executors: int = 16
    seed: int = 0
    checkpoint: str | None = None
    """The folder of the checkpoint; None: a temporary one, removed at the end."""

    @property
    def workload(self) -> Tweets:
        return Tweets(seed=self.seed, events_per_s=EVENTS_PER_S, side_share=SIDE_SHARE)

    @property
    def contract(self) -> Contract:
        return Contract(columns=COLUMNS, rows=ROWS, executors=self.executors)


def run_demo(scenario: DemoScenario, report: Path, out: Console) -> Story:
    """Run the demo, show it, and write the report into the folder `report`."""
    from geoswarm.run.spark.engine import Engine
    from geoswarm.run.spark.session import build_session

    began_s = time.monotonic()
    report.mkdir(parents=True, exist_ok=True)  # fails now rather than at the end
    with _folder(scenario.checkpoint) as checkpoint:
        posts = Path(checkpoint) / POSTS
        with out.status("starting Spark"):
            spark: Any = build_session(f"local[{max(2, len(os.sched_getaffinity(0)))}]", "geoswarm demo")
        with (
            Engine(spark, scenario.contract, TUNING, checkpoint=checkpoint) as engine,
            launch.stop_on_signals() as asked,
        ):
            if engine.status()["batches"] and not posts.is_dir():
                raise SettingsError(f"checkpoint {checkpoint} has no folder {POSTS}, so it is no demo's: name another")
            _subscribe(engine, scenario, out)
            story = _stream(spark, engine, checkpoint, posts, scenario, asked, out, began_s)
    if not story.batches:
        out.print("stopped before the first batch was through: there is nothing to report")
        return story
    with out.status("drawing the report"):
        page = write_report(story, report)
    out.print(f"\n{story.totals_sentence}", highlight=False)
    out.print(story.plans_sentence, highlight=False)
    out.print(f"report: [bold]{page}[/]", soft_wrap=True, highlight=False)
    return story


@contextlib.contextmanager
def _folder(checkpoint: str | None) -> Iterator[str]:
    if checkpoint is not None:
        if "://" in checkpoint:
            raise SettingsError(f"checkpoint {checkpoint} is an address: the demo needs a folder, for its posts, too")
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="geoswarm-demo-", ignore_cleanup_errors=True) as folder:
        yield folder


def _subscribe(engine: "Engine", scenario: DemoScenario, out: Console) -> None:
    held, count = engine.status()["subscriptions"], scenario.subscriptions
    if held:
        out.print(f"the checkpoint holds {held:,} subscriptions: going on with them", highlight=False)
        return
    with tempfile.TemporaryDirectory(prefix="geoswarm-demo-") as folder, out.status("drawing subscriptions") as status:
        path = f"{folder}/subscriptions.parquet"
        with pq.ParquetWriter(path, scenario.workload.subscriptions(0, 0).schema) as writer:
            for first in range(0, count, WRITE_ROWS):
                writer.write_batch(scenario.workload.subscriptions(first, min(WRITE_ROWS, count - first)))
                status.update(f"drawing subscriptions: {first:,} of {count:,}")
        status.update(f"registering {count:,} subscriptions")
        loaded = engine.load(path, lambda done, rows: status.update(f"registered {done:,} of {rows:,} subscriptions"))
    rate = loaded.registered / loaded.seconds
    out.print(
        f"{loaded.registered:,} subscriptions registered in {loaded.seconds:.1f} s ({rate:,.0f}/s)", highlight=False
    )


def _stream(
    spark: Any,
    engine: "Engine",
    checkpoint: str,
    posts: Path,
    scenario: DemoScenario,
    asked: threading.Event,
    out: Console,
    began_s: float,
) -> Story:
    from geoswarm.run.spark.sources import events_from_files

    storage = Storage(checkpoint)
    reader = JournalReader(storage)
    first = engine.status()["events"]
    story = Story(scenario.workload, first, scenario.contract, partial(plans.at, storage))
    follower = reader.follow(BatchEntry)
    with (
        Feed(scenario.workload, posts, first, ROWS_PER_BATCH) as feed,
        DemoView(story, scenario.seconds or STREAM_S, out) as view,
        _churn(engine, scenario, story),
    ):
        events = events_from_files(spark, str(posts), format="parquet", files_per_batch=1)
        run = engine.start(events=events, sink=Noop())

        def look() -> None:
            story.add(follower.new())
            feed.go_on(first + story.totals.events)
            view.show()

        # The clock starts with the first batch: before it, workers are started.
        while run.is_active and not asked.is_set() and not story.batches:
            time.sleep(launch.LOOK_S)
            look()
        left_s = TOTAL_S - (time.monotonic() - began_s)
        view.seconds = scenario.seconds or min(STREAM_S, max(STREAM_S_MIN, left_s))
        launch.until_done(run, asked, look, view.seconds)
    story.rounds = list(reader.read(RoundEntry))
    return story


@contextlib.contextmanager
def _churn(engine: "Engine", scenario: DemoScenario, story: Story) -> Iterator[None]:
    """Register and cancel from a thread of its own, as users would while the stream runs."""
    done = threading.Event()

    def submit() -> None:
        first = 0
        while not done.wait(1.0):
            changes = scenario.workload.operations(first, CHANGES_PER_S, scenario.subscriptions)
            with contextlib.suppress(GeoswarmError):  # the engine is closing; the stream reports why
                engine.submit(pa.Table.from_batches([changes]))
                story.changes += len(changes)
            first += CHANGES_PER_S

    thread = threading.Thread(target=submit, name="demo-churn", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()  # an engine that closes meanwhile would take no operation
