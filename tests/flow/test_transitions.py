"""Who enters, leaves and stays is what the oracle says: however keys are divided, state is kept and batches are run."""

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.flow.keyed.operator import Answer, Moment
from geoswarm.flow.keyed.transitions import Transitions, without_object
from geoswarm.flow.keyed.turn import Shelf, compact_shelves, group, make_shelf, turn_of
from geoswarm.flow.match.match import match
from geoswarm.flow.route import route
from geoswarm.model import ENTER, EVENT, EXIT, INSIDE, SUB_IDS
from geoswarm.run.oracle.oracle import Oracle, pairs_of
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest
from geoswarm.store.subscriptions import View
from worlds import BOUNDS, operations, wandering_events, with_keywords, with_on, with_texts

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
SECOND_US = 1_000_000


class Memory:
    """What the store does with an operator's state, in this process: shelves by interval, newest last."""

    def __init__(self, operator: Transitions, rng: np.random.Generator) -> None:
        self.operator, self.rng = operator, rng
        self.shelves: list[Shelf] = []

    def run(self, rows: pa.RecordBatch, moment: Moment) -> list[pa.RecordBatch]:
        """One batch: its keys go to some executors, as it happens, and it may be run more than once."""
        fed = self.operator.feed(rows)
        seen = [shelf for shelf in self.shelves if shelf.interval > moment.interval - self.operator.window]
        for _ in range(int(self.rng.integers(1, 3))):
            given, fresh = [], []
            for part in self._deal(fed):
                grouped = group(part, self.operator.order)
                turn = turn_of(grouped, [(shelf, None) for shelf in seen], self.operator, moment)
                answer = pickle.loads(pickle.dumps(self.operator)).update(turn)
                self._check(answer, fed.schema, len(grouped.ids))
                given.append(answer.given)
                if len(answer.kept):
                    keys = grouped.keys.take(pa.array(answer.kept_groups))
                    kept = pa.record_batch([keys, *answer.kept.columns], names=["key", *self.operator.kept.names])
                    fresh.append(make_shelf(kept, np.full(len(kept), moment.batch), moment.interval))
        self.shelves = [*seen, *fresh]
        self._compact()
        return given

    def _check(self, answer: Answer, fed: pa.Schema, keys: int) -> None:
        assert answer.kept.schema == self.operator.kept
        assert answer.given.schema == self.operator.given(fed)
        assert np.all(np.diff(answer.kept_groups) > 0)
        assert len(answer.work) == keys
        assert answer.given_counts is not None
        assert (len(answer.given_counts), answer.given_counts.sum()) == (keys, len(answer.given))
        assert np.all(answer.work > 0)

    def _deal(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = rows.take(pa.array(self.rng.permutation(len(rows))))
        codes = rows.column("key").dictionary_encode().indices.to_numpy()
        executor = self.rng.integers(0, 4, codes.max(initial=0) + 1)[codes]
        yield from (rows.filter(pa.array(executor == e)) for e in np.unique(executor))

    def _compact(self) -> None:
        for interval in sorted({shelf.interval for shelf in self.shelves}):
            some = [shelf for shelf in self.shelves if shelf.interval == interval and self.rng.random() < 0.4]
            if len(some) > 1:
                rest = [shelf for shelf in self.shelves if all(shelf is not gone for gone in some)]
                self.shelves = [*rest, compact_shelves(some, self.operator)]


class Lookup:
    """`View.on` of the newest version; a worker would open it from the checkpoint, so it is not what is pickled."""

    view: View
    now_us: int

    def __call__(self, ids: SubIds) -> Ints:
        assert np.all(np.diff(ids) > 0)
        return Lookup.view.on(ids, Lookup.now_us)


def match_events(checkpoint: Checkpoint, manifest: Manifest, events: pa.RecordBatch) -> pa.RecordBatch:
    """Every event with all that it met."""
    segments = View.open(checkpoint.storage, manifest).searchables()
    parts = [pa.record_batch([[] for _ in range(len(events.schema) + 1)], schema=events.schema.append(SUB_IDS))]
    for parcel in route(events, checkpoint.plan):
        for run in match(parcel.events, segments, checkpoint.grid, manifest.now_us, rows_max=64, pairs_max=4096):
            lists = pa.ListArray.from_arrays(pa.array(run.offsets.astype(np.int32)), run.subs, type=SUB_IDS.type)
            parts.append(pa.record_batch([*run.events.columns, lists], schema=parts[0].schema))
    return pa.concat_batches(parts)


@pytest.mark.parametrize(("seed", "text_keys"), [(seed, seed % 2 == 1) for seed in range(8)])
def test_transitions_are_those_of_the_oracle(tmp_path: Path, seed: int, text_keys: bool) -> None:
    rng = np.random.default_rng(seed)
    oracle, checkpoint = Oracle(BOUNDS), Checkpoint(str(tmp_path), CONTRACT, EAGER)
    window = int(rng.integers(1, 4))
    store = Memory(Transitions(Lookup(), window), rng)
    kinds = Counter[str]()
    for batch_id in range(25):
        now_us, interval = 10 * SECOND_US * batch_id, batch_id // 3
        storm = with_on(rng, operations(rng, int(rng.integers(0, 40)), ids=60, now_us=now_us, near=20, lasts_us=10**8))
        storm = with_keywords(rng, storm, 0.3) if rng.random() < 0.5 else storm
        manifest = checkpoint.prepare(batch_id, lambda storm=storm: [storm], now_us)  # type: ignore[misc]
        oracle.operate(storm, now_us)
        events = wandering_events(
            rng, int(rng.integers(0, 120)), near=20, objects=12, first_id=1000 * batch_id, at_us=now_us
        )
        events = with_texts(rng, events)
        if text_keys:
            events = events.set_column(4, "object_id", events.column("object_id").cast(pa.string()))
        Lookup.view, Lookup.now_us = View.open(checkpoint.storage, manifest), now_us
        rows = match_events(
            checkpoint, manifest, events.combine_chunks().to_batches()[0] if len(events) else _none(events)
        )
        named = rows.column("object_id").is_valid()
        out = [without_object(rows.filter(pa.compute.invert(named)), Lookup())]
        out += store.run(rows.filter(named), Moment(batch_id, interval, now_us))
        told = pairs_of(map(pa.table, out))
        want = oracle.deliver(events, now_us, interval, window)
        assert sorted(told) == sorted(want)
        assert all(ids == sorted(ids) != [] for part in out for ids in part.column("sub_ids").to_pylist())
        kinds.update(str(oracle.on.get(sub, "inside")) for _, sub in told)
        checkpoint.finish(batch_id)
    assert kinds.keys() == {"inside", "enter", "exit", "0.0", "5.0", "10.0", "12.5"}
    checkpoint.close()


def _none(events: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=events.schema)


# -- one object, by hand

Step = tuple[int, list[int]]
"""The ts in seconds, and what is met."""


def journey(on: dict[int, int], *batches: list[Step], window: int = 9) -> list[list[list[int]]]:
    """What goes out of each event of each batch; each batch is an interval of its own."""
    store = Memory(Transitions(_Fixed(on), window), np.random.default_rng(1))
    answers = []
    for number, steps in enumerate(batches):
        rows = _rows([(7, *step) for step in steps], 100 * number)
        given = pa.Table.from_batches(store.run(rows, Moment(number, number, 0)), schema=rows.schema)
        out = dict(zip(given["event_id"].to_pylist(), given["sub_ids"].to_pylist(), strict=True))
        answers.append([out.get(100 * number + i, []) for i in range(len(steps))])
    return answers


class _Fixed:
    def __init__(self, on: dict[int, int]) -> None:
        self.on = on

    def __call__(self, ids: SubIds) -> Ints:
        return np.array([self.on.get(int(i), INSIDE) for i in ids], np.int64)


def _rows(steps: list[tuple[Any, int, list[int]]], first_id: int = 0) -> pa.RecordBatch:
    rows = [
        {"event_id": first_id + i, "ts": ts * SECOND_US, "x": 0.0, "y": 0.0, "object_id": name, "sub_ids": subs}
        for i, (name, ts, subs) in enumerate(steps)
    ]
    kind = pa.string() if any(isinstance(step[0], str) for step in steps) else pa.int64()
    return pa.RecordBatch.from_pylist(rows, schema=EVENT.append(pa.field("object_id", kind)).append(SUB_IDS))


def test_an_object_enters_once_and_leaves_once() -> None:
    on = {1: ENTER, 2: EXIT}
    assert journey(on, [(0, []), (1, [1, 2]), (2, [1, 2])], [(3, [2, 1])], [(4, []), (5, [])], [(6, [1, 2])]) == [
        [[], [1], []],
        [[]],
        [[2], []],
        [[1]],
    ]


def test_a_dwell_is_reported_once_a_stay() -> None:
    on = {1: 15 * SECOND_US}
    assert journey(on, [(0, []), (10, [1]), (24, [1])], [(25, [1]), (90, [1])], [(91, []), (92, [1]), (107, [1])]) == [
        [[], [], []],
        [[1], []],
        [[], [], [1]],
    ]


def test_a_dwell_of_no_time_is_reported_at_once() -> None:
    assert journey({1: 0}, [(0, [1]), (1, [1])], [(2, []), (3, [1])]) == [[[1], []], [[], [1]]]


def test_a_late_event_changes_nothing() -> None:
    on = {1: ENTER, 2: EXIT}
    assert journey(on, [(10, [1, 2, 3])], [(5, [3]), (9, [])], [(11, [1, 2])]) == [[[1, 3]], [[3], []], [[]]]
    assert journey(on, [(10, [])], [(9, [1])], [(10, [1])]) == [[[]], [[]], [[1]]]  # of the same time is not late


def test_an_object_that_kept_quiet_for_a_window_is_forgotten() -> None:
    on = {1: ENTER, 2: EXIT}
    quiet: list[Step] = []
    assert journey(on, [(0, [1, 2])], quiet, [(9, [1, 2])], window=2) == [[[1]], [], [[1]]]
    assert journey(on, [(0, [1, 2])], quiet, [(9, [])], window=2) == [[[1]], [], [[]]]
    assert journey(on, [(0, [1, 2])], quiet, [(9, [])], window=3) == [[[1]], [], [[2]]]


def test_late_events_do_not_keep_an_object_remembered() -> None:
    assert journey({1: ENTER}, [(5, [1])], [(1, [1])], [(6, [1])], window=2) == [[[1]], [[]], [[1]]]


def test_a_cancelled_subscription_does_not_report_the_exit() -> None:
    on = {2: EXIT}
    store = Memory(Transitions(_Fixed(on)), np.random.default_rng(0))
    store.run(_rows([(7, 0, [2])]), Moment(0, 0, 0))
    on.clear()
    assert sum(map(len, store.run(_rows([(7, 1, [])]), Moment(1, 0, 0)))) == 0
    on[2] = EXIT  # registered anew, elsewhere: what was before is forgotten
    assert sum(map(len, store.run(_rows([(7, 2, [])]), Moment(2, 0, 0)))) == 0


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (ENTER, ENTER, [[], []]),
        (ENTER, EXIT, [[], [5]]),
        (ENTER, 3 * SECOND_US, [[5], []]),
        (0, 3 * SECOND_US, [[], []]),  # it has dwelt in this stay
        (EXIT, INSIDE, [[5], []]),
        (INSIDE, ENTER, [[5], []]),
    ],
)
def test_a_replaced_subscription_goes_on_with_the_stay(before: int, after: int, told: list[list[int]]) -> None:
    on = {5: before}
    store = Memory(Transitions(_Fixed(on)), np.random.default_rng(0))
    store.run(_rows([(7, 0, [5])]), Moment(0, 0, 0))
    on[5] = after
    out = [store.run(_rows([(7, *step)]), Moment(n, 0, 0)) for n, step in enumerate([(4, [5]), (6, [])], 1)]
    assert [[sub for _, sub in pairs_of(map(pa.table, parts))] for parts in out] == told


def test_objects_do_not_mix_whatever_they_are_called() -> None:
    store = Memory(Transitions(_Fixed({1: ENTER, 2: EXIT})), np.random.default_rng(0))
    steps: list[tuple[Any, int, list[int]]] = [("a", 0, [1, 2]), ("b", 0, []), ("", 0, [1]), ("ä", 1, [2])]
    told = pairs_of(map(pa.table, store.run(_rows(steps), Moment(0, 0, 0))))
    assert sorted(told) == [(0, 1), (2, 1)]
    later: list[tuple[Any, int, list[int]]] = [("b", 2, [1]), ("a", 2, []), ("ä", 2, []), ("", 2, [])]
    told = pairs_of(map(pa.table, store.run(_rows(later), Moment(1, 0, 0))))
    assert sorted(told) == [(0, 1), (1, 2), (2, 2)]


def test_a_column_of_the_users_may_be_called_key() -> None:
    rows = _rows([(7, 0, [1, 9])]).append_column(pa.field("key", pa.string()), pa.array(["mine"]))
    operator = Transitions(_Fixed({1: ENTER}))
    assert operator.feed(rows)["key"].to_pylist() == [7]
    (given,) = Memory(operator, np.random.default_rng(0)).run(rows, Moment(0, 0, 0))
    assert given.to_pylist() == rows.to_pylist()
    assert given.schema == rows.schema


def test_an_object_in_ten_thousand_places_leaves_them_all() -> None:
    subs: list[int] = np.random.default_rng(3).permutation(10_000).tolist()
    (first, second, third) = journey(dict.fromkeys(subs, EXIT), [(0, subs)], [(1, subs[::2])], [(2, [])])
    assert first == [[]]
    assert second == [sorted(subs[1::2])]
    assert third == [sorted(subs[::2])]


def test_events_without_an_object_only_meet_subscriptions_on_inside() -> None:
    rows = _rows([(None, 0, [4, 1, 3]), (None, 0, [1]), (None, 0, []), (None, 1, [3])])
    left = without_object(rows, _Fixed({1: ENTER}))
    assert left.schema == rows.schema
    assert pairs_of([pa.table(left)]) == [(0, 3), (0, 4), (3, 3)]
