"""Finds terms that rise: in each region, those more common in the interval that ended than before it.

`count.py` counts words without regions. Regions are squares of a coarse lattice, independent of the engine's grid:
region (i, j) has its lower left corner at (i, j) * region_deg, and a point is in region floor(x / region_deg).

The key is the region and the term, `12|-3|flood`, so that a busy region is many keys and can be balanced; no term
contains `|`. When an interval has ended each executor gives the top of its own keys, region by region, and `merge`
makes one top of them: the best of all are among the best of each.

    rise = (now + 1) / (mean + 1)      mean: over the window - 1 intervals before, including empty ones
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.buffers import strings_of
from geoswarm.core.arrays.jit import Bytes, Ints, kernel
from geoswarm.errors import InputError
from geoswarm.flow.keyed.columns import check_name, check_window, column, make_batch, sum_groups
from geoswarm.flow.keyed.count import COUNT_KEPT, add_up_counts, count_rows, count_work
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn
from geoswarm.flow.keyed.terms import prefix_terms, tokens_of

SEPARATOR = "|"
REGION_NUMBER_MAX = 2.0**53
"""Beyond it the numbers of neighbouring regions are the same float."""
_NUMBER_BYTES = 18
"""Sign, sixteen digits and the separator."""

TRENDING_GIVEN = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),  # "12|-3", exact, where the corners are floats
        pa.field("region_x", pa.float64(), nullable=False),
        pa.field("region_y", pa.float64(), nullable=False),
        pa.field("term", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("mean", pa.float64(), nullable=False),
        pa.field("rise", pa.float64(), nullable=False),
        pa.field("rank", pa.int64(), nullable=False),
    ]
)


class Trending(Operator):
    """Gives the `top` terms of each region when an interval has ended, of those that came in `count_min` texts or more.
    Equal rises are ranked by the term. A term counts once per text; an event without a place has no key, and goes to
    the dead letters term by term."""

    merge_by, merges_always = "region", True
    can_split = True

    def __init__(
        self,
        region_deg: float = 10.0,
        window: int = 6,
        top: int = 10,
        count_min: int = 5,
        text: str = "text",
        name: str = "trending",
    ) -> None:
        if not 0 < region_deg < np.inf:
            raise InputError(f"regions of {region_deg} degrees: use a side above 0")
        if top < 1 or count_min < 1:
            raise InputError(f"the top {top} of terms with a count of {count_min} or more: use 1 or more of both")
        self.region_deg, self.top, self.count_min, self.text = region_deg, top, count_min, text
        self.window = check_window(window)
        self.name = check_name(name)

    @property
    def kept(self) -> pa.Schema:
        return COUNT_KEPT

    def given(self, fed: pa.Schema) -> pa.Schema:
        return TRENDING_GIVEN

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        tokens = tokens_of(column(rows, self.text, self.name), self.name)
        places = [column(rows, axis, self.name).cast(pa.float64()).to_numpy(zero_copy_only=False) for axis in "xy"]
        regions = [np.floor(place / self.region_deg) for place in places]
        with np.errstate(invalid="ignore"):
            has_place = np.logical_and.reduce([np.abs(number) < REGION_NUMBER_MAX for number in regions])
        columns, lines = (np.where(has_place, number, 0).astype(np.int64) for number in regions)
        keys = strings_of(*prefix_terms(tokens, *_prefixes(columns, lines)))
        if not has_place.all():
            keys = pc.if_else(pa.array(np.repeat(has_place, np.diff(tokens.offsets))), keys, None)
        return pa.RecordBatch.from_arrays([keys], names=[KEY])

    def update(self, turn: Turn) -> Answer:
        nothing = pa.RecordBatch.from_pylist([], schema=TRENDING_GIVEN)
        return Answer(*count_rows(turn), nothing, count_work(turn))

    def compact(self, held: StateRows) -> StateRows:
        return add_up_counts(held)

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        counts = turn.held.column("count").to_numpy()
        is_now = turn.held_intervals == turn.moment.interval
        now = sum_groups(np.where(is_now, counts, 0), turn.held_starts)
        often = np.flatnonzero(now >= self.count_min)
        mean = sum_groups(np.where(is_now, 0, counts), turn.held_starts)[often] / max(1, self.window - 1)
        parts = pc.split_pattern(turn.keys.take(pa.array(often)), SEPARATOR, max_splits=2)
        column, line, term = (pc.list_element(parts, i) for i in range(3))
        corners = [
            pc.multiply(number.cast(pa.int64()).cast(pa.float64()), self.region_deg) for number in (column, line)
        ]
        region = pc.binary_join_element_wise(column, line, SEPARATOR)
        rise = (now[often] + 1) / (mean + 1)
        figures = [pa.array(now[often]), pa.array(mean), pa.array(rise), pa.array(np.zeros(len(often), np.int64))]
        return self._rank(make_batch([region, *corners, term, *figures], TRENDING_GIVEN), _codes(region))

    def merge(self, given: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        return self._rank(given, np.repeat(np.arange(len(starts) - 1), np.diff(starts)))

    def _rank(self, terms: pa.RecordBatch, regions: Ints) -> pa.RecordBatch:
        """The top of each region; earlier ranks are ignored."""
        keys = pa.table({"region": regions, "rise": terms.column("rise"), "term": terms.column("term")})
        by = [("region", "ascending"), ("rise", "descending"), ("term", "ascending")]
        order: Ints = pc.sort_indices(keys, sort_keys=by).to_numpy().astype(np.int64)
        region = regions[order]
        ranks = np.arange(len(order)) - np.searchsorted(region, region) + 1
        best = ranks <= self.top
        chosen = terms.take(pa.array(order[best]))
        return chosen.set_column(len(TRENDING_GIVEN) - 1, TRENDING_GIVEN.field("rank"), pa.array(ranks[best]))


def _codes(values: pa.StringArray) -> Ints:
    codes: Ints = values.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


@kernel
def _prefixes(columns: Ints, lines: Ints) -> tuple[Ints, Bytes]:
    """The prefix of each event, such as `12|-3|`: where it begins, and the bytes."""
    offsets = np.zeros(len(columns) + 1, np.int64)
    data = np.empty(len(columns) * 2 * _NUMBER_BYTES, np.uint8)
    for i in range(len(columns)):
        offsets[i + 1] = _write(lines[i], data, _write(columns[i], data, offsets[i]))
    return offsets, data


@kernel
def _write(number: int, data: Bytes, at: int) -> int:
    """Write the number in decimal and the separator; returns where they end."""
    if number < 0:
        data[at] = 45  # "-"
        at += 1
        number = -number
    digits = 1
    power = 10
    while power <= number:
        digits += 1
        power *= 10
    for place in range(at + digits - 1, at - 1, -1):
        data[place] = 48 + number % 10  # "0"
        number //= 10
    data[at + digits] = 124  # the separator
    return at + digits + 1
