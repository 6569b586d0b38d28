"""Finds the fixes that are outside of a region, but not by more than its subscription's `exit_buffer_m`.

Only where an object may be in a stay does it matter: of subscriptions that it was in, or has met in this batch. So few
pairs are looked at; those whose rectangle is near enough are measured, on the sphere and exactly, as a circle of
`exit_buffer_m` round the fix that meets the region or not (`core/shapes/areas.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Floats, Ints, SubIds, kernel, read_only
from geoswarm.core.shapes.areas import areas_in
from geoswarm.core.shapes.circle import SLACK_M, nearest_m
from geoswarm.core.shapes.shapes import of_circles
from geoswarm.core.subscriptions.exit_buffer import MILLIMETRES
from geoswarm.core.subscriptions.region import RegionValues
from geoswarm.flow.keyed.transition_arrays import ObjectEvents, PriorStays

RegionLookup = Callable[[SubIds], RegionValues]
"""Takes ascending ids of live subscriptions, and returns their regions. `View.regions` is one."""


class _Pairs(NamedTuple):
    """Fixes and fences: the event, the place of the fence, and the metres to its rectangle."""

    events: Ints
    fences: Ints
    metres: Floats


def find_near(
    events: ObjectEvents, x: Floats, y: Floats, stays: PriorStays, ids: SubIds, buffer_mm: Ints, regions: RegionLookup
) -> tuple[Ints, Ints]:
    """The subscriptions that each event is outside of, but near enough to stay in, as in `NotMet`. `ids` and
    `buffer_mm` are those of numbered subscriptions."""
    numbers = np.flatnonzero(buffer_mm)
    numbers = numbers[np.argsort(ids[numbers])]
    fences = regions(ids[numbers])
    place = np.full(len(ids), -1, np.int64)
    place[numbers] = np.arange(len(numbers))
    buffers = buffer_mm[numbers] / MILLIMETRES
    pairs = _near_rectangles(events, read_only(x), read_only(y), stays, place, read_only(fences.rects), buffers)
    near = pairs.metres <= buffers[pairs.fences]
    if fences.shapes is not None:
        shaped = np.flatnonzero(fences.vertex_counts()[pairs.fences])
        at, fence = pairs.events[shaped], pairs.fences[shaped]
        reach = of_circles(np.column_stack([x[at], y[at], buffers[fence]]))
        near[shaped] = areas_in(fences.shapes, reach, np.arange(len(shaped)), fence)
    counts = np.bincount(pairs.events[near], minlength=len(events.ts_us))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return offsets, numbers[pairs.fences[near]]


@kernel
def _near_rectangles(
    events: ObjectEvents, x: Floats, y: Floats, stays: PriorStays, place: Ints, rects: Floats, buffers: Floats
) -> _Pairs:
    """The pairs, event by event, where the fix may be near enough and has not met the subscription."""
    at, fences, metres, n = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64), 0
    known, maybe_in = int(np.int64(0)), np.empty(len(rects), np.int64)
    is_among, met = np.zeros(len(rects), np.bool_), np.full(len(rects), -1, np.int64)
    for i in range(len(events.starts) - 1):
        count = 0
        if stays.known[i]:
            for k in range(stays.offsets[known], stays.offsets[known + 1]):
                fence = place[stays.subs[k]]
                if fence >= 0 and not is_among[fence]:
                    maybe_in[count], is_among[fence] = fence, True
                    count += 1
            known += 1
        for event in range(events.starts[i], events.starts[i + 1]):
            for k in range(events.offsets[event], events.offsets[event + 1]):
                fence = place[events.subs[k]]
                if fence >= 0:
                    met[fence] = event
                    if not is_among[fence]:
                        maybe_in[count], is_among[fence] = fence, True
                        count += 1
            for k in range(count):
                fence = maybe_in[k]
                if met[fence] == event or events.vague[event]:
                    continue
                away = nearest_m(x[event], y[event], rects[fence, 0], rects[fence, 1], rects[fence, 2], rects[fence, 3])
                if away > buffers[fence] + SLACK_M:
                    continue
                if n == len(at):
                    at, fences = np.concatenate((at, at)), np.concatenate((fences, fences))
                    metres = np.concatenate((metres, metres))
                at[n], fences[n], metres[n] = event, fence, away
                n += 1
        for k in range(count):
            is_among[maybe_in[k]] = False
    return _Pairs(at[:n], fences[:n], metres[:n])
