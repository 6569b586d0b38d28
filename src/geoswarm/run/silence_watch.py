"""Watch whether the batches of a run match anything, and say why not: in a warning, and in the journal.

`flow/silence.py` decides how long is too long and finds the reasons; `pipeline.py` hands each batch to this. How long
nothing has matched goes on through a restart. Why is looked for in each run again, since it may be another reason then.
"""

import logging

from geoswarm.config import Contract
from geoswarm.core.subscriptions.attributes import KEYWORDS
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.silence import NOT_SILENT, SUBSCRIPTIONS_MAX, Silence, reasons
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import BatchEntry, SilenceEntry
from geoswarm.store.manifest import Manifest

_LOG = logging.getLogger(__name__)


class SilenceWatch:
    def __init__(self, checkpoint: Checkpoint, contract: Contract, last: BatchEntry | None) -> None:
        """`last` is the newest batch of the journal."""
        self._checkpoint, self._contract = checkpoint, contract
        self._silence = NOT_SILENT if last is None else Silence(last.silent_since_us)
        self._has_matched = False
        self._unmatched: LoadReport | None = None  # of the newest batch with events, if none of this run has matched

    @property
    def wants_places(self) -> bool:
        """Whether tasks should report where some of the rows lie."""
        return self._silence.is_suspected or not self._has_matched

    def add(self, report: LoadReport, manifest: Manifest, answers: int) -> Silence:
        """After a batch: how long nothing has matched. What no subscription asks for is not counted as lacking."""
        view = self._checkpoint.view
        if not any(entry.transitions for entry in manifest.segments):
            report.without_object = 0
        if not any(held[KEYWORDS] is not None for held in view.segments.values()):
            report.without_text = 0

        found, before = report.matches + report.past_matches + answers, self._silence
        self._silence = before.after(report, manifest.subs, found, manifest.now_us, lambda: self._reasons(report))
        if self._silence.why and not before.why:
            _LOG.warning("%s", self._silence.sentence(manifest.now_us))
        self._has_matched = self._has_matched or found > 0
        if self._has_matched or not self._silence.is_suspected:
            self._unmatched = None
        elif report.events_in:
            self._unmatched = report
        return self._silence

    def end(self) -> None:
        """A stream that ends well, or is stopped, says why none of its events has matched, unless it has said so. That
        this cannot be found is no reason to fail."""
        report, self._unmatched = self._unmatched, None
        if report is None or self._silence.why:
            return
        try:
            why = tuple(self._reasons(report))
            _LOG.warning("the stream has ended, and no event has matched: %s", "; ".join(why))
            self._checkpoint.journal.append(SilenceEntry(why, self._silence.since_us))
        except Exception as error:
            _LOG.warning("the stream has ended, and no event has matched; why cannot be found: %s", error)

    def _reasons(self, report: LoadReport) -> list[str]:
        """Why a batch may have matched nothing."""
        lacking = [each.sentence for each in self._checkpoint.lacking()]
        rects, _ = self._checkpoint.some_queries(SUBSCRIPTIONS_MAX)
        return reasons(report, lacking, rects, self._contract.bounds)
