"""Subscriptions that ask for a column that the events of the stream do not have: they never match.

They are not refused, since the next stream may have the column. The start of a stream says how many there are, and
`status` at any time, from any process: the columns of the newest stream are in a file of the checkpoint.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.index.kernels import are_live
from geoswarm.core.subscriptions.attributes import KEYWORDS, OBJECTS, ON, WHERE
from geoswarm.core.subscriptions.keywords import asks_for_none
from geoswarm.core.where.clause import columns_of
from geoswarm.core.where.read import clause_of
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
    sub_id: int
    """The lowest id among them."""

    @property
    def sentence(self) -> str:
        return (
            f"live subscriptions that ask for {self.asks}: {self.subscriptions}, {self.sub_id} the first; the events "
            f'have no column {self.column}, so they match nothing: say where it is, columns = {{ {self.column} = "..." '
            f'}}, or declare it, extra = "{self.column} string"'
        )

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "what": self.sentence}


def find_lacking(
    open_view: Callable[[], View], columns: Collection[str], has_conditions: bool, now_us: int
) -> list[Lacking]:
    """What live subscriptions ask for and events with these columns cannot give. The view is opened if a column lacks,
    or may lack: that reads all bytes of the segments."""
    if TEXT.name in columns and OBJECT.name in columns and not has_conditions:
        return []
    view, found = open_view(), dict[str, dict[str, SubIds]]()
    if TEXT.name not in columns:
        found[TEXT.name] = {"keywords": _with_words(view, now_us)}
    if OBJECT.name not in columns:
        found[OBJECT.name] = {
            "enter, exit, cross or dwell": _on_transitions(view, now_us),
            "objects": _of_objects(view, now_us),
        }
    for column, ids in _in_conditions(view, columns, now_us).items():
        found.setdefault(column, {})["a condition"] = ids
    told = list[Lacking]()
    for column, asked in found.items():
        asked = {what: ids for what, ids in asked.items() if len(ids)}
        ids = np.unique(np.concatenate([np.empty(0, np.int64), *asked.values()]))
        if len(ids):
            told.append(Lacking(column, " or ".join(asked), len(ids), int(ids[0])))
    return told


def put_columns(storage: Storage, columns: Collection[str]) -> None:
    """Note the columns of the stream that begins."""
    storage.write_document(STREAM_FILE, {"columns": list(columns)})


def columns_of_stream(storage: Storage) -> list[str] | None:
    """The columns of the newest stream of a checkpoint; None before the first."""
    if not storage.exists(STREAM_FILE):
        return None
    return [str(name) for name in storage.read_document(STREAM_FILE)["columns"]]


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


def _in_conditions(view: View, columns: Collection[str], now_us: int) -> dict[str, SubIds]:
    """Those with a condition on a column that there is not, by column."""
    found = dict[str, list[SubIds]]()
    for name, held in view.segments.items():
        conditions, codes_of = held[WHERE], dict[str, list[int]]()
        if not len(conditions.codes):
            continue
        for code, text in enumerate(conditions.names.to_pylist()):
            for column in columns_of(clause_of(text)) - set(columns) if text else ():
                codes_of.setdefault(column, []).append(code)
        alive = held.live(view.dead[name], now_us) if codes_of else np.empty(0, np.bool_)
        for column, codes in codes_of.items():
            asks = np.zeros(len(conditions.names), np.bool_)
            asks[codes] = True
            found.setdefault(column, []).append(held.ids[asks[conditions.codes] & alive])
    return {column: np.concatenate(parts) for column, parts in sorted(found.items())}


def _on_transitions(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        asking = held[ON]
        if len(asking.ids):
            alive = are_live(asking.ordinals.astype(np.int64), held.records(view.dead[name]), now_us)
            found.append(asking.ids[alive])
    return np.concatenate(found)
