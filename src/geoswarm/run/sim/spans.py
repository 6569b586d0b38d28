"""What a virtual cluster measured over a stretch of time; two stretches of one cluster add up.

`cluster.py` measures one per round. SWARM §6.1 (units of work, latency) and Fig. 17 (utilisation).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Span:
    """The measurements of a stretch of time: a round or a minute."""

    start_s: float
    span_s: float
    queries: float
    """The average number of live queries."""
    events: float
    latency_s: float
    """Sum over the events: the wait for a full batch, if there are batches, the time in the queue, and in service."""
    service_s: float
    """Sum over the events: the time in service alone."""
    busy_s: tuple[float, ...]
    """The busy time of each machine."""
    moved: int
    """The number of queries that came to another machine."""
    coordinator_bytes: int
    partitions: int
    wait_s: float = 0.0
    """Sum over the events: the wait for their batch to fill, a part of the latency."""
    driver_s: float = field(default=0.0, compare=False)
    """The real CPU time of planning, which is no part of the simulated world."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.span_s

    @property
    def units_of_work(self) -> float:
        return self.queries * self.events_per_s

    @property
    def latency_ms(self) -> float:
        return self.latency_s / max(self.events, 1.0) * 1e3

    @property
    def wait_ms(self) -> float:
        return self.wait_s / max(self.events, 1.0) * 1e3

    @property
    def service_us(self) -> float:
        return self.service_s / max(self.events, 1.0) * 1e6

    @property
    def utilisation(self) -> tuple[float, float, float]:
        """The least, mean and greatest utilisation of the machines."""
        shares = np.array(self.busy_s) / self.span_s
        return float(shares.min()), float(shares.mean()), float(shares.max())

    def __add__(self, other: "Span") -> "Span":
        span_s = self.span_s + other.span_s
        return Span(
            self.start_s,
            span_s,
            (self.queries * self.span_s + other.queries * other.span_s) / span_s,  # not 0: every span takes time
            self.events + other.events,
            self.latency_s + other.latency_s,
            self.service_s + other.service_s,
            tuple(a + b for a, b in zip(self.busy_s, other.busy_s, strict=True)),
            self.moved + other.moved,
            self.coordinator_bytes + other.coordinator_bytes,
            other.partitions,
            self.wait_s + other.wait_s,
            self.driver_s + other.driver_s,
        )


def total(spans: Iterable[Span]) -> Span:
    """The sum of one or more spans."""
    first, *rest = spans
    for span in rest:
        first += span
    return first


def by_minute(spans: Iterable[Span], minute_s: float = 60.0) -> list[Span]:
    minutes: dict[int, Span] = {}
    for span in spans:
        at = int(span.start_s // minute_s)
        minutes[at] = minutes[at] + span if at in minutes else span
    return [minutes[at] for at in sorted(minutes)]
