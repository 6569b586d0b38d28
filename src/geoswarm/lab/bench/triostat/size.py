"""How many numbers TrioStat and AQWA keep and send: by the thesis' formulas, and by making them and counting.

Measures nothing by itself: `fig6_2.py` and `stored.py` vary what the thesis' figures vary. Thesis §6.2.

TrioStat keeps eight numbers for every row and column of every partition, so its size follows the sum of the partitions'
sides; AQWA keeps ten for every cell.

    best: squares            worst: strips of one row, and one that takes the rest
    ┌───┬───┐                ┌───────┐
    │   │   │                ├───────┤
    ├───┼───┤                ├───────┤
    │   │   │                │       │
    └───┴───┘                └───────┘
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from geoswarm.core.stats.aqwa import BYTES_PER_NUMBER, STORED_PER_CELL, Aqwa
from geoswarm.core.stats.triostat import LINES, Box, TrioStat
from geoswarm.errors import GeoswarmError, InputError

HEAD_BYTES = 40
"""The head of a written statistic: its four borders, and which lines follow."""


class StoredSize(NamedTuple):
    numbers: int
    written_bytes: int


def blocks(side: int, partitions: int) -> Iterator[Box]:
    """Blocks as square as `partitions` has factors: the best case."""
    down, across = _near_square(partitions)
    if across > side:
        raise InputError(f"{partitions} blocks do not fit into {side} x {side} cells: use a number with other factors")
    tops, lefts = ([i * side // n for i in range(n + 1)] for n in (down, across))
    for row0, row_end in pairwise(tops):
        for col0, col_end in pairwise(lefts):
            yield Box(row0, col0, row_end - 1, col_end - 1)


def strips(side: int, partitions: int) -> Iterator[Box]:
    """Strips of a whole row, the worst case; once all rows are strips, single cells are cut off their left ends."""
    if partitions <= side:
        for row in range(partitions - 1):
            yield Box(row, 0, row, side - 1)
        yield Box(partitions - 1, 0, side - 1, side - 1)
        return
    left_over = partitions - side
    for row in range(side):
        cut = min(left_over, side - 1)
        left_over -= cut
        for column in range(cut):
            yield Box(row, column, row, column)
        yield Box(row, cut, row, side - 1)


def numbers_best(side: int, partitions: int) -> int:
    """Every block column holds all rows once, every block row all columns once."""
    return LINES * side * sum(_near_square(partitions))


def numbers_worst(side: int, partitions: int) -> int:
    """Up to one strip per row each adds a whole side; after that each cut adds one row."""
    whole = min(partitions, side)
    return LINES * (side * (whole + 1) + max(partitions - side, 0))


def numbers_aqwa(side: int) -> int:
    return STORED_PER_CELL * side * side


def make_and_count(boxes: Iterable[Box], lines: Sequence[int] = range(LINES)) -> StoredSize:
    """Make the statistics, with these lines in use, write them, and count."""
    numbers = written = 0
    for box in boxes:
        stat = TrioStat.empty(box)
        for axis in stat.axes:
            axis[list(lines)] = 1.0
        numbers += stat.numbers
        written += len(stat.to_bytes())
    return StoredSize(numbers, written)


def make_aqwa(side: int) -> StoredSize:
    """What the executors have, and what the one machine has; its sums begin with a row and a column of zeros more."""
    stat = Aqwa.empty(side, side)
    tables = (stat.collected, stat.sums[:, 1:, 1:])
    return StoredSize(sum(t.size for t in tables), sum(len(t.tobytes()) for t in tables))


def expected_size(numbers: int, heads: int = 0) -> StoredSize:
    """The size by formula: so many numbers, in so many written statistics; AQWA's are written bare."""
    return StoredSize(numbers, BYTES_PER_NUMBER * numbers + HEAD_BYTES * heads)


def check_formula(what: str, formula: StoredSize, counted: StoredSize) -> None:
    if formula != counted:
        raise GeoswarmError(
            f"{what}: {counted.numbers} numbers in {counted.written_bytes} bytes were made, and the formula says "
            f"{formula.numbers} in {formula.written_bytes}: one of them is wrong, and nothing is reported"
        )


def stored_numbers(side: int, partitions: int, is_made: bool) -> dict[str, int | bool]:
    """Numbers stored in the best and the worst case and by AQWA; `is_made`: counted, too, and not only computed."""
    best, worst, rival = numbers_best(side, partitions), numbers_worst(side, partitions), numbers_aqwa(side)
    if is_made:
        where = f"{partitions} partitions of {side} x {side} cells"
        check_formula(f"{where}, best", expected_size(best, partitions), make_and_count(blocks(side, partitions)))
        check_formula(f"{where}, worst", expected_size(worst, partitions), make_and_count(strips(side, partitions)))
        check_formula(f"AQWA on {side} x {side} cells", expected_size(rival), make_aqwa(side))
    return {"triostat_best": best, "triostat_worst": worst, "aqwa": rival, "is_made": is_made}


def _near_square(partitions: int) -> tuple[int, int]:
    down = next(n for n in range(math.isqrt(partitions), 0, -1) if partitions % n == 0)
    return down, partitions // down
