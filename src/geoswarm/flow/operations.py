"""The operations on subscriptions as numbers: what a loop over arrays compares."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.subscriptions.attributes import OPS, REGISTER


def operation_codes(operations: pa.StringArray, unknown: int = REGISTER) -> Ints:
    """REGISTER, REPLACE or CANCEL for each word."""
    return np.asarray(pc.index_in(operations, pa.array(OPS)).fill_null(unknown), np.int64)
