"""What PS2Stream's simulated machines measured in a step, and the figures of a run.

`words.py` has the machines. PS2Stream §VI-D (migration cost, latency classes, throughput).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats

LATENCIES_S = (0.1, 1.0)
"""Bounds of the paper's three classes of latency."""


class MachinesSpan(NamedTuple):
    """What one step measured."""

    tuples: float
    busy_s: Floats
    """The busy time of each worker, with migration."""
    dispatch_s: float
    copies: float
    """Copies of events beyond the first of each."""
    dropped: float
    latency: Floats
    """The number of tuples in each class of `LATENCIES_S`."""
    moved_bytes: float
    moved_queries: float
    migration_s: float
    cells: int
    """The number of cells that changed their worker."""
    old_share: float
    """The share of queries that follow the older plan."""

    @property
    def bottleneck_s(self) -> float:
        """The time of the step at saturation: that of the slowest worker, or of the dispatchers."""
        return float(max(self.busy_s.max(), self.dispatch_s))


def throughput(spans: list[MachinesSpan]) -> float:
    """Tuples per second at saturation."""
    return sum(span.tuples for span in spans) / sum(span.bottleneck_s for span in spans)


def figures_of(spans: list[MachinesSpan]) -> Mapping[str, float]:
    """The figures of a run, by name."""
    moves = [span for span in spans if span.moved_bytes]
    latency = np.sum([span.latency for span in spans], axis=0)
    shares = latency / max(1.0, latency.sum())
    return {
        "tuples_per_s": throughput(spans),
        "migrations": float(len(moves)),
        "migrated_mb": _mean([span.moved_bytes for span in moves]) / 1e6,
        "migration_s": _mean([span.migration_s for span in moves]),
        "below_100ms_pct": 100.0 * float(shares[0]),
        "to_1s_pct": 100.0 * float(shares[1]),
        "above_1s_pct": 100.0 * float(shares[2]),
        "copies_share": sum(span.copies for span in spans) / sum(span.tuples for span in spans),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
