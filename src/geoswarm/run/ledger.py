"""The journal's line for each batch: what it held, what it took, and the totals since the checkpoint was made."""

from geoswarm.flow.observe import LoadReport
from geoswarm.store import journal
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import Manifest

TOTALS = ("batches", "events", "dead", "matched", "matches", "operations_refused")


class Ledger:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._journal = checkpoint.journal
        self._last = journal.last(checkpoint.storage, "batch")

    def enter(self, batch: int, manifest: Manifest, report: LoadReport, seconds: dict[str, float]) -> None:
        before = self._last or {"batch": -1, "totals": dict.fromkeys(TOTALS, 0)}
        # A batch that was run again after a crash is in the journal twice, and counts once.
        start = before["totals_before"] if before["batch"] == batch else before["totals"]
        counted = (1, report.events_in, report.dead, report.matched, report.matches, manifest.refused)
        self._last = self._journal.append(
            "batch",
            totals_before=start,
            totals={name: start[name] + more for name, more in zip(TOTALS, counted, strict=True)},
            batch=batch,
            version=manifest.version,
            plan_epoch=manifest.plan_epoch,
            now_us=manifest.now_us,
            subscriptions=manifest.subs,
            segments=len(manifest.segments),
            operations_refused=manifest.refused,
            matched=report.matched,
            matches=report.matches,
            **seconds,
            **{name: value for name, value in report.to_json().items() if name not in ("stats", "said")},
        )
