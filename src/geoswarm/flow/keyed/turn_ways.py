"""The ways of the objects of a turn: from each fix to the next, and from the last one that is held to the first.

Late and vague fixes have no part in a way. `ways.py` finds which regions ways pass through.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.flow.keyed.columns import swap_key
from geoswarm.flow.keyed.operator import Turn
from geoswarm.flow.keyed.ways import Crossings, Ends, Ways
from geoswarm.model import SUB_IDS

BEGINS = ("from_us", "from_x", "from_y")
"""The columns of state with the fix at which an object's next way begins."""


class TurnWays(NamedTuple):
    crossed_offsets: Ints
    crossed: SubIds
    """The subscriptions on `cross` that the way to row i passes through: crossed[crossed_offsets[i]: ...]."""
    began_us: Ints
    """When the way to each row began."""
    next_begins: tuple[pa.Array, ...]
    """For each key, the columns BEGINS after this turn."""
    gaps: int
    """Ways that are too long to be one."""


def ways_of(turn: Turn, held: pa.RecordBatch, ts_us: Ints, vague: Bools, crossings: Crossings | None) -> TurnWays:
    """`held` is the newest row of each key that has any."""
    known, group = np.diff(turn.held_starts) > 0, turn.row_groups
    seen_us = np.full(len(known), np.iinfo(np.int64).min)
    seen_us[known] = held.column("seen_us").to_numpy()
    fixes = np.flatnonzero(~vague & (ts_us >= seen_us[group]))
    x, y = (turn.rows.column(axis).to_numpy() for axis in ("x", "y"))
    # What each key had before, then its fixes: every way is from one of these to the next.
    first_us, first = np.zeros(len(known), np.int64), np.full((len(known), 2), np.nan)
    first_us[known] = held.column(BEGINS[0]).fill_null(0).to_numpy(zero_copy_only=False)
    for axis in (0, 1):
        first[known, axis] = held.column(BEGINS[1 + axis]).to_numpy(zero_copy_only=False)
    at = np.column_stack([x[fixes], y[fixes]])
    last_us, last = first_us.copy(), first.copy()
    is_first = np.diff(group[fixes], prepend=-1) != 0
    before_us, before = np.roll(ts_us[fixes], 1), np.roll(at, 1, axis=0)
    before_us[is_first], before[is_first] = first_us[group[fixes[is_first]]], first[group[fixes[is_first]]]
    is_last = np.diff(group[fixes], append=len(known)) != 0
    last_us[group[fixes[is_last]]], last[group[fixes[is_last]]] = ts_us[fixes[is_last]], at[is_last]
    unknown = np.isnan(last[:, 0])
    begins = pa.array(last_us, mask=unknown), *(pa.array(last[:, axis], mask=unknown) for axis in (0, 1))
    began_us = np.zeros(len(ts_us), np.int64)
    began_us[fixes] = before_us
    offsets, crossed, gaps = np.zeros(len(ts_us) + 1, np.int64), np.zeros(0, np.int64), 0
    if crossings is not None and crossings.on_cross():
        moved = np.flatnonzero(~np.isnan(before[:, 0]) & (before != at).any(axis=1))
        fixes, ways = fixes[moved], Ways(before[moved], at[moved])
        is_way = crossings.metres(ways) <= crossings.way_m_max
        gaps = int(np.count_nonzero(~is_way))
        found = crossings.find(ways.take(is_way), Ends(_events(turn.rows), fixes[is_way]))
        rows, crossed = fixes[is_way][found.ways], found.subs
        offsets[1:] = np.cumsum(np.bincount(rows, minlength=len(ts_us)))
    return TurnWays(offsets, crossed, began_us, begins, gaps)


def _events(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a turn as the events that they were."""
    events = rows.drop_columns([SUB_IDS.name])
    return events.rename_columns([swap_key(name) for name in events.schema.names])
