"""What an entry of the text index holds, so that records are rarely asked: a box, and what is checked first. 16 bytes.

The box is the rectangle as seen from the entry's cell, in 2^14 steps a side. The check names the conjunction, and two
slots of a signature of what the event says. Either may leave a doubt, never a mistake: `text_match.py` settles it.

    check   mark 1 | place of the conjunction 8 | slot 11 | slot 11
"""

from typing import Any

import numpy as np

from geoswarm.core.arrays.jit import Floats, kernel

ENTRY_CONJUNCTIONS_MAX = 256
"""Of one subscription: what an entry has room for. Those who parse expressions allow as many."""
SIGNATURE_BITS = 11
SIGNATURE_SLOTS = 1 << SIGNATURE_BITS
NO_TERM = 0
"""The slot that is no term's."""
ALL = 1 << 30
"""Mark of an entry whose two slots must be said, and whose terms are looked at then. Without it they are those of
earlier conjunctions: if neither is said, this is the first that is satisfied."""
STEPS_LOG2 = 14
"""Steps of a cell's side in which boxes are given; those of level 0 are the finest there are."""
ONES, GUARDS = np.uint64(0x0001000100010001), np.uint64(0x8000800080008000)


@kernel
def signature_slot(scatter: int) -> int:
    """The slot of a term in signatures; never NO_TERM."""
    return max(NO_TERM + 1, (scatter >> 13) & (SIGNATURE_SLOTS - 1))


@kernel
def conjunction_place(check: int) -> int:
    """Of the conjunction, among those of its subscription."""
    return (check >> 2 * SIGNATURE_BITS) & (ENTRY_CONJUNCTIONS_MAX - 1)


@kernel
def box_of(low_x: int, high_x: int, low_y: int, high_y: int) -> Any:
    """Four numbers of 15 bits, the upper ones as what they lack. Of a point they are the same twice, with a guard above
    each; it is within a box if no guard falls as the box is subtracted, and off its rim if they stand even one step in.

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
