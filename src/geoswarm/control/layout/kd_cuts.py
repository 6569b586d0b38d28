"""A unit cut into parts of almost equal load: by space, or by space or terms, whichever makes less load in all.

Grows the tree of `kdt_tree.py`; the layouts decide who gets the leaves. PS2Stream §IV-B, "node partitioning". The paper
compares text and space once for all p parts; here they are compared again for each half, so that a city can be divided
by words within a country that is cut by space.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.control.layout.kdt_tree import Node, SpaceCut
from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.unit import Unit

PASSES = 6


class _Lesson(NamedTuple):
    """What an earlier drawing of the tree showed about one of its inner nodes."""

    favour: float
    """How much heavier the first half became than the second: above 1, it should be cut smaller."""
    axis: int


_Path = tuple[int, ...]


def kd_parts(unit: Unit, count: int, costs: Costs, *, or_terms: bool = False) -> Node:
    """A tree with `count` leaves, or fewer where there are too few cells (and terms): of several drawings, the one with
    the best worst leaf.

    The copies that two halves will need are known only when both have been cut completely. So the tree is drawn a few
    times, each time with what the last one showed about each half."""
    lessons: dict[_Path, _Lesson] = {}
    best: Node | None = None
    least = np.inf
    for _ in range(PASSES if count > 2 else 1):
        tree = _grow(unit, count, costs, or_terms, lessons, ())
        worst = max(leaf.load for leaf in tree.leaves())
        if best is None or worst < least:
            best, least = tree, worst
    assert best is not None
    return best


def _grow(unit: Unit, count: int, costs: Costs, or_terms: bool, lessons: dict[_Path, _Lesson], path: _Path) -> Node:
    node = Node(unit, unit.load(costs))
    if count == 1:
        return node
    spatial = None
    if unit.box.cells > 1:
        spatial = _cut(unit, min(count, unit.box.cells), costs, or_terms, lessons, path, count)
    if or_terms and node.divide(count, costs) and (spatial is None or node.total < spatial.total):
        return node
    node.children = []
    return spatial or node


def _cut(
    unit: Unit, count: int, costs: Costs, or_terms: bool, lessons: dict[_Path, _Lesson], path: _Path, wanted: int
) -> Node:
    lesson = lessons.get(path)
    cut, before = best_space_cut(unit, count, costs, lesson)
    behind = (wanted if or_terms else count) - before  # terms can make parts where cells cannot
    first, second = (
        _grow(unit.within(box), share, costs, or_terms, lessons, (*path, side))
        for side, (box, share) in enumerate(zip(cut.halves(unit.box), (before, behind), strict=True))
    )
    heavier, lighter = (max(leaf.load for leaf in half.leaves()) for half in (first, second))
    favour = (lesson.favour if lesson else 1.0) * (heavier / lighter if heavier > 0 and lighter > 0 else 1.0)
    lessons[path] = _Lesson(favour, cut.axis)
    return Node(unit, unit.load(costs), cut=cut, children=[first, second])


def best_space_cut(unit: Unit, count: int, costs: Costs, lesson: _Lesson | None = None) -> tuple[SpaceCut, int]:
    """The cut for `count` parts with the least worst part, and the number of parts before it.

    A half that is cut into k parts has about a k-th of its events and of its subscriptions in each."""
    favour = lesson.favour if lesson else 1.0
    box, sample = unit.box, unit.sample
    lengths = (box.row1 - box.row0 + 1, box.col1 - box.col0 + 1)
    axes = (lesson.axis,) if lesson and lengths[lesson.axis] > 1 else (0, 1)
    found: list[tuple[float, float, int, int, int]] = []
    sides = (
        (sample.rows, sample.boxes.row0, sample.boxes.row1, box.row0, box.row1, box.col1 - box.col0 + 1),
        (sample.columns, sample.boxes.col0, sample.boxes.col1, box.col0, box.col1, box.row1 - box.row0 + 1),
    )
    for axis, (side, low, high, first, last, across) in enumerate(sides):
        length = last - first + 1
        if length == 1 or axis not in axes:
            continue
        places = np.arange(1, length)
        # half of the parts, unless one side has too few cells for its half
        parts = np.clip(count // 2, count - (length - places) * across, places * across).clip(1, count - 1)
        places_of_events = side[unit.events] - first
        events = np.cumsum(np.bincount(places_of_events, minlength=length))
        checks = np.cumsum(np.bincount(places_of_events, sample.event_checks[unit.events], minlength=length))
        begun = np.cumsum(np.bincount(np.maximum(low[unit.queries] - first, 0), minlength=length))
        ended = np.cumsum(np.bincount(np.minimum(high[unit.queries], last) - first, minlength=length))
        before = costs.load(sample, *(sizes[:-1] / parts for sizes in (events, begun, checks)))
        behind = costs.load(sample, *((sizes[-1] - sizes[:-1]) / (count - parts) for sizes in (events, ended, checks)))
        worse = np.maximum(before * favour, behind)
        uneven = np.abs(places / length - parts / count) + np.abs(parts - count // 2)
        at = int(np.lexsort((uneven, worse))[0])
        found.append((float(worse[at]), float(length < across), axis, first + at, int(parts[at])))
    _, _, axis, after, parts_before = min(found)
    return SpaceCut(axis, after), parts_before
