"""Rows that are refused, each with a reason that programs count and a sentence that tells people what to do.

This file only collects them: `flow/validate.py`, the attributes in `core/subscriptions/` and `store/subscriptions/`
refuse rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.subscriptions.attributes import ATTRIBUTES
from geoswarm.core.subscriptions.id_texts import ID_TEXT
from geoswarm.model import DEAD_LETTER, SUB_ID

MALFORMED = "_malformed"
"""The column in which a source gives the text of a row that it could not parse."""

TEXT_MAX = 10_000
"""Characters that are kept of a row and of its sentence."""

_GENERAL = {
    "malformed": "the source could not parse the row",
    "null": "a required column is null",
    "not-finite": "a coordinate is NaN or infinite",
    "out-of-bounds": "a coordinate lies outside the world's bounds",
    "unknown-op": "the operation is none of register, replace, cancel",
    "duplicate": "the id is registered already",
    "unknown-id": "no live subscription has the id",
    "full": "the engine holds as many subscriptions, or accounts of users, as it may",
    "no-user": "an operation names no user, and Guard needs one",
    "user-name": "a user's name is too long, or no text",
    "blocked": "Guard or an operator has blocked the user",
    "user-rate": "the user does more operations a second than one user may",
    "user-subscriptions": "the user has as many live subscriptions as one user may",
    "user-cost": "the user's subscriptions together cost as much as those of one user may",
    "not-owner": "the subscription belongs to another user",
    "key": "the key of a row is null, so no executor can keep its state",
}
REASONS = _GENERAL | {reason: text for attribute in ATTRIBUTES for reason, text in attribute.reasons.items()}
"""All reasons to refuse a row, including those of each attribute of subscriptions, with a sentence for the docs."""


class DeadLetters:
    def __init__(self, kind: str, batch_id: int) -> None:
        """`kind` is "event" or "operation"; `batch_id` is -1 outside any batch."""
        self._kind, self._batch_id = kind, batch_id
        self._rows: list[tuple[int, str, str, str, str]] = []
        self._unwritten = 0

    def add(
        self,
        batch: pa.RecordBatch,
        chosen: Bools,
        reason: str,
        detail: str,
        each: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        """`detail` may name in braces the row's columns ("subscription {sub_id} has no xmin") and the names in `each`,
        which has one mapping for each chosen row."""
        if not chosen.any():
            return
        assert reason in REASONS, reason
        more = iter(each) if each is not None else repeat({})
        for row, further in zip(_rows(batch.filter(pa.array(chosen))), more, strict=False):
            raw = row.pop(MALFORMED, None)
            text = raw if raw is not None else json.dumps(row, default=_plain)
            sentence = detail.format(**row, **further)
            self._rows.append((self._batch_id, self._kind, reason, sentence[:TEXT_MAX], text[:TEXT_MAX]))

    def add_more(self, reason: str, count: int, detail: str) -> None:
        """Count `count` more rows, which are not kept."""
        assert reason in REASONS, reason
        text = json.dumps({"operations": count})
        self._rows.append((self._batch_id, self._kind, reason, detail[:TEXT_MAX], text))
        self._unwritten += count - 1

    def __len__(self) -> int:
        """Rows that were refused, including those that are only counted."""
        return len(self._rows) + self._unwritten

    def table(self) -> pa.Table:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(DEAD_LETTER)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, DEAD_LETTER, strict=True)], schema=DEAD_LETTER)


class Triage:
    """One batch that is being checked: each row is refused at most once, for the first reason that holds."""

    def __init__(self, batch: pa.RecordBatch, dead: DeadLetters) -> None:
        self._batch, self._dead = batch, dead
        self.doomed: Bools = np.zeros(len(batch), np.bool_)

    def turn_away(self, chosen: Bools, reason: str, detail: str) -> None:
        fresh = chosen & ~self.doomed
        self._dead.add(self._batch, fresh, reason, detail)
        self.doomed |= fresh

    def turn_away_one(self, row: int, reason: str, detail: str) -> None:
        """Refuse one row, with a detail of its own. The cost is that of one row, not of the batch."""
        if not self.doomed[row]:
            self._dead.add(self._batch.slice(row, 1), np.ones(1, np.bool_), reason, detail)
            self.doomed[row] = True

    def turn_away_each(self, rows: Ints, reason: str, detail: str, whys: Sequence[str]) -> None:
        """Refuse ascending rows, of which each has a `{why}` of its own in the detail."""
        fresh = np.flatnonzero(~self.doomed[rows])
        chosen = np.zeros(len(self.doomed), np.bool_)
        chosen[rows[fresh]] = True
        self._dead.add(self._batch, chosen, reason, detail, ({"why": whys[n]} for n in fresh.tolist()))
        self.doomed |= chosen


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python values, with ids as they were given. Reading a bad row must never raise: the stream would stop
    for ever."""
    if ID_TEXT in batch.schema.names:
        place, texts = batch.schema.get_field_index(SUB_ID.name), batch.column(ID_TEXT)
        batch = batch.set_column(place, SUB_ID.name, texts).drop_columns([ID_TEXT])
    columns = [_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except Exception:  # not UTF-8, a year beyond 9999, a time zone that Python does not know
        pass
    if pa.types.is_timestamp(column.type):
        return [f"{v} {column.type.unit} since 1970" for v in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [v if v is None else v.decode(errors="replace") for v in column.cast(pa.binary()).to_pylist()]
    return [f"(a value of type {column.type} that cannot be shown)"] * len(column)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
