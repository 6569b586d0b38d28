"""What subscriptions are on rests with them: through merges, replaces, expiry and bulk loads, beside older files."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Array
from geoswarm.core.index.cells import CellIndex
from geoswarm.core.subscriptions.attributes import ON
from geoswarm.model import ENTER, EXIT, INSIDE
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.loading import load
from geoswarm.store.manifest import Manifest
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, SegmentEntry
from geoswarm.store.subscriptions import View
from worlds import BOUNDS, operations, with_on

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)


@pytest.fixture
def open_checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"), CONTRACT, EAGER)
    yield checkpoint
    checkpoint.close()


def registers(first_id: int, on: list[str | None]) -> pa.Table:
    n = len(on)
    sides = {"xmin": [0.0] * n, "ymin": [0.0] * n, "xmax": [1.0] * n, "ymax": [1.0] * n}
    ids = list(range(first_id, first_id + n))
    return pa.table({"op": ["register"] * n, "sub_id": ids, **sides, "on": pa.array(on, pa.string())})


def on(checkpoint: Checkpoint, manifest: Manifest, *ids: int) -> list[int]:
    return list(View.open(checkpoint.storage, manifest).follow_rules(np.array(ids, np.int64), manifest.now_us).on)


@pytest.mark.parametrize("seed", range(3))
def test_every_version_knows_what_its_subscriptions_are_on(open_checkpoint: Checkpoint, seed: int) -> None:
    rng, oracle = np.random.default_rng(seed), Oracle(BOUNDS)
    codes = {"inside": INSIDE, "enter": ENTER, "exit": EXIT}
    for batch_id in range(25):
        now_us = 10 * batch_id
        storm = with_on(rng, operations(rng, int(rng.integers(1, 120)), ids=300, now_us=now_us))
        manifest = open_checkpoint.prepare(batch_id, lambda storm=storm: [storm], now_us)  # type: ignore[misc]
        oracle.operate(storm, now_us)
        held = {k: oracle.on.get(k, "inside") for k, v in oracle.live.items() if v[4] is None or v[4] > now_us}
        want = [held.get(sub, "inside") for sub in range(-5, 320)]
        wanted = [int(asked * 1e6) if isinstance(asked, float) else codes[asked] for asked in want]
        assert on(open_checkpoint, manifest, *range(-5, 320)) == wanted
        open_checkpoint.finish(batch_id)
        claimed = sum(entry.transitions for entry in manifest.segments)
        assert claimed >= sum(code != INSIDE for code in wanted) > 0  # some may have expired


def test_a_manifest_says_whether_any_subscription_asks(open_checkpoint: Checkpoint) -> None:
    plain = open_checkpoint.prepare(0, lambda: [registers(0, [None, "inside"])], 0)
    assert sum(entry.transitions for entry in plain.segments) == 0
    asking = open_checkpoint.prepare(1, lambda: [registers(10, ["enter", None, "dwell(3)"])], 0)
    assert sum(entry.transitions for entry in asking.segments) == 2
    cancels = pa.table({"op": ["cancel", "cancel"], "sub_id": [0, 10]})
    fewer = open_checkpoint.prepare(2, lambda: [cancels], 0)
    assert sum(entry.transitions for entry in fewer.segments) == 1
    assert on(open_checkpoint, fewer, 0, 1, 10, 11, 12) == [INSIDE, INSIDE, INSIDE, INSIDE, 3_000_000]


def test_those_who_ask_for_nothing_cost_nothing(open_checkpoint: Checkpoint) -> None:
    plain = open_checkpoint.prepare(0, lambda: [registers(0, [None] * 5)], 0)
    records = open_checkpoint.storage.map_arrays(f"{SEGMENTS_FOLDER}/{plain.segments[0].name}.records")
    assert not [name for name in records if name.startswith(f"{ON.name}_")]  # as before there was `on`
    assert on(open_checkpoint, plain, *range(5)) == [INSIDE] * 5


def test_an_entry_of_an_older_manifest_can_be_read() -> None:
    written = asdict(SegmentEntry("a", 5, 0, 100))
    del written["transitions"]
    assert SegmentEntry(**written).transitions == 0


def test_a_bulk_load_may_say_what_subscriptions_are_on(open_checkpoint: Checkpoint, tmp_path: Path) -> None:
    file = tmp_path / "subs.parquet"
    pq.write_table(registers(0, ["exit", None, "dwell(0.25)", "nowhere"]).drop_columns(["op"]), file)
    loaded = load(open_checkpoint, str(file), 0)
    assert (loaded.registered, loaded.dead) == (3, 1)
    assert on(open_checkpoint, open_checkpoint.manifest, 0, 1, 2, 3) == [EXIT, INSIDE, 250_000, INSIDE]


@pytest.mark.parametrize(
    ("replaced", "before"),
    [
        (("text_packed", "text_alternatives"), {"text_boxed": np.zeros((1, 2), np.uint64)}),
        (tuple(f"cells_{field}" for field in CellIndex._fields), {"0_keys": np.zeros(1, np.uint32)}),
    ],
)
def test_an_index_of_an_older_version_is_made_again(
    tmp_path: Path, replaced: tuple[str, ...], before: dict[str, Array]
) -> None:
    contract = Contract(columns=20, rows=20, executors=2)
    words = registers(1, [None, None, None]).append_column("keywords", pa.array(["flood", "dam", None]))
    held = Checkpoint(str(tmp_path / "old"), contract, Tuning())
    held.submit(words)
    held.fold(0)
    (entry,) = held.manifest.segments
    file = f"{SEGMENTS_FOLDER}/{entry.name}.index"
    new = held.storage.map_arrays(file)
    old = {name: np.array(array) for name, array in new.items() if name not in replaced}
    assert len(old) == len(new) - len(replaced)
    held.storage.write_arrays(file, old | before)
    held.close()
    again = Checkpoint(str(tmp_path / "old"), contract, Tuning())
    made = again.storage.map_arrays(file)
    assert {name: array.tobytes() for name, array in made.items()} == {n: a.tobytes() for n, a in new.items()}
    again.close()
