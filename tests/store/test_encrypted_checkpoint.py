"""With a key the whole checkpoint is encrypted, works as ever, and says clearly what is wrong when something is."""

import base64
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.space.plan import Plan
from geoswarm.errors import CorruptState, GeoswarmError, MachineError, SettingsError
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.service.watch import status
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.cipher import key_id_of
from geoswarm.store.journal import Journal, JournalReader
from geoswarm.store.journal.entries import BatchEntry, CommandEntry, RepairEntry
from geoswarm.store.key_source import KEY, KEY_FILE, KeySource, make_key_file
from geoswarm.store.lines import LineFile, read_lines
from geoswarm.store.storage import Storage
from restless import legal_changes
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_keywords, with_shapes, with_texts

CONTRACT = Contract(columns=60, rows=60, executors=4)
TUNING = Tuning(deltas_max=2, segment_subs_max=1000)
SECRETS = [
    "anastasia",
    "benjamin",
    "çağlayan",
    "strasse",
    "東京",
    "register",
    "keywords",
    '"kind"',
    "ARROW:schema",
]
"""A search of a plain checkpoint of this world finds all of them. None is so short that random bytes contain it."""


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "key"
    make_key_file(file)
    monkeypatch.setenv(KEY_FILE, str(file))
    return file


def redraw(plan: Plan, rng: np.random.Generator) -> Plan:
    return plan.apply(legal_changes(plan, rng, 2))


def run_batches(folder: Path, batches: int = 6) -> set[bytes]:
    """A storm of operations, plans redrawn at random, a restart after each batch, and every third batch run twice.
    Returns the sides of the subscriptions that are left, as they lie in memory."""
    rng, oracle = np.random.default_rng(3), Oracle(BOUNDS)
    for number in range(batches):
        now_us = 10 * number
        storm = with_keywords(rng, with_shapes(rng, operations(rng, 120, ids=90, now_us=now_us)))
        table = with_texts(rng, events(rng, 120, first_id=1000 * number))
        oracle.operate(storm, now_us)
        want = sorted(oracle.match(table, now_us))
        assert number == 0 or want
        for attempt in range(2 if number % 3 == 0 else 1):
            engine = SteppedEngine(folder, CONTRACT, TUNING)
            plan = engine.checkpoint.plan
            got = engine.batch(number, table, storm, now_us, partial(redraw, plan, rng))
            assert sorted(got.pairs) == want, (number, attempt)
            engine.checkpoint.journal.append(CommandEntry("block", "anastasia"))
            engine.close()
    return {np.float64(side).tobytes() for held in oracle.live.values() for side in held[:4]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[bytes]]:
    folder = tmp_path_factory.mktemp("template")
    make_key_file(folder / "key")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(KEY_FILE, str(folder / "key"))
        return folder, run_batches(folder / "state")


@pytest.fixture
def used_checkpoint(template: tuple[Path, set[bytes]], key_file: Path, tmp_path: Path) -> Path:
    """A checkpoint with a past, and its key in `key_file`."""
    key_file.write_bytes((template[0] / "key").read_bytes())
    return Path(shutil.copytree(template[0] / "state", tmp_path / "state"))


def files_of(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def test_an_encrypted_checkpoint_gives_the_oracles_matches_and_shows_nothing(
    used_checkpoint: Path,
    template: tuple[Path, set[bytes]],
    key_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = {secret.encode() for secret in SECRETS}
    secrets = words | {side for side in template[1] if len(set(side)) > 4}
    key = base64.b64decode(key_file.read_bytes())
    found = files_of(used_checkpoint)
    assert len(found) > 10
    for file in found:
        data, name = file.read_bytes(), str(file.relative_to(used_checkpoint))
        assert key not in data
        assert key_file.read_bytes().strip() not in data
        assert name == "lock" or name.startswith("journal/") or key_id_of(data) is not None, name
        assert [secret for secret in secrets if secret in data] == [], name
    assert {entry.user for entry in JournalReader(Storage(str(used_checkpoint))).read(CommandEntry)} == {"anastasia"}
    assert status(str(used_checkpoint))["version"] > 0
    # That the search would find something: the same life without a key.
    monkeypatch.delenv(KEY_FILE)
    run_batches(tmp_path / "plain")
    plain = b"".join(file.read_bytes() for file in files_of(tmp_path / "plain"))
    shown = {secret for secret in secrets if secret in plain}
    assert words < shown
    assert len(shown & template[1]) > 20


def test_another_key_or_none_is_refused_before_anything_is_touched(
    used_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file: file.stat().st_mtime_ns for file in files_of(used_checkpoint)}
    make_key_file(tmp_path / "other")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "other"))
    with pytest.raises(MachineError, match=r"is encrypted with key \w{16}, and the key file .*other holds key \w{16}"):
        Checkpoint(str(used_checkpoint), CONTRACT, TUNING)
    monkeypatch.delenv(KEY_FILE)
    with pytest.raises(MachineError, match=f"there is no key: set {KEY_FILE}"):
        Checkpoint(str(used_checkpoint), CONTRACT, TUNING)
    with pytest.raises(MachineError, match="there is no key"):
        status(str(used_checkpoint))
    assert {file: file.stat().st_mtime_ns for file in files_of(used_checkpoint)} == before
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    Checkpoint(str(used_checkpoint), CONTRACT, TUNING).close()


def test_a_checkpoint_in_clear_is_not_gone_on_with_under_a_key(key_file: Path, tmp_path: Path) -> None:
    os.environ.pop(KEY_FILE)
    Checkpoint(str(tmp_path / "state"), CONTRACT, TUNING).close()
    with pytest.raises(SettingsError, match=r"is not encrypted, and the key file .* asks for it: take the key away"):
        Checkpoint(str(tmp_path / "state"), CONTRACT, TUNING, key=KeySource(str(key_file)))


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("damage", [flip, lambda d: d[:-1], lambda d: d[:40], lambda d: b"", lambda d: b"{}"])
@pytest.mark.parametrize("which", ["manifests/*", "plans/*", "subscriptions/*.records", "contract.json"])
def test_a_damaged_file_is_named_and_never_believed(
    used_checkpoint: Path, which: str, damage: Callable[[bytes], bytes]
) -> None:
    file = max(used_checkpoint.glob(which))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CorruptState, match=f"{file.relative_to(used_checkpoint)}.*restore it from a backup"):
        Checkpoint(str(used_checkpoint), CONTRACT, TUNING)


def test_files_that_change_places_are_noticed(used_checkpoint: Path) -> None:
    older, newer = sorted(used_checkpoint.glob("plans/*"))[-2:]
    shutil.copyfile(older, newer)
    with pytest.raises(CorruptState, match="put in the place of another file"):
        Checkpoint(str(used_checkpoint), CONTRACT, TUNING)


def test_a_damaged_index_is_made_again_from_its_records(used_checkpoint: Path) -> None:
    file = max(used_checkpoint.glob("subscriptions/*.index"))
    file.write_bytes(flip(file.read_bytes()))
    Checkpoint(str(used_checkpoint), CONTRACT, TUNING).close()
    (repair,) = JournalReader(Storage(str(used_checkpoint))).read(RepairEntry)
    assert repair.segment == file.name.removesuffix(".index")


def test_storage_travels_with_the_name_of_its_key_and_never_with_the_key(used_checkpoint: Path, key_file: Path) -> None:
    storage = Storage(str(used_checkpoint))
    sent = pickle.dumps(storage)
    assert base64.b64decode(key_file.read_bytes()) not in sent
    assert key_file.read_bytes().strip() not in sent
    os.environ.pop(KEY_FILE)  # a worker that was started before the variable was set
    arrived = pickle.loads(sent)
    assert arrived.read_document("contract.json") == storage.read_document("contract.json")
    key_file.unlink()
    with pytest.raises(MachineError, match="every machine of the cluster needs it at the same path"):
        pickle.loads(sent)


def test_a_key_in_the_environment_works_and_a_worker_without_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = base64.b64encode(os.urandom(32)).decode()
    monkeypatch.setenv(KEY, text)
    Checkpoint(str(tmp_path / "state"), CONTRACT, TUNING).close()
    sent = pickle.dumps(Storage(str(tmp_path / "state")))
    assert text.encode() not in sent
    monkeypatch.delenv(KEY)
    with pytest.raises(MachineError, match=f"the variable {KEY} holds no key"):
        pickle.loads(sent)


def test_a_remote_files_local_copy_is_encrypted_too(key_file: Path, tmp_path: Path) -> None:
    storage = Storage("mock:///state", cache=str(tmp_path / "cache"))
    storage.write_arrays("subscriptions/a", {"flood": np.arange(1000)})
    assert np.array_equal(storage.map_arrays("subscriptions/a")["flood"], np.arange(1000))
    (copy,) = files_of(tmp_path / "cache")
    assert key_id_of(copy.read_bytes()) is not None
    assert b"flood" not in copy.read_bytes()
    lines = LineFile(storage, "journal/0")
    lines.append("flood")
    lines.append("dam")
    assert read_lines(storage, "journal/0")[0] == ["flood", "dam"]
    assert b"flood" not in storage.read_as_is("journal/0")


def test_arrays_in_memory_are_as_those_that_are_mapped(key_file: Path, tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"a": np.arange(5, dtype=np.int64), "b": np.zeros((300_000, 4))}
    arrays["empty"] = np.empty(0, np.uint8)
    plain, hidden = Storage(str(tmp_path / "plain"), encrypts=False), Storage(str(tmp_path / "hidden"))
    for storage in (plain, hidden):
        storage.write_arrays("x", arrays)
    assert set(plain.map_arrays("x")) == set(hidden.map_arrays("x")) == set(arrays)
    for name, mapped in plain.map_arrays("x").items():
        held = hidden.map_arrays("x")[name]
        assert np.array_equal(held, mapped)
        # Else the kernels would be compiled once more for them.
        assert (held.flags.writeable, held.flags.aligned) == (mapped.flags.writeable, mapped.flags.aligned)


def test_a_journal_is_followed_line_by_line_and_forged_lines_are_passed_over(key_file: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "state"))
    keeper, reader = Journal(storage), JournalReader(storage)
    keeper.append(BatchEntry(0))
    follower = reader.follow(BatchEntry)
    keeper.append(BatchEntry(1))
    assert [entry.batch for entry in follower.new()] == [1]
    (file,) = files_of(tmp_path / "state" / "journal")
    first, second = file.read_bytes().splitlines()
    keeper.append(BatchEntry(2))
    third = file.read_bytes().splitlines()[-1]
    forged = [second, first, flip(first), b"2" + first[1:], b'{"kind":"batch","batch":9}', third[:-30], third]
    file.write_bytes(b"\n".join(forged) + b"\n" + third[:9])
    assert [entry.batch for entry in reader.read(BatchEntry)] == [1, 2]


def test_no_error_tells_the_key(
    used_checkpoint: Path, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = key_file.read_text().strip()
    make_key_file(tmp_path / "other")
    file = max(used_checkpoint.glob("manifests/*"))
    file.write_bytes(flip(file.read_bytes()))
    for chosen in (key_file, tmp_path / "other", tmp_path / "none"):
        monkeypatch.setenv(KEY_FILE, str(chosen))
        with pytest.raises(GeoswarmError) as raised:
            Checkpoint(str(used_checkpoint), CONTRACT, TUNING)
        error: BaseException | None = raised.value
        shown = ""
        while error is not None:
            shown += repr(error)
            error = error.__cause__ or error.__context__
        assert text not in shown
        assert base64.b64decode(text).hex() not in shown


@pytest.mark.slow
def test_a_key_is_made_by_command_and_the_doctor_says_that_it_is_on(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in (KEY, KEY_FILE)}
    command = [sys.executable, "-m", "geoswarm.service.cli"]
    file = tmp_path / "key"
    made = subprocess.run([*command, "key", str(file)], capture_output=True, text=True, check=True, env=environ)
    assert KeySource(str(file)).cipher().id in made.stdout
    assert file.read_text().strip() not in made.stdout
    again = subprocess.run([*command, "key", str(file)], capture_output=True, text=True, env=environ)
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_operations_in_clear_never_touch_the_disk(key_file: Path, tmp_path: Path) -> None:
    """Not even for the moment between a call and the batch that takes it in."""
    checkpoint = Checkpoint(str(tmp_path / "state"), CONTRACT, TUNING)
    row = {"op": "register", "sub_id": 1, "user": "anastasia", "keywords": "landslide"}
    checkpoint.submit(pa.Table.from_pylist([row]))
    (file,) = (tmp_path / "state" / "inbox").iterdir()
    assert b"anastasia" not in file.read_bytes()
    assert checkpoint.fold(0).subs == 1
    checkpoint.close()
