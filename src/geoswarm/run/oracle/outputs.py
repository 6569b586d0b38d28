"""What an engine has given, in the terms of the oracle: pairs, alerts, and what is told without an event."""

from collections.abc import Iterable

import pyarrow as pa
import shapely

from geoswarm.run.oracle.endings import End
from geoswarm.run.oracle.following import Told, Unprompted

Pair = tuple[int, int]
"""An event and a subscription."""
Alert = tuple[Pair, Told, str, str | None]
"""Of which event and subscription, what it says, whose it is, and what goes with it."""


def alerts_of(tables: Iterable[pa.Table]) -> list[Alert]:
    """The alerts of events in an engine's output."""
    alerts = list[Alert]()
    for table in tables:
        since = table.column("since").cast(pa.int64()).to_pylist()
        for row, since_us in zip(table.to_pylist(), since, strict=True):
            if row["event_id"] is None:
                continue
            told = Told(row["transition"], since_us, row["sequence"])
            alerts.append(((row["event_id"], row["sub_id"]), told, row["user"], row["payload"]))
    return alerts


def unprompted_of(tables: Iterable[pa.Table]) -> list[Unprompted]:
    """What an engine's output says of objects that sent nothing."""
    found = list[Unprompted]()
    for table in tables:
        times = [table.column(name).cast(pa.int64()).to_pylist() for name in ("ts", "since")]
        for row, ts_us, since_us in zip(table.to_pylist(), *times, strict=True):
            if row["event_id"] is None and row.get("object_id") is not None:
                assert row["ended_reason"] == ("silent" if row["transition"] == "ended" else None)
                told, place = Told(row["transition"], since_us, row["sequence"]), shapely.Point(row["x"], row["y"])
                found.append(Unprompted(row["sub_id"], row["object_id"], told, ts_us, place))
    return found


def ends_of(tables: Iterable[pa.Table]) -> list[End]:
    """The last rows of subscriptions in an engine's output."""
    ends = list[End]()
    for table in tables:
        rows = table.append_column("ts_us", table.column("ts").cast(pa.int64())).to_pylist()
        for row in rows:
            if row["transition"] == "ended" and row.get("object_id") is None:
                assert row["event_id"] is row["x"] is row["since"] is row["sequence"] is None
                ends.append(End(row["sub_id"], row["ended_reason"], row["ts_us"], row["user"], row["payload"]))
    return sorted(ends)


def pairs_of(tables: Iterable[pa.Table]) -> list[Pair]:
    """The matches in an engine's output of either form, as a list, so that repeated pairs stay visible."""
    pairs: list[Pair] = []
    for table in tables:
        for row in table.select([c for c in ("event_id", "sub_id", "sub_ids") if c in table.schema.names]).to_pylist():
            subs = row["sub_ids"] if "sub_ids" in row else [row["sub_id"]]
            pairs.extend((row["event_id"], sub) for sub in subs)
    return pairs
