"""The obvious answers about the past: every batch in a list, every kept event against the query."""

from dataclasses import dataclass, field

import pyarrow as pa

from geoswarm.config import WindowSettings
from geoswarm.run.oracle.oracle import Oracle


@dataclass
class PastOracle:
    bounds: tuple[float, float, float, float]
    window: WindowSettings
    batches: list[tuple[pa.Table, int, int]] = field(default_factory=list)
    """The events of each batch that validation lets through, when it came, and its bytes as they were kept."""

    def take(self, events: pa.Table, now_us: int, size: int = 0) -> None:
        fits = Oracle(self.bounds).is_fit
        self.batches.append((events.filter(pa.array(map(fits, events.to_pylist()), pa.bool_())), now_us, size))

    def kept(self) -> list[pa.Table]:
        """The batches in the window: the newest always."""
        kept, rows, size, newest_us = list[pa.Table](), 0, 0, self.batches[-1][1]
        for events, now_us, bytes_ in reversed(self.batches):
            size += bytes_
            too_old = self.window.seconds is not None and newest_us - now_us >= self.window.seconds * 1e6
            too_many = self.window.events is not None and rows >= self.window.events
            if kept and (too_old or too_many or size > self.window.bytes):
                break
            kept.append(events)
            rows += len(events)
        return kept

    def query(self, asked: pa.Table, since_us: int | None = None, until_us: int | None = None) -> list[int] | None:
        """The ids of the kept events that the subscription `asked`, one operation, would have matched, the newest
        first and else by id; None if it would be refused."""
        oracle, found = Oracle(self.bounds), list[tuple[int, int]]()
        if oracle.operate(asked, 0):
            return None
        for events in self.kept():
            ids, times_us = events["event_id"].to_pylist(), events["ts"].cast(pa.int64()).to_pylist()
            time_us_of = dict(zip(ids, times_us, strict=True))
            for event_id, _ in oracle.match(events, 0):
                ts_us = time_us_of[event_id]
                if (since_us is None or ts_us >= since_us) and (until_us is None or ts_us < until_us):
                    found.append((-ts_us, event_id))
        return [event_id for _, event_id in sorted(found)]
