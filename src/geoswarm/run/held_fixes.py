"""Fixes that are held back in a running stream: the watermark of each batch, and what is held after it.

`flow/keyed/reorder.py` has the rules. A batch that is run again sees what the batch before it left, and has the
settings that it was begun with: so it has the same watermark, and holds and hands on the same fixes.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from geoswarm.config import Tuning
from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.keyed.held_fixes import LATE_BY_US
from geoswarm.flow.keyed.reorder import EVER_US, Reorder, ReorderSettings
from geoswarm.flow.keyed.state import NOTHING_KEPT, Commit
from geoswarm.run.keyed import fresh_name
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.held_fixes import HeldFixes
from geoswarm.store.storage import Storage

_LOG = logging.getLogger(__name__)


def check_initial(tuning: Tuning, checkpoint: Checkpoint) -> None:
    """Refuse a stream whose first batch would tell who is inside while older fixes wait: when these go on, they would
    count as outside of who had not begun when they arrived."""
    view, version = checkpoint.view, checkpoint.manifest
    is_waiting = version.batch is None and len(view.begun) > 0  # a version of a batch has told them, or is run again
    if not is_waiting or view.subs(view.begun, version.now_us) is None:
        return
    if tuning.reorder_s:
        raise SettingsError(
            "some subscriptions wait to be told who is inside (notify = initial), and events are put in order "
            "(reorder_s), in which that is known later: replace them without initial, or run a batch with reorder_s = 0"
        )
    held = HeldFixes(checkpoint.storage)
    newest = held.newest_batch()
    if newest is not None and held.after(newest).files:
        raise SettingsError(
            "some subscriptions wait to be told who is inside (notify = initial), and events that were held back "
            "(reorder_s) go on first: replace them without initial, and with it once a batch has run"
        )


class HeldRun:
    """`begin` in each batch in which objects are followed, then `finish`; `forget` in every other one."""

    def __init__(self, storage: Storage, tuning: Tuning, check: Callable[[], None]) -> None:
        """`check` raises if this engine may no longer write to the checkpoint."""
        self._state, self._check = HeldFixes(storage), check
        self._settings = ReorderSettings.of(tuning)
        self._state.sweep()
        self._may_hold = self._state.newest_batch() is not None
        self._begun: tuple[Commit, Reorder, ReorderSettings] | None = None
        self._warned = set[str]()

    def begin(self, batch: int, now_us: int, noted: ReorderSettings | None) -> Reorder | None:
        """What the tasks of a batch must know; None: nothing is held back, nor was before. `noted` are the settings
        that the batch was begun with; None: those of now."""
        self._begun, settings = None, noted or self._settings
        is_on = settings.reorder_us > 0
        if not is_on and not self._may_hold:
            return None
        before = self._state.before(batch)
        if not is_on and not before.files:
            self._may_hold = False
            return None
        self._check()
        self._state.forget_reports()  # those of crashed attempts
        since_us = -EVER_US if before.closed_us is None else before.closed_us
        watermark_us = self._watermark_us(before, since_us, settings)
        bound_us = now_us + settings.ahead_us
        reorder = Reorder(self._state, before.files, since_us, watermark_us, bound_us, fresh_name(), is_on)
        self._begun = before, reorder, settings
        return reorder

    def _watermark_us(self, before: Commit, since_us: int, settings: ReorderSettings) -> int:
        newest_us = before.watermark_us
        if newest_us is None:
            return since_us
        if before.bytes > settings.bytes_max:
            self._warn(
                "full",
                f"fixes that are held back take {before.bytes} bytes, and reorder_bytes_max is {settings.bytes_max}: "
                "they go on now, and what is older than they are is late; raise reorder_bytes_max, or lower reorder_s",
            )
            return max(since_us, newest_us + 1)
        return max(since_us, newest_us - settings.reorder_us)

    def finish(self, batch: int, newest_us: int | None, executors: Collection[int]) -> None:
        """Commit what is held after a batch whose transitions are committed; `newest_us` is the time of its newest
        event; None: it had none. `executors` are those that have worked on it; none, if it had no tasks."""
        if self._begun is None:
            return
        before, reorder, settings = self._begun
        reports = self._state.reports(reorder.attempt)["work"]
        if set(reports) != set(executors):  # whose new files would be taken for garbage
            raise StreamError(
                f"batch {batch}: {len(executors)} executors have worked, and {len(reports)} have reported which fixes "
                "they hold back: the batch is not committed; start again from the checkpoint"
            )
        worked = reports.values()
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
        self._warn_of_late(late_by_us, settings)

    def _warn_of_late(self, late_by_us: int, settings: ReorderSettings) -> None:
        if late_by_us:
            had_s, needed_s = settings.reorder_us / 1e6, (settings.reorder_us + late_by_us) / 1e6
            self._warn(
                "late",
                f"fixes of objects come later than reorder_s = {had_s:g} allows, and are passed over "
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
