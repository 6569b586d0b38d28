"""What subscriptions count rests with them, and since when: through merges, replaces, expiry and bulk loads."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.aggregates.spec import AggregateSpec, read_spec
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.subscriptions.aggregate import AGGREGATE_ARRAYS, NO_SPEC, StoredAggregates, look_up
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.flow.exchange import PACKED
from geoswarm.model import EVENT
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.loading import load
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, SegmentEntry
from geoswarm.store.subscriptions import View
from worlds import BOUNDS, operations, with_aggregates, with_on

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
COUNT: dict[str, Any] = {"aggregate": "count", "window": "tumbling(60 s)"}
SUM: dict[str, Any] = {"aggregate": "sum(v)", "window": "tumbling(60 s)"}


@pytest.fixture
def open_checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"), CONTRACT, EAGER)
    yield checkpoint
    checkpoint.close()


def put(sub_id: int, *, replace: bool = False, **said: Any) -> dict[str, Any]:
    return registration(sub_id, (0.0, 0.0, 1.0, 1.0), replace=replace, **said)


def counted(checkpoint: Checkpoint, manifest: Manifest, ids: Ints) -> list[tuple[AggregateSpec, int] | None]:
    """What each id counts, and since which version."""
    values = View.open(checkpoint.storage, manifest).aggregates(ids, manifest.now_us)
    pairs = zip(values.codes.tolist(), values.began.tolist(), strict=True)
    return [None if code == NO_SPEC else (values.spec(code), began) for code, began in pairs]


def prepare(checkpoint: Checkpoint, batch: int, *rows: dict[str, Any]) -> Manifest:
    manifest = checkpoint.prepare(batch, lambda: [operation_table(rows)], 0)
    checkpoint.finish(batch)
    return manifest


@pytest.mark.parametrize("seed", range(4))
def test_every_version_knows_what_its_subscriptions_count_and_since_when(
    open_checkpoint: Checkpoint, seed: int
) -> None:
    rng, oracle, ids = np.random.default_rng(seed), Oracle(BOUNDS), np.arange(-5, 320)
    versions: dict[int, int] = {}  # by the oracle's beginning
    for batch_id in range(25):
        now_us = 10 * batch_id
        storm = operations(rng, int(rng.integers(1, 150)), ids=300, now_us=now_us)
        storm = with_aggregates(rng, with_on(rng, storm) if batch_id % 3 == 0 else storm)
        manifest = open_checkpoint.prepare(batch_id, lambda storm=storm: [storm], now_us)  # type: ignore[misc]
        refused = oracle.operate(storm, now_us)
        assert manifest.refused == refused
        live = {k for k, v in oracle.live.items() if v[4] is None or v[4] > now_us}
        held = {k: counting for k, counting in oracle.counting.items() if k in live}
        found = counted(open_checkpoint, manifest, ids)
        assert [None if one is None else one[0] for one in found] == [
            held[k].spec if k in held else None for k in ids.tolist()
        ]
        for sub, one in zip(ids.tolist(), found, strict=True):
            if one is not None:
                assert one[1] == versions.setdefault(held[sub].began, manifest.version)
        open_checkpoint.finish(batch_id)
        claimed = sum(entry.aggregates for entry in manifest.segments)
        assert claimed >= len(held) > 0  # some may have expired
    assert len(versions) > 100


def test_counting_goes_on_where_only_other_things_change(open_checkpoint: Checkpoint) -> None:
    first = prepare(open_checkpoint, 0, *(put(sub, **COUNT) for sub in range(8)))
    again = "tumbling(1 min)"
    second = prepare(
        open_checkpoint,
        1,
        put(0, replace=True, **COUNT),
        put(1, replace=True, aggregate="Count", window=again, when="count > 5", user="ana", keywords="flood"),
        put(2, replace=True, **COUNT, group_by="kind"),
        put(3, replace=True, **SUM),
        put(3, replace=True, **COUNT),
        {"op": "cancel", "sub_id": 4},
        put(4, **COUNT),
        put(5, replace=True),
        put(5, replace=True, **COUNT),
        {"op": "cancel", "sub_id": 6},
        put(7, **COUNT),
    )
    began = [one and one[1] for one in counted(open_checkpoint, second, np.arange(8))]
    old, new = first.version, second.version
    assert began == [old, old, new, new, new, new, None, old]
    assert second.refused == 1  # the last one registers an id that is live


def test_a_subscription_that_comes_back_begins_anew(open_checkpoint: Checkpoint) -> None:
    prepare(open_checkpoint, 0, put(1, **COUNT))
    prepare(open_checkpoint, 1, {"op": "cancel", "sub_id": 1})
    back = prepare(open_checkpoint, 2, put(1, **COUNT))
    assert counted(open_checkpoint, back, np.array([1])) == [(read_spec(**COUNT), back.version)]


def test_a_manifest_says_whether_any_subscription_counts(open_checkpoint: Checkpoint) -> None:
    assert sum(entry.aggregates for entry in prepare(open_checkpoint, 0, put(0), put(1)).segments) == 0
    assert sum(e.aggregates for e in prepare(open_checkpoint, 1, put(10, **COUNT), put(11, **SUM)).segments) == 2
    fewer = prepare(open_checkpoint, 2, {"op": "cancel", "sub_id": 10}, {"op": "cancel", "sub_id": 0})
    assert sum(entry.aggregates for entry in fewer.segments) == 1


def test_those_who_count_nothing_cost_nothing(open_checkpoint: Checkpoint) -> None:
    plain = prepare(open_checkpoint, 0, put(0), put(1))
    records = open_checkpoint.storage.map_arrays(f"{SEGMENTS_FOLDER}/{plain.segments[0].name}.records")
    assert not [name for name in records if name.startswith(AGGREGATE_ARRAYS)]  # as before there were aggregates
    assert counted(open_checkpoint, plain, np.arange(3)) == [None] * 3


def test_a_text_that_many_share_is_stored_once(open_checkpoint: Checkpoint) -> None:
    rows = [put(sub, **(COUNT if sub % 2 else SUM)) for sub in range(1000)]
    held = prepare(open_checkpoint, 0, *rows)
    records = open_checkpoint.storage.map_arrays(f"{SEGMENTS_FOLDER}/{held.segments[0].name}.records")
    assert len(records[f"{AGGREGATE_ARRAYS}texts_offsets"]) == 3
    fewer = [{"op": "cancel", "sub_id": sub} for sub in range(0, 1000, 2)]
    prepare(open_checkpoint, 1, *fewer)
    settled = open_checkpoint.settle(0)
    records = open_checkpoint.storage.map_arrays(f"{SEGMENTS_FOLDER}/{settled.segments[0].name}.records")
    assert len(records[f"{AGGREGATE_ARRAYS}texts_offsets"]) == 2
    assert counted(open_checkpoint, settled, np.array([0, 1])) == [None, (read_spec(**COUNT), held.version)]


def test_an_entry_of_an_older_manifest_can_be_read() -> None:
    written = asdict(SegmentEntry("a", 5, 0, 100))
    del written["aggregates"]
    assert SegmentEntry(**written).aggregates == 0


def test_a_bulk_load_may_say_what_subscriptions_count(open_checkpoint: Checkpoint, tmp_path: Path) -> None:
    table = operation_table([put(0, **COUNT), put(1), put(2, aggregate="median(v)", window="count(5)")])
    pq.write_table(table.drop_columns(["op"]), tmp_path / "subs.parquet")
    loaded = load(open_checkpoint, str(tmp_path / "subs.parquet"), 0)
    assert (loaded.registered, loaded.dead) == (2, 1)
    found = counted(open_checkpoint, open_checkpoint.manifest, np.arange(3))
    assert [one and one[0] for one in found] == [read_spec(**COUNT), None, None]


def test_a_batch_refuses_what_its_stream_cannot_give(open_checkpoint: Checkpoint) -> None:
    columns = EVENT.append(pa.field("v", pa.float64()))
    open_checkpoint.stream = AggregateStream(columns, takes_aggregates=False)
    assert prepare(open_checkpoint, 0, put(1, **COUNT), put(2)).refused == 1
    open_checkpoint.stream = AggregateStream(columns, takes_aggregates=True)
    assert prepare(open_checkpoint, 1, put(1, **SUM), put(3, aggregate="sum(w)", window="count(5)")).refused == 1
    open_checkpoint.submit(operation_table([put(4, aggregate="sum(w)", window="count(5)")]))
    assert open_checkpoint.fold(0).refused == 0  # outside any batch no stream is asked
    assert [one is not None for one in counted(open_checkpoint, open_checkpoint.manifest, np.arange(5))] == [
        False,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("seed", range(20))
def test_ids_are_looked_up_as_if_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    segments, obvious = list[StoredAggregates](), dict[int, tuple[str, int]]()
    for part, among in enumerate(np.array_split(rng.permutation(2000), 3)):
        ids = np.sort(among[: rng.integers(1, 600)]).astype(np.int64)
        texts = [f"{part + n}" for n in range(3)]
        codes = rng.integers(0, 3, len(ids)).astype(np.uint32)
        ordinals = np.arange(len(ids), dtype=np.uint32)
        segments.append(StoredAggregates(ids, ordinals, codes, ids * 7, pa.array(texts)))
        obvious |= {int(k): (texts[code], int(k) * 7) for k, code in zip(ids, codes, strict=True) if k % 5}
    lives = [lambda ordinals, ids=held.ids: ids[ordinals] % 5 != 0 for held in segments]
    asked = np.unique(rng.integers(-100, 2100, rng.integers(0, 900)))
    found = look_up(asked, segments, lives)
    told = [found.texts[code].as_py() if code != NO_SPEC else None for code in found.codes.tolist()]
    assert list(zip(told, found.began.tolist(), strict=True)) == [obvious.get(k, (None, -1)) for k in asked.tolist()]


def test_what_tasks_of_another_attempt_have_counted_is_not_counted(open_checkpoint: Checkpoint) -> None:
    manifest = prepare(open_checkpoint, 0, put(1, aggregate="count", window="tumbling(1 s)"))
    mine, other = (StoredBatch(open_checkpoint.storage, 0, manifest, attempt) for attempt in ("mine", "other"))
    rows = pa.RecordBatch.from_pylist([{"executor": 1, "partition": 0, "kind": 0, "payload": b"counted"}], PACKED)
    mine.put_counted("match", 0, [rows])
    for number in (0, 1):  # it was cut into more tasks
        other.put_counted("match", number, [rows])
    assert [mine.counted(name).to_batches() for name in mine.counted_names()] == [[rows]]
    mine.forget_attempt()
    assert mine.counted_names() == other.counted_names() == []
