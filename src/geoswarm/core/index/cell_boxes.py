"""An entry of `cells.py`, 8 bytes: a subscription, and its rectangle as seen from the cell, in 2^7 steps a side.

    entry   ordinal 32 | 128-l 8 | r 8 | 128-t 8 | b 8      l, r, t, b: steps from the cell's left and top, from 1
    point          0   |   x 8   | 128-x | y 8 | 128-y      x, y from 1 to 127
    sum     ordinal 32 | guard bit of each byte is set: x >= l, x <= r, y >= t, y <= b

No byte overflows into the next, so one addition compares all four sides. Where the rectangle goes on beyond the cell, l
is 0 and r is 128. A point that is on the step of a side may lie on either side of it: `cell_kernels.py` then
looks at the record. Steps are monotone like cells, so all other answers are exact.
"""

from typing import Any

from geoswarm.core.arrays.jit import Floats, inner
from geoswarm.core.index.word_tables import as_unsigned

STEPS_LOG2 = 7
STEPS = 1 << STEPS_LOG2
GUARDS, ONES = 0x80808080, 0x01010101


@inner
def steps_x(x: float, frame: Floats) -> int:
    """Steps of level 0 from the left: the column in the upper bits, as `column_of` has it."""
    steps = int((x - frame[0]) * frame[4] / (frame[2] - frame[0]) * STEPS)
    return min(steps, (int(frame[4]) << STEPS_LOG2) - 1)


@inner
def steps_y(y: float, frame: Floats) -> int:
    """Steps of level 0 from the top: the row in the upper bits, as `row_of` has it."""
    steps = int((frame[3] - y) * frame[5] / (frame[3] - frame[1]) * STEPS)
    return min(steps, (int(frame[5]) << STEPS_LOG2) - 1)


@inner
def step_within(steps: int, level: int) -> int:
    """The step within the cell of a level, from 1; the last two are one."""
    return min(1 + ((steps >> level) & (STEPS - 1)), STEPS - 1)


@inner
def point_of(x: int, y: int, level: int) -> Any:
    """`x` and `y` in steps of level 0."""
    in_x, in_y = step_within(x, level), step_within(y, level)
    return as_unsigned(in_x << 24 | (STEPS - in_x) << 16 | in_y << 8 | (STEPS - in_y))


@inner
def side_of(low: int, high: int, cell: int, level: int) -> int:
    """The two bytes of a rectangle that reaches from `low` to `high`, in steps of level 0, in one direction."""
    shift = level + STEPS_LOG2
    begin = step_within(low, level) if low >> shift == cell else 0
    end = step_within(high, level) if high >> shift == cell else STEPS
    return (STEPS - begin) << 8 | end
