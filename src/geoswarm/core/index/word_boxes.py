"""An entry of the text index, 16 bytes: a box, and a first check, so that records are rarely read.

The box is the rectangle as seen from the entry's cell, in 2^14 steps a side. The check names the conjunction, and two
slots of a signature of the event's words. Both may leave a doubt, never an error: `flow/match/word_match.py` then looks
at the record.

    check   mark 1 | place of the conjunction 8 | slot 11 | slot 11
"""

from typing import Any

import numpy as np

from geoswarm.core.arrays.jit import Floats, kernel

ENTRY_CONJUNCTIONS_MAX = 256
"""Conjunctions of one subscription that an entry can number. `text/grammar.py` allows as many."""
SIGNATURE_BITS = 11
SIGNATURE_SLOTS = 1 << SIGNATURE_BITS
NO_TERM = 0
"""The slot that no term has."""
ALL = 1 << 30
"""The mark of an entry whose two slots the event must have; its terms are checked then. Without the mark, the slots are
those of earlier conjunctions: if the event has neither, this conjunction is the first that is satisfied."""
STEPS_LOG2 = 14
"""A cell's side is 2^14 steps, the unit of boxes; the steps of level 0 are the finest."""
ONES, GUARDS = np.uint64(0x0001000100010001), np.uint64(0x8000800080008000)


@kernel
def signature_slot(scatter: int) -> int:
    """The slot of a term in signatures; never NO_TERM."""
    return max(NO_TERM + 1, (scatter >> 13) & (SIGNATURE_SLOTS - 1))


@kernel
def conjunction_place(check: int) -> int:
    """The place of the conjunction among those of its subscription."""
    return (check >> 2 * SIGNATURE_BITS) & (ENTRY_CONJUNCTIONS_MAX - 1)


@kernel
def box_of(low_x: int, high_x: int, low_y: int, high_y: int) -> Any:
    """Four numbers of 15 bits; the upper sides are counted from the far end. A point is a box of no size with a guard
    bit above each number. It is within a box if all guard bits remain after the box is subtracted, and not on the
    box's outermost step if they remain after one more step is subtracted.

    point   1 x | 1 T-x | 1 y | 1 T-y        x from 1 to T - 1, T = steps + 1
    box     0 l | 0 T-r | 0 b | 0 T-t        where it goes on beyond the cell, 0 and T are its sides
    """
    top = (1 << STEPS_LOG2) + 1
    return np.uint64(low_x | (top - high_x) << 16 | low_y << 32 | (top - high_y) << 48)


@kernel
def point_of(x: int, y: int, level: int) -> Any:
    """`x` and `y` in steps of level 0."""
    mask = (1 << STEPS_LOG2) - 1
    in_x, in_y = 1 + ((x >> level) & mask), 1 + ((y >> level) & mask)
    return box_of(in_x, in_x, in_y, in_y) | GUARDS


@kernel
def steps_x(x: float, frame: Floats) -> int:
    """Steps of level 0 from the left: the column in the upper bits, as `column_of` has it."""
    steps = int((x - frame[0]) * frame[4] / (frame[2] - frame[0]) * (1 << STEPS_LOG2))
    return min(steps, (int(frame[4]) << STEPS_LOG2) - 1)


@kernel
def steps_y(y: float, frame: Floats) -> int:
    steps = int((frame[3] - y) * frame[5] / (frame[3] - frame[1]) * (1 << STEPS_LOG2))
    return min(steps, (int(frame[5]) << STEPS_LOG2) - 1)
