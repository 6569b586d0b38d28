"""Engines are killed while their plan moves, also between a new plan and the batch that is given it: nothing is lost.

`test_crash.py` has kills on a cluster; `geoswarm bench recovery` has many more.
"""

import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import Scenario, compare
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.store import local_files, manifest, plans
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.key_source import KEY_FILE, make_key_file
from geoswarm.store.storage import Storage
from restless import legal_changes
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations

SCENARIO = Scenario(seed=9)
CONTRACT = Contract(columns=20, rows=15, executors=3)
BATCHES = 3


@pytest.mark.cluster
def test_a_driver_and_a_worker_killed_while_the_plan_moves_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that is written and sent encrypted."""
    make_key_file(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    rng = np.random.default_rng(6)
    strategies = ("swarm-measured", "per-batch")
    with Victim(tmp_path, "local[1]", "--exchange", "rows", strategies=strategies) as victim:
        written = kill_at_an_unused_plan(victim, rng)
        assert not victim.is_alive
        SCENARIO.write(tmp_path, range(written, written + 3))  # so that there are batches to come, wherever it died
        at_kill = victim.commits()
        assert victim.until(lambda: victim.commits() > at_kill, "a batch after the driver was killed")
        time.sleep(rng.uniform(0, 0.5))  # somewhere in the next batch
        assert victim.until(lambda: victim.kill("worker", rng) > 0, "a worker to kill")
        victim.until_done()
        assert victim.starts >= 2
        entries = list(JournalReader(Storage(str(victim.checkpoint))).read(BatchEntry))
        verdict = compare(SCENARIO, victim.checkpoint, victim.output)
    assert verdict.is_equal, verdict
    assert verdict.pairs > 500
    epochs = {entry.batch: entry.plan_epoch for entry in entries}
    assert len(set(epochs.values())) > verdict.batches // 3, epochs
    assert sorted(epochs.values()) == [epochs[k] for k in sorted(epochs)], "plans never go back"


def kill_at_an_unused_plan(victim: Victim, rng: np.random.Generator) -> int:
    """Kill the driver between a new plan and the manifest of the batch that would have it. Returns the files written:
    a fast machine may be through with them before the test has looked, and is given more."""
    state = Storage(str(victim.checkpoint))
    for first in range(0, 60, 4):
        SCENARIO.write(victim.world, range(first, first + 4))
        victim.start()
        if victim.until(lambda: victim.has_unused_plan() and victim.kill("driver", rng) > 0, "a new plan"):
            assert manifest.newest(state).plan_epoch < plans.newest(state)[0].epoch
            return first + 4
    raise AssertionError("no plan was ever seen before its batch")


class Crash(Exception):  # noqa: N818 - stands for a process that is gone
    pass


class Story:
    """What is asked of an engine, and what it delivered; the engine may be another one at each call."""

    def __init__(self, folder: Path, per_batch: bool) -> None:
        self._folder, self._per_batch = folder, per_batch
        self.delivered: dict[int, list[Pair]] = {}
        self.epochs: list[int] = []
        self.through = 0

    def go_on(self) -> None:
        engine = SteppedEngine(self._folder, CONTRACT)
        try:
            while self.through < BATCHES:
                self._batch(engine, self.through)
                self.through += 1  # Spark's commit
        finally:
            engine.close()

    def _batch(self, engine: SteppedEngine, b: int) -> None:
        held = engine.checkpoint

        def redraw() -> Any:
            return held.plan.apply(legal_changes(held.plan, np.random.default_rng((b, held.plan.epoch)), 3))

        batch, storm = world(b)
        result = engine.batch(b, batch, storm, 10 * b, redraw if self._per_batch else None)
        pairs = sorted(result.pairs)
        assert self.delivered.setdefault(b, pairs) == pairs, "a replay gives the same"
        self.epochs.append(result.plan.epoch)
        if not self._per_batch:
            held.adopt_plan(redraw())


def world(b: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng((b, 3))
    return pa.table(events(rng, 60, first_id=1000 * b)), operations(rng, 40, ids=30, now_us=10 * b)


@pytest.mark.parametrize("per_batch", [False, True])
def test_a_crash_at_any_write_of_a_moving_plan_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_batch: bool
) -> None:
    """The k-th file that is written is the last one, for every k."""
    oracle, want = Oracle(BOUNDS), {}
    for b in range(BATCHES):
        batch, storm = world(b)
        oracle.operate(storm, 10 * b)
        want[b] = sorted(oracle.match(batch, 10 * b))
    publish = local_files.publish
    left = -1

    def publish_or_crash(*args: Any) -> None:
        nonlocal left
        left -= 1
        publish(*args)
        if left == 0:
            raise Crash

    monkeypatch.setattr(local_files, "publish", publish_or_crash)
    for crash_at in count(1):
        story, left = Story(tmp_path / str(crash_at), per_batch), crash_at
        with suppress(Crash):
            story.go_on()
        is_over, left = left > 0, 0
        story.go_on()  # the next process
        assert story.delivered == want
        assert story.epochs == sorted(story.epochs)
        assert len(set(story.epochs)) == BATCHES
        if is_over:
            break
    assert crash_at > 5 * BATCHES
