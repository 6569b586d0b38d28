"""Rows as JSON objects, column by column with Arrow; a column of a kind that has no rule here goes by Python.

As Spark's `to_json` writes them: what is null is left out, NaN and infinities are texts, binary values are base 64.
Times are whole to the microsecond, of which Spark writes the milliseconds.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_NONE = pa.scalar(None, pa.string())
_TO_ESCAPE = r'[\x00-\x1f"\\]'


def json_rows(batch: pa.RecordBatch) -> pa.Array:
    """The text of each row, as UTF-8."""
    return _objects(batch.columns, batch.schema.names, len(batch)).cast(pa.binary())


def _objects(columns: Sequence[pa.Array], names: Sequence[str], count: int) -> pa.Array:
    pieces = [
        pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", _text_of(column), "")
        for name, column in zip(names, columns, strict=True)
    ]
    # Leaving nulls out by `null_handling="skip"` would lose the rows in which all are null.
    every = pc.binary_join_element_wise(pa.array([""] * count, pa.string()), *pieces, "", null_handling="replace")
    return pc.binary_join_element_wise(pc.binary_replace_slice(every, 0, 1, "{"), "}", "")


def _text_of(column: pa.Array) -> pa.Array:
    """The JSON of each value, null where it is null."""
    kind = column.type
    if kinds.is_dictionary(kind):
        return _text_of(column.dictionary_decode())
    if kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind):
        return column.cast(pa.string())
    if kinds.is_floating(kind):
        return _text_of_reals(column)
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return _quoted(column.cast(pa.string()))
    if kinds.is_timestamp(kind):
        shown = column.cast(pa.timestamp("us", kind.tz)).cast(pa.string())
        return _in_quotes(pc.replace_substring(shown, " ", "T", max_replacements=1))
    if kinds.is_date(kind):
        return _in_quotes(column.cast(pa.string()))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _text_of_lists(column)
    if kinds.is_struct(kind):
        whole = _objects(column.flatten(), [field.name for field in kind], len(column))
        return pc.if_else(column.is_valid(), whole, _NONE)
    return pa.array([None if v is None else json.dumps(v, default=_plain) for v in column.to_pylist()], pa.string())


def _text_of_reals(column: pa.Array) -> pa.Array:
    shown = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return shown
    words = pc.if_else(pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(pc.is_finite(column), shown, words)


def _quoted(column: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(column, _TO_ESCAPE)
    if not pc.any(special).as_py():
        return _in_quotes(column)
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(special).to_pylist()]
    return pc.replace_with_mask(_in_quotes(column), pc.fill_null(special, False), pa.array(escaped, pa.string()))


def _in_quotes(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")


def _text_of_lists(column: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = pc.fill_null(_text_of(column.flatten()), "null")
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")
    return pc.if_else(column.is_valid(), pc.binary_join_element_wise("[", inside, "]", ""), _NONE)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
