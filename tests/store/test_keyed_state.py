"""What a keyed operator remembers is right under any plan, after any crash, and is forgotten when it should be."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.keys.hashing import key_ids
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.keyed import turn as turns
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.flow.keyed.state import DELTAS_MAX, NOTHING_KEPT
from geoswarm.flow.keyed.turn import group
from geoswarm.store import keyed_state, local_files
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage
from stepped_keyed import SteppedKeyed, random_key_plan

WORDS = [f"word {i}" for i in range(40)]


class Tell(Operator):
    """Keeps each row's number, tells all that is held, and what an interval had when it ends and when it leaves."""

    name, order, merge_by = "tell", ("number",), None

    def __init__(self, window: int) -> None:
        self.window = window

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([("number", pa.int64())])

    def given(self, fed: pa.Schema) -> pa.Schema:
        return pa.schema([("what", pa.string()), (KEY, fed.field(KEY).type), ("numbers", pa.list_(pa.int64()))])

    def update(self, turn: Turn) -> Answer:
        kept = turn.rows.select(["number"])
        return Answer(kept, turn.row_groups, self._report("held", turn), np.ones(len(turn.keys)))

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        return self._report(f"close {turn.moment.interval}", turn)

    def expire(self, turn: Turn) -> pa.RecordBatch | None:
        (interval,) = set(turn.held_intervals.tolist())
        return self._report(f"expire {interval}", turn)

    def _report(self, what: str, turn: Turn) -> pa.RecordBatch:
        lists = np.split(turn.held.column("number").to_numpy(), turn.held_starts[1:-1])
        assert (np.diff(turn.held_batches)[np.diff(turn.held_groups) == 0] >= 0).all(), "from oldest to newest"
        rows = [{"what": what, KEY: k.as_py(), "numbers": n.tolist()} for k, n in zip(turn.keys, lists, strict=True)]
        return pa.RecordBatch.from_pylist(rows, schema=self.given(turn.rows.schema))


def rows_of(rng: np.random.Generator, batch: int, n: int = 60) -> pa.RecordBatch:
    words = rng.choice(WORDS, n, p=np.arange(40, 0, -1) / 820)
    return pa.record_batch({KEY: pa.array(words), "number": pa.array(np.arange(n) + 1000 * batch)})


def count_rows(table: pa.Table) -> Counter[tuple[str, str, tuple[int, ...]]]:
    return Counter((row["what"], row[KEY], tuple(row["numbers"])) for row in table.to_pylist())


class Memory:
    """The slow answer: everything ever kept, in a list."""

    def __init__(self, window: int) -> None:
        self.window, self.all, self.interval = window, list[tuple[int, str, int]](), -1

    def batch(self, interval: int, rows: pa.RecordBatch) -> Counter[tuple[str, str, tuple[int, ...]]]:
        out: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
        if interval != self.interval:
            for key in {k for i, k, _ in self.all if i == self.interval}:
                held = [n for i, k, n in self.all if k == key and self.interval - self.window < i]
                out["close " + str(self.interval), key, tuple(held)] += 1
            for left in {i for i, _, _ in self.all if i <= interval - self.window}:
                for key in {k for i, k, _ in self.all if i == left}:
                    out[f"expire {left}", key, tuple(n for i, k, n in self.all if (i, k) == (left, key))] += 1
            self.all = [row for row in self.all if row[0] > interval - self.window]
        for key in set(rows.column(KEY).to_pylist()):
            out["held", key, tuple(n for _, k, n in self.all if k == key)] += 1
        pairs = zip(rows.column(KEY).to_pylist(), rows.column("number").to_pylist(), strict=True)
        self.all += [(interval, k, n) for k, n in pairs]
        self.interval = interval
        return out


@pytest.mark.parametrize("seed", range(12))
def test_all_that_is_held_is_found_under_any_plan(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    window, ids = int(rng.integers(1, 5)), key_ids(pa.array(WORDS))
    engine, memory, interval = SteppedKeyed(tmp_path, Tell(window)), Memory(window), 0
    for b in range(25):
        interval += int(rng.choice([0, 0, 0, 1, 1, 3]))
        rows = rows_of(rng, b, int(rng.choice([0, 5, 60])))
        if rng.random() < 0.4:
            engine.replan(random_key_plan(engine.plan, ids, rng, can_split=False))
        if rng.random() < 0.3:  # an attempt that died: its files are there, its commit is not
            engine.batch(b, interval, rows, commit=False)
        got = count_rows(engine.batch(b, interval, rows))
        assert got == memory.batch(interval, rows), b
        if rng.random() < 0.3:
            assert count_rows(engine.batch(b, interval, rows)) == got, "a replay after the commit gives the same"
        if rng.random() < 0.2:
            engine = SteppedKeyed(tmp_path, Tell(window))


@pytest.mark.parametrize("seed", range(8))
def test_a_split_key_is_counted_as_if_it_were_whole(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = key_ids(pa.array(WORDS))
    engine, seen = SteppedKeyed(tmp_path, Count(key=KEY, window=3)), list[tuple[int, str]]()
    splits = 0
    for b in range(20):
        interval, rows = b // 3, rows_of(rng, b)
        if b % 2:
            engine.replan(random_key_plan(engine.plan, ids, rng, can_split=True))
        splits += len(engine.plan.split_keys)
        got = engine.batch(b, interval, rows)
        seen += [(interval, word) for word in rows.column(KEY).to_pylist()]
        want = Counter(word for i, word in seen if i > interval - 3)
        assert sorted(got.column(KEY).to_pylist()) == sorted(set(rows.column(KEY).to_pylist()))
        assert {row[KEY]: row["count"] for row in got.to_pylist()} == {
            k: want[k] for k in set(rows.column(KEY).to_pylist())
        }
    assert splits


def test_files_are_merged_within_their_interval_and_go_with_it(tmp_path: Path) -> None:
    engine, rng = SteppedKeyed(tmp_path, Count(key=KEY, window=2), executors=2), np.random.default_rng(0)
    for b in range(40):
        engine.batch(b, b // 20, rows_of(rng, b))
        files = engine.state.before(b + 1).files
        per_place = Counter((file.interval, file.executor) for file in files)
        assert max(per_place.values()) <= DELTAS_MAX + 1
    assert {file.interval for file in files} == {0, 1}
    engine.batch(40, 2, rows_of(rng, 40))
    commits = [engine.state.before(b) for b in (40, 41)]
    assert {file.interval for file in commits[1].files} == {1, 2}
    on_disk = set(Storage(str(tmp_path)).names(f"{engine.state.folder}/files"))
    assert on_disk == {file.name for commit in commits for file in commit.files}, "nothing else is left"


class Crash(Exception):  # noqa: N818 - stands for a process that is gone
    pass


@pytest.mark.slow
def test_a_crash_at_any_write_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, left = local_files.publish, -1

    def publish_or_crash(*args: Any) -> None:
        nonlocal left
        left -= 1
        publish(*args)
        if left == 0:
            raise Crash

    monkeypatch.setattr(local_files, "publish", publish_or_crash)
    batches = [rows_of(np.random.default_rng(b), b, 20) for b in range(5)]
    memory = Memory(2)
    want = [memory.batch(b // 2, rows) for b, rows in enumerate(batches)]
    for crash_at in count(1):
        folder, delivered, through, left = tmp_path / str(crash_at), dict[int, Any](), 0, crash_at

        def go_on(folder: Path, delivered: dict[int, Any]) -> None:
            nonlocal through
            engine = SteppedKeyed(folder, Tell(2))
            while through < len(batches):
                got = count_rows(engine.batch(through, through // 2, batches[through]))
                assert delivered.setdefault(through, got) == got
                through += 1

        with suppress(Crash):
            go_on(folder, delivered)
        is_over, left = left > 0, 0
        go_on(folder, delivered)
        assert [delivered[b] for b in range(5)] == want
        if is_over:
            break
    assert crash_at > 15


def test_keys_that_share_an_id_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def three(keys: Any) -> Any:
        return key_ids(keys) % 3

    monkeypatch.setattr(turns, "key_ids", three)
    monkeypatch.setattr("geoswarm.flow.keyed.route.key_ids", three)
    rows = rows_of(np.random.default_rng(1), 0)
    grouped = group(rows, ("number",))
    assert len(grouped.keys) == len(set(rows.column(KEY).to_pylist()))
    for i, key in enumerate(grouped.keys.to_pylist()):
        part = grouped.rows.slice(grouped.starts[i], grouped.starts[i + 1] - grouped.starts[i])
        assert set(part.column(KEY).to_pylist()) == {key}
        assert part.column("number").to_pylist() == sorted(part.column("number").to_pylist())
    engine, memory = SteppedKeyed(tmp_path, Tell(2)), Memory(2)
    for b in range(12):
        rows = rows_of(np.random.default_rng(b), b)
        assert count_rows(engine.batch(b, b // 3, rows)) == memory.batch(b // 3, rows)


def test_what_a_restore_left_behind_is_noticed(tmp_path: Path) -> None:
    engine = SteppedKeyed(tmp_path, Count(key=KEY, window=2))
    for b in range(4):
        engine.batch(b, b, rows_of(np.random.default_rng(b), b))
    with pytest.raises(StateError, match="restore both together"):
        engine.state.before(1)
    file = engine.state.before(4).files[0]
    path = Path(tmp_path, engine.state.folder, "files", file.name)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptState):
        SteppedKeyed(tmp_path, Count(key=KEY, window=9)).state.open(
            file, pa.schema([(KEY, pa.string()), *Count().kept])
        )


def test_state_of_different_operators_lies_apart(tmp_path: Path) -> None:
    one, other = (SteppedKeyed(tmp_path, Count(key=KEY, window=2, name=name)) for name in ("one", "other"))
    rows = rows_of(np.random.default_rng(0), 0)
    one.batch(0, 0, rows)
    one.batch(1, 0, rows)
    again = other.batch(0, 0, rows).to_pylist()
    assert sum(row["count"] for row in again) == len(rows)
    assert KeyedState(Storage(str(tmp_path)), "third").before(0).files == ()


def test_held_rows_that_compact_drops_are_gone_and_the_rest_keep_their_batch() -> None:
    class Last(Tell):
        def compact(self, held: StateRows) -> StateRows:
            ends = held.starts[1:] - 1
            return StateRows(held.rows.take(pa.array(ends)), np.arange(len(ends) + 1), held.batches[ends])

    shelves = [
        turns.make_shelf(pa.record_batch({KEY: ["a", "b"], "number": [b, b + 10]}), np.full(2, b, np.int64), 0)
        for b in (1, 2)
    ]
    whole = turns.compact_shelves(shelves, Last(1))
    assert sorted(zip(whole.rows.column(KEY).to_pylist(), whole.rows.column("number").to_pylist(), strict=True)) == [
        ("a", 2),
        ("b", 12),
    ]
    assert whole.batches.tolist() == [2, 2]


@pytest.mark.slow
def test_plans_are_kept_as_long_as_state_that_was_kept_under_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_state, "PLANS_KEPT", 20)
    engine, rng = SteppedKeyed(tmp_path, Count(key=KEY, window=2), 2), np.random.default_rng(0)
    ids, seen = key_ids(pa.array(WORDS)), Counter[str]()
    for b in range(30):  # one interval, and more plans than are kept to look back at
        rows = rows_of(rng, b, 10)
        got = engine.batch(b, 0, rows)
        seen.update(rows.column(KEY).to_pylist())
        assert {row[KEY]: row["count"] for row in got.to_pylist()} == {k: seen[k] for k in rows.column(KEY).to_pylist()}
        engine.replan(random_key_plan(engine.plan, ids, rng, can_split=False))
    for b in range(30, 33):
        engine.batch(b, b, rows_of(rng, b, 10))
    assert len(Storage(str(tmp_path)).names(f"{engine.state.folder}/plans")) <= 25, "and no longer"


def test_intervals_count_on_when_they_are_made_longer_or_shorter() -> None:
    hour = NOTHING_KEPT.clock_at(0, 3600)
    assert (hour.interval(7200), hour.interval(7199)) == (2, 1)
    held = replace(NOTHING_KEPT, interval=hour.interval(7200), clock=hour)
    longer = held.clock_at(7300, 10_000)
    assert longer.interval(7300) == 2, "the present one goes on"
    assert longer.interval(17_300) == 3
    shorter = held.clock_at(7300, 10)
    assert shorter.interval(7330) == 5
    assert held.clock_at(9000, 3600) == hour


def test_more_rows_than_fit_together_are_taken_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoswarm.flow.keyed.work.GATHERED_BYTES_MAX", 100)
    engine, memory = SteppedKeyed(tmp_path, Tell(2)), Memory(2)
    for b in range(6):
        rows = rows_of(np.random.default_rng(b), b)
        assert count_rows(engine.batch(b, b // 3, rows)) == memory.batch(b // 3, rows)
    assert any(file.name.endswith("-1") for file in engine.state.before(6).files), "there were several turns"
