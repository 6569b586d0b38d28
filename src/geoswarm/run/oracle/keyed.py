"""The obvious answers of the keyed operators: the whole stream in plain lists, every batch computed from the beginning.

It is slow on purpose, and shares no code with `flow/keyed/`. A stream is a list of batches, each the number of its
interval and its rows as dicts. Batch b knows all earlier rows that lie in the window of its interval.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from geoswarm.core.text.tokens import terms_of

Row = dict[str, Any]
Stream = Sequence[tuple[int, Sequence[Row]]]


def _in_window(stream: Stream, upto: int, window: int) -> Iterator[tuple[int, Row]]:
    """(batch, row) of all rows that a batch remembers, with its own."""
    now = stream[upto][0]
    for batch in range(upto + 1):
        interval, rows = stream[batch]
        if interval > now - window:
            yield from ((batch, row) for row in rows)


def counts(stream: Stream, key: str, window: int) -> list[list[Row]]:
    """For each batch: its keys, and how often each came in the window and in the batch."""
    answer = []
    for batch, (_, rows) in enumerate(stream):
        known = Counter(row[key] for _, row in _in_window(stream, batch, window))
        new = Counter(row[key] for row in rows)
        answer.append([{"key": k, "count": known[k], "added": n} for k, n in new.items()])
    return answer


def words(stream: Stream, text: str = "text") -> list[tuple[int, list[Row]]]:
    """A stream with one row per term and text, to be counted."""
    return [
        (interval, [{"word": term} for row in rows for term in terms_of(row[text] or "")]) for interval, rows in stream
    ]


def pairs(stream: Stream, columns: Sequence[str], window: int, band: float | None) -> list[list[Row]]:
    """For each batch: every two rows of one key in the window, one of them new. `columns` are copied to the result, and
    their order decides which row of a batch is earlier."""
    answer = []
    for batch in range(len(stream)):
        known = list(_in_window(stream, batch, window))
        found = []
        for i, (batch_a, a) in enumerate(known):
            for batch_b, b in known[i + 1 :]:
                if a["key"] != b["key"] or batch not in (batch_a, batch_b) or not _is_near(a, b, band):
                    continue
                in_order = batch_a < batch_b or [_sortable(a[c]) for c in columns] <= [_sortable(b[c]) for c in columns]
                left, right = (a, b) if in_order else (b, a)
                sides = {f"{c}_{side}": row[c] for c in columns for side, row in (("left", left), ("right", right))}
                found.append({"key": a["key"], **sides})
        answer.append(found)
    return answer


def _sortable(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, value)


def _is_near(a: Row, b: Row, band: float | None) -> bool:
    if band is None:
        return True
    if a["value"] is None or b["value"] is None:
        return False
    return bool(abs(a["value"] - b["value"]) <= band)


def deliveries(
    stream: Stream, per_interval: int, digest_max: int
) -> tuple[list[list[Row]], dict[int, list[tuple[str, int, list[tuple[int, int]]]]]]:
    """What each batch delivers at once; and by interval and user, how many were held back and the first of them."""
    nows: list[list[Row]] = []
    late: dict[int, dict[str, list[tuple[int, int]]]] = {}
    sent: Counter[tuple[int, str]] = Counter()
    for interval, rows in stream:
        nows.append([])
        late.setdefault(interval, {})
        for row in sorted(rows, key=lambda r: (r["ts"], r["event_id"], r["sub_id"])):
            user, match = row["user"], (row["event_id"], row["sub_id"])
            if sent[interval, user] < per_interval:
                sent[interval, user] += 1
                nows[-1].append({"user": user, "event_id": match[0], "sub_id": match[1]})
            else:
                late[interval].setdefault(user, []).append(match)
    digests = {i: [(u, len(some), some[:digest_max]) for u, some in of.items()] for i, of in late.items()}
    return nows, digests


def trends(stream: Stream, ended: int, window: int, region_deg: float, top: int, count_min: int) -> list[Row]:
    """At the end of an interval: the terms of each region that rose most against the earlier intervals."""
    said: Counter[tuple[int, int, int, str]] = Counter()
    for interval, rows in stream:
        for row in rows:
            region = math.floor(row["x"] / region_deg), math.floor(row["y"] / region_deg)
            for term in terms_of(row["text"] or ""):
                said[interval, *region, term] += 1
    regions: dict[tuple[int, int], list[tuple[float, str, int, float]]] = {}
    for (interval, column, line, term), count in said.items():
        if interval == ended and count >= count_min:
            earlier = sum(said[i, column, line, term] for i in range(ended - window + 1, ended))
            mean = earlier / max(1, window - 1)
            regions.setdefault((column, line), []).append((-(count + 1) / (mean + 1), term, count, mean))
    return [
        {
            "region_x": region[0] * region_deg,
            "region_y": region[1] * region_deg,
            "term": term,
            "count": count,
            "mean": mean,
            "rise": -fall,
            "rank": rank,
        }
        for region, terms in regions.items()
        for rank, (fall, term, count, mean) in enumerate(sorted(terms)[:top], start=1)
    ]
