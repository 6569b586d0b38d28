"""The questions that an engine answers about its subscriptions. `collection.py` answers them, in any process."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from geoswarm.core.subscriptions.attributes import SubId
from geoswarm.run.collection import PAGE_ROWS, Subscriptions
from geoswarm.run.questions import Rectangle


class AsksSubscriptions:
    _subscriptions: Subscriptions

    def subscriptions(
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
        """A page of the live subscriptions, as `Subscriptions.page` gives it, as of the newest committed version: what
        has been acknowledged since is in it once it is in force, while a stream runs with the next batch."""
        return self._subscriptions.page(
            region, predicate=predicate, user=user, where=where, sub_ids=sub_ids, after=after, limit=limit
        )

    def subscription(self, sub_id: SubId) -> dict[str, Any] | None:
        """The columns of a live subscription; None: there is none with this id."""
        return self._subscriptions.get(sub_id)
