"""A folder of small batches that are rolled up and expire: what any reader sees, also when the process is killed."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from geoswarm.errors import SettingsError, StreamError
from geoswarm.run import parquet_rolls
from geoswarm.run.parquet_rolls import SmallBatch, first_roll
from geoswarm.run.process_rows import LocalRows
from geoswarm.run.sinks import Parquet

ROWS = pa.schema([pa.field("event_id", pa.int64(), nullable=False), ("text", pa.string())])
LONG_S = 3600.0


def batch_rows(number: int, count: int = 10) -> LocalRows:
    ids = pa.array(range(1000 * number, 1000 * number + count))
    table = pa.table([ids, pa.array([f"event {i}" for i in range(count)])], schema=ROWS)
    return LocalRows.of_tasks(ROWS, [lambda: iter(table.to_batches())])


def write(sink: Parquet, numbers: Iterator[int] | range, count: int = 10) -> None:
    for number in numbers:
        sink.write(batch_rows(number, count), number)


def visible(path: Path) -> list[int]:
    """The ids that a plain reader of the folder finds, in any order and as often as it finds them."""
    partitioning = ds.partitioning(pa.schema([("batch", pa.int64())]), flavor="hive")
    found = ds.dataset(path, format="parquet", partitioning=partitioning)
    return found.to_table()["event_id"].to_pylist() if "event_id" in found.schema.names else []


def ids(batches: int, count: int = 10) -> list[int]:
    return [1000 * number + i for number in range(batches) for i in range(count)]


def folders(path: Path) -> dict[str, list[str]]:
    found = {f.name: sorted(part.name for part in f.iterdir()) for f in sorted(path.glob("batch=*"))}
    return {name: [part for part in parts if part.startswith("batches")] for name, parts in found.items()}


def until(condition: Callable[[], bool]) -> None:
    gives_up_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < gives_up_s, "waited for it in vain"
        time.sleep(0.001)


def test_small_batches_become_one_file_with_every_row_in_order(tmp_path: Path) -> None:
    sink = Parquet(str(tmp_path), roll_rows=30, roll_s=LONG_S)
    sink.bind("one")
    write(sink, range(1))
    assert visible(tmp_path) == ids(1), "the first batch has nothing to wait for"
    write(sink, range(1, 6))
    until(lambda: (tmp_path / "batch=1").exists())
    write(sink, range(4, 6))  # again, while they wait
    assert sink.read()["event_id"].to_pylist() == ids(6), "those that wait, too"
    sink.end()
    assert folders(tmp_path) == {"batch=0": [], "batch=1": ["batches-1-3.parquet"], "batch=4": ["batches-4-5.parquet"]}
    assert sorted(visible(tmp_path)) == ids(6)
    rolled = pq.ParquetFile(tmp_path / "batch=1" / "batches-1-3.parquet")
    assert rolled.schema_arrow.equals(ROWS)
    assert rolled.read()["event_id"].to_pylist() == ids(4)[10:]
    assert sink.read()["batch"].to_pylist() == [0] * 10 + [1] * 30 + [4] * 20
    write(sink, range(6))
    assert sorted(visible(tmp_path)) == ids(6), "batches that run again are there already"


def test_what_waits_becomes_visible_after_a_while_though_no_batch_comes(tmp_path: Path) -> None:
    sink = Parquet(str(tmp_path), roll_s=0.3)
    sink.bind("one")
    write(sink, range(4))
    assert visible(tmp_path) == ids(1)
    until(lambda: len(visible(tmp_path)) == 40)
    assert folders(tmp_path) == {"batch=0": [], "batch=1": ["batches-1-3.parquet"]}
    time.sleep(0.3)
    write(sink, range(4, 5))
    assert sorted(visible(tmp_path)) == ids(5), "a batch that comes late enough does not wait"
    sink.end()


def test_a_large_batch_is_a_folder_of_its_own_and_never_overtakes(tmp_path: Path) -> None:
    sink = Parquet(str(tmp_path), roll_rows=50, roll_s=LONG_S)
    sink.bind("one")
    write(sink, range(3))
    write(sink, range(3, 4), count=50)
    until(lambda: (tmp_path / "batch=3").exists())
    assert folders(tmp_path) == {"batch=0": [], "batch=1": ["batches-1-2.parquet"], "batch=3": []}
    write(sink, range(4, 5), count=70)
    assert (tmp_path / "batch=4").exists(), "with nothing before it, at once"
    sink.end()


def test_batches_are_folders_of_their_own_when_nothing_is_to_be_rolled_up(tmp_path: Path) -> None:
    sink = Parquet(str(tmp_path), roll_s=0)
    sink.bind("one")
    for number in range(3):
        write(sink, range(number, number + 1))
        assert sorted(visible(tmp_path)) == ids(number + 1)
    assert threading.active_count() == len([t for t in threading.enumerate() if t.name != "geoswarm-rolls"])


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ("", (0, False)),
        ("a1 a1", (2, False)),
        ("a1 a4 a1", (2, True)),  # enough rows
        ("a1 b1 b1", (1, True)),  # other columns
        ("-9 a1", (1, True)),  # a large one alone
        ("a1 -9", (1, True)),  # and not with others
    ],
)
def test_a_roll_ends_with_enough_rows_or_before_another_kind(sizes: str, want: tuple[int, bool]) -> None:
    schemas = {"a": ROWS, "b": pa.schema([("a", pa.int64())]), "-": None}
    waiting = [SmallBatch(n, int(word[1:]), schemas[word[0]]) for n, word in enumerate(sizes.split())]
    batches, is_full = first_roll(waiting, 5)
    assert (len(batches), is_full) == want


def test_batches_with_other_columns_are_not_put_into_one_file(tmp_path: Path) -> None:
    wider = ROWS.append(pa.field("speed", pa.float64()))
    sink = Parquet(str(tmp_path), roll_s=LONG_S)
    sink.bind("one")
    write(sink, range(3))
    table = pa.Table.from_pylist([{"event_id": 3000, "text": "a", "speed": 1.0}], schema=wider)
    for number in (3, 4):
        sink.write(LocalRows.of_tasks(wider, [lambda: iter(table.to_batches())]), number)
    sink.end()
    assert list(folders(tmp_path).values()) == [[], ["batches-1-2.parquet"], ["batches-3-4.parquet"]]
    assert set(sink.read().schema.names) == {*wider.names, "batch"}


def test_old_folders_are_removed_a_few_at_a_time_and_the_newest_stays(tmp_path: Path) -> None:
    plain = Parquet(str(tmp_path), roll_s=0)
    plain.bind("one")
    write(plain, range(20))
    for folder in tmp_path.glob("batch=*"):
        os.utime(folder, (time.time() - 100, time.time() - 100))
    sink = Parquet(str(tmp_path), roll_s=0, keep_s=50)
    sink.bind("one")
    left = []
    for number in range(20, 23):
        write(sink, range(number, number + 1))
        left.append(sorted(int(f.name.removeprefix("batch=")) for f in tmp_path.glob("batch=*")))
    assert left[0] == list(range(8, 21)), "no batch removes more than eight"
    assert left[-1] == [20, 21, 22]
    assert not list((tmp_path / "_work" / "expired").iterdir())
    for folder in tmp_path.glob("batch=*"):
        os.utime(folder, (time.time() - 100, time.time() - 100))
    late = Parquet(str(tmp_path), roll_rows=1000, keep_s=50)
    late.bind("one")
    late._folder._due_s = time.monotonic() + LONG_S  # type: ignore[union-attr]
    write(late, range(22, 24))
    assert folders(tmp_path) == {"batch=22": []}, "the newest says which batches were here"
    late.end()


class Killed(BaseException):
    """The process is dead: none of its steps takes place any more."""


class Steps:
    """Counts the steps that change the disk, looks at the folder before each, and kills the process before one."""

    NAMES = ("rename", "unlink", "rmdir", "mkdir", "fsync")

    def __init__(self, look: Callable[[], None], dies_before: int, patch: pytest.MonkeyPatch) -> None:
        self.count, self._dies_before, self._look = 0, dies_before, look
        self._lock = threading.RLock()
        for name in self.NAMES:
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self.count >= self._dies_before:
                    raise Killed
                self._look()
                self.count += 1
                return step(*args, **kwargs)

        return run


BATCHES = 6
OLD_S = 1000.0


def play(path: Path, first: int, look: Callable[[], None], dies_before: int, keep_s: float | None) -> tuple[int, int]:
    """A process that writes batches until it is done or dies. Returns the batch that it was in, and its steps."""
    number = first
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(look, dies_before, patch)
        sink = Parquet(str(path), roll_rows=25, roll_s=LONG_S, keep_s=keep_s)
        try:
            sink.bind("one")
            for number in range(first, BATCHES):
                sink.write(batch_rows(number), number)
                until(lambda: not first_roll(sink._folder._waiting, 25)[1] or sink._folder._error is not None)  # type: ignore[union-attr]
            sink.end()
        except Killed:
            return number, steps.count
        return BATCHES, steps.count


@pytest.mark.parametrize("old", [0, 3])
def test_a_reader_sees_each_row_once_whenever_the_process_is_killed(tmp_path: Path, old: int) -> None:
    """Killed before each single step on the disk, and again while it recovers; the batch is then run again. Meanwhile
    `old` folders expire."""
    begins, keep_s = [0], OLD_S / 2 if old else None
    names: list[str] = []

    def look() -> None:
        now = [f"{file}" for file in sorted(path.glob("**/*.parquet"))]
        if names != now and any(path.glob("batch=*")):
            found = sorted(visible(path))
            begins.append(found[0] // 1000)
            assert found == ids(found[-1] // 1000 + 1)[10 * begins[-1] :], "whole batches, each row once, none left out"
            ends.append(found[-1])
        names[:] = now

    def prepare() -> None:
        sink = Parquet(str(path), roll_s=0)
        sink.bind("one")
        write(sink, range(old))
        for folder in path.glob("batch=*"):
            os.utime(folder, (time.time() - OLD_S,) * 2)

    path, ends = tmp_path / "whole", list[int]()
    prepare()
    _, steps = play(path, old, look, 10**9, keep_s)
    assert sorted(visible(path)) == ids(BATCHES)[10 * old :]
    assert steps > 25
    for dies_before in range(steps):
        path, ends = tmp_path / str(dies_before), list[int]()
        prepare()
        number = old
        for steps_more in (dies_before, dies_before % 7, 10**9):
            number, _ = play(path, number, look, steps_more, keep_s)
        assert number == BATCHES
        assert ends == sorted(ends), "what was visible stays visible"
        assert sorted(visible(path))[-10 * (BATCHES - old) :] == ids(BATCHES)[10 * old :], (
            f"killed before {dies_before}"
        )
        assert not [*(path / "_work").glob("*/*")], "nothing is left behind"
    assert set(begins) == set(range(old + 1)), "folders expire one by one"


def test_two_engines_that_roll_up_the_same_batches_do_not_both_succeed(tmp_path: Path) -> None:
    first, second = (Parquet(str(tmp_path), roll_s=LONG_S) for _ in range(2))
    first.bind("one")
    write(first, range(4))
    second._open_folder = first._open_folder
    second.bind("one")  # while the first goes on: it rolls up what waits
    until(lambda: len(visible(tmp_path)) == 40)
    with pytest.raises(StreamError, match="another engine writes"):
        first.end()
    write(second, range(4, 5), count=10**5)
    first._folder._waiting.clear()  # type: ignore[union-attr]
    with pytest.raises(StreamError, match="another engine writes"):
        write(first, range(4, 5), count=10**5)
    second.end()
    assert len(visible(tmp_path)) == 40 + 10**5


def test_a_disk_that_is_full_while_files_are_rolled_up_stops_the_stream_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sink = Parquet(str(tmp_path), roll_rows=20, roll_s=LONG_S)
    sink.bind("one")
    with monkeypatch.context() as patch:
        patch.setattr(parquet_rolls, "_write_rolled", fail)
        write(sink, range(3))
        until(lambda: sink._folder._error is not None)  # type: ignore[union-attr]
        with pytest.raises(OSError, match="No space left"):
            write(sink, range(3, 4))
    again = Parquet(str(tmp_path), roll_rows=20, roll_s=LONG_S)
    again.bind("one")
    write(again, range(3, 5))
    again.end()
    assert sorted(visible(tmp_path)) == ids(5)


def test_settings_of_a_parquet_sink_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for given, want in (({"roll_rows": 0}, "1 or more"), ({"roll_s": -1.0}, "0 or more"), ({"keep_s": 0.0}, "more")):
        with pytest.raises(SettingsError, match=want):
            Parquet(str(tmp_path), **given)
    with pytest.raises(SettingsError, match="use a mounted path"):
        Parquet("s3://bucket/matches")
