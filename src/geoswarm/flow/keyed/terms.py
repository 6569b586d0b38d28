"""Turns texts into one row for each term, as text, for counting words, also by region.

`core/text/tokens.py` defines terms; each term comes once for each text, however often it occurs. Matching needs only
hashes and never makes these strings (`core/index/words.py`); a key that is kept must be the term itself.
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.buffers import strings_of
from geoswarm.core.arrays.jit import Bytes, Ints, kernel
from geoswarm.core.text.tokens import Tokens, tokenize
from geoswarm.errors import SchemaError


def tokens_of(texts: pa.Array, operator: str) -> Tokens:
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise SchemaError(f"operator {operator} cannot read words from type {texts.type}: cast the texts to string")
    return tokenize(texts)


def terms_in(tokens: Tokens) -> pa.StringArray:
    """One row per token, text by text."""
    no_prefix = np.zeros(len(tokens.offsets), np.int64)
    return strings_of(*prefix_terms(tokens, no_prefix, np.empty(0, np.uint8)))


@kernel
def prefix_terms(tokens: Tokens, prefix_offsets: Ints, prefixes: Bytes) -> tuple[Ints, Bytes]:
    """Each token after the prefix of its text, as rows: where rows begin, and their bytes."""
    first, last = tokens.offsets[0], tokens.offsets[-1]
    offsets = np.zeros(last - first + 1, np.int64)
    for text in range(len(tokens.offsets) - 1):
        before = prefix_offsets[text + 1] - prefix_offsets[text]
        for t in range(tokens.offsets[text], tokens.offsets[text + 1]):
            offsets[t - first + 1] = offsets[t - first] + before + tokens.ends[t] - tokens.starts[t]
    data = np.empty(offsets[-1], np.uint8)
    at = 0
    for text in range(len(tokens.offsets) - 1):
        for t in range(tokens.offsets[text], tokens.offsets[text + 1]):
            for i in range(prefix_offsets[text], prefix_offsets[text + 1]):
                data[at] = prefixes[i]
                at += 1
            for i in range(tokens.starts[t], tokens.ends[t]):
                data[at] = tokens.folded[i]
                at += 1
    return offsets, data
