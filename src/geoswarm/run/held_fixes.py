"""Fixes that are held back in a running stream: the watermark of each batch, and what is held after it.

`flow/keyed/reorder.py` has the rules. A batch that is run again sees what the batch before it left, and so has the same
watermark, and holds and hands on the same fixes.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from geoswarm.config import Tuning
from geoswarm.flow.keyed.held_fixes import LATE_BY_US
from geoswarm.flow.keyed.reorder import EVER_US, Reorder
from geoswarm.flow.keyed.state import NOTHING_KEPT, Commit
from geoswarm.run.keyed import fresh_name
from geoswarm.store.held_fixes import HeldFixes
from geoswarm.store.storage import Storage

_LOG = logging.getLogger(__name__)


class HeldRun:
    """`begin` in each batch in which objects are followed, then `finish`; `forget` in every other one."""

    def __init__(self, storage: Storage, tuning: Tuning, check: Callable[[], None]) -> None:
        """`check` raises if this engine may no longer write to the checkpoint."""
        self._state, self._check = HeldFixes(storage), check
        self._tuning = tuning
        self._reorder_us, self._ahead_us = round(tuning.reorder_s * 1e6), tuning.aggregates.ahead_us
        self._state.sweep()
        self._may_hold = self._state.newest_batch() is not None
        self._begun: tuple[Commit, Reorder] | None = None
        self._warned = set[str]()

    def begin(self, batch: int, now_us: int) -> Reorder | None:
        """What the tasks of a batch must know; None: nothing is held back, nor was before."""
        self._begun = None
        if not self._reorder_us and not self._may_hold:
            return None
        before = self._state.before(batch)
        if not self._reorder_us and not before.files:
            return None
        self._state.forget_reports()  # those of crashed attempts
        since_us = -EVER_US if before.closed_us is None else before.closed_us
        watermark_us = self._watermark_us(before, since_us)
        is_on, bound_us = self._reorder_us > 0, now_us + self._ahead_us
        reorder = Reorder(self._state, before.files, since_us, watermark_us, bound_us, fresh_name(), is_on)
        self._begun = before, reorder
        return reorder

    def _watermark_us(self, before: Commit, since_us: int) -> int:
        newest_us = before.watermark_us
        if newest_us is None:
            return since_us
        if before.bytes > self._tuning.reorder_bytes_max:
            self._warn(
                "full",
                f"fixes that are held back take {before.bytes} bytes, and reorder_bytes_max is "
                f"{self._tuning.reorder_bytes_max}: they go on now, and what is older than they are is late; raise "
                "reorder_bytes_max, or lower reorder_s",
            )
            return max(since_us, newest_us + 1)
        return max(since_us, newest_us - self._reorder_us)

    def finish(self, batch: int, newest_us: int | None) -> None:
        """Commit what is held after a batch whose transitions are committed; `newest_us` is the time of its newest
        event; None: it had none."""
        if self._begun is None:
            return
        before, reorder = self._begun
        worked = self._state.reports(reorder.attempt)["work"].values()
        self._check()
        gone = {name for report in worked for name in report.gone}
        added = [file for report in worked for file in report.added]
        files = sorted([*(file for file in before.files if file.name not in gone), *added], key=lambda file: file.name)
        after = replace(before, batch=batch, files=tuple(files))
        if reorder.is_on:
            times_us = [time_us for time_us in (before.watermark_us, newest_us) if time_us is not None]
            after = replace(after, watermark_us=max(times_us, default=None))
        if worked:  # a batch that had no rows at all has no tasks, and nothing has gone on in it
            has_watermark = reorder.is_on and reorder.watermark_us > -EVER_US
            after = replace(after, closed_us=reorder.watermark_us if has_watermark else None)
        if not files and not reorder.is_on:
            after = replace(NOTHING_KEPT, batch=batch)
        self._state.commit(after)
        self._state.forget_reports(reorder.attempt)
        self._may_hold, self._begun = reorder.is_on or bool(files), None
        late_by_us = max((report.counts.get(LATE_BY_US, 0) for report in worked), default=0)
        self._warn_of_late(late_by_us)

    def _warn_of_late(self, late_by_us: int) -> None:
        if late_by_us:
            needed_s = (self._reorder_us + late_by_us) / 1e6
            self._warn(
                "late",
                f"fixes of objects come later than reorder_s = {self._tuning.reorder_s:g} allows, and are passed over "
                f"for transitions: reorder_s = {needed_s:g} would have been enough so far; late_fixes in the status "
                "counts them",
            )

    def _warn(self, about: str, sentence: str) -> None:
        """Once for each start."""
        if about not in self._warned:
            self._warned.add(about)
            _LOG.warning("%s", sentence)

    def forget(self, batch: int) -> None:
        """Drop all that is held, in a batch in which nobody follows objects."""
        if self._may_hold:
            before = self._state.before(batch)
            if before.files or before.watermark_us is not None:
                self._check()
                self._state.commit(replace(NOTHING_KEPT, batch=batch))
            self._may_hold = False
