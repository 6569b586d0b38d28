"""The questions that an engine answers about what it has kept, while its stream runs or not. `past.py` answers them."""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from geoswarm.run.past import Past
from geoswarm.run.questions import Of, Rectangle


class AsksPast:
    _past: Past

    def query(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        predicate: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The kept events (`Tuning(window=...)`) that a subscription with this region and these keywords would have
        matched, from `since` on and before `until`, the newest first; `where` is a condition on their columns, such as
        `speed > 80 AND status IN ('free', 'idle')`. As of the newest committed batch, also while the stream runs."""
        return self._past.query(
            rectangle,
            geometry=geometry,
            keywords=keywords,
            predicate=predicate,
            where=where,
            since=since,
            until=until,
            columns=columns,
            limit=limit,
        ).events

    def nearest(
        self,
        x: float,
        y: float,
        k: int = 10,
        *,
        of: Of = "events",
        within_m: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        keywords: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The k kept events that are nearest to a lon and lat, at most `within_m` metres away, with a column
        `distance_m`: the way along the sphere. The nearest come first, then the newest. With `of="objects"` the objects
        whose last places are nearest."""
        return self._past.nearest(
            x, y, k, of=of, within_m=within_m, since=since, until=until, keywords=keywords, columns=columns
        )

    def objects(
        self,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        predicate: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The objects that are in a region now, by their last events: `object_id`, `ts`, `x` and `y`, the one that was
        seen last first. They are kept while some subscription is on "enter", "exit" or "dwell", or always with
        `Tuning(keeps_objects=True)`; an object without events for `object_ttl_s` is forgotten."""
        return self._past.objects(rectangle, geometry=geometry, predicate=predicate, columns=columns, limit=limit)
