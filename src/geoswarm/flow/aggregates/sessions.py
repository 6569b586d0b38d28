"""Sessions: parts of which each begins less than the gap after the end of those before are one.

What is held of a session is what of it has been counted, in one row or several. Its end is known when the watermark has
passed it, for which all of its rows must be seen together; then none of them is held any more, so an event that comes
later begins another session.
"""

import numpy as np

from geoswarm.core.aggregates.spec import FUNCTIONS
from geoswarm.core.arrays.jit import Bools, Ints, kernel
from geoswarm.flow.aggregates.answers import Closed
from geoswarm.flow.aggregates.held_rows import Sorted, merge, starts_of
from geoswarm.flow.aggregates.live import Rules


def unite(rows: Sorted, rules: Rules) -> tuple[Sorted, Rules]:
    """One row for each session, as far as it is known."""
    held = rows.rows
    is_first = _begins(rows.is_new, held.first, held.last, rules.of(rules.slides))
    if is_first.all():
        return rows, rules
    starts = starts_of(is_first)
    heads = rules.take(starts[:-1])
    merged = merge(held, starts, FUNCTIONS, heads.of(heads.functions))
    return Sorted(merged, rows.is_new[starts[:-1]]), heads


def due_us(rows: Sorted, rules: Rules) -> Ints:
    """The end of each session, if nothing more comes."""
    found: Ints = rows.rows.last + rules.of(rules.slides)
    return found


def close(rows: Sorted, rules: Rules, ends: Ints, is_over: Bools) -> Closed:
    """Some of the sessions; each is in one row."""
    at = np.flatnonzero(is_over)
    return Closed(rows.rows.take(at), rules.take(at), rows.rows.first[at], ends[at])


@kernel
def _begins(is_new: Bools, first: Ints, last: Ints, gaps: Ints) -> Bools:
    """Which rows begin a session; they are in order of `first`."""
    begins = np.zeros(len(first), np.bool_)
    reached = np.int64(0)
    for i in range(len(first)):
        begins[i] = is_new[i] or first[i] - reached >= gaps[i]
        reached = last[i] if begins[i] else max(reached, last[i])
    return begins
