"""A keyed stage that a user writes in plain Python, key by key, and the adaptor that makes an operator of it.

It is slower than the other operators: one call of Python for each key and batch. For speed, write an `Operator`
(`operator.py`).

    class Longest(PerKey):                       # the longest trip of each vehicle, sent whenever it grows
        given = pa.schema([("metres", pa.float64())])

        def init(self, key):
            return 0.0

        def update(self, state, rows, window):
            longest = max(state, *(row["metres"] for row in rows))
            return longest, [{"metres": longest}] if longest > max(state, window or 0.0) else []

        def merge(self, a, b):
            return max(a, b)

A key has one state per interval:

    interval     4        5        6   <- now          window = 3
    state        a        b        c
                 └─ merge ┘        └─ what `update` gets as `state`, and returns anew; `init(key)` at first
                     └─ what it gets as `window`; None if no earlier interval of the window has a state

Every batch keeps the whole state of its interval, and the newest counts. States are stored as JSON, so a state must be
a value that JSON returns unchanged: None, bool, int, finite float, str, and lists and dicts with str keys of these.

A key is charged the CPU time of its calls, so that keys are balanced by what the stage really takes for each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.errors import InputError, SchemaError, StreamError
from geoswarm.flow.keyed.columns import check_name, check_window, key_column, key_field, make_batch
from geoswarm.flow.keyed.json_state import pack_state, unpack_state
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn

Key = int | str
State = Any
Row = dict[str, Any]

OWN_KEPT = pa.schema([pa.field("state", pa.string(), nullable=False)])


class PerKey(ABC):
    """The class that a user writes. One object serves all keys and may be called in any process: it must be picklable,
    and keep nothing between calls, because a batch may run again and keys move. An exception stops the stream."""

    given: pa.Schema
    """The exact columns of the rows that `update` and `expire` return; `key` is added before them."""
    order: tuple[str, ...] = ()
    """Columns by which the rows of a key are sorted before `update`; without them they come in any order."""

    @abstractmethod
    def init(self, key: Key) -> State:
        """The state of a key in an interval before its first row there."""

    @abstractmethod
    def update(self, state: State, rows: list[Row], window: State | None) -> tuple[State, list[Row]]:
        """All rows of one key in a batch, `key` among their columns: the state after them, and rows to send out."""

    @abstractmethod
    def merge(self, a: State, b: State) -> State:
        """One state for two; a is of earlier intervals than b."""

    def expire(self, key: Key, state: State) -> list[Row]:
        """An interval leaves the window: the state that the key had at its end. Returns rows to send out."""
        return []


class Own(Operator):
    """The operator that calls a stage. Gives `key` and the columns that the stage declares."""

    def __init__(self, stage: PerKey, key: str = KEY, window: int = 1, name: str = "own") -> None:
        if not isinstance(getattr(stage, "given", None), pa.Schema) or KEY in stage.given.names:
            raise InputError(
                f"stage {type(stage).__name__} must declare `given`, a pyarrow.schema of the columns of its rows, "
                f"without {KEY}, which is added"
            )
        self.stage, self.key = stage, key
        self.window = check_window(window)
        self.name = check_name(name)
        self.order = stage.order

    @property
    def kept(self) -> pa.Schema:
        return OWN_KEPT

    def given(self, fed: pa.Schema) -> pa.Schema:
        return pa.schema([key_field(fed), *self.stage.given])

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = key_column(rows, self.key, self.name)
        others = [name for name in rows.schema.names if name != self.key]
        if KEY in others:
            raise SchemaError(
                f"operator {self.name} calls its key column {self.key} by the name {KEY}, which another column has: "
                "rename that one"
            )
        missing = [name for name in self.order if name not in (*others, KEY)]
        if missing:
            raise SchemaError(f"operator {self.name} orders rows by {missing[0]}, but they have {', '.join(others)}")
        return pa.RecordBatch.from_arrays([keys, *map(rows.column, others)], names=[KEY, *others])

    def update(self, turn: Turn) -> Answer:
        keys, rows, held = turn.keys.to_pylist(), turn.rows.to_pylist(), turn.held.column("state").to_pylist()
        kept: list[str] = []
        given: list[tuple[Key, Row]] = []
        given_counts, at_s = np.zeros(len(keys), np.int64), [turn.cpu_s()]
        for i, key in enumerate(keys):
            begin, end = turn.held_starts[i], turn.held_starts[i + 1]
            newest = dict(zip(turn.held_intervals[begin:end].tolist(), held[begin:end], strict=True))
            state = self._present(key, newest.pop(turn.moment.interval, None))
            window = self._merge_older(key, [newest[interval] for interval in sorted(newest)])
            of_key = rows[turn.starts[i] : turn.starts[i + 1]]
            state, some = self._check_update(key, self._ask(key, "update", self.stage.update, state, of_key, window))
            kept.append(pack_state(state, f"operator {self.name}, key {key!r}"))
            given += ((key, row) for row in some)
            given_counts[i] = len(some)
            at_s.append(turn.cpu_s())
        work = (turn.row_counts + np.diff(turn.held_starts)).astype(np.float64)
        every = np.arange(len(keys))
        states = make_batch([pa.array(kept, pa.string())], OWN_KEPT)
        return Answer(states, every, self._batch(turn, given), work, given_counts, 1e6 * np.diff(at_s))

    def compact(self, held: StateRows) -> StateRows:
        """Keeps the newest row of each key."""
        some = np.flatnonzero(np.diff(held.starts))
        last = held.starts[some + 1] - 1
        starts = np.concatenate([[0], np.cumsum(np.diff(held.starts) > 0)])
        return StateRows(held.rows.take(pa.array(last)), starts, held.batches[last])

    def expire(self, turn: Turn) -> pa.RecordBatch | None:
        if type(self.stage).expire is PerKey.expire:
            return None
        states = turn.held.column("state").to_pylist()
        given: list[tuple[Key, Row]] = []
        for key, end in zip(turn.keys.to_pylist(), turn.held_starts[1:].tolist(), strict=True):
            some = self._ask(key, "expire", self.stage.expire, key, unpack_state(states[end - 1]))
            given += ((key, row) for row in self._rows(key, "expire", some))
        return self._batch(turn, given)

    # -- calls of the stage, and checks of what it returns

    def _present(self, key: Key, written: str | None) -> State:
        return self._ask(key, "init", self.stage.init, key) if written is None else unpack_state(written)

    def _merge_older(self, key: Key, older: Sequence[str]) -> State | None:
        if not older:
            return None
        window = unpack_state(older[0])
        for written in older[1:]:
            window = self._ask(key, "merge", self.stage.merge, window, unpack_state(written))
        return window

    def _ask(self, key: Key, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise StreamError(
                f"operator {self.name}: {type(self.stage).__name__}.{method} failed for key {key!r} with "
                f"{type(error).__name__}: {error}; correct it, and start the stream again: the batch will be repeated"
            ) from error

    def _check_update(self, key: Key, answer: Any) -> tuple[State, list[Row]]:
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise self._wrong(key, "update", f"returned {_kind(answer)}: return the state and a list of rows")
        return answer[0], self._rows(key, "update", answer[1])

    def _rows(self, key: Key, method: str, rows: Any) -> list[Row]:
        if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
            raise self._wrong(key, method, f"gave {_kind(rows)} as rows: give a list of dicts, empty if there are none")
        declared = self.stage.given.names
        for row in rows:
            if row.keys() != set(declared):
                missing, more = sorted(set(declared) - row.keys()), sorted(map(str, row.keys() - set(declared)))
                differ = f"lacks {missing} and has {more} beyond" if missing and more else ""
                differ = differ or (f"lacks {missing} of" if missing else f"has {more} beyond")
                raise self._wrong(key, method, f"gave a row that {differ} the declared columns {declared}")
        return rows

    def _batch(self, turn: Turn, given: Sequence[tuple[Key, Row]]) -> pa.RecordBatch:
        schema = self.given(turn.rows.schema)
        columns = [pa.array([key for key, _ in given], schema.field(KEY).type)]
        columns += [self._column(field, given) for field in self.stage.given]
        return make_batch(columns, schema)

    def _column(self, field: pa.Field, given: Sequence[tuple[Key, Row]]) -> pa.Array:
        column = _as_array([row[field.name] for _, row in given], field)
        if column is None:
            key, value = next((k, row[field.name]) for k, row in given if _as_array([row[field.name]], field) is None)
            said = f"gave {value!r} ({type(value).__name__}) in column {field.name}, which is declared {field.type}"
            raise self._wrong(key, "update or expire", said + ("" if field.nullable else " and never null"))
        return column

    def _wrong(self, key: Key, method: str, what: str) -> StreamError:
        return StreamError(f"operator {self.name}: {type(self.stage).__name__}.{method} for key {key!r} {what}")


def _as_array(values: list[Any], field: pa.Field) -> pa.Array | None:
    """The values as an array; None if they do not fit the field."""
    if pa.types.is_integer(field.type) and any(isinstance(value, float) for value in values):
        return None  # Arrow would cut off the decimals
    try:
        column = pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return None if column.null_count and not field.nullable else column


def _kind(answer: Any) -> str:
    return f"a {type(answer).__name__}"
