"""Lists in the state of transitions, as flat values and where each begins, and back."""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array, Ints

LONGS = pa.list_(pa.int64())


def flat_lists(column: pa.ListArray) -> tuple[Ints, Ints]:
    """The values of all lists, and where each begins. A list that older state lacks is empty."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return column.flatten().to_numpy(), offsets - offsets[0]


def lists_beside(column: pa.ListArray, offsets: Ints) -> Ints:
    """The values of lists that are as long as others, with such offsets; 0 where older state lacks them."""
    values, own = flat_lists(column)
    if len(values) == offsets[-1]:
        return values
    lengths, filled = np.diff(offsets), np.zeros(offsets[-1], np.int64)
    filled[np.repeat(np.diff(own) == lengths, lengths)] = values
    return filled


def to_lists(offsets: Array, values: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=LONGS)
