"""Delivers matches to users: some at once, the rest as one digest when the interval ends.

Matches and their users are found before (`flow/match/`): a row is one match of one user. The user is the key, so that a
user with a million subscriptions is balanced like any other hot key.

    an interval of a user, per_interval = 3       ■ ■ ■ □ □ □ □ │ digest: 4 missed, the first digest_max by name
                                                  now           end

Matches of a batch count in the order (ts, event_id, sub_id), batches in theirs.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.errors import InputError
from geoswarm.flow.keyed.columns import check_name, column, key_column, make_batch, sum_groups
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.model import TIMESTAMP

DIGEST_MATCHES_MAX = 10_000
"""Matches in one digest, which is one row; a user reads no more."""

_IDS = pa.list_(pa.field("element", pa.int64()))
_TEXTS = pa.list_(pa.field("element", pa.string()))
_NAMES = ("event", "sub")

DELIVERY_BEFORE = pa.schema(
    [
        pa.field("sent", pa.int64(), nullable=False),
        pa.field("missed", pa.int64(), nullable=False),
        pa.field("event_ids", _IDS, nullable=False),  # null in the list where the id is a text
        pa.field("sub_ids", _IDS, nullable=False),
    ]
)
"""Version 0.1 had no ids that are texts."""
DELIVERY_WITH_EVENTS = DELIVERY_BEFORE.append(pa.field("event_texts", _TEXTS))
"""Subscriptions had none for longer."""
DELIVERY_KEPT = DELIVERY_WITH_EVENTS.append(pa.field("sub_texts", _TEXTS))
"""A list of texts beside each list of ids, with null where the id is an integer; or null, if all are."""


class Delivery(Operator):
    """Gives two kinds of rows:

    now      user, event_id, sub_id, ts     the first `per_interval` matches of a user in an interval
    digest   user, missed, matches          at its end, if there were more: how many, and the first `digest_max` of them

    `per_interval` = 0 sends digests only. Without `digest` whatever is over the limit is dropped.
    """

    window = 1
    order = ("ts", "event_id", "sub_id")

    def __init__(
        self, per_interval: int, digest: bool = True, digest_max: int = 20, user: str = "user", name: str = "delivery"
    ) -> None:
        if per_interval < 0 or (per_interval == 0 and not digest):
            raise InputError(
                f"{per_interval} matches per interval {'with' if digest else 'without'} a digest send a user nothing: "
                "use 1 or more, or 0 with a digest"
            )
        if not 0 <= digest_max <= DIGEST_MATCHES_MAX:
            raise InputError(f"a digest of {digest_max} matches: use 0 (how many, only) to {DIGEST_MATCHES_MAX}")
        self.per_interval, self.digest, self.user = per_interval, digest, user
        self.digest_max = digest_max if digest else 0
        self.name = check_name(name)

    @property
    def kept(self) -> pa.Schema:
        return DELIVERY_KEPT

    @property
    def kept_before(self) -> tuple[pa.Schema, ...]:
        return (DELIVERY_BEFORE, DELIVERY_WITH_EVENTS)

    def given(self, fed: pa.Schema) -> pa.Schema:
        event_id, sub_id = (fed.field(name).type for name in ("event_id", "sub_id"))
        return pa.schema(
            [
                pa.field("kind", pa.string(), nullable=False),
                pa.field("user", fed.field(KEY).type, nullable=False),
                pa.field("event_id", event_id),
                pa.field("sub_id", sub_id),
                pa.field("ts", TIMESTAMP),
                pa.field("missed", pa.int64()),
                pa.field("matches", _matches(event_id, sub_id)),
            ]
        )

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        users = key_column(rows, self.user, self.name)
        ts, events, subs = (column(rows, name, self.name) for name in self.order)
        others = [ts.cast(TIMESTAMP), _ids(events), _ids(subs)]
        return pa.RecordBatch.from_arrays([users, *others], names=[KEY, *self.order])

    def update(self, turn: Turn) -> Answer:
        groups = turn.row_groups
        place = np.arange(len(groups)) - turn.starts[groups]
        room = np.maximum(0, self.per_interval - sum_groups(turn.held.column("sent").to_numpy(), turn.held_starts))
        late = place - room[groups]  # below 0: goes out at once
        remembered = sum_groups(_lengths(turn.held.column("event_ids")), turn.held_starts)
        sent = np.minimum(turn.row_counts, room)
        kept = self._rows_to_keep(turn, sent, (late >= 0) & (late + remembered[groups] < self.digest_max))
        work = (turn.row_counts + np.diff(turn.held_starts)).astype(np.float64)
        return Answer(kept, np.arange(len(turn.keys)), self._now(turn, np.flatnonzero(late < 0)), work, sent)

    def _rows_to_keep(self, turn: Turn, sent: Ints, is_remembered: Bools) -> pa.RecordBatch:
        rows = turn.rows.filter(pa.array(is_remembered))
        offsets = np.concatenate([[0], np.cumsum(is_remembered)])[turn.starts]
        kept = [_as_kept(offsets, rows.column(name)) for name in ("event_id", "sub_id")]
        lists = [*(ids for ids, _ in kept), *(texts for _, texts in kept)]
        return make_batch([pa.array(sent), pa.array(turn.row_counts - sent), *lists], DELIVERY_KEPT)

    def _now(self, turn: Turn, rows: Ints) -> pa.RecordBatch:
        sent = turn.rows.take(pa.array(rows))
        schema = self.given(turn.rows.schema)
        columns = [sent.column(KEY), sent.column("event_id"), sent.column("sub_id"), sent.column("ts")]
        blank = [pa.nulls(len(rows), schema.field(name).type) for name in ("missed", "matches")]
        return make_batch([_same("now", len(rows)), *columns, *blank], schema)

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        """The digests of the interval. The held rows of a user are from oldest to newest, so the lists of all batches
        already form one list."""
        if not self.digest:
            return None
        missed = sum_groups(turn.held.column("missed").to_numpy(), turn.held_starts)
        users = np.flatnonzero(missed)
        schema = self.given(turn.rows.schema)
        ids = [_held_ids(turn.held, name, schema.field(f"{name}_id").type) for name in _NAMES]
        offsets = _offsets(turn.held.column("event_ids"))[turn.held_starts]
        kind = schema.field("matches").type
        pairs = pa.StructArray.from_arrays(ids, fields=list(kind.value_type))
        matches = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind).take(pa.array(users))
        blank = [pa.nulls(len(users), schema.field(name).type) for name in ("event_id", "sub_id", "ts")]
        columns = [
            _same("digest", len(users)),
            turn.keys.take(pa.array(users)),
            *blank,
            pa.array(missed[users]),
            matches,
        ]
        return make_batch(columns, schema)

    def compact(self, held: StateRows) -> StateRows:
        has_rows = np.diff(held.starts) > 0
        bounds = np.append(held.starts[:-1][has_rows], held.starts[-1])  # of the keys that have rows
        numbers = [pa.array(sum_groups(held.rows.column(name).to_numpy(), bounds)) for name in ("sent", "missed")]
        lists = [*(held.rows.column(f"{name}_ids") for name in _NAMES), *(_texts(held.rows, name) for name in _NAMES)]
        joined = [_lists(_offsets(ids)[bounds], ids.flatten()) for ids in lists]
        starts = np.concatenate([[0], np.cumsum(has_rows)])
        return StateRows(make_batch([*numbers, *joined], DELIVERY_KEPT), starts, held.batches[bounds[1:] - 1])


def _lengths(lists: pa.ListArray) -> Ints:
    lengths: Ints = lists.value_lengths().to_numpy().astype(np.int64)
    return lengths


def _offsets(lists: pa.ListArray) -> Ints:
    """Where each list begins in `lists.flatten()`."""
    return np.concatenate([[0], np.cumsum(_lengths(lists))])


def _lists(offsets: Ints, values: pa.Array) -> pa.ListArray:
    kind = _TEXTS if pa.types.is_string(values.type) else _IDS
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _as_kept(offsets: Ints, ids: pa.Array) -> tuple[pa.ListArray, pa.ListArray]:
    """Ids as lists, and the texts beside them."""
    if pa.types.is_string(ids.type):
        return _lists(offsets, pa.nulls(len(ids), pa.int64())), _lists(offsets, ids)
    return _lists(offsets, ids), pa.nulls(len(offsets) - 1, _TEXTS)


def _held_ids(held: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """All ids in a held list, of the type that rows have now."""
    ids = held.column(f"{name}_ids").flatten()
    return pc.coalesce(_texts(held, name).flatten(), ids.cast(kind)) if pa.types.is_string(kind) else ids


def _texts(held: pa.RecordBatch, name: str) -> pa.ListArray:
    """The texts beside the ids, null where there is none."""
    ids, texts = held.column(f"{name}_ids"), held.column(f"{name}_texts")
    if not texts.null_count:
        return texts
    flat = pa.concat_arrays([texts.flatten(), pa.nulls(1, pa.string())])
    lengths, own = _lengths(ids), pc.list_value_length(texts).fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(ids)), lengths)
    place = np.arange(len(rows)) - np.repeat(_offsets(ids)[:-1], lengths) + np.append(0, np.cumsum(own))[rows]
    place[np.asarray(texts.is_null())[rows]] = len(flat) - 1
    return _lists(_offsets(ids), flat.take(pa.array(place)))


def _ids(ids: pa.Array) -> pa.Array:
    is_text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    return ids.cast(pa.string() if is_text else pa.int64())


def _matches(event_id: pa.DataType, sub_id: pa.DataType) -> pa.DataType:
    match = pa.struct([pa.field("event_id", event_id), pa.field("sub_id", sub_id)])
    return pa.list_(pa.field("element", match))


def _same(text: str, count: int) -> pa.StringArray:
    return pa.repeat(pa.scalar(text), count)
