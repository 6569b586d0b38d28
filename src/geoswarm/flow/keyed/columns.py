"""Functions that the keyed operators share: picking columns of incoming rows, and adding up groups of rows.

`turn.py` groups rows by key.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array, Ints
from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.operator import KEY
from geoswarm.model import OBJECT

NAME_CHARS_MAX = 64
"""Characters of an operator's name: its state is in a folder of that name."""


def check_name(name: str) -> str:
    if not (0 < len(name) <= NAME_CHARS_MAX and name.isascii() and name.replace("-", "").isalnum()):
        raise InputError(f"an operator cannot be named {name!r}: use 1 to {NAME_CHARS_MAX} letters, digits and dashes")
    return name


def check_window(window: int) -> int:
    if window < 1:
        raise InputError(f"a window of {window} intervals holds nothing: use 1 or more; 1 is the present interval only")
    return window


def column(rows: pa.RecordBatch, name: str, operator: str) -> pa.Array:
    if name not in rows.schema.names:
        has = ", ".join(rows.schema.names) or "none"
        raise SchemaError(f"operator {operator} needs a column {name}, but the rows have {has}: rename or add it")
    return rows.column(name)


def key_column(rows: pa.RecordBatch, name: str, operator: str) -> pa.Array:
    keys = column(rows, name, operator)
    kind = keys.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SchemaError(f"operator {operator} cannot group by {name} of type {kind}: cast it to integers or strings")
    return keys


def make_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def key_field(keys: pa.Schema) -> pa.Field:
    return pa.field(KEY, keys.field(KEY).type, nullable=False)


def sum_groups(values: Array, starts: Ints) -> Array:
    """The sum of each group of integers; a group may be empty. It uses differences of one running sum, which is exact
    for integers (overflow cancels out) and not for floats."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running[starts[1:]] - running[starts[:-1]]


def swap_key(name: str) -> str:
    """The object becomes the key; a user's column `key` has the name of the object column meanwhile."""
    names: dict[str, str] = {OBJECT.name: KEY, KEY: OBJECT.name}
    return names.get(name, name)
