"""What the engine's journal says of a run, for benchmarks: batches, rounds and blocked users. All of them read it here.

Only reads. `store/journal.py` is the journal itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoswarm.flow.observe import LoadReport
from geoswarm.store import journal
from geoswarm.store.storage import Storage


@dataclass(frozen=True)
class BatchEntry:
    """One batch that was committed."""

    batch: int
    now_s: float
    """The time of the batch by the engine's clock."""
    load: LoadReport
    """What its tasks counted: events, matches and CPU time by partition and by executor."""
    matches: int
    subscriptions: int
    operations_refused: int
    plan_epoch: int
    batch_s: float
    prepare_s: float
    """What the stream waited for its operations."""

    def executors_cpu_us(self, executors: int) -> list[float]:
        """CPU time of matching, by executor; 0 for one that had no task."""
        return [float(self.load.executors[i].cpu_us) if i in self.load.executors else 0.0 for i in range(executors)]


@dataclass(frozen=True)
class RoundEntry:
    """What a strategy decided at the end of a round."""

    outcome: str
    decision: str
    changes: int

    @property
    def moves(self) -> int:
        """How many changes of the plan came into force."""
        return self.changes if self.outcome == "applied" else 0


def batches(checkpoint: str | Path) -> list[BatchEntry]:
    """Oldest first."""
    return [_batch(entry) for entry in journal.read(Storage(str(checkpoint)), "batch")]


def rounds(checkpoint: str | Path) -> list[RoundEntry]:
    """Oldest first. Entries without a time are of a strategy that took over a checkpoint, and are left out."""
    found = (entry for entry in journal.read(Storage(str(checkpoint)), "round") if "now_s" in entry)
    return [RoundEntry(entry["outcome"], entry["why"]["decision"], len(entry["changes"])) for entry in found]


def blocked_users(checkpoint: str | Path) -> dict[str, float]:
    """When Guard blocked each user, in seconds by the engine's clock."""
    entries = journal.read(Storage(str(checkpoint)), "guard")
    return {user: entry["now_us"] * 1e-6 for entry in entries for user in entry["blocked"]}


def all_entries(checkpoint: str | Path) -> list[dict[str, Any]]:
    """Every entry as it was written, for `lab/crash/scenario.py`, which compares a run with the oracle."""
    return list(journal.read(Storage(str(checkpoint))))


def plan_epochs(entries: list[dict[str, Any]]) -> dict[int, int]:
    """The plan of each batch, from such entries."""
    return {entry["batch"]: entry["plan_epoch"] for entry in entries if entry["kind"] == "batch"}


def _batch(entry: Mapping[str, Any]) -> BatchEntry:
    return BatchEntry(
        batch=entry["batch"],
        now_s=entry["now_us"] * 1e-6,
        load=LoadReport.from_json(entry),
        matches=entry["matches"],
        subscriptions=entry["subscriptions"],
        operations_refused=entry["operations_refused"],
        plan_epoch=entry["plan_epoch"],
        batch_s=entry["batch_s"],
        prepare_s=entry["prepare_s"],
    )
