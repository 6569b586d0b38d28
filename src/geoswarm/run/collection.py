"""The subscriptions of a checkpoint as a collection: those of a place, of a user, of a condition, page by page.

    subscriptions = Subscriptions("state")
    page = subscriptions.page((2.2, 48.8, 2.5, 48.9), user="ana", limit=100)
    behind = subscriptions.page((2.2, 48.8, 2.5, 48.9), user="ana", limit=100, after=page["sub_id"][-1].as_py())
    subscriptions.get(8)

Any process may ask, while an engine runs or not. An answer is as of the newest committed version. `past.py` answers
questions about events.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import SubId
from geoswarm.model import SUB_ID
from geoswarm.run.questions import Rectangle, read_choice, read_id, read_ids, read_page_limit
from geoswarm.store.founding import open_checkpoint
from geoswarm.store.segments.segment import Segment
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.collection import Choice, Collection, subscription_schema
from geoswarm.store.subscriptions.reading import VersionReader

PAGE_ROWS = 1_000
"""Subscriptions of a page, unless another limit is given."""
PIECE_ROWS = 16_384
"""Subscriptions of a piece of all: some megabytes, or as much as their payloads and vertices."""


class Subscriptions:
    def __init__(
        self,
        checkpoint: str | Storage,
        *,
        clock: Callable[[], float] = time.time,
        known: Callable[[], Mapping[str, Segment]] | None = None,
    ) -> None:
        """What has expired by the `clock` is not there any more. `known` are segments that this process has open
        anyway."""
        self._storage, contract = open_checkpoint(checkpoint)
        self._grid, self.ids = Grid.of(contract), contract.subscription_ids
        self._reader, self._clock = VersionReader(self._storage, known), clock

    @property
    def schema(self) -> pa.Schema:
        """The columns of a subscription."""
        return subscription_schema(self.ids)

    def page(
        self,
        region: Rectangle | str | bytes | None = None,
        *,
        predicate: str | None = None,
        user: str | None = None,
        where: str | None = None,
        sub_ids: Iterable[SubId] | None = None,
        after: SubId | None = None,
        limit: int = PAGE_ROWS,
    ) -> pa.Table:
        """The live subscriptions in ascending order of `sub_id`, or of its number where ids are texts, with the columns
        of operations but for `op`: the first `limit` of those behind the id `after`. `region` is a rectangle or a
        geometry, as in `subscribe`: those whose region meets it, or with a `predicate` is "within" it, or "contains" or
        "covers" it. `where` is a condition on the columns, such as `expires IS NULL AND "on" = 'enter'`."""
        asked = None if sub_ids is None else read_ids(sub_ids, self.ids)
        choice = read_choice(self._grid, region, self.schema, predicate=predicate, user=user, where=where, ids=asked)
        rows, behind = read_page_limit(limit), None if after is None else read_id("after", after, self.ids)
        found = self._newest().page(choice, behind, rows)
        if asked is None or asked.texts is None:
            return found
        return found.filter(pc.is_in(found[SUB_ID.name], asked.texts))  # another text may have the number

    def pieces(self, rows: int = PIECE_ROWS) -> Iterator[pa.Table]:
        """All live subscriptions in the same order, as of one version; at most so many `rows` at once."""
        return self._newest().pages(Choice(), None, read_page_limit(rows))

    def get(self, sub_id: SubId) -> dict[str, Any] | None:
        """The columns of a live subscription; None: there is none with this id."""
        rows: list[dict[str, Any]] = self.page(sub_ids=[sub_id]).to_pylist()
        return rows[0] if rows else None

    def _newest(self) -> Collection:
        newest, view = self._reader.read()
        return Collection(view, max(newest.now_us, int(self._clock() * 1e6)), self.ids)
