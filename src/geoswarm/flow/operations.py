"""The operations on subscriptions as numbers: what a loop over arrays compares."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints

REGISTER, REPLACE, CANCEL = 0, 1, 2


def operation_codes(operations: pa.StringArray) -> Ints:
    """One of the numbers above for each word."""
    return np.asarray(pc.index_in(operations, pa.array(["register", "replace", "cancel"])).fill_null(0), np.int64)
