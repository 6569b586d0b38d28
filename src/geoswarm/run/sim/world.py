"""What happens around a virtual cluster, the same for every strategy: where events are, which queries come and go.

Plans and machines are in `cluster.py`. One seed of the workload is one world. A drawn event stands for
`weight` events at the same place: a cluster takes a million a second, and thousands are enough to show balance. In the
same way a drawn query stands for `query_weight` queries; all counts, except ordinals, are of what they stand for.

    workload ──► events of a step ──► cells ──► queries that meet each cell   (drawn once, however many clusters watch)
             └─► operations ────────► ordinals that came and went
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Bools, CellIds, Floats, Ints
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.stats.density import Density
from geoswarm.errors import SettingsError
from geoswarm.run.sim.workloads import ChangingStream

FOREVER_S = 1e9


@dataclass(frozen=True)
class Step:
    """One step of time. Queries are ordinals in `World.boxes`; operations take effect before the events."""

    number: int
    start_s: float
    registered: Ints
    cancelled: Ints
    queries: int
    """The number of queries live in this step."""
    cells: CellIds
    """The cell of every event that the sources could send, in order."""
    met: Ints
    """The number of live queries that meet the cell of each event."""


class World:
    def __init__(
        self,
        workload: ChangingStream,
        grid: Grid,
        subscriptions: int,
        *,
        weight: int,
        step_s: float = 1.0,
        query_weight: int = 1,
    ) -> None:
        """`subscriptions`, and the queries of the workload's hotspots, are numbers of drawn queries."""
        self.workload, self.grid, self.weight, self.step_s = workload, grid, weight, step_s
        self.query_weight = query_weight
        self.subscriptions = subscriptions
        """The number registered before the stream starts: ordinals 0 .. subscriptions - 1."""
        self.events_per_step = int(workload.base.events_per_s * step_s)
        if self.events_per_step < 1:
            raise SettingsError(
                f"{workload.base.events_per_s:g} events a second make no step of {step_s:g} s: draw more"
            )
        # All registrations are known in advance, so a query is a number from the start.
        later = workload.operations(0.0, FOREVER_S)
        later = later.filter(pa.compute.equal(later.column("op"), "register"))
        first = workload.subscriptions(0, subscriptions)
        self._later_ids = np.sort(later.column("sub_id").to_numpy())
        in_order = later.take(pa.array(np.argsort(later.column("sub_id").to_numpy(), kind="stable")))
        self.boxes = _concatenate(_boxes(grid, first), _boxes(grid, in_order))
        """The cells that each query meets, by ordinal."""

    @property
    def offered_per_s(self) -> float:
        return self.events_per_step * self.weight / self.step_s

    def steps(self, horizon_s: float) -> Iterator[Step]:
        density = Density(self.grid)
        density.add(self.of(np.arange(self.subscriptions)))
        queries = self.subscriptions
        for number in range(int(horizon_s / self.step_s)):
            start_s = number * self.step_s
            operations = self.workload.operations(start_s, start_s + self.step_s)
            new = np.asarray(pa.compute.equal(operations.column("op"), "register"))
            ordinals = self.subscriptions + np.searchsorted(self._later_ids, operations.column("sub_id").to_numpy())
            came, went = ordinals[new], ordinals[~new]
            density.add(self.of(came))
            density.add(self.of(went), -1)
            queries += len(came) - len(went)
            cells = self.cells(number * self.events_per_step, self.events_per_step)
            met = density.of_cells()[cells] * self.query_weight
            yield Step(number, start_s, came, went, queries * self.query_weight, cells, met)

    def sample(self, points: int = 400_000, queries: int = 200_000) -> Sample:
        """The history: calm posts and the first subscriptions (SWARM §6, *static grid based on history*)."""
        calm = self.workload.base.events(0, points)
        rects = self.workload.subscriptions(0, min(queries, self.subscriptions))
        weight = self.subscriptions / len(rects) * self.query_weight if len(rects) else 1.0
        return Sample(_stack(calm, ("x", "y")), _stack(rects, ("xmin", "ymin", "xmax", "ymax")), weight=weight)

    def cells(self, first_id: int, count: int) -> CellIds:
        rows = self.workload.events(first_id, count)
        return self.grid.locate(rows.column("x").to_numpy(), rows.column("y").to_numpy())

    def of(self, ordinals: Ints) -> CellBox:
        return CellBox(*(side[ordinals] for side in self.boxes))

    def meets(self, ordinals: Ints, row0: int, col0: int, row1: int, col1: int) -> Bools:
        """Which of the queries meet a rectangle of cells."""
        box = self.of(ordinals)
        return (box.row0 <= row1) & (box.row1 >= row0) & (box.col0 <= col1) & (box.col1 >= col0)


def _stack(rows: pa.RecordBatch, names: tuple[str, ...]) -> Floats:
    return np.stack([np.asarray(rows.column(name), np.float64) for name in names], axis=1)


def _boxes(grid: Grid, rows: pa.RecordBatch) -> CellBox:
    return grid.cover(*(np.asarray(rows.column(side), np.float64) for side in ("xmin", "ymin", "xmax", "ymax")))


def _concatenate(a: CellBox, b: CellBox) -> CellBox:
    return CellBox(*(np.concatenate(sides) for sides in zip(a, b, strict=True)))
