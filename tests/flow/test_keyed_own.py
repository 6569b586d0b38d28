"""Stages that users write: the same as a plain loop over keys, and errors that name the key."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import InputError, SchemaError, StreamError
from geoswarm.flow.keyed.json_state import STATE_BYTES_MAX
from geoswarm.flow.keyed.operator import Moment, Turn
from geoswarm.flow.keyed.own import Key, Own, PerKey, Row, State
from keyed_harness import Batch, KeyedWorld, have_same_rows, moments

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("amount", pa.float64())])


class Spending(PerKey):
    """Keeps every row, so that any that is lost, doubled or out of place shows."""

    given = pa.schema([("here", pa.list_(pa.int64())), ("before", pa.list_(pa.int64())), ("kind", pa.string())])
    order = ("n",)

    def init(self, key: Key) -> State:
        return {"of": key, "seen": []}

    def update(self, state: State, rows: list[Row], window: State | None) -> tuple[State, list[Row]]:
        assert all(row["key"] == state["of"] for row in rows)
        state["seen"] += [row["n"] for row in rows]
        before = None if window is None else window["seen"]
        return state, [{"here": list(state["seen"]), "before": before, "kind": "update"}]

    def merge(self, a: State, b: State) -> State:
        assert a["of"] == b["of"]
        return {"of": a["of"], "seen": a["seen"] + b["seen"]}

    def expire(self, key: Key, state: State) -> list[Row]:
        assert key == state["of"]
        return [{"here": state["seen"], "before": None, "kind": "expire"}] if len(state["seen"]) > 1 else []


class Longest(PerKey):
    """The example of own.py."""

    given = pa.schema([("metres", pa.float64())])

    def init(self, key: Key) -> State:
        return 0.0

    def update(self, state: State, rows: list[Row], window: State | None) -> tuple[State, list[Row]]:
        longest = max(state, *(row["metres"] for row in rows))
        return longest, [{"metres": longest}] if longest > max(state, window or 0.0) else []

    def merge(self, a: State, b: State) -> State:
        return max(a, b)


def _stream(rng: np.random.Generator) -> list[Batch]:
    stream, number = [], 0
    for interval in moments(rng, 14):
        count = int(rng.integers(0, 10))
        rows = [{"user": f"u{rng.integers(0, 5)}", "n": number + i, "amount": 1.0} for i in range(count)]
        number += count
        stream.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    return stream


def _spending_by_hand(stream: list[Batch], window: int) -> tuple[list[list[Row]], dict[int, list[Row]]]:
    """What Spending gives, from one dict of everything ever seen."""
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    updates = []
    for interval, rows in stream:
        users = defaultdict(list)
        for row in rows.to_pylist():
            users[row["user"]].append(row["n"])
        given = []
        for user, numbers in users.items():
            seen[user, interval] += numbers
            earlier = [seen[user, i] for i in range(interval - window + 1, interval) if (user, i) in seen]
            before = [n for some in earlier for n in some] if earlier else None
            given.append({"key": user, "here": list(seen[user, interval]), "before": before, "kind": "update"})
        updates.append(given)
    expiries: dict[int, list[Row]] = {}
    for (user, interval), numbers in seen.items():
        if interval <= stream[-1].interval - window:
            gone = [{"key": user, "here": numbers, "before": None, "kind": "expire"}] if len(numbers) > 1 else []
            expiries[interval] = expiries.get(interval, []) + gone
    return updates, expiries


@pytest.mark.parametrize("seed", range(25))
def test_a_stage_sees_each_row_once_and_its_window_from_old_to_new(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream, window = _stream(rng), int(rng.integers(1, 5))
    got = KeyedWorld(Own(Spending(), "user", window), SCHEMA, rng).run(stream)
    updates, expiries = _spending_by_hand(stream, window)
    assert sum(map(len, updates)) > 10
    for given, expected in zip(got.updates, updates, strict=True):
        assert have_same_rows(given, expected)
    assert got.expiries.keys() == expiries.keys()
    assert all(have_same_rows(got.expiries[interval], expiries[interval]) for interval in expiries)


def test_the_example_tells_when_the_longest_grows() -> None:
    rng = np.random.default_rng(3)
    schema = pa.schema([("key", pa.int64()), ("metres", pa.float64())])
    said = [(0, 5.0), (0, 3.0), (1, 4.0), (1, 9.0), (3, 2.0)]
    stream = [Batch(i, pa.RecordBatch.from_pylist([{"key": 1, "metres": m}], schema=schema)) for i, m in said]
    got = KeyedWorld(Own(Longest(), window=2), schema, rng).run(stream)
    assert [[row["metres"] for row in rows] for rows in got.updates] == [[5.0], [], [], [9.0], [2.0]]
    assert all(rows == [] for rows in got.expiries.values())


# -- errors


def _answer_to(stage: PerKey, **row: Any) -> Any:
    rows = pa.RecordBatch.from_pylist([{"user": "ann", "n": 1, "amount": 2.0} | row], schema=SCHEMA)
    operator = Own(stage, "user", name="mine")
    fed = operator.feed(rows)
    held = pa.RecordBatch.from_pylist([], schema=operator.kept)
    none, starts = np.empty(0, np.int64), np.array([0, 1])
    turn = Turn(fed.column("key"), fed, starts, held, np.zeros(2, np.int64), none, none, Moment(0, 0, 0))
    return operator.update(turn)


class Answers(PerKey):
    """Whatever it is told to answer."""

    given = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("note", pa.string())])

    def __init__(self, state: Any, rows: Any = ()) -> None:
        self.state, self.rows = state, list(rows) if isinstance(rows, tuple) else rows

    def init(self, key: Key) -> State:
        return None

    def update(self, state: State, rows: list[Row], window: State | None) -> tuple[State, list[Row]]:
        return self.state, self.rows

    def merge(self, a: State, b: State) -> State:
        return a


def test_an_exception_names_operator_method_and_key() -> None:
    class Fails(Answers):
        def update(self, state: State, rows: list[Row], window: State | None) -> tuple[State, list[Row]]:
            return rows[0]["price"], []

    with pytest.raises(StreamError, match=r"operator mine: Fails.update failed for key 'ann' with KeyError: 'price'"):
        _answer_to(Fails(None))


KNOT: list[Any] = []
KNOT.append(KNOT)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ({"a": {1, 2}}, r"a set at state\['a'\]"),
        ({"a": [0, (1, 2)]}, r"a tuple at state\['a'\]\[1\]"),
        ({1: "a"}, "a dict with the int key 1 at state"),
        (float("nan"), "nan at state"),
        ([1.0, float("inf")], r"inf at state\[1\]"),
        (b"bytes", "a bytes at state"),
        (np.int64(3), "a int64 at state"),
        (np.arange(3), "a ndarray at state"),
        (KNOT, "itself, or more than 100 levels"),
        (pa.scalar(1), "Scalar at state"),
    ],
)
def test_a_state_that_json_would_change_is_refused_by_key_and_type(state: Any, what: str) -> None:
    with pytest.raises(StreamError, match=f"operator mine, key 'ann': the state holds .*{what}"):
        _answer_to(Answers(state))


def test_a_state_that_is_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(
        StreamError, match=f"the state has {STATE_BYTES_MAX + 2} bytes as JSON, limit {STATE_BYTES_MAX}"
    ):
        _answer_to(Answers("x" * STATE_BYTES_MAX))


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"n": 1}], r"lacks \['note'\] of the declared columns"),
        ([{"n": 1, "note": "", "more": 1}], r"has \['more'\] beyond the declared columns"),
        ([{"m": 1, "note": ""}], r"lacks \['n'\] and has \['m'\] beyond the declared"),
        ([{"n": "one", "note": ""}], r"gave 'one' \(str\) in column n, which is declared int64"),
        ([{"n": 1, "note": ""}, {"n": 2.5, "note": ""}], r"gave 2.5 \(float\) in column n, which is declared int64"),
        ([{"n": None, "note": ""}], r"gave None \(NoneType\) in column n, which is declared int64 and never null"),
        ([{"n": 2**63, "note": ""}], "in column n, which is declared int64"),
        ([{"n": 1, "note": 7}], r"gave 7 \(int\) in column note, which is declared string"),
        (None, "gave a NoneType as rows: give a list of dicts"),
        ({"n": 1, "note": ""}, "gave a dict as rows: give a list of dicts"),
    ],
)
def test_rows_that_differ_from_the_declared_columns_are_refused(rows: Any, what: str) -> None:
    with pytest.raises(StreamError, match=f"operator mine: Answers.*for key 'ann' .*{what}"):
        _answer_to(Answers(None, rows))


def test_an_update_that_returns_no_pair_is_refused() -> None:
    class Forgets(Answers):
        def update(self, state: State, rows: list[Row], window: State | None) -> Any:
            return state

    with pytest.raises(StreamError, match="returned a NoneType: return the state and a list of rows"):
        _answer_to(Forgets(None))


def test_what_json_can_hold_comes_back_as_it_was() -> None:
    state: Row = {"a": [None, True, 0, -(2**70), 1.5, "café\ud800", {}], "": []}
    assert eval(_answer_to(Answers(state)).kept.to_pylist()[0]["state"], {"null": None, "true": True}) == state


@pytest.mark.parametrize("given", [None, {"n": "int64"}, pa.schema([("key", pa.string())])])
def test_a_stage_that_does_not_declare_its_columns_is_refused(given: Any) -> None:
    stage = Answers(None)
    stage.given = given
    with pytest.raises(InputError, match="must declare `given`"):
        Own(stage)


def test_two_columns_for_the_key_are_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"user": ["ann"], "key": [1]})
    with pytest.raises(SchemaError, match="which another column has: rename that one"):
        Own(Answers(None), "user").feed(rows)


def test_an_order_by_a_missing_column_is_refused() -> None:
    with pytest.raises(SchemaError, match="orders rows by n, but they have amount"):
        Own(Spending(), "user").feed(pa.RecordBatch.from_pydict({"user": ["ann"], "amount": [1.0]}))
