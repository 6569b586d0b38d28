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
from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.subscriptions.region import RegionValues
from geoswarm.core.subscriptions.trigger import FollowRules
from geoswarm.flow.keyed.operator import Answer, Moment
from geoswarm.flow.keyed.transitions import Transitions, Vagueness, without_object
from geoswarm.flow.keyed.turn import Shelf, compact_shelves, group, make_shelf, turn_of
from geoswarm.flow.match.match import match
from geoswarm.flow.route import route
from geoswarm.model import ENTER, EVENT, EXIT, INSIDE, SUB_IDS
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import pairs_of
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest
from geoswarm.store.subscriptions import View
from worlds import (
    BOUNDS,
    operations,
    wandering_events,
    with_accuracy,
    with_alert_rules,
    with_buffers,
    with_demands,
    with_facts,
    with_keywords,
    with_on,
    with_shapes,
    with_texts,
)

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
SECOND_US = 1_000_000


class Memory:
    """What the store does with an operator's state, in this process: shelves by interval, newest last."""

    def __init__(self, operator: Transitions, rng: np.random.Generator) -> None:
        self.operator, self.rng = operator, rng
        self.shelves: list[Shelf] = []
        self.counts = Counter[str]()

    def run(self, rows: pa.RecordBatch, moment: Moment) -> list[pa.RecordBatch]:
        """One batch: its keys go to some executors, as it happens, and it may be run more than once."""
        fed = self.operator.feed(rows)
        seen = [shelf for shelf in self.shelves if shelf.interval > moment.interval - self.operator.window]
        for _ in range(int(self.rng.integers(1, 3))):
            given, fresh, counts = [], [], Counter[str]()
            for part in self._deal(fed):
                grouped = group(part, self.operator.order)
                turn = turn_of(grouped, [(shelf, None) for shelf in seen], self.operator, moment)
                answer = pickle.loads(pickle.dumps(self.operator)).update(turn)
                self._check(answer, fed.schema, len(grouped.ids))
                given.append(answer.given)
                counts.update(answer.counts)
                if len(answer.kept):
                    keys = grouped.keys.take(pa.array(answer.kept_groups))
                    kept = pa.record_batch([keys, *answer.kept.columns], names=["key", *self.operator.kept.names])
                    fresh.append(make_shelf(kept, np.full(len(kept), moment.batch), moment.interval))
        self.shelves = [*seen, *fresh]
        self.counts.update(counts)
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
    """`View.follow_rules` of the newest version; a worker would open it from the checkpoint, so it is not pickled."""

    view: View
    now_us: int

    def __call__(self, ids: SubIds) -> FollowRules:
        assert np.all(np.diff(ids) > 0)
        return Lookup.view.follow_rules(ids, Lookup.now_us)


def regions(ids: SubIds) -> RegionValues:
    return Lookup.view.regions(ids, Lookup.now_us)


def match_events(checkpoint: Checkpoint, manifest: Manifest, events: pa.RecordBatch) -> pa.RecordBatch:
    """Every event with all that it met."""
    segments = View.open(checkpoint.storage, manifest).searchables()
    parts = [pa.record_batch([[] for _ in range(len(events.schema) + 1)], schema=events.schema.append(SUB_IDS))]
    for parcel in route(events, checkpoint.plan):
        for run in match(parcel.events, segments, checkpoint.grid, manifest.now_us, rows_max=64, pairs_max=4096):
            lists = pa.ListArray.from_arrays(pa.array(run.offsets.astype(np.int32)), run.subs, type=SUB_IDS.type)
            parts.append(pa.record_batch([*run.events.columns, lists], schema=parts[0].schema))
    return pa.concat_batches(parts)


@pytest.mark.parametrize("seed", range(7))
def test_transitions_are_those_of_the_oracle(tmp_path: Path, seed: int) -> None:
    """Of two worlds one has text as keys; of four, three have confirm, cooldown and vague fixes."""
    rng, text_keys = np.random.default_rng(seed), seed % 2 == 1
    oracle, checkpoint = Oracle(BOUNDS), Checkpoint(str(tmp_path), CONTRACT, EAGER)
    window, has_rules = int(rng.integers(1, 4)), seed % 4 > 0
    vagueness = Vagueness(20.0, seed % 4 == 2) if has_rules else Vagueness()
    oracle.following.accuracy_max_m, oracle.following.accuracy_needed = vagueness
    store = Memory(Transitions(Lookup(), window, vagueness, regions=regions), rng)
    kinds = Counter[str]()
    for batch_id in range(25):
        now_us, interval = 10 * SECOND_US * batch_id, batch_id // 3
        storm = with_on(rng, operations(rng, int(rng.integers(0, 40)), ids=60, now_us=now_us, near=20, lasts_us=10**8))
        storm = with_buffers(rng, with_alert_rules(rng, with_shapes(rng, storm))) if has_rules else storm
        storm = with_keywords(rng, storm, 0.3) if rng.random() < 0.5 else storm
        storm = with_demands(rng, storm, 0.3) if seed % 5 == 0 else storm
        manifest = checkpoint.prepare(batch_id, lambda storm=storm: [storm], now_us)  # type: ignore[misc]
        oracle.operate(storm, now_us)
        events = wandering_events(
            rng, int(rng.integers(0, 120)), near=20, objects=12, first_id=1000 * batch_id, at_us=now_us
        )
        events = with_facts(rng, with_accuracy(rng, with_texts(rng, events)))
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
        counted, following = store.counts, oracle.following
        assert (counted["cooled"], counted["vague"]) == (following.cooled, following.vague)
        assert counted["late_fixes"] == following.late
        assert all(ids == sorted(ids) != [] for part in out for ids in part.column("sub_ids").to_pylist())
        kinds.update(str(oracle.on.get(sub, "inside")) for _, sub in told)
        checkpoint.finish(batch_id)
    assert kinds.keys() >= {"inside", "enter", "exit"}
    transitions = sum(count for kind, count in kinds.items() if kind != "inside")
    assert store.counts["reported"] == transitions > 0
    assert store.counts["late_fixes"] > 50
    assert store.counts["vague"] > 50 if has_rules else not store.counts["vague"] + store.counts["cooled"]
    checkpoint.close()


def _none(events: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=events.schema)


# -- one object, by hand

Step = tuple[int, list[int]]
"""The ts in seconds, and what is met."""


def journey(
    on: dict[int, int], *batches: list[Step], window: int = 9, rules: "_Fixed | None" = None
) -> list[list[list[int]]]:
    """What goes out of each event of each batch; each batch is an interval of its own."""
    store = Memory(Transitions(rules or _Fixed(on), window), np.random.default_rng(1))
    answers = []
    for number, steps in enumerate(batches):
        rows = _rows([(7, *step) for step in steps], 100 * number)
        given = pa.Table.from_batches(store.run(rows, Moment(number, number, 0)), schema=rows.schema)
        out = dict(zip(given["event_id"].to_pylist(), given["sub_ids"].to_pylist(), strict=True))
        answers.append([out.get(100 * number + i, []) for i in range(len(steps))])
    return answers


class _Fixed:
    def __init__(
        self, on: dict[int, int], confirm: dict[int, int] | None = None, cooldown: dict[int, int] | None = None
    ) -> None:
        """Codes, and seconds of cooldowns."""
        self.on, self.confirm, self.cooldown = on, confirm or {}, cooldown or {}

    def __call__(self, ids: SubIds) -> FollowRules:
        on = [self.on.get(int(i), INSIDE) for i in ids]
        confirm = [self.confirm.get(int(i), 0) for i in ids]
        cooldown_us = [self.cooldown.get(int(i), 0) * SECOND_US for i in ids]
        none = [0] * len(on)
        return FollowRules(*(np.array(rule, np.int64) for rule in (on, confirm, cooldown_us, none)))


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


# -- noisy GPS, by hand

SECOND = -SECOND_US
"""A confirm of a second; twice that is two seconds."""


def confirmed(on: int, confirm: int, *batches: list[Step], cooldown: int = 0) -> list[list[bool]]:
    """Which events are reported to subscription 1."""
    rules = _Fixed({1: on}, {1: confirm}, {1: cooldown})
    return [[told == [1] for told in batch] for batch in journey({}, *batches, rules=rules)]


def test_an_enter_counts_with_the_third_fix_in_a_row() -> None:
    steps: list[Step] = [(0, [1]), (1, [1]), (2, []), (3, [1]), (4, [1])]
    assert confirmed(ENTER, 3, steps, [(5, [1]), (6, [1])]) == [[False] * 5, [True, False]]


def test_an_exit_counts_with_the_second_fix_in_a_row_and_only_after_a_stay() -> None:
    steps: list[Step] = [(0, []), (1, []), (2, [1]), (3, []), (4, [1]), (5, [1]), (6, []), (7, [1]), (8, [])]
    assert confirmed(EXIT, 2, steps, [(9, []), (10, [])]) == [[False] * 9, [True, False]]


def test_one_fix_outside_makes_no_second_enter() -> None:
    assert confirmed(ENTER, 2, [(0, [1]), (1, [1]), (2, []), (3, [1]), (4, [1])]) == [
        [False, True, False, False, False]
    ]


def test_a_run_of_a_time_ends_with_the_first_fix_that_is_so_late() -> None:
    assert confirmed(ENTER, 5 * SECOND, [(0, [1]), (4, [1])], [(5, [1])]) == [[False, False], [True]]
    assert confirmed(ENTER, 5 * SECOND, [(0, [1]), (60, [1])]) == [[False, True]]
    assert confirmed(EXIT, 5 * SECOND, [(0, [1]), (6, [1]), (7, []), (11, []), (12, [])]) == [[False] * 4 + [True]]


def test_a_stay_is_counted_from_the_first_fix_of_its_run() -> None:
    dwell = 10 * SECOND_US
    assert confirmed(dwell, 3, [(0, [1]), (4, [1]), (9, [1]), (10, [1]), (11, [1])]) == [[False] * 3 + [True, False]]
    assert confirmed(dwell, 3, [(0, [1]), (20, [1]), (21, [1])]) == [[False, False, True]]
    # Outside for less than a run, the stay goes on; it is reported of a fix inside.
    assert confirmed(dwell, 2, [(0, [1]), (1, [1]), (11, []), (12, [1])]) == [[False, False, False, True]]


def test_late_fixes_neither_count_in_a_run_nor_break_one() -> None:
    assert confirmed(ENTER, 3, [(10, [1])], [(5, [1]), (6, [])], [(11, [1])], [(12, [1])]) == [
        [False],
        [False, False],
        [False],
        [True],
    ]


def test_after_an_alert_there_is_none_for_so_long() -> None:
    steps: list[Step] = [(0, [1]), (1, []), (2, [1]), (3, []), (9, [1]), (9, []), (10, [1]), (11, []), (12, [1])]
    assert confirmed(ENTER, 0, steps, cooldown=10) == [[True] + [False] * 5 + [True, False, False]]


def test_a_pause_survives_the_object_being_outside() -> None:
    assert confirmed(ENTER, 0, [(0, [1])], [(1, [])], [(2, [])], [(3, [1])], [(4, [])], [(5, [1])], cooldown=5) == [
        [True],
        [False],
        [False],
        [False],
        [False],
        [True],
    ]


def test_a_dwell_in_a_pause_is_left_out_and_not_put_off() -> None:
    dwell = 5 * SECOND_US
    steps: list[Step] = [(0, [1]), (5, [1]), (6, []), (7, [1]), (12, [1]), (40, [1]), (41, []), (42, [1]), (47, [1])]
    assert confirmed(dwell, 0, steps, cooldown=20) == [[False, True] + [False] * 6 + [True]]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (3, 3, [False, True]),
        (3, 2, [True, False]),
        (3, 0, [True, False]),
        (3, 4 * SECOND, [True, False]),
        (3, 5 * SECOND, [False, True]),
        (9, 4, [False, False]),
    ],
)
def test_a_replaced_confirm_measures_what_the_run_has(before: int, after: int, told: list[bool]) -> None:
    rules = _Fixed({1: ENTER}, {1: before})
    store = Memory(Transitions(rules, 9), np.random.default_rng(0))
    store.run(_rows([(7, 0, [1])]), Moment(0, 0, 0))
    rules.confirm[1] = after
    out = [store.run(_rows([(7, ts, [1])]), Moment(ts, 0, 0)) for ts in (4, 5)]
    assert [bool(pairs_of(map(pa.table, parts))) for parts in out] == told


@pytest.mark.parametrize(("after", "told"), [(10, False), (99, False), (1, False), (0, True)])
def test_a_replaced_cooldown_leaves_the_pause_unless_there_is_none(after: int, told: bool) -> None:
    rules = _Fixed({1: ENTER}, {}, {1: 10})
    store = Memory(Transitions(rules, 9), np.random.default_rng(0))
    store.run(_rows([(7, 0, [1])]), Moment(0, 0, 0))
    rules.cooldown[1] = after
    out = store.run(_rows([(7, 5, []), (7, 6, [1])]), Moment(1, 0, 0))
    assert bool(pairs_of(map(pa.table, out))) == told


def test_a_run_and_a_pause_are_forgotten_with_the_object() -> None:
    rules, quiet = _Fixed({1: ENTER}, {1: 2}, {1: 1000}), list[Step]()
    assert journey({}, [(0, [1]), (1, [1])], quiet, [(2, [1]), (3, [1])], window=2, rules=rules)[2] == [[], [1]]
    assert journey({}, [(0, [1])], quiet, [(1, [1])], window=2, rules=rules)[2] == [[]]
    assert journey({}, [(0, [1])], quiet, [(1, [1])], window=3, rules=rules)[2] == [[1]]


def vague(vagueness: Vagueness, on: int, *steps: tuple[int, float | None, list[int]]) -> tuple[list[bool], int]:
    """Which events are reported to subscription 1, by ts, accuracy and what is met; and how many were vague."""
    rows = _rows([(7, ts, met) for ts, _, met in steps])
    metres = pa.array([accuracy for _, accuracy, _ in steps], pa.float64())
    rows = rows.append_column("accuracy_m", metres)
    store = Memory(Transitions(_Fixed({1: on}, {1: 2}), 9, vagueness), np.random.default_rng(0))
    told = {event for event, sub in pairs_of(map(pa.table, store.run(rows, Moment(0, 0, 0)))) if sub == 1}
    return [event in told for event in range(len(steps))], store.counts["vague"]


def test_a_vague_fix_neither_counts_in_a_run_nor_breaks_one() -> None:
    enters = vague(Vagueness(30.0), ENTER, (0, 5.0, [1]), (1, 31.0, []), (2, 99.0, [1]), (3, 30.0, [1]))
    assert enters == ([False, False, False, True], 2)
    assert vague(Vagueness(), ENTER, (0, 5.0, [1]), (1, 1e9, [1])) == ([False, True], 0)
    assert vague(Vagueness(30.0), INSIDE, (0, 99.0, [1])) == ([True], 1)


def test_a_fix_of_unknown_accuracy_counts_unless_one_is_needed() -> None:
    steps: list[tuple[int, float | None, list[int]]] = [(0, None, [1]), (1, -1.0, [1]), (2, np.nan, []), (3, 0.0, [1])]
    assert vague(Vagueness(30.0), ENTER, *steps) == ([False, True, False, False], 0)
    assert vague(Vagueness(30.0, True), ENTER, *steps, (4, 30.0, [1])) == ([False] * 4 + [True], 3)


@pytest.mark.parametrize("generation", [0, 1])
def test_state_of_before_there_were_runs_is_read(generation: int) -> None:
    """What is missing of it is null, as `store/keyed_state.py` reads it: the stays go on."""
    operator = Transitions(_Fixed({1: EXIT, 2: 5 * SECOND_US}, {1: 2}, {2: 60}), 9)
    old = operator.kept_before[generation]
    row = {"seen_us": 0, "subs": [1, 2], "since_us": [0, 0], "x": 0.0, "y": 0.0}
    held = pa.RecordBatch.from_pylist([{name: row[name] for name in old.names}], schema=old)
    missing = [pa.nulls(1, field.type) for field in list(operator.kept)[len(old) :]]
    columns = [pa.array([7]), *held.columns, *missing]
    store = Memory(operator, np.random.default_rng(0))
    rows = pa.record_batch(columns, names=["key", *operator.kept.names])
    store.shelves = [make_shelf(rows, np.zeros(1, np.int64), 0)]
    told = pairs_of(map(pa.table, store.run(_rows([(7, 5, [1, 2]), (7, 6, []), (7, 7, [])]), Moment(1, 0, 0))))
    assert sorted(told) == [(0, 2), (2, 1)]
