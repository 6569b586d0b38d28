"""Executors join and leave in the middle of a stream, by request or by the load: the matches are the oracle's.

`control/test_elastic.py` has the rule alone. `run/spark/test_scale.py` scales on Spark.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import cycle, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import geoswarm as gs
from geoswarm.config import ExecutorRange, Tuning
from geoswarm.control.outcome import RoundEntry, ScaleEntry
from geoswarm.control.strategy import Strategy
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import CONTRACT, STEP_S, TUNING, Scenario, compare, now_s
from geoswarm.lab.crash.victim import IN_PROCESS
from geoswarm.run.rows import Rows
from geoswarm.run.sinks import Parquet
from geoswarm.service.explain import rounds, sentences
from geoswarm.store import plans, scale_requests
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.scale_requests import put_request, waiting_requests
from geoswarm.store.storage import Storage
from restless import restless

FILES = 6
MOVING = TUNING.model_copy(update={"round_s": STEP_S})


class Harness(Parquet):
    """A sink that calls a function when it has a batch, and before the batch is finished."""

    def __init__(self, path: str, then: Callable[[int], None]) -> None:
        super().__init__(path)
        self._then = then

    def write(self, matches: Rows, batch_id: int) -> None:
        super().write(matches, batch_id)
        self._then(batch_id)


class World:
    """A scenario's files, and the local engine on them."""

    def __init__(self, folder: Path, seed: int, files: int = FILES, *, events: int = 200) -> None:
        self.scenario = Scenario(seed=seed, events_per_file=events, operations_per_file=120)
        self.scenario.write(folder, range(files))
        self.folder, self.checkpoint, self.output = folder, folder / "checkpoint", folder / "output"
        self.storage = Storage(str(self.checkpoint))

    def run(self, tuning: Tuning, then: Callable[[int], None], **given: Any) -> None:
        given = {"clock": lambda: now_s(self.checkpoint)} | given
        with gs.LocalEngine(CONTRACT, tuning, checkpoint=str(self.checkpoint), **given) as engine:
            engine.start(
                events=gs.local.events_from_files(str(self.folder / "events"), files_per_batch=1),
                operations=gs.local.operations_from_files(str(self.folder / "operations"), files_per_batch=1),
                sink=Harness(str(self.output), then),
                available_now=True,
            ).wait()

    def scale_at(self, numbers: Mapping[int, int]) -> Callable[[int], None]:
        def then(batch: int) -> None:
            if batch in numbers:
                put_request(self.storage, numbers[batch], batch)

        return then

    def check(self, batches: int = FILES) -> None:
        verdict = compare(self.scenario, self.checkpoint, self.output)
        assert verdict.is_equal, verdict
        assert (verdict.batches, verdict.pairs > 50 * batches) == (batches, True)
        assert not waiting_requests(self.storage).names

    def executors_of_batches(self) -> list[int]:
        entries = {entry.batch: entry for entry in JournalReader(self.storage).read(BatchEntry)}
        return [plans.at(self.storage, entries[k].plan_epoch).executors for k in sorted(entries)]

    @property
    def decisions(self) -> list[ScaleEntry]:
        return list(JournalReader(self.storage).read(ScaleEntry))


@pytest.mark.parametrize(
    "strategy",
    [
        "auto",
        "auto-places",
        "swarm-measured",
        "swarm",
        "static-history",
        "replicated",
        "per-batch",
        "ps2-hybrid",
        "restless",
    ],
)
def test_scaled_up_and_down_in_the_middle_of_a_stream(tmp_path: Path, strategy: str) -> None:
    """`restless` spreads, cuts and divides at random, so a spread partition loses executors."""
    world = World(tmp_path, seed=21)
    made: Strategy | str = restless(3, 1)() if strategy == "restless" else strategy
    world.run(MOVING, world.scale_at({0: 9, 2: 2, 3: 12, 4: 1}), strategy=made)
    world.check()
    used = [set(entry.executors) for entry in JournalReader(world.storage).read(BatchEntry)]
    assert [max(executors) < n for executors, n in zip(used, (5, 9, 9, 2, 12, 1), strict=True)] == [True] * FILES
    assert [(d.executors, d.executors_next, d.cause) for d in world.decisions] == [
        (5, 9, "command"),
        (9, 2, "command"),
        (2, 12, "command"),
        (12, 1, "command"),
    ]
    if strategy in ("auto", "static-history", "per-batch", "replicated"):
        assert max(used[1]) > 4  # the first batch after it gives new executors work


@pytest.mark.parametrize("at", ["before the plan", "after the plan", "in the sink"])
def test_a_crash_while_a_request_is_taken_neither_loses_nor_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    world, batches = World(tmp_path, seed=22), list[int]()

    def crash(*given: Any) -> None:
        raise KeyboardInterrupt("killed here")

    def then(batch: int) -> None:
        batches.append(batch)
        if batch == 1:
            put_request(world.storage, 8, 1)
            put_request(world.storage, 3, 2)  # the newest holds
        if batch == 2 and batches.count(2) == 1 and at == "in the sink":
            crash()

    with monkeypatch.context() as broken, suppress(KeyboardInterrupt):
        if at == "before the plan":
            broken.setattr("geoswarm.run.steering.Steering.scale", crash)
        if at == "after the plan":
            broken.setattr("geoswarm.run.scaling.clear_requests", crash)
        world.run(MOVING, then, strategy="auto")
    assert batches[-1] < FILES - 1
    assert len(waiting_requests(world.storage).names) == (0 if at == "in the sink" else 2)
    world.run(MOVING, then, strategy="auto")
    world.check()
    assert world.executors_of_batches()[2:] == [3] * 4
    drawn = [entry for entry in JournalReader(world.storage).read(RoundEntry) if "scaled" in entry.decision]
    assert [entry.decision for entry in drawn] == ["scaled from 5 to 3 executors"]


def test_a_request_that_comes_while_another_is_taken_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, clear = World(tmp_path, seed=23, files=4), scale_requests.clear_requests

    def late(storage: Storage, names: list[str]) -> None:
        if len(world.decisions) == 1:
            put_request(world.storage, 7, 50)
        clear(storage, names)

    monkeypatch.setattr("geoswarm.run.scaling.clear_requests", late)
    world.run(MOVING, world.scale_at({0: 3}))
    world.check(4)
    assert world.executors_of_batches() == [5, 3, 7, 7]


def test_scaled_from_another_process_and_killed(tmp_path: Path) -> None:
    scenario, files = Scenario(seed=24), 30
    scenario.write(tmp_path, range(files))

    def scale(executors: int) -> None:
        command = [sys.executable, "-m", "geoswarm.service.cli", "scale", str(victim.checkpoint), str(executors)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"{executors} executors from the next batch on" in said

    def until_taken(executors: int) -> None:
        """A fast machine may be through with all files before the request is there, and is given more."""
        nonlocal files
        while not victim.until(lambda: plans.newest(state)[0].executors == executors, "the request to be taken"):
            scenario.write(tmp_path, range(files, files + 5))
            files += 5
            victim.start()

    with Victim(tmp_path, IN_PROCESS, strategies=("auto", "swarm-measured")) as victim:
        state = Storage(str(victim.checkpoint))
        victim.start()
        assert victim.until(lambda: victim.commits() >= 1, "a batch")
        scale(9)
        until_taken(9)
        victim.kill("driver", np.random.default_rng(0))
        scale(2)  # no engine runs
        until_taken(2)
        victim.until_done()
        verdict = compare(scenario, victim.checkpoint, victim.output)
    assert verdict.is_equal, verdict
    assert verdict.batches >= 30
    causes = [(entry.executors_next, entry.cause) for entry in JournalReader(state).read(ScaleEntry)]
    assert list(dict.fromkeys(causes)) == [(9, "command"), (2, "command")]


def test_executors_follow_the_load_up_and_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes as long as its work and its executors say: as much as ten can do in a step, then nearly none."""
    world, done = World(tmp_path, seed=25, files=45, events=60), [0]
    looks = cycle((0.0, 0.0, 1.0))  # the pipeline looks at the clock at its start, after `prepare` and at its end

    def perf_counter() -> float:
        work_s = STEP_S * (10.0 if done[0] < 15 else 0.5)
        return next(looks) * work_s / plans.newest(world.storage)[0].executors

    def then(batch: int) -> None:
        done[0] = batch

    fake = SimpleNamespace(perf_counter=perf_counter, thread_time=time.thread_time)
    monkeypatch.setattr("geoswarm.run.pipeline.time", fake)
    span = ExecutorRange(min=2, max=32, batch_s=STEP_S)
    world.run(MOVING.model_copy(update={"executors": span, "round_s": STEP_S}), then, strategy="auto")
    world.check(45)
    numbers = [number for number, _ in groupby(world.executors_of_batches())]
    assert numbers == [5, 10, 20, 10, 5, 3, 2]
    grown = next(d for d in world.decisions if d.executors_next > d.executors)
    assert (grown.load, grown.busy, grown.batch_s, grown.interval_s) == (1.0, 1.0, 2 * STEP_S, STEP_S)
    said = [line for line in sentences(rounds(world.storage, None)) if "executors" in line]
    want = "5 -> 10 executors: load 100%, above 80% for 2 rounds (batches took 120 s of 60 s, busy 100% of the time, 1 "
    assert f"{want}events/s)" in said


def test_a_range_of_another_start_holds_from_its_first_batch(tmp_path: Path) -> None:
    world = World(tmp_path, seed=26, files=2)
    world.run(MOVING.model_copy(update={"executors": ExecutorRange(min=7, max=9)}), lambda batch: None)
    assert world.executors_of_batches() == [7, 7]
    world.scenario.write(tmp_path, range(2, 5))
    narrow = MOVING.model_copy(update={"executors": ExecutorRange(min=2, max=3)})
    world.run(narrow, world.scale_at({2: 100}))
    world.check(5)
    assert world.executors_of_batches() == [7, 7, 3, 3, 3]
    assert [(d.executors_next, d.cause) for d in world.decisions if d.cause != "load"] == [
        (7, "range"),
        (3, "range"),
        (3, "command"),
    ]
    asked = next(d for d in world.decisions if d.cause == "command")
    assert asked.reason == "someone asked for 100 executors, and 3 are within the range"


def test_what_cannot_be_asked_for_is_refused_where_it_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path, seed=27, files=1)
    world.run(TUNING, lambda batch: None)
    for number in (0, -1, 1001):
        with pytest.raises(SettingsError, match=f"{number} executors: use 1 to 1000"):
            put_request(world.storage, number, 0)
    with pytest.raises(InputError, match="is no checkpoint of an engine"):
        put_request(Storage(str(tmp_path / "nowhere")), 3, 0)
    with pytest.raises(SettingsError, match="over-partitioned makes several tasks for each executor"):
        world.run(
            TUNING.model_copy(update={"executors": ExecutorRange(min=2, max=4)}), print, strategy="over-partitioned"
        )


def test_a_damaged_request_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, seed=28, files=2)

    def then(batch: int) -> None:
        if batch == 0:
            world.storage.write("scale/00000000000000000001-ab.json", b"{")
            world.storage.write_document("scale/00000000000000000002-ab.json", {"executors": "six", "at_us": 2})

    world.run(TUNING, then)
    world.check(2)
    assert [d.reason for d in world.decisions] == ["a file in scale/ is damaged: scale again"]
