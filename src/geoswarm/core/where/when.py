"""Conditions on the value of an aggregate, such as `value > 100 AND count >= 20`: when a window is worth a row.

The grammar is that of all conditions (`read.py`), over three names: `value`, the aggregate's own word (`avg`, `sum`,
...), which is the same, and `count`, the number of events that went into it. A window without a value compares as null,
so that it is not chosen.
"""

import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.where.clause import Clause
from geoswarm.core.where.evaluate import truths
from geoswarm.core.where.read import read_where
from geoswarm.core.where.types import check_where

VALUE, COUNT = "value", "count"


def read_when(text: str, word: str) -> Clause:
    """`word` is that of the aggregate."""
    clause = read_where(text)
    check_where(clause, _schema(word))
    return clause


def meets(clause: Clause, word: str, values: Floats, counts: Ints) -> Bools:
    """Which windows the condition chooses; a value of NaN is none."""
    value = pa.array(values, from_pandas=True)
    columns = {VALUE: value, word: value, COUNT: pa.array(counts)}
    rows = pa.RecordBatch.from_pydict({field.name: columns[field.name] for field in _schema(word)})
    found: Bools = truths(clause, rows).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _schema(word: str) -> pa.Schema:
    kinds = {VALUE: pa.float64(), word: pa.float64(), COUNT: pa.int64()}
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
