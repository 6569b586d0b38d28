"""Subscriptions that ask for a column that the events of the stream do not have, or have with another type: they never
match.

They are not refused, since the next stream may have the column. The start of a stream says how many there are, and
`status` at any time, from any process: the columns of the newest stream are in a file of the checkpoint.
"""

import base64
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.index.kernels import are_live
from geoswarm.core.subscriptions.attributes import KEYWORDS, OBJECTS, ON, WHERE
from geoswarm.core.subscriptions.keywords import asks_for_none
from geoswarm.core.where.clause import Clause, columns_of
from geoswarm.core.where.read import clause_of
from geoswarm.core.where.types import check_where
from geoswarm.errors import InputError
from geoswarm.model import OBJECT, TEXT
from geoswarm.store import manifest
from geoswarm.store.segments.segment import SegmentEntry
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.reading import VersionReader
from geoswarm.store.subscriptions.view import View

STREAM_FILE = "stream.json"


class Lacking(NamedTuple):
    column: str
    asks: str
    """What the subscriptions ask for, in words."""
    subscriptions: int
    sub_id: int | str
    """The lowest id among them, or the text of the lowest number."""
    misfit: str = ""
    """Why the column cannot be compared with what they ask for; empty: there is no such column."""

    @property
    def sentence(self) -> str:
        if self.misfit:
            return (
                f"live subscriptions that ask for {self.asks}: {self.subscriptions}, {self.sub_id} the first; it does "
                f"not fit the events, so they match nothing: {self.misfit}"
            )
        return (
            f"live subscriptions that ask for {self.asks}: {self.subscriptions}, {self.sub_id} the first; the events "
            f'have no column {self.column}, so they match nothing: say where it is, columns = {{ {self.column} = "..." '
            f'}}, or declare it, extra = "{self.column} string"'
        )

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "what": self.sentence}


def find_lacking(open_view: Callable[[], View], columns: pa.Schema, has_conditions: bool, now_us: int) -> list[Lacking]:
    """What live subscriptions ask for and events with these columns cannot give. The view is opened if a column lacks,
    or may lack: that reads all bytes of the segments."""
    if TEXT.name in columns.names and OBJECT.name in columns.names and not has_conditions:
        return []
    view, found = open_view(), dict[str, dict[str, SubIds]]()
    if TEXT.name not in columns.names:
        found[TEXT.name] = {"keywords": _with_words(view, now_us)}
    if OBJECT.name not in columns.names:
        found[OBJECT.name] = {
            "enter, exit, cross or dwell": _on_transitions(view, now_us),
            "objects": _of_objects(view, now_us),
        }
    absent, misfits = _in_conditions(view, columns, now_us)
    for column, ids in absent.items():
        found.setdefault(column, {})["a condition"] = ids
    told = list[Lacking]()
    for column, asked in found.items():
        asked = {what: ids for what, ids in asked.items() if len(ids)}
        ids = np.unique(np.concatenate([np.empty(0, np.int64), *asked.values()]))
        if len(ids):
            told.append(Lacking(column, " or ".join(asked), len(ids), _shown(view, ids[0])))
    for column, (why, ids) in misfits.items():
        if len(ids):
            told.append(Lacking(column, "a condition", len(ids), _shown(view, ids.min()), why))
    return told


def _shown(view: View, sub_id: np.int64) -> int | str:
    text: str | None = view.known_id_texts(np.array([sub_id]), 0)[0].as_py()
    return int(sub_id) if text is None else text


def put_columns(storage: Storage, columns: pa.Schema) -> None:
    """Note the columns of the stream that begins."""
    schema = base64.b64encode(columns.remove_metadata().serialize()).decode()
    storage.write_document(STREAM_FILE, {"columns": columns.names, "schema": schema})


def columns_of_stream(storage: Storage) -> pa.Schema | None:
    """The columns of the newest stream of a checkpoint; None before the first. Documents of before have names only:
    such columns have no type here, which fits every condition."""
    if not storage.exists(STREAM_FILE):
        return None
    noted = storage.read_document(STREAM_FILE)
    if "schema" not in noted:
        return pa.schema([pa.field(str(name), pa.null()) for name in noted["columns"]])
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted["schema"])))


def lacking_of_stream(storage: Storage) -> list[Lacking]:
    """The same for the newest stream and version of a checkpoint, whose engine may run meanwhile; none before the
    first stream."""
    columns = columns_of_stream(storage)
    if columns is None:
        return []
    newest = manifest.newest(storage)
    return find_lacking(
        lambda: VersionReader(storage).read().view, columns, may_have_conditions(newest.segments), newest.now_us
    )


def may_have_conditions(entries: Iterable[SegmentEntry]) -> bool:
    """Whether some subscription has a condition on columns, unless it is cancelled."""
    return any(entry.conditions for entry in entries)


def _with_words(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        words = held[KEYWORDS]
        if words is not None:
            found.append(held.ids[~asks_for_none(words) & held.live(view.dead[name], now_us)])
    return np.concatenate(found)


def _of_objects(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        objects = held[OBJECTS]
        if objects is not None:
            found.append(held.ids[~asks_for_none(objects) & held.live(view.dead[name], now_us)])
    return np.concatenate(found)


def _in_conditions(
    view: View, columns: pa.Schema, now_us: int
) -> tuple[dict[str, SubIds], dict[str, tuple[str, SubIds]]]:
    """Those with a condition on a column that there is not, by column; and those whose condition cannot be compared
    with what a column has, by column, with the reason of one of them."""
    whys, found = dict[str, str](), dict[tuple[str, bool], list[SubIds]]()
    for name, held in view.segments.items():
        conditions, codes_of = held[WHERE], dict[tuple[str, bool], list[int]]()
        if not len(conditions.codes):
            continue
        for code, text in enumerate(conditions.names.to_pylist()):
            for column, misfit in _faults(clause_of(text), columns) if text else ():
                codes_of.setdefault((column, bool(misfit)), []).append(code)
                whys.setdefault(column, misfit)
        alive = held.live(view.dead[name], now_us) if codes_of else np.empty(0, np.bool_)
        for fault, codes in codes_of.items():
            asks = np.zeros(len(conditions.names), np.bool_)
            asks[codes] = True
            found.setdefault(fault, []).append(held.ids[asks[conditions.codes] & alive])
    whole = {fault: np.concatenate(parts) for fault, parts in sorted(found.items())}
    absent = {column: ids for (column, is_misfit), ids in whole.items() if not is_misfit}
    return absent, {column: (whys[column], ids) for (column, is_misfit), ids in whole.items() if is_misfit}


def _faults(clause: Clause, columns: pa.Schema) -> list[tuple[str, str]]:
    """The columns for which a condition is true of no event, each with the reason; an empty one: it is absent."""
    absent = columns_of(clause) - set(columns.names)
    if absent:
        return [(column, "") for column in sorted(absent)]
    try:
        check_where(clause, columns)
    except InputError as why:
        return [(min(columns_of(clause)), str(why))]
    return []


def _on_transitions(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        asking = held[ON]
        if len(asking.ids):
            alive = are_live(asking.ordinals.astype(np.int64), held.records(view.dead[name]), now_us)
            found.append(asking.ids[alive])
    return np.concatenate(found)
