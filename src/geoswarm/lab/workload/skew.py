"""The skew coefficient: which share of a stream, or of its load, falls to three of sixteen executors.

Hot executors, and rows of a pool to repeat, are chosen here; `collisions.py` draws the stream. Distributor §4.6.

Where an event is worked on where it lies, it is hot or not, and any share can be had by drawing so many from either
side. Where subscriptions are dealt by a hash (RIhPS), a bit of every event is hot: `resample` prefers those of which
more is, as little as it must, and ends where too few would be repeated too often. The paper ends at 0.4 there.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError

HOT_EXECUTORS = 3
ENOUGH = 0.5
"""The places that a hot executor needs, as a share of an equal share; with fewer, the same would be repeated."""
VARIETY_MIN = 0.005
"""The least variety: 200 equal rows of a pool of 40,000. With 10,000 subscriptions by hash, it allows 0.37 to 0.4."""
HALVINGS, SHARES_TRIED = 40, 12


class Hot(NamedTuple):
    """Some executors, and their cells."""

    executors: tuple[int, ...]
    grid: Grid
    cells: Bools
    share: float
    """Their share of the places, before any skew: 3/16 under a level plan."""

    def are_hot(self, places: Floats) -> Bools:
        grid = self.grid
        x, y = np.clip(places[:, 0], grid.xmin, grid.xmax), np.clip(places[:, 1], grid.ymin, grid.ymax)
        return self.cells[grid.locate(x, y)]


def hot_executors(plan: Plan, places: Floats, rng: np.random.Generator, *, count: int = HOT_EXECUTORS) -> Hot:
    """Drawn one after the other from the executors that have at least half of an equal share of the places, each as
    likely as it has places. Under the plan in force at the start: who is hot stays hot, whoever owns it later."""
    outside = (places < (plan.grid.xmin, plan.grid.ymin)) | (places > (plan.grid.xmax, plan.grid.ymax))
    if outside.any():
        raise InputError(
            f"{int(outside.any(axis=1).sum())} of {len(places)} places are outside the grid: widen its bounds"
        )
    slots = plan.slot_of_cell[plan.grid.locate(places[:, 0], places[:, 1])]
    owners = plan.executor_of_slot[slots]
    held = np.bincount(owners[owners >= 0], minlength=plan.executors)
    enough = np.flatnonzero(held * plan.executors >= ENOUGH * len(places))
    if not 1 <= count < plan.executors or len(enough) < count:
        raise InputError(
            f"{count} of {plan.executors} executors cannot be hot, since {len(enough)} have half of an equal share of "
            f"the {len(places)} places: draw the plan from the places (control/layout/level.py)"
        )
    chosen = np.sort(rng.choice(enough, count, replace=False, p=held[enough] / held[enough].sum()))
    cells = np.isin(plan.executor_of_slot, chosen)[plan.slot_of_cell]
    return Hot(tuple(chosen.tolist()), plan.grid, cells, float(held[chosen].sum() / len(places)))


class Resampled(NamedTuple):
    rows: Ints
    """Rows of the pool, in the order of the stream."""
    share: float
    """The hot share of the load of these rows: what was asked for, or the nearest that was reached."""
    variety: float
    """How many rows, all equally likely, would be as hard to guess from, as a share of the pool."""


def resample(
    hot_shares: Floats,
    share: float,
    count: int,
    rng: np.random.Generator,
    *,
    loads: Floats | None = None,
    variety_min: float = VARIETY_MIN,
) -> Resampled:
    """`count` rows of a pool, so that `share` of their load is hot.

    Of row i, `hot_shares[i]` of its `loads[i]` (1 for all, if not given) is hot. Of all weights that reach a share,
    those nearest to equal ones (by their entropy) are exp(k × (hot load - share × load)), with the k for which the mean
    of the exponent is 0. Where those would have less than `variety_min`, the nearest share that has it is taken."""
    loads = np.ones(len(hot_shares)) if loads is None else loads / max(float(np.mean(loads)), 1e-300)
    fair = len(hot_shares) > 0 and len(loads) == len(hot_shares) and loads.min() >= 0 < loads.sum()
    if not (fair and hot_shares.min() >= 0 and hot_shares.max() <= 1 and 0 < share < 1 and 0 < variety_min <= 1):
        raise InputError(
            f"no share of {share} can be drawn from {len(hot_shares)} rows with {len(loads)} loads: give one load of 0 "
            "or more and one hot share of 0 to 1 for each row, a share and a variety between 0 and 1"
        )
    hot_loads = hot_shares * loads
    asked, base = share, float(hot_loads.sum() / loads.sum())
    weights = _weights(hot_loads, loads, share)
    if _variety(weights) < variety_min:
        near, far = base, asked
        for _ in range(SHARES_TRIED):  # the further, the less varied
            middle = (near + far) / 2
            varied = _variety(_weights(hot_loads, loads, middle)) >= variety_min
            near, far = (middle, far) if varied else (near, middle)
        weights = _weights(hot_loads, loads, near)
    # Evenly spaced along the sum of weights: each row as often as it should be, but for one.
    at = (np.arange(count) + rng.random()) / count
    rows = np.minimum(np.searchsorted(np.cumsum(weights), at), len(weights) - 1).astype(np.int64)
    drawn = float(loads[rows].sum())
    got = float(hot_loads[rows].sum()) / drawn if drawn > 0 else 0.0
    return Resampled(rng.permutation(rows), got, _variety(weights))


def _weights(hot_loads: Floats, loads: Floats, share: float) -> Floats:
    """The weights with the largest entropy that reach the share, or all weight on the best row if none do."""
    above = hot_loads - share * loads
    towards = -1.0 if above.mean() > 0 else 1.0
    low, high = 0.0, 1e3 / max(float(np.ptp(above)), 1e-9)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        weights = _powers(above, towards * middle)
        low, high = (middle, high) if (weights @ above) * towards < 0 else (low, middle)
    return _powers(above, towards * low)


def _powers(above: Floats, k: float) -> Floats:
    """The powers, scaled to sum to 1."""
    powers = k * above
    weights = np.exp(powers - powers.max())
    shares: Floats = weights / weights.sum()
    return shares


def _variety(weights: Floats) -> float:
    some = weights[weights > 0]
    return float(np.exp(-(some @ np.log(some))) / len(weights))
