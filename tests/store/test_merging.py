"""Segments are merged beside the stream, and whatever happens meanwhile, every version is what the oracle says."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays import merged_rows
from geoswarm.core.index import merge_cells
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import BIRTH, USER
from geoswarm.core.subscriptions.subs import Subs, concatenate_subs
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.errors import MachineError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.match import match
from geoswarm.flow.merge import as_pairs
from geoswarm.flow.route import route
from geoswarm.flow.validate import conform_operations, validate_operations
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import MergeEntry
from geoswarm.store.key_source import KeySource, make_key_file
from geoswarm.store.loading import load
from geoswarm.store.manifest import Manifest, read, versions
from geoswarm.store.merging import process
from geoswarm.store.merging.merging import WAIT_FACTOR
from geoswarm.store.merging.order import MergeOrder
from geoswarm.store.merging.process import MergerProcess
from geoswarm.store.segments import build_index, merge
from geoswarm.store.segments.merge import merge_segments
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SegmentEntry
from geoswarm.store.segments.write import write_segment
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View
from worlds import BOUNDS, events, operations, with_demands, with_facts, with_keywords, with_on, with_shapes

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
GONE_S_MAX = 20.0


def matches(checkpoint: Checkpoint, manifest: Manifest, batch: pa.RecordBatch) -> list[Pair]:
    view = View.open(checkpoint.storage, manifest)
    mets = (
        met
        for parcel in route(batch, checkpoint.plan)
        for met in match(
            parcel.events, view.searchables(), checkpoint.grid, manifest.now_us, rows_max=64, pairs_max=4096
        )
    )
    return sorted(pairs_of(pa.table(b) for met in mets for b in as_pairs(met)))


class Gate:
    """Merges are carried out here, and end when the test lets them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.may_end, self.begun, self.error = threading.Event(), 0, ""
        gate, true = self, MergerProcess.carry_out

        def carry_out(merger: MergerProcess, order: MergeOrder) -> SegmentEntry | None:
            gate.begun += 1
            assert gate.may_end.wait(GONE_S_MAX)
            if gate.error:
                raise MachineError(gate.error)
            return true(merger, order)

        patch.setattr(MergerProcess, "carry_out", carry_out)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.may_end.set()


class World:
    """A checkpoint under a storm of operations, beside an oracle."""

    def __init__(self, folder: Path, seed: int, tuning: Tuning = EAGER, key: KeySource | None = None) -> None:
        self.rng, self.oracle, self.batch = np.random.default_rng(seed), Oracle(BOUNDS), 0
        self.open: Callable[[], Checkpoint] = partial(Checkpoint, str(folder), CONTRACT, tuning, key=key)
        self.checkpoint = self.open()
        self.adopted = 0

    def storm(self, count: int) -> pa.Table:
        now_us = 10 * self.batch
        storm = operations(self.rng, count, ids=300, now_us=now_us, lasts_us=200)
        kind = self.rng.integers(4)
        if kind == 0:
            return with_on(self.rng, storm)
        storm = with_keywords(self.rng, with_shapes(self.rng, storm)) if kind == 1 else storm
        return with_demands(self.rng, storm, 0.3) if kind == 2 else storm

    def step(self, count: int = 60, prepare: Callable[[int, pa.Table, int], Manifest] | None = None) -> Manifest:
        now_us, storm = 10 * self.batch, self.storm(count)
        before = self.checkpoint.manifest
        made = (prepare or self.prepare)(self.batch, storm, now_us)
        self.oracle.operate(storm, now_us)
        self.adopted += any("-m" in e.name for e in made.segments if e not in before.segments)
        assert self.checkpoint.prepare(self.batch, lambda: pytest.fail("read twice"), now_us) == made
        self.compare(made)
        self.checkpoint.finish(self.batch)
        self.batch += 1
        return made

    def prepare(self, batch: int, storm: pa.Table, now_us: int) -> Manifest:
        return self.checkpoint.prepare(batch, lambda: [storm], now_us)

    def compare(self, made: Manifest) -> None:
        some = events(self.rng, 40)
        some = some.append_column("text", pa.array(["flood river dam café"] * len(some)))
        some = with_facts(self.rng, some).combine_chunks().to_batches()[0]
        assert matches(self.checkpoint, made, some) == sorted(self.oracle.match(pa.table(some), made.now_us))

    def crash(self) -> None:
        """Start again from what is on disk; the engine before is not closed."""
        for lane in self.checkpoint.merging._lanes:
            lane.process.end()
        self.checkpoint.fence.release()
        self.checkpoint = self.open()

    def rest(self) -> None:
        """Batches until everything is merged, and the same again after a start from the disk."""
        self.compare(self.checkpoint.settle(10 * self.batch))
        storage, token = self.checkpoint.storage, self.checkpoint.fence.token[:8]
        kept = [read(storage, version) for version in versions(storage)]
        named = {entry.name for version in kept for entry in version.segments}
        left = {name.rpartition(".")[0] for name in storage.names("subscriptions") if "-m" in name and token in name}
        assert left <= named
        self.checkpoint.close()
        self.checkpoint = self.open()
        self.compare(self.checkpoint.manifest)
        self.checkpoint.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + GONE_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("worded", ["none", "some", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_a_segment_merged_in_pieces_is_that_of_its_subscriptions_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, worded: str
) -> None:
    for module, name, value in (
        (merged_rows, "PIECE_ROWS", 64),
        (merged_rows, "SAMPLE_EVERY", 16),
        (merge_cells, "PIECE_ENTRIES", 128),
        (merge_cells, "SAMPLE_EVERY", 32),
        (merge, "PIECE_ROWS", 64),
    ):
        monkeypatch.setattr(module, name, value)
    rng, storage = np.random.default_rng(seed), Storage(str(tmp_path))
    grid, sources, left = Grid.of(CONTRACT), [], list[Subs]()
    counts = TermCounts(rng.random((2, 64)).astype(np.float32))
    for k in range(6):
        table = operations(rng, 300, ids=10**6)
        if worded == "all" or (worded == "some" and k > 1):
            table = with_keywords(rng, table)
        ids = rng.permutation(10**5)[:300] * 10 + k
        table = table.set_column(0, "op", pa.array(["register"] * 300)).set_column(1, "sub_id", pa.array(ids))
        rows = conform_operations(with_on(rng, table) if k % 2 else table).combine_chunks().to_batches()[0]
        validated = validate_operations(rows, grid, -5, DeadLetters("operation", 0))
        subs = validated.subs(np.flatnonzero(validated.fit))
        subs.values[BIRTH.name] = np.full(len(subs), k // 3)
        write_segment(storage, grid, f"s{k}", subs, 0.25)
        held = open_segment(storage, f"s{k}")
        dead = np.packbits(rng.random(len(subs)) < (0.0, 0.3, 1.0)[k % 3], bitorder="little")
        sources.append((held, dead))
        left.append(held.subs(np.flatnonzero(held.live(dead, 10))))
    merged = merge_segments(storage, grid, "merged", sources, 10, 0.25, counts)
    whole = write_segment(storage, grid, "whole", concatenate_subs(left), 0.25, counts)
    assert merged is not None
    assert (open_segment(storage, "merged").text is None) == (worded == "none")
    assert (merged.subs, merged.stale_us, merged.transitions) == (whole.subs, whole.stale_us, whole.transitions)
    for kind in ("records", "index"):
        one, other = (storage.map_arrays(f"subscriptions/{name}.{kind}") for name in ("merged", "whole"))
        assert set(one) == set(other)
        for name in one:
            assert name.startswith("user") or (one[name] == other[name]).all(), name
    monkeypatch.setattr(build_index, "STEP_ROWS", 100)  # as for an index that is lost, and too large to build at once
    again = build_index.derive_index(grid, storage.map_arrays("subscriptions/merged.records"))
    assert set(again) == set(one)
    assert all((again[name] == one[name]).all() for name in one)
    users = [open_segment(storage, name)[USER] for name in ("merged", "whole")]
    one, other = (USER.read(stored, np.arange(whole.subs)).cast(pa.string()) for stored in users)
    assert one.equals(other)


@pytest.mark.parametrize("seed", range(4))
def test_merges_may_be_adopted_at_any_moment(tmp_path: Path, gate: Gate, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(25):
        world.step(int(world.rng.integers(1, 90)))
        if world.rng.random() < 0.4:
            gate.may_end.set()
            world.checkpoint.merging.wait()
            gate.may_end.clear()
        if world.rng.random() < 0.1:
            world.crash()
    assert world.adopted > 3
    gate.may_end.set()
    world.rest()


def test_a_version_that_fails_after_it_adopted_a_merge_is_made_again(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 5)
    gate.may_end.set()

    def fail_twice(batch: int, storm: pa.Table, now_us: int) -> Manifest:
        with monkeypatch.context() as patch:
            patch.setattr("geoswarm.store.manifest.write", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
            for _ in range(2):
                with pytest.raises(OSError, match="no space left"):
                    world.prepare(batch, storm, now_us)
        if batch % 2:
            world.crash()  # the merge is lost, too
        return world.prepare(batch, storm, now_us)

    for _ in range(12):
        world.checkpoint.merging.wait()
        world.step(prepare=fail_twice)
    assert world.adopted
    world.rest()


def test_many_cancellations_during_a_merge_are_in_force_when_it_is_adopted(tmp_path: Path, gate: Gate) -> None:
    n, world = 120, World(tmp_path, 6)
    sides = {"xmin": [0.0] * n, "ymin": [0.0] * n, "xmax": [1.0] * n, "ymax": [1.0] * n}
    on = ["enter", "inside"] * (n // 2)
    table = pa.table({"op": ["register"] * n, "sub_id": list(range(n)), **sides, "on": on})
    for k in range(3):
        world.prepare(k, table.slice(40 * k, 40), 0)
    assert gate.begun == 1
    for k in range(3, 7):  # 10 of each segment go, one by one batch; the last of them after the merge has ended
        gone = [40 * part + 10 * (k - 3) + i for part in range(3) for i in range(10)]
        if k == 6:
            gate.may_end.set()
            assert world.checkpoint.merging.wait()
        made = world.prepare(k, pa.table({"op": ["cancel"] * 30, "sub_id": gone}), 0)
    assert [(e.subs, e.dead, e.transitions) for e in made.segments] == [(120, 120, 0)]
    assert world.checkpoint.settle(0).segments == ()
    world.checkpoint.close()


def test_where_segments_come_faster_than_they_are_merged_a_batch_waits(tmp_path: Path, gate: Gate) -> None:
    world = World(tmp_path, 7, EAGER.model_copy(update={"deltas_max": 1}))
    while len(world.checkpoint.manifest.segments) <= WAIT_FACTOR:
        world.step(40)
    waiting = threading.Thread(target=world.step, args=(40,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    gate.may_end.set()
    waiting.join(GONE_S_MAX)
    assert not waiting.is_alive()
    assert world.adopted == 1
    world.rest()


def test_a_merge_that_always_fails_is_reported_and_stops_the_stream_at_the_limit(tmp_path: Path, gate: Gate) -> None:
    world = World(tmp_path, 8, EAGER.model_copy(update={"deltas_max": 1}))
    gate.error = "disk on fire"
    gate.may_end.set()
    while len(world.checkpoint.manifest.segments) <= WAIT_FACTOR:
        world.step(40)
        world.checkpoint.merging.wait()
    with pytest.raises(MachineError, match="17 segments wait to be merged, and merging fails: disk on fire"):
        world.prepare(world.batch, world.storm(40), 10 * world.batch)
    (entry,) = JournalReader(world.checkpoint.storage).read(MergeEntry)
    assert entry.error == "failed 3 times: disk on fire"
    gate.error = ""
    world.crash()  # the remedy: start again
    world.step(40)
    world.rest()
    assert any(entry.sources > 1 for entry in JournalReader(world.checkpoint.storage).read(MergeEntry))


def test_what_a_killed_engine_leaves_of_a_merge_is_removed(tmp_path: Path, gate: Gate) -> None:
    world = World(tmp_path, 9)
    while not gate.begun:
        world.step()
    (order,) = (lane.order for lane in world.checkpoint.merging._lanes if lane.order)
    folder = tmp_path / "subscriptions"
    (folder / f".{order.name}.index.x3y").write_bytes(b"half")
    (folder / f"{order.name}.records").write_bytes(b"whole")
    world.crash()
    world.checkpoint.finish(world.batch - 1)
    world.checkpoint._janitor.wait()
    assert not list(folder.glob(f"*{order.name}*"))
    gate.may_end.set()
    world.rest()


def test_a_load_ends_when_its_segments_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoswarm.store.loading.STEP_ROWS", 10)
    n = 400
    sides = {"xmin": [0.0] * n, "ymin": [0.0] * n, "xmax": [1.0] * n, "ymax": [1.0] * n}
    pq.write_table(pa.table({"sub_id": list(range(n)), **sides}), tmp_path / "subs.parquet")
    checkpoint = Checkpoint(str(tmp_path / "state"), CONTRACT, EAGER)
    assert load(checkpoint, str(tmp_path / "subs.parquet"), 0).registered == n
    assert len(checkpoint.manifest.segments) <= EAGER.deltas_max
    assert checkpoint.merging.is_idle
    checkpoint.close()


@pytest.mark.parametrize("words", [None, "flood"])
def test_a_load_leaves_few_segments_where_words_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str | None
) -> None:
    monkeypatch.setattr("geoswarm.store.loading.STEP_ROWS", 100)
    monkeypatch.setattr("geoswarm.store.merging.choose.WORDED_DELTA_SUBS", 50)
    n = 700
    sides = {"xmin": [0.0] * n, "ymin": [0.0] * n, "xmax": [1.0] * n, "ymax": [1.0] * n}
    asked = {} if words is None else {"keywords": [words] * n}
    pq.write_table(pa.table({"sub_id": list(range(n)), **sides, **asked}), tmp_path / "subs.parquet")
    checkpoint = Checkpoint(str(tmp_path / "state"), CONTRACT, Tuning())
    assert load(checkpoint, str(tmp_path / "subs.parquet"), 0).registered == n
    assert len(checkpoint.manifest.segments) == (7 if words is None else 1)
    checkpoint.close()


@pytest.mark.slow
def test_a_merger_without_orders_ends_in_silence() -> None:
    program = f"import {process.PROGRAM} as program; program.IDLE_S_MAX = 0.1; program.main()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as idle:
        assert (idle.wait(60), idle.stderr.read() if idle.stderr else b"") == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_merger_that_is_killed_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool
) -> None:
    monkeypatch.setattr(process, "HERE_SUBS_MAX", 0)
    key = None
    if is_encrypted:
        make_key_file(tmp_path / "key")
        key = KeySource(str(tmp_path / "key"))
    world = World(tmp_path / "state", 10, key=key)
    merging = world.checkpoint.merging
    while not merging.pids():
        world.step()
    (pid,) = merging.pids()
    os.kill(pid, signal.SIGKILL)
    assert merging.wait()
    assert merging.pids() not in ([], [pid])
    world.step()
    assert world.adopted
    (second,) = merging.pids()
    world.rest()
    wait_until(lambda: not is_alive(second))  # an engine that is closed has ended its merger


@pytest.mark.slow
def test_a_merger_that_is_stuck_is_killed_and_the_next_order_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, grid = Storage(str(tmp_path)), Grid.of(CONTRACT)
    order = MergeOrder(storage, grid, "merged", ("gone",), None, 0, 1_000_000, 0.2, None)
    merger = MergerProcess()
    merger.prepare()
    stuck = merger.pid
    assert stuck is not None
    os.kill(stuck, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(process, "START_S_MAX", 1.0)
        patch.setattr(process, "SUBS_PER_S_MIN", 10**9)
        with pytest.raises(MachineError, match="merges 1000000 subscriptions did not end within 1 s and was killed"):
            merger.carry_out(order)
    assert not is_alive(stuck)
    with pytest.raises(MachineError, match="merging 1 segments failed"):  # an answer: there is no such segment
        merger.carry_out(order)
    assert merger.pid not in (None, stuck)
    merger.end()


ENGINE = """
import sys, time
sys.path.insert(0, sys.argv[2])
import test_merging as t
t.process.HERE_SUBS_MAX = 0
world = t.World(t.Path(sys.argv[1]), 11)
while not world.checkpoint.merging.pids():
    world.step()
print(*world.checkpoint.merging.pids(), flush=True)
time.sleep(100)
"""


@pytest.mark.slow
def test_an_engine_that_is_killed_takes_its_merger_along(tmp_path: Path) -> None:
    tests = f"{Path(__file__).parent}{os.pathsep}{Path(__file__).parents[1]}"
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])},
    ) as engine:
        assert engine.stdout is not None
        pids = [int(pid) for pid in engine.stdout.readline().split()]
        assert pids
        engine.kill()
    wait_until(lambda: not any(map(is_alive, pids)))
    reopened = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    assert reopened.settle(0).subs
    reopened.close()
