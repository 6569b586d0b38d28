"""The obvious answers: every event against every subscription, every operation in turn, in plain numpy and dicts.

Slow on purpose. Whatever the engine does (segments, plans, crashes, rebalances), its matches must equal these.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from geoswarm.errors import InputError
from geoswarm.jit import Floats, Ints, SubIds
from geoswarm.text.expression import Expression, parse, satisfied
from geoswarm.text.tokens import terms_of

Pair = tuple[int, int]


def brute_force(x: Floats, y: Floats, rects: Floats, ids: SubIds) -> set[Pair]:
    """(event row, subscription id) of every point in every closed rectangle."""
    pairs: set[Pair] = set()
    for i in range(len(x)):
        inside = (rects[:, 0] <= x[i]) & (x[i] <= rects[:, 2]) & (rects[:, 1] <= y[i]) & (y[i] <= rects[:, 3])
        pairs.update((i, int(sub)) for sub in ids[inside])
    return pairs


class Oracle:
    """The live subscriptions, one dict; operations in order, then events."""

    def __init__(self, bounds: tuple[float, float, float, float]) -> None:
        self._bounds = bounds
        self.live: dict[int, tuple[float, float, float, float, int | None]] = {}
        self.words: dict[int, Expression] = {}

    def operate(self, operations: pa.Table, now_us: int) -> int:
        """Returns how many were turned away."""
        refused = 0
        expires = operations.column("expires").cast(pa.int64()).to_pylist()
        for row, expires_us in zip(operations.to_pylist(), expires, strict=True):
            refused += not self._operate(row, expires_us, now_us)
        return refused

    def _operate(self, row: dict[str, object], expires_us: int | None, now_us: int) -> bool:
        sub_id, op = row["sub_id"], row["op"]
        if not isinstance(sub_id, int) or op not in ("register", "replace", "cancel"):
            return False
        held = self.live.get(sub_id)
        is_live = held is not None and (held[4] is None or held[4] > now_us)
        if op == "cancel":
            if is_live:
                del self.live[sub_id]
            return is_live
        words, readable = _words(row["keywords"])
        sides = [row[k] for k in ("xmin", "ymin", "xmax", "ymax")]
        if row["keywords"] is not None and sides == [None] * 4:
            sides = list(self._bounds)
        if not all(isinstance(side, float) and np.isfinite(side) for side in sides):
            return False
        x0, y0, x1, y1 = (float(str(side)) for side in sides)
        west, south, east, north = self._bounds
        if not (west <= x0 < x1 <= east and south <= y0 < y1 <= north):
            return False
        if expires_us is not None and expires_us <= now_us:
            return False
        if row["geometry"] is not None or not readable or (op == "register" and is_live):
            return False
        self.live[sub_id] = (x0, y0, x1, y1, expires_us)
        self.words.pop(sub_id, None)
        if words is not None:
            self.words[sub_id] = words
        return True

    def match(self, events: pa.Table, now_us: int) -> set[Pair]:
        """(event_id, sub_id) of every match. Events that the guard would turn away match nothing."""
        live = [(k, v) for k, v in self.live.items() if v[4] is None or v[4] > now_us]
        rects = np.array([v[:4] for _, v in live], np.float64).reshape(-1, 4)
        ids: Ints = np.array([k for k, _ in live], np.int64)
        x, y = (np.array(events.column(c).to_pylist(), np.float64) for c in ("x", "y"))
        event_ids = events.column("event_id").to_pylist()
        texts = events.column("text").to_pylist() if "text" in events.schema.names else [None] * len(events)
        said = [set(terms_of(text or "")) for text in texts]
        return {
            (event_ids[i], sub)
            for i, sub in brute_force(x, y, rects, ids)
            if event_ids[i] is not None and (sub not in self.words or satisfied(self.words[sub], said[i]))
        }


def _words(keywords: object) -> tuple[Expression | None, bool]:
    """What is asked for, and whether that can be read."""
    try:
        return (None if keywords is None else parse(str(keywords))), True
    except InputError:
        return None, False


def pairs_of(tables: Iterable[pa.Table]) -> list[Pair]:
    """The matches in an engine's output, either form, as a list: a repeated pair stays visible."""
    pairs: list[Pair] = []
    for table in tables:
        for row in table.select([c for c in ("event_id", "sub_id", "sub_ids") if c in table.schema.names]).to_pylist():
            subs = row["sub_ids"] if "sub_ids" in row else [row["sub_id"]]
            pairs.extend((row["event_id"], sub) for sub in subs)
    return pairs
