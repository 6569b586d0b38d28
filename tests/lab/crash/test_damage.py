"""Files of a checkpoint are cut short, changed or lost: what is derived is made again, what is not is refused by name.

Without Spark: the checkpoint is opened, its next version made, and events matched by the stages themselves.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.match.match import match
from geoswarm.flow.route import route
from geoswarm.flow.validate import validate_events
from geoswarm.lab.crash.scenario import CONTRACT, TUNING, Scenario, is_sound
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.store import plans
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.subscriptions import View

SCENARIO = Scenario(seed=11)
NOW_US = 1_767_225_600_000_000
BATCHES = 6
DERIVED = {".index", ""}
"""Suffixes of what can be made again: indexes, and the number of the newest version."""
Damage = Callable[[Path, np.random.Generator], None]


def cut(file: Path, rng: np.random.Generator) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: int(rng.integers(0, len(data)))])


def empty(file: Path, rng: np.random.Generator) -> None:
    file.write_bytes(b"")


def flip(file: Path, rng: np.random.Generator) -> None:
    data = bytearray(file.read_bytes())
    data[rng.integers(0, len(data))] ^= 1 << rng.integers(0, 8)
    file.write_bytes(data)


def lose(file: Path, rng: np.random.Generator) -> None:
    file.unlink()


def open_checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(str(folder), CONTRACT, TUNING)


def operations(k: int) -> pa.Table:
    return SCENARIO.operations(k)


@pytest.fixture(scope="module")
def sound_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after some batches: segments, some of them merged, cancelled subscriptions, a call in the inbox."""
    folder = tmp_path_factory.mktemp("sound")
    checkpoint = open_checkpoint(folder)
    for k in range(BATCHES):
        checkpoint.prepare(k, partial(list, [operations(k)]), NOW_US)
        checkpoint.finish(k)
    checkpoint.settle(NOW_US)  # a merge that is under way leaves files that no version names
    checkpoint.submit(operations(BATCHES))
    checkpoint.close()
    return folder


def matches(checkpoint: Checkpoint) -> set[Pair]:
    """Of the next batch, by the stages that Spark's tasks would run."""
    manifest = checkpoint.prepare(BATCHES, lambda: [operations(BATCHES + 1)], NOW_US)
    view = View.open(checkpoint.storage, manifest)
    segments = view.searchables()
    plan = plans.read(checkpoint.storage, manifest.plan_epoch, manifest.plan_seal)
    events = SCENARIO.events(0).combine_chunks().to_batches()[0]
    pairs: list[Pair] = []
    for parcel in route(validate_events(events, checkpoint.grid, DeadLetters("event", BATCHES)), plan):
        for met in match(parcel.events, segments, checkpoint.grid, NOW_US, rows_max=1000, pairs_max=100_000):
            ids = met.events.column("event_id").to_numpy().repeat(np.diff(met.offsets))
            pairs += zip(ids.tolist(), met.subs.tolist(), strict=True)
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def matches_or_refusal(folder: Path) -> tuple[set[Pair], str | None]:
    try:
        checkpoint = open_checkpoint(folder)
    except CorruptState as why:
        return set(), str(why)
    try:
        return matches(checkpoint), None
    except CorruptState as why:
        return set(), str(why)
    finally:
        checkpoint.close()


@pytest.fixture(scope="module")
def want() -> set[Pair]:
    oracle = Oracle(CONTRACT.bounds)
    for k in range(BATCHES + 2):
        oracle.operate(operations(k), NOW_US)
    events = SCENARIO.events(0)
    pairs = oracle.match(events.filter(pa.array([is_sound(row) for row in events.to_pylist()])), NOW_US)
    assert len(pairs) > 500
    return pairs


def state_files(folder: Path) -> Iterator[Path]:
    """All that decides a match. The journal and the dead letters tell, the terms and the lock guard."""
    for name in ("contract.json", "newest-version", "plans/*", "manifests/*", "subscriptions/*", "inbox/*"):
        yield from sorted(folder.glob(name))


def test_an_undamaged_checkpoint_gives_what_the_oracle_gives(
    sound_checkpoint: Path, want: set[Pair], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sound_checkpoint, tmp_path / "copy"))
    kinds = {file.suffix for file in state_files(folder)}
    assert kinds == {".json", "", ".records", ".index", ".dead", ".arrow"}
    assert matches(open_checkpoint(folder)) == want


@pytest.mark.parametrize(("damage", "times"), [(cut, 4), (empty, 1), (flip, 12)])
def test_a_damaged_file_is_repaired_or_refused_by_name(
    sound_checkpoint: Path, want: set[Pair], tmp_path: Path, damage: Damage, times: int
) -> None:
    rng = np.random.default_rng(5)
    refused, repaired = set(), set()
    for name in [file.relative_to(sound_checkpoint) for file in state_files(sound_checkpoint)]:
        for attempt in range(times):
            folder = Path(shutil.copytree(sound_checkpoint, tmp_path / f"{name.name}-{attempt}"))
            damage(folder / name, rng)
            got, refusal = matches_or_refusal(folder)
            if refusal is None:
                assert got == want, f"{name} was changed, and matches with it"
                repaired.add(name.suffix)
            else:
                assert name.name in refusal
                assert name.suffix not in DERIVED, f"{name} can be made again, but was refused: {refusal}"
                refused.add(name.suffix)
            shutil.rmtree(folder)
    assert refused == {".json", ".records", ".dead", ".arrow"}
    assert repaired >= DERIVED
    if damage is not flip:  # a bit between two arrays means nothing
        assert repaired == DERIVED


@pytest.mark.parametrize(
    "name", ["contract.json", "plans/*", "manifests/*", "subscriptions/*.records", "subscriptions/*.dead"]
)
def test_a_lost_file_is_refused_by_name(sound_checkpoint: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(sound_checkpoint, tmp_path / "copy"))
    for file in folder.glob(name):
        file.unlink()
    missing = name.rpartition("*")[2] or name.rpartition("/")[0]
    with pytest.raises(CorruptState, match=re.escape(missing)):
        open_checkpoint(folder)
    # and the refusal has let go of the folder
    shutil.copytree(sound_checkpoint, folder, dirs_exist_ok=True)
    open_checkpoint(folder).close()


@pytest.mark.parametrize("name", ["newest-version", "subscriptions/*.index"])
def test_a_lost_file_that_can_be_made_again_is(
    sound_checkpoint: Path, want: set[Pair], tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(sound_checkpoint, tmp_path / "copy"))
    for file in folder.glob(name):
        file.unlink()
    assert matches(open_checkpoint(folder)) == want


def test_what_a_killed_process_was_writing_does_not_stop_the_next(
    sound_checkpoint: Path, want: set[Pair], tmp_path: Path
) -> None:
    """A file is written under a name with a dot, then renamed; SIGKILL in between leaves it."""
    folder = Path(shutil.copytree(sound_checkpoint, tmp_path / "copy"))
    halves = [f"{name}/.half" for name in ("manifests", "subscriptions", "inbox", "plans", "terms")]
    halves += [f"reports/{BATCHES:012d}/.half", f"dead/operations-{10**11}/.half"]
    for half in halves:
        (folder / half).parent.mkdir(parents=True, exist_ok=True)
        (folder / half).write_bytes(b"half a fi")
    checkpoint = open_checkpoint(folder)
    assert matches(checkpoint) == want
    checkpoint.storage.remove_folder(f"reports/{BATCHES:012d}")
    assert not (folder / f"reports/{BATCHES:012d}").exists()
    assert not (folder / "subscriptions/.half").exists(), "half a segment may be large: it must not stay for ever"


@pytest.mark.parametrize("written", [["plans"], ["plans", "manifests"], ["plans", "manifests", "newest-version"]])
def test_a_first_start_that_was_killed_half_way_can_be_repeated(tmp_path: Path, written: list[str]) -> None:
    folder = tmp_path / "checkpoint"
    open_checkpoint(folder).close()
    for entry in folder.iterdir():
        if entry.name not in ("terms", "lock", *written):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    assert open_checkpoint(folder).prepare(0, lambda: [operations(0)], NOW_US).subs > 0


def test_operations_that_were_acknowledged_before_a_crash_are_taken_in_once(tmp_path: Path) -> None:
    row = {"op": "register", "sub_id": 7, "xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}
    table = pa.Table.from_pylist([row], schema=OPERATION)
    first = open_checkpoint(tmp_path)
    first.submit(table)
    first.close()  # before any version has it
    second = open_checkpoint(tmp_path)
    assert second.prepare(0, list, NOW_US).subs == 1
    second.close()  # the version is on disk, the inbox not yet cleared
    assert list((tmp_path / "inbox").iterdir())
    third = open_checkpoint(tmp_path)
    assert third.prepare(0, list, NOW_US).subs == 1
    third.finish(0)
    assert third.prepare(1, list, NOW_US).subs == 1
    assert not list((tmp_path / "dead").glob("*")), "taken in twice, it would be a duplicate"


def test_a_replay_gets_the_version_and_the_time_that_the_first_attempt_got(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)
    fixed = first.prepare(0, lambda: [operations(0)], NOW_US)
    first.close()  # killed within the batch
    second = open_checkpoint(tmp_path)

    def never() -> list[pa.Table]:
        raise AssertionError("the operations of this batch are in already")

    assert second.prepare(0, never, NOW_US + 10**12) == fixed
    second.submit(operations(1))
    second.fold(NOW_US + 10**12)
    assert second.prepare(0, never, NOW_US + 10**12) == fixed


def test_spark_offsets_without_the_versions_they_belong_to_are_refused(sound_checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound_checkpoint, tmp_path / "copy"))
    with pytest.raises(StateError, match="restore both together"):
        open_checkpoint(folder).prepare(BATCHES - 2, list, NOW_US)
    other = open_checkpoint(tmp_path / "fresh")
    with pytest.raises(StateError, match="restore both together"):
        other.prepare(3, list, NOW_US)
