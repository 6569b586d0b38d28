"""The subscriptions after any storm of operations are those of the oracle, through merges, loads and restarts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.errors import CorruptState, FencedOut, SettingsError, StateError
from geoswarm.flow.match.match import match
from geoswarm.flow.merge import as_pairs
from geoswarm.flow.route import route
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.store import dead_files
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.loading import load
from geoswarm.store.manifest import Manifest
from geoswarm.store.subscriptions import View
from worlds import BOUNDS, events, operations

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)  # merges at every turn


@pytest.fixture
def open_checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    yield checkpoint
    checkpoint.close()


def matches(checkpoint: Checkpoint, manifest: Manifest, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    view = View.open(checkpoint.storage, manifest)
    segments = view.searchables()
    mets = (
        met
        for parcel in route(batch, checkpoint.plan)
        for met in match(parcel.events, segments, checkpoint.grid, manifest.now_us, rows_max=64, pairs_max=4096)
    )
    return pairs_of(pa.table(b) for met in mets for b in as_pairs(met))


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_of_operations_leaves_what_the_oracle_says(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    oracle, refused = Oracle(BOUNDS), 0
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    for batch_id in range(25):
        now_us = 10 * batch_id
        storm = operations(rng, int(rng.integers(1, 120)), ids=300, now_us=now_us)
        manifest = checkpoint.prepare(batch_id, lambda storm=storm: [storm], now_us)  # type: ignore[misc]
        refused += oracle.operate(storm, now_us)
        batch = events(rng, 40)
        assert sorted(matches(checkpoint, manifest, batch)) == sorted(oracle.match(pa.table(batch), now_us))
        checkpoint.finish(batch_id)
        if rng.random() < 0.3:  # a restart in the middle changes nothing
            checkpoint.close()
            checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    assert sum(len(table) for table in dead_files.read(checkpoint.storage)) == refused > 0
    checkpoint.close()


def test_a_batch_asked_for_again_gets_the_version_it_had(open_checkpoint: Checkpoint) -> None:
    rng = np.random.default_rng(1)
    first = open_checkpoint.prepare(0, lambda: [operations(rng, 50, ids=100)], 0)
    again = open_checkpoint.prepare(0, lambda: pytest.fail("operations were read twice"), 999)
    assert again == first
    open_checkpoint.submit(operations(rng, 50, ids=100).filter(pa.array([True] * 5 + [False] * 45)))
    open_checkpoint.fold(5)  # a later version does not change what batch 0 is replayed with
    assert open_checkpoint.prepare(0, lambda: pytest.fail("operations were read twice"), 999) == first


def test_a_crash_before_the_manifest_is_written_applies_operations_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    storm = operations(rng, 200, ids=100)
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    checkpoint._draft([storm], 0, 0)  # segments and dead letters on disk, no manifest: what a crash leaves
    checkpoint.close()
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    manifest = checkpoint.prepare(0, lambda: [storm], 0)
    oracle = Oracle(BOUNDS)
    refused = oracle.operate(storm, 0)
    batch = events(rng, 100)
    assert sorted(matches(checkpoint, manifest, batch)) == sorted(oracle.match(pa.table(batch), 0))
    assert sum(len(table) for table in dead_files.read(checkpoint.storage)) == refused
    checkpoint.close()


def test_an_acknowledged_operation_survives_a_crash_before_it_is_taken_in(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    checkpoint.submit(
        pa.table({"op": ["register"], "sub_id": [7], "xmin": [0.0], "ymin": [0.0], "xmax": [1.0], "ymax": [1.0]})
    )
    checkpoint.close()
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    assert checkpoint.prepare(0, lambda: [], 0).subs == 1
    checkpoint.finish(0)
    assert checkpoint.prepare(1, lambda: [], 0).subs == 1  # and is taken in once
    assert not checkpoint.storage.names("inbox")
    checkpoint.close()


def test_spark_going_back_in_time_is_refused(open_checkpoint: Checkpoint) -> None:
    for batch_id in range(3):
        open_checkpoint.prepare(batch_id, lambda: [], 0)
        open_checkpoint.finish(batch_id)
    with pytest.raises(StateError, match="asks for batch 0, but batch 2 has been run"):
        open_checkpoint.prepare(0, lambda: [], 0)


def test_a_checkpoint_keeps_its_contract(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path), CONTRACT, EAGER).close()
    with pytest.raises(
        SettingsError,
        match="has 5 executors, and 6 are asked for: leave the number",
    ):
        Checkpoint(str(tmp_path), CONTRACT.model_copy(update={"executors": 6}), EAGER)


def test_a_second_engine_is_fenced_off_until_the_first_is_gone(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path), CONTRACT, EAGER)
    with pytest.raises(FencedOut, match="in use by process"):
        Checkpoint(str(tmp_path), CONTRACT, EAGER)
    first.close()
    Checkpoint(str(tmp_path), CONTRACT, EAGER).close()


def test_files_that_no_version_needs_are_removed(open_checkpoint: Checkpoint) -> None:
    rng = np.random.default_rng(3)
    for batch_id in range(30):
        open_checkpoint.prepare(batch_id, lambda: [operations(rng, 30, ids=100)], 0)
        open_checkpoint.finish(batch_id)
    open_checkpoint.settle(0)
    assert len(open_checkpoint.storage.names("manifests")) <= 2
    assert len(open_checkpoint.storage.names("subscriptions")) <= 2 * 2 * (EAGER.deltas_max + 2) + 2


def test_expired_subscriptions_are_cleared_away_in_time(open_checkpoint: Checkpoint) -> None:
    n = 500
    rows = {
        "op": ["register"] * n,
        "sub_id": list(range(n)),
        "xmin": [0.0] * n,
        "ymin": [0.0] * n,
        "xmax": [1.0] * n,
        "ymax": [1.0] * n,
    }
    short_lived = pa.table(rows).append_column("expires", pa.array([100] * n).cast(pa.timestamp("us", "UTC")))
    open_checkpoint.prepare(0, lambda: [short_lived], 0)
    one = pa.table({"op": ["register"], "sub_id": [n], "xmin": [0.0], "ymin": [0.0], "xmax": [1.0], "ymax": [1.0]})
    assert open_checkpoint.prepare(1, lambda: [one], 200).subs == n + 1
    assert open_checkpoint.settle(200).subs == 1


def test_places_for_subscriptions_are_limited(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, Tuning(subscriptions_max=10))
    n = 25
    rows = {
        "op": ["register"] * n,
        "sub_id": list(range(n)),
        "xmin": [0.0] * n,
        "ymin": [0.0] * n,
        "xmax": [1.0] * n,
        "ymax": [1.0] * n,
    }
    assert checkpoint.prepare(0, lambda: [pa.table(rows)], 0).subs == 10
    letters = pa.concat_tables(dead_files.read(checkpoint.storage)).to_pylist()
    assert [letter["reason"] for letter in letters] == ["full"] * 15
    assert "all 10 places are taken" in letters[0]["detail"]
    checkpoint.close()


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete"])
@pytest.mark.parametrize("kind", ["records", "index", "dead", "manifest", "plan", "contract"])
def test_a_damaged_file_is_rebuilt_or_refused_but_never_believed(tmp_path: Path, kind: str, harm: str) -> None:
    rng = np.random.default_rng(4)
    oracle, storm = Oracle(BOUNDS), [operations(rng, 150, ids=200) for _ in range(2)]
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, Tuning())
    for batch_id, table in enumerate(storm):
        checkpoint.prepare(batch_id, lambda table=table: [table], 0)  # type: ignore[misc]
        oracle.operate(table, 0)
        checkpoint.finish(batch_id)
    checkpoint.close()
    patterns = {"manifest": "manifests/*", "plan": "plans/*", "contract": "contract.json"}
    victim = sorted(tmp_path.glob(patterns.get(kind, f"subscriptions/*.{kind}")))[-1]
    _harm(victim, harm, rng)
    if kind == "index":
        healed = Checkpoint(str(tmp_path), CONTRACT, Tuning())
        batch = events(rng, 200)
        assert sorted(matches(healed, healed.manifest, batch)) == sorted(oracle.match(pa.table(batch), 0))
        healed.close()
    else:
        named = {("manifest", "delete"): "version 4", ("plan", "delete"): "no plan is left"}
        with pytest.raises(CorruptState, match=named.get((kind, harm), victim.name)):
            Checkpoint(str(tmp_path), CONTRACT, Tuning())


def _harm(victim: Path, harm: str, rng: np.random.Generator) -> None:
    data = bytearray(victim.read_bytes())
    if harm == "delete":
        victim.unlink()
    elif harm == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    else:
        data[int(rng.integers(len(data) // 2, len(data)))] ^= 1 << int(rng.integers(8))
        victim.write_bytes(data)


def registers(*ids: int, op: str = "register", right: float = 1.0, expires: int | None = None) -> pa.Table:
    n = len(ids)
    sides = {"xmin": [0.0] * n, "ymin": [0.0] * n, "xmax": [right] * n, "ymax": [1.0] * n}
    expiry = pa.array([expires] * n, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"op": [op] * n, "sub_id": list(ids), **sides}).append_column("expires", expiry)


def test_a_clock_set_back_revives_nothing(open_checkpoint: Checkpoint) -> None:
    open_checkpoint.prepare(0, lambda: [registers(7, expires=90), registers(8)], 0)
    open_checkpoint.prepare(1, lambda: [registers(7)], 100)
    manifest = open_checkpoint.prepare(2, lambda: [], 80)
    batch = pa.record_batch(
        {"event_id": [1], "ts": pa.array([0]).cast(pa.timestamp("us", "UTC")), "x": [0.5], "y": [0.5]}
    )
    assert sorted(matches(open_checkpoint, manifest, batch)) == [(1, 7), (1, 8)]


def test_a_manifest_that_cannot_be_written_leaves_no_trace(
    open_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("geoswarm.store.manifest.write", full)
        with pytest.raises(OSError, match="no space"):
            open_checkpoint.prepare(0, lambda: [registers(7)], 0)
    assert open_checkpoint.prepare(0, lambda: [registers(7)], 0).subs == 1
    assert not list(dead_files.read(open_checkpoint.storage))
    assert [len(rects) for rects in open_checkpoint.take_churn().came] == [1]


def test_at_the_limit_a_place_that_was_freed_can_be_taken(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, Tuning(subscriptions_max=1))
    checkpoint.prepare(0, lambda: [registers(1)], 0)
    checkpoint.prepare(1, lambda: [registers(1, op="cancel"), registers(1, right=50.0)], 0)
    checkpoint.prepare(2, lambda: [registers(1, op="replace", right=60.0)], 0)
    manifest = checkpoint.prepare(3, lambda: [pa.concat_tables([registers(1, op="cancel"), registers(5, 4)])], 0)
    assert manifest.subs == 1
    letters = pa.concat_tables(dead_files.read(checkpoint.storage)).to_pylist()
    assert [(letter["reason"], '"sub_id": 4' in letter["row"]) for letter in letters] == [("full", True)]
    checkpoint.close()


def test_dead_letters_of_events_outlive_many_of_operations(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, Tuning(dead_letter_folders_max=3))
    table = pa.Table.from_pylist([{"batch_id": 0, "kind": "event", "reason": "null", "detail": "", "row": ""}])
    dead_files.write(checkpoint.storage, dead_files.folder_of(dead_files.EVENTS, 0), "0", table)
    for batch_id in range(8):
        checkpoint.prepare(batch_id, lambda: [registers(9, op="cancel")], 0)
        checkpoint.finish(batch_id)
    kinds = [row["kind"] for table in dead_files.read(checkpoint.storage) for row in table.to_pylist()]
    assert sorted(kinds) == ["event", "operation", "operation", "operation"]
    checkpoint.close()


def test_a_replaced_engine_can_change_neither_plan_nor_subscriptions(open_checkpoint: Checkpoint) -> None:
    open_checkpoint.storage.write_document("terms/00000099.json", {"term": 99, "token": "another"})
    for act in (
        lambda: open_checkpoint.adopt_plan(open_checkpoint.plan.move(open_checkpoint.plan.partitions[0].id, 1)),
        lambda: open_checkpoint.prepare(0, lambda: [], 0),
        lambda: open_checkpoint.submit(registers(1)),
        lambda: open_checkpoint.finish(0),
    ):
        with pytest.raises(FencedOut, match="number 99 has started since"):
            act()


def test_calls_waiting_for_a_batch_are_limited(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, Tuning(inbox_files_max=3))
    for i in range(3):
        checkpoint.submit(registers(i))
    with pytest.raises(StateError, match="3 calls wait for a batch"):
        checkpoint.submit(registers(9))
    assert checkpoint.prepare(0, lambda: [], 0).subs == 3
    checkpoint.submit(registers(9))
    checkpoint.close()


def test_a_load_that_was_cut_short_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoswarm.store.loading.STEP_ROWS", 10)
    pq.write_table(registers(*range(35)).drop_columns(["op"]), tmp_path / "subs.parquet")
    checkpoint = Checkpoint(str(tmp_path / "state"), CONTRACT, Tuning())

    def stop(done: int, rows: int) -> None:
        assert rows == 35
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(checkpoint, str(tmp_path / "subs.parquet"), 0, stop)
    assert checkpoint.manifest.subs == 20
    checkpoint.close()
    checkpoint = Checkpoint(str(tmp_path / "state"), CONTRACT, Tuning())
    rest = load(checkpoint, str(tmp_path / "subs.parquet"), 0)
    assert (rest.registered, rest.dead, checkpoint.manifest.subs) == (15, 0, 35)
    again = load(checkpoint, str(tmp_path / "subs.parquet"), 0)
    assert (again.registered, again.dead, checkpoint.manifest.subs) == (0, 0, 35)
    checkpoint.close()
