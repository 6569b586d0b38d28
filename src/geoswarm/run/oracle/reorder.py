"""Which fixes go on in a batch where they are put in order, from one plain list of all that wait.

The rules are those of `flow/keyed/reorder.py`; that files may grow too large is none of them here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Fix(NamedTuple):
    """An event of an object, and the subscriptions that follow objects which it was inside of when it arrived."""

    ts_us: int
    event: int
    name: object
    accuracy_m: float | None
    place: Any
    row: dict[str, object]
    """The event."""
    inside: frozenset[int]


@dataclass
class Waiting:
    reorder_us: int = 0
    ahead_us: int = 60_000_000
    fixes: list[Fix] = field(default_factory=list)
    newest_us: int | None = None
    """Of all events of the batches before."""
    watermark_us: int | None = None
    late: int = 0
    ahead: int = 0

    def next_batch(self, arrived: Sequence[Fix], times_us: Iterable[int], now_us: int) -> list[Fix]:
        """The fixes that go on, in order. `times_us` are those of all events of the batch."""
        if not self.reorder_us:
            due, self.fixes, self.newest_us, self.watermark_us = [*self.fixes, *arrived], [], None, None
            return sorted(due, key=lambda fix: fix[:2])
        if self.newest_us is not None:
            known = [] if self.watermark_us is None else [self.watermark_us]
            self.watermark_us = max([self.newest_us - self.reorder_us, *known])
        for fix in arrived:
            if self.watermark_us is not None and fix.ts_us < self.watermark_us:
                self.late += 1
            elif fix.ts_us > now_us + self.ahead_us:
                self.ahead += 1
            else:
                self.fixes.append(fix)
        due = [fix for fix in self.fixes if self.watermark_us is not None and fix.ts_us < self.watermark_us]
        self.fixes = [fix for fix in self.fixes if fix not in due]
        of_now = [ts_us for ts_us in times_us if ts_us <= now_us + self.ahead_us]
        self.newest_us = max([*of_now, *([] if self.newest_us is None else [self.newest_us])], default=None)
        return sorted(due, key=lambda fix: fix[:2])
