"""Small rectangles dealt to executors in runs along a curve, so that the heaviest run is as light as it can be.

Neighbours mostly stay together, which saves copies of subscriptions. `grid_cells.py` and `r_tree.py` choose the
rectangles and the curve.
"""

import numpy as np

from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.places import Place, plan_of
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.unit import Unit
from geoswarm.core.arrays.jit import Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox
from geoswarm.core.space.overlap import Overlap, overlap
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box

HALVINGS = 40
"""Steps of the bisection for the least possible maximum load of a run."""
MEETINGS_MAX = 8_000_000
"""The most pairs of a subscription and a rectangle that meet, 16 bytes each. With more, only some subscriptions are
used, and each stands for several."""


def deal_boxes(executors: int, sample: TextSample, boxes: list[Box], costs: Costs) -> Plan:
    """A plan from boxes that cover the map and are in the order of the curve."""
    whole = Unit.whole(sample)
    drawn = plan_of(1, sample, [Place(box, (0,)) for box in boxes])
    cells = sample.rows[whole.events] * sample.grid.columns + sample.columns[whole.events]
    events = np.bincount(drawn.slot_of_cell[cells], minlength=len(boxes))
    met_there = np.bincount(drawn.slot_of_cell[cells], sample.event_checks[whole.events], minlength=len(boxes))
    checks = met_there.astype(np.float64)
    weight = _weight(sample, len(boxes))
    met = overlap(drawn, CellBox(*(side[::weight] for side in sample.boxes)))
    offsets, before = _arrivals(met, len(boxes))
    coefficients = costs.coefficients(sample) * [weight, 1.0, weight, 1.0]
    low, high = 0.0, whole.load(costs) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        owners = _runs(events, checks, offsets, before, coefficients, middle)
        low, high = (low, middle) if owners[-1] < executors else (middle, high)
    owners = _runs(events, checks, offsets, before, coefficients, high)
    places = [Place(box, (min(int(owner), executors - 1),)) for box, owner in zip(boxes, owners, strict=True)]
    return plan_of(executors, sample, places)


def _weight(sample: TextSample, boxes: int) -> int:
    """The number of subscriptions that one stands for, by area, as if all rectangles were equal."""
    row0, col0, row1, col1 = sample.boxes
    side_rows, side_columns = sample.grid.rows / np.sqrt(boxes), sample.grid.columns / np.sqrt(boxes)
    meetings = float((((row1 - row0) / side_rows + 1) * ((col1 - col0) / side_columns + 1)).sum())
    return int(meetings // MEETINGS_MAX) + 1


@kernel
def _arrivals(met: Overlap, boxes: int) -> tuple[Ints, Ints]:
    """Offsets by rectangle and, for each subscription that meets it, the last rectangle before that it meets, or -1."""
    offsets = np.zeros(boxes + 1, np.int64)
    for slot in met.slots:
        offsets[slot + 1] += 1
    offsets = np.cumsum(offsets)
    at, before = offsets[:-1].copy(), np.empty(offsets[-1], np.int64)
    for i in range(len(met.offsets) - 1):
        last = -1
        for slot in np.sort(met.slots[met.offsets[i] : met.offsets[i + 1]]):
            before[at[slot]] = last
            at[slot] += 1
            last = slot
    return offsets, before


@kernel
def _runs(events: Ints, checks: Floats, offsets: Ints, before: Ints, coefficients: Floats, bound: float) -> Ints:
    """The run of each rectangle, where a run ends before its load exceeds the bound."""
    owners = np.empty(len(events), np.int64)
    run, first, o, q, met = 0, 0, 0.0, 0.0, 0.0
    both, event, query, entry = coefficients
    for box in range(len(events)):
        fresh = 0
        for p in range(offsets[box], offsets[box + 1]):
            fresh += before[p] < first
        more_o, more_q, more_met = o + events[box], q + fresh, met + checks[box]
        load = both * more_o * more_q + event * more_o + query * more_q + entry * more_met
        if load > bound and box > first:
            run, first = run + 1, box
            more_o, more_q, more_met = float(events[box]), float(offsets[box + 1] - offsets[box]), checks[box]
        o, q, met = more_o, more_q, more_met
        owners[box] = run
    return owners
