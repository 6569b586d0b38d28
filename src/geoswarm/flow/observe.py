"""What one task counted, per partition, in a form that two tasks can merge.

A task writes its counts to a file named by batch and task, so that a retried or speculative attempt replaces the
one before it and nothing is counted twice; the driver adds the files up. It does not decide anything.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.flow.batches import xy
from geoswarm.space.plan import Plan
from geoswarm.stats.triostat import TrioStat


class PartitionLoad(NamedTuple):
    executor: int
    events: int
    matched: int
    """Events that met at least one subscription."""
    matches: int
    cpu_us: int
    """Thread time spent on matching this partition's events."""

    def __add__(self, other: "PartitionLoad") -> "PartitionLoad":  # type: ignore[override]
        return PartitionLoad(self.executor, *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


@dataclass
class LoadReport:
    """Empty when made; `add` what was seen; `+` what another task saw; read the totals."""

    partitions: dict[int, PartitionLoad] = field(default_factory=dict)
    events_in: int = 0
    """Rows that reached the guard."""
    dead: int = 0
    """Rows that it turned away."""
    route_cpu_us: int = 0
    stats: dict[int, TrioStat] = field(default_factory=dict)
    """The round's collectors, by partition; empty where nobody balances by them."""

    def add(self, partition: int, load: PartitionLoad) -> None:
        seen = self.partitions.get(partition)
        self.partitions[partition] = seen + load if seen else load

    def __add__(self, other: "LoadReport") -> "LoadReport":
        total = LoadReport(
            dict(self.partitions),
            self.events_in + other.events_in,
            self.dead + other.dead,
            self.route_cpu_us + other.route_cpu_us,
        )
        for partition, load in other.partitions.items():
            total.add(partition, load)
        total.stats = dict(self.stats)
        for partition, stat in other.stats.items():
            total.add_stat(partition, stat)
        return total

    def add_stat(self, partition: int, stat: TrioStat) -> None:
        seen = self.stats.get(partition)
        self.stats[partition] = seen + stat if seen else stat

    @property
    def events(self) -> int:
        return sum(load.events for load in self.partitions.values())

    @property
    def matched(self) -> int:
        return sum(load.matched for load in self.partitions.values())

    @property
    def matches(self) -> int:
        return sum(load.matches for load in self.partitions.values())

    def cpu_us_by_executor(self) -> dict[int, int]:
        totals: dict[int, int] = {}
        for load in self.partitions.values():
            totals[load.executor] = totals.get(load.executor, 0) + load.cpu_us
        return totals

    def to_json(self) -> dict[str, Any]:
        return {
            "partitions": {str(k): list(v) for k, v in sorted(self.partitions.items())},
            "events_in": self.events_in,
            "dead": self.dead,
            "route_cpu_us": self.route_cpu_us,
            "stats": {str(k): b64encode(v.to_bytes()).decode() for k, v in sorted(self.stats.items())},
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "LoadReport":
        loads = {int(k): PartitionLoad(*v) for k, v in written["partitions"].items()}
        stats = {int(k): TrioStat.from_bytes(b64decode(v)) for k, v in written.get("stats", {}).items()}
        return cls(loads, written["events_in"], written["dead"], written["route_cpu_us"], stats)


def count_points(events: pa.RecordBatch, plan: Plan, partition: int) -> TrioStat:
    """The collectors of a partition after a parcel of events: two updates a point."""
    stat = TrioStat.empty(plan.partition(partition))
    rows, columns = np.divmod(plan.grid.locate(*xy(events)).astype(np.int64), plan.grid.columns)
    stat.add_points(rows, columns)
    return stat
