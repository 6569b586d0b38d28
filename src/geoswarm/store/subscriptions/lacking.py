"""Subscriptions that ask for a column that the events of the stream do not have: they never match.

They are not refused, since the next stream may have the column. The start of a stream says how many there are, and
`status` at any time, from any process: the columns of the newest stream are in a file of the checkpoint.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.index.kernels import are_live
from geoswarm.core.subscriptions.attributes import KEYWORDS, ON
from geoswarm.core.subscriptions.keywords import asks_for_none
from geoswarm.model import OBJECT, TEXT
from geoswarm.store import manifest
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


def find_lacking(open_view: Callable[[], View], columns: Collection[str], now_us: int) -> list[Lacking]:
    """What live subscriptions ask for and events with these columns cannot give. The view is opened if a column lacks:
    that reads all bytes of the segments."""
    asked = []
    if TEXT.name not in columns:
        asked.append((TEXT.name, "keywords", _with_words))
    if OBJECT.name not in columns:
        asked.append((OBJECT.name, "enter, exit, cross or dwell", _on_transitions))
    if not asked:
        return []
    view = open_view()
    found = [(column, what, ids_of(view, now_us)) for column, what, ids_of in asked]
    return [Lacking(column, what, len(ids), int(ids.min())) for column, what, ids in found if len(ids)]


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
    return find_lacking(lambda: VersionReader(storage).read().view, columns, manifest.newest(storage).now_us)


def _with_words(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        words = held[KEYWORDS]
        if words is not None:
            found.append(held.ids[~asks_for_none(words) & held.live(view.dead[name], now_us)])
    return np.concatenate(found)


def _on_transitions(view: View, now_us: int) -> SubIds:
    found = [np.empty(0, np.int64)]
    for name, held in view.segments.items():
        asking = held[ON]
        if len(asking.ids):
            alive = are_live(asking.ordinals.astype(np.int64), held.records(view.dead[name]), now_us)
            found.append(asking.ids[alive])
    return np.concatenate(found)
