"""Tumbling and sliding windows: an event is counted in one pane, and a window is the panes from its start to its end.

    slide 20   pane      0    20    40    60          a window of 60 ends at 60: panes 0, 20, 40
                         ├─────────────────┤          pane 40 is due at 60 for the first time, at 100 for the last
                              ├─────────────────┤

A window is over in the first batch whose watermark has reached its end: those that the batch before had reached were
given then. What is counted in the batch itself is in none of these.
"""

from collections.abc import Iterator

import numpy as np

from geoswarm.core.aggregates.spec import FUNCTIONS
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.flow.aggregates.answers import Closed
from geoswarm.flow.aggregates.held_rows import HeldRows, Sorted, merge, starts_of
from geoswarm.flow.aggregates.live import Rules

PAIRS_MAX = 4_000_000
"""(pane, window) that are merged at once, 100 bytes each. There are many where the watermark jumps over many slides."""
NEVER_US = 1 << 61
"""Later than all times."""


def unite(rows: Sorted, rules: Rules) -> tuple[Sorted, Rules]:
    """One row for each pane."""
    starts = _starts_of_panes(rows)
    if len(starts) == len(rows.rows) + 1:
        return rows, rules
    heads = rules.take(starts[:-1])
    merged = merge(rows.rows, starts, FUNCTIONS, heads.of(heads.functions), spans=False)
    return Sorted(merged, rows.is_new[starts[:-1]]), heads


def unite_plain(rows: Sorted) -> HeldRows:
    """The same of plain counts, also of subscriptions that are gone: what began apart stays apart."""
    return merge(rows.rows, _starts_of_panes(rows), FUNCTIONS, rows.rows.keys[:0], spans=False)


def _starts_of_panes(rows: Sorted) -> Ints:
    first, began = rows.rows.first, rows.rows.began
    is_first = rows.is_new.copy()
    is_first[1:] |= (first[1:] != first[:-1]) | (began[1:] != began[:-1])
    return starts_of(is_first)


def due_us(rows: Sorted, rules: Rules, watermark_us: int) -> Ints:
    """The end of the first window of each pane that is not over; NEVER_US: all are."""
    first, slides, lengths = rows.rows.first, rules.of(rules.slides), rules.of(rules.lengths)
    number = np.maximum(1, (watermark_us - first) // slides + 1)
    found: Ints = np.where(number * slides <= lengths, first + number * slides, NEVER_US)
    return found


def close(rows: Sorted, rules: Rules, since_us: int, watermark_us: int) -> Iterator[Closed]:
    """The windows that end after `since_us`, and at `watermark_us` at the latest."""
    first, slides, lengths = rows.rows.first, rules.of(rules.slides), rules.of(rules.lengths)
    low = np.maximum(1, (since_us - first) // slides + 1)
    high = np.minimum(lengths // slides, (watermark_us - first) // slides)
    counts = np.maximum(0, high - low + 1)
    for chosen in _pieces(rows, counts):
        at = np.repeat(chosen, counts[chosen])
        place = np.arange(len(at)) - np.repeat(np.cumsum(counts[chosen]) - counts[chosen], counts[chosen])
        ends = first[at] + slides[at] * (low[at] + place)
        yield _merge_windows(rows, rules, at, ends)


def _merge_windows(rows: Sorted, rules: Rules, at: Ints, ends: Ints) -> Closed:
    """`at`: the rows of windows, by subscription and group; a row may be in several."""
    numbers = rows.numbers[at]
    is_in_order = (numbers[1:] != numbers[:-1]) | (ends[1:] >= ends[:-1])
    if not is_in_order.all():
        order = np.lexsort((ends, numbers))
        at, ends, numbers = at[order], ends[order], numbers[order]
    is_first = np.ones(len(at), np.bool_)
    is_first[1:] = (numbers[1:] != numbers[:-1]) | (ends[1:] != ends[:-1])
    starts = starts_of(is_first)
    heads = rules.take(at[is_first])
    merged = merge(rows.rows.take(at), starts, FUNCTIONS, heads.of(heads.functions), spans=False)
    return Closed(merged, heads, ends[is_first] - heads.of(heads.lengths), ends[is_first])


def _pieces(rows: Sorted, counts: Ints) -> Iterator[Ints]:
    """The rows that are in some window, in pieces of about PAIRS_MAX pairs; a subscription's group is in one piece."""
    some = np.flatnonzero(counts)
    if not len(some):
        return
    total = np.cumsum(counts[some])
    numbers = rows.numbers[some]
    begin = 0
    while begin < len(some):
        before = total[begin - 1] if begin else 0
        end = int(np.searchsorted(total, before + PAIRS_MAX, "right"))
        last = numbers[min(max(end, begin + 1), len(some)) - 1]
        end = int(np.searchsorted(numbers, last, "right"))
        yield some[begin:end]
        begin = end


def still_needed(due: Ints) -> Bools:
    needed: Bools = due < NEVER_US
    return needed
