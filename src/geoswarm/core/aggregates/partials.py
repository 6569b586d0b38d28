"""The algebra of aggregates: what a task makes of the values of a group, how two such partial results become one, and
which answer is read from one. Groups are many and small, so all of them are done at once.

    values of groups ──`make_partials`──► columns ──`merge_partials`──► columns ──`read_answers`──► value, top, error
                                             ▲              │
                                             └──────────────┘

Merging is associative and gives the same in any order, to the bit; only the sketches of `quantile` and `top`, which
have an error, are the same within it. Every function counts the events of a group, and skips values that are null.

| function | columns beside `count` | answer |
|---|---|---|
| count | | the number of events |
| sum, avg | `values`, their number; `packed`, their exact sum (`exact_sums.py`) | the nearest float64; the quotient |
| min, max | `extreme` | as float64 |
| distinct, quantile, top | `packed`, a sketch (`core/stats/sketches.py`) | within `error` |

An aggregate of no values is null, but for `count`, and `distinct`, which is 0. NaN is no value, except for `distinct`
and `top`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.exact_sums import add_floats, add_integers, add_sums, are_finite, exact_sums, round_sums
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.stats.sketches import DistinctSketch, QuantileSketch, TopSketch

COUNT = pa.field("count", pa.int64(), nullable=False)
VALUES = pa.field("values", pa.int64(), nullable=False)
EXTREME = pa.field("extreme", pa.float64())
PACKED = pa.field("packed", pa.binary(), nullable=False)

TOP = pa.list_(pa.struct([pa.field("value", pa.string()), pa.field("times", pa.int64())]))
"""The type of the answers of `top`: the most frequent values, and how often each came."""

_SKETCHES = {"distinct": DistinctSketch, "quantile": QuantileSketch, "top": TopSketch}
_EXTREMES = {"min": (np.minimum, np.inf), "max": (np.maximum, -np.inf)}
_FIELDS = {"count": [], "sum": [VALUES, PACKED], "avg": [VALUES, PACKED], "min": [EXTREME], "max": [EXTREME]}


class Answers(NamedTuple):
    value: pa.Array
    """float64; null for `top`, and where there is no value."""
    top: pa.Array
    """TOP; null for all but `top`."""
    error: pa.Array
    """float64: a share of the answer (`distinct`), of the rank (`quantile`), of the number of values (`top`); 0: the
    answer is exact."""


def partial_fields(function: str) -> list[pa.Field]:
    return [COUNT, *_FIELDS.get(function, [PACKED])]


def make_partials(function: str, values: pa.Array | None, starts: Ints) -> list[pa.Array]:
    """Group i is the events `starts[i]` to `starts[i + 1]`, and may be empty; `values` are theirs (`columns.py`), None
    for `count`."""
    counts = pa.array(np.diff(starts))
    if function == "count":
        return [counts]
    assert values is not None
    if function in _SKETCHES:
        return [counts, pa.array(_SKETCHES[function].add_groups(values, starts), PACKED.type)]
    if function in _EXTREMES:
        return [counts, _extremes(function, values, starts)]
    present = _present(values)
    starts = np.append(0, np.cumsum(present))[starts]
    kept = values.filter(pa.array(present))
    sums = add_integers(kept, starts) if pa.types.is_integer(values.type) else add_floats(_floats(kept), starts)
    return [counts, pa.array(np.diff(starts)), sums.array()]


def merge_partials(function: str, columns: Sequence[pa.Array], starts: Ints) -> list[pa.Array]:
    """Group i is the rows `starts[i]` to `starts[i + 1]`. `columns` are those of `partial_fields`."""
    counts, *others = columns
    merged = [_added(counts, starts)]
    if function in _SKETCHES:
        (sketches,) = others
        return [*merged, pa.array(_SKETCHES[function].merge_groups(sketches.to_pylist(), starts), PACKED.type)]
    if function in _EXTREMES:
        return [*merged, _extremes(function, others[0], starts)]
    if others:
        merged += [_added(others[0], starts), add_sums(others[1], starts).array()]
    return merged


def read_answers(function: str, columns: Sequence[pa.Array], argument: float | None) -> Answers:
    """`argument` is that of the aggregate: a quantile's rank, the number of a top's values."""
    counts, *others = columns
    no_top, exact = pa.nulls(len(counts), TOP), pa.array(np.zeros(len(counts)))
    if function == "count":
        return Answers(counts.cast(pa.float64(), safe=False), no_top, exact)
    if function in _EXTREMES:
        return Answers(others[0], no_top, exact)
    if function in ("sum", "avg"):
        return Answers(_totals(function, others[0], others[1]), no_top, exact)
    written, values, tops = others[0].to_pylist(), pa.nulls(len(counts), pa.float64()), no_top
    sketches: Sequence[DistinctSketch | QuantileSketch | TopSketch]
    if function == "distinct":
        sketches = counted = [DistinctSketch.from_bytes(one) for one in written]
        values = pa.array([sketch.read() for sketch in counted], pa.float64())
    elif function == "quantile":
        assert argument is not None
        sketches = ranked = [QuantileSketch.from_bytes(one) for one in written]
        values = pa.array([sketch.read(argument) for sketch in ranked], pa.float64())
    else:
        assert argument is not None
        sketches = topped = [TopSketch.from_bytes(one) for one in written]
        found = [sketch.read(int(argument)) for sketch in topped]
        tops = pa.array([[{"value": one.value, "times": one.times} for one in top] for top in found], TOP)
    return Answers(values, tops, pa.array([sketch.error_now for sketch in sketches], pa.float64()))


def _present(values: pa.Array) -> Bools:
    """Which values are neither null nor NaN."""
    return ~np.isnan(_floats(values))


def _floats(values: pa.Array) -> Floats:
    """As float64; null is NaN."""
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _added(column: pa.Array, starts: Ints) -> pa.Array:
    running = np.append(0, np.cumsum(np.asarray(column, np.int64)))
    return pa.array(running[starts[1:]] - running[starts[:-1]])


def _extremes(function: str, values: pa.Array, starts: Ints) -> pa.Array:
    """The least or greatest value of each group; null where it has none."""
    reduce, neutral = _EXTREMES[function]
    present = _present(values)
    kept = np.append(0, np.cumsum(present))[starts]
    is_empty = kept[1:] == kept[:-1]
    # Of groups that are empty `reduceat` would return a value of the next.
    numbers = np.append(_floats(values.filter(pa.array(present))) + 0.0, neutral)  # -0 becomes 0
    found = np.full(len(starts) - 1, neutral)
    if not is_empty.all():
        found[~is_empty] = reduce.reduceat(numbers, kept[:-1][~is_empty])
    return pa.array(found, mask=is_empty)


def _totals(function: str, numbers: pa.Array, sums: pa.Array) -> pa.Array:
    counts, totals = np.asarray(numbers, np.int64), round_sums(sums)
    answers = totals if function == "sum" else totals / np.maximum(counts, 1)
    if function == "avg":
        beyond = np.isinf(totals) & are_finite(sums)  # there is no float64 for the sum, but for the quotient
        for row, (units, per_one) in zip(
            np.flatnonzero(beyond), exact_sums(sums.filter(pa.array(beyond))), strict=True
        ):
            answers[row] = units / (per_one * int(counts[row]))
    return pa.array(answers, mask=(counts == 0) | np.isnan(answers))
