"""The users of subscriptions, with names that a person can read, and what their subscriptions cost.

Who may have how much is decided in `guard/limits.py` and `guard/accounts.py`.
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.columns import REGION, USER
from geoswarm.guard.limits import THOUSANDTHS, costs
from geoswarm.store.segments.segment import Segment
from geoswarm.store.subscriptions import View


def live_of_users(view: View, grid: Grid, now_us: int) -> dict[str, tuple[int, float]]:
    """By user: how many live subscriptions, and what they cost."""
    found: dict[str, tuple[int, float]] = {}
    for name, held in view.segments.items():
        live = np.flatnonzero(held.live(view.dead[name], now_us))
        users = held[USER]
        codes = users.codes[live]
        counts, paid = np.bincount(codes), np.bincount(codes, costs_at(grid, held, live) / THOUSANDTHS)
        used = np.flatnonzero(counts)
        for user, n, cost in zip(
            as_text(users.names.take(pa.array(used))).to_pylist(), counts[used], paid[used], strict=True
        ):
            before = found.get(user, (0, 0.0))
            found[user] = before[0] + int(n), before[1] + float(cost)
    return found


def areas(grid: Grid, rects: Floats) -> Floats:
    """The areas of rectangles, as shares of the world's."""
    world = (grid.xmax - grid.xmin) * (grid.ymax - grid.ymin)
    shares: Floats = (rects[:, 2] - rects[:, 0]) * (rects[:, 3] - rects[:, 1]) / world
    return shares


def costs_at(grid: Grid, held: Segment, ordinals: Ints) -> Ints:
    """What some subscriptions of a segment cost, in thousandths."""
    return costs(areas(grid, held.rects[ordinals]), held.alternatives(ordinals), held[REGION].vertex_counts(ordinals))


def is_text(users: pa.StringArray) -> Bools:
    """Whether each name is valid UTF-8."""
    try:
        users.validate(full=True)
        return np.ones(len(users), np.bool_)
    except pa.ArrowInvalid:
        coded = users.cast(pa.binary()).dictionary_encode()
        fine = np.array([_decodes(name) for name in coded.dictionary.to_pylist()], np.bool_)
        whole: Bools = np.append(fine, True)[coded.indices.fill_null(len(fine)).to_numpy(zero_copy_only=False)]
        return whole


def _decodes(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_text(names: pa.StringArray) -> pa.StringArray:
    """Names that Guard can read; some that were registered before it was on may be no text."""
    if is_text(names).all():
        return names
    return pa.array([name.decode(errors="replace") for name in names.cast(pa.binary()).to_pylist()], pa.string())
