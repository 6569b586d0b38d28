"""Lists of subscriptions by the value that they want in a column: their objects, or what a condition is equal to.

    objects = ["van-7", "van-12"]               under object_id van-7, and under object_id van-12
    where = "fleet = 'north' AND speed > 80"    under fleet north; the rest of the condition is tested later

The lists are made as those of words (`words.py`): a value is a term, and what an event says are the values of its
columns. So an event looks at the subscriptions of its own object in its own place, whoever else is there. A
subscription that is listed is in no other index; what its lists do not answer, its words and its shape among it, is
tested afterwards (`flow/match/facts.py`). Which of several values it is listed under affects speed only.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.buffers import rows_of
from geoswarm.core.arrays.jit import Bytes, Floats, Ints, Ordinals, read_only
from geoswarm.core.arrays.radix import argsort, sort_order
from geoswarm.core.index.cells import CODE_MAX, LEVELS, frame_of
from geoswarm.core.index.demands import LISTED, SETTLED, UNLISTED
from geoswarm.core.index.list_kernels import enter_values
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.index.words import (
    Entries,
    Postings,
    choose_levels,
    count_entries,
    fold_levels,
    pack_entries,
    tables_of,
)
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import Expressions, Terms
from geoswarm.core.text.kernels import hash_rows
from geoswarm.core.text.tokens import Tokens, hash_terms
from geoswarm.core.where.clause import And, Clause, Compare, In, Value
from geoswarm.core.where.read import clause_of
from geoswarm.core.where.types import Family, family_of, time_us
from geoswarm.model import OBJECT

LISTED_VALUES_MAX = 64
"""Values of one condition that are listed, each in every cell: a longer list is tested where the place has been found.
"""
_NUMBER, _TEXT, _OBJECT = "n", "t", "o"
_WHOLE_MAX = 1 << 63


class Listing(NamedTuple):
    """Under which terms subscriptions are listed."""

    ordinals: Ints
    """Ascending; a subscription may be there several times."""
    terms: Ints
    """Positions in the vocabulary."""
    vocabulary: pa.StringArray
    columns: list[str]
    how: Bytes


class _Option(NamedTuple):
    """Values of a column of which a condition must have one."""

    column: str
    terms: list[str]
    is_all: bool
    """Whether nothing else is asked for."""


def list_demands(codes: Ordinals, texts: pa.StringArray, objects: Expressions | None, count: int) -> Listing | None:
    """How `count` subscriptions are listed, by what they ask for as in `Demands`; None: none is."""
    how = np.zeros(count, np.uint8)
    parts, columns = list[tuple[Ints, pa.StringArray]](), set[str]()
    conditions = codes if len(codes) else np.zeros(count, np.uint32)
    names = texts.to_pylist() if len(codes) else [""]
    if objects is not None:
        counts = np.diff(objects.conjunctions_offsets)
        prefix = pa.scalar(_term(OBJECT.name, _OBJECT, ""))
        parts.append((np.repeat(np.arange(count), counts), _joined(prefix, objects.vocabulary, objects.terms)))
        columns.add(_key(OBJECT.name, _OBJECT))
        is_bare = np.array([not name for name in names])[conditions]
        how[counts > 0] = np.where(is_bare, SETTLED, LISTED)[counts > 0]
    free = np.flatnonzero(how == UNLISTED)
    chosen = _choose(names, np.bincount(conditions[free], minlength=len(names)))
    if chosen:
        starts, ways = np.zeros(len(names) + 1, np.int64), np.zeros(len(names), np.uint8)
        terms = list[str]()
        for code, name in enumerate(names):
            option = chosen.get(name)
            if option is not None:
                terms += option.terms
                ways[code] = SETTLED if option.is_all else LISTED
                columns.add(_key(option.column, option.terms[0].split("\0", 2)[1]))
            starts[code + 1] = len(terms)
        lengths = np.diff(starts)[conditions[free]]
        own = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(starts[conditions[free]], lengths) + own
        parts.append((np.repeat(free, lengths), pa.array(terms, pa.string()).take(pa.array(places))))
        how[free] = ways[conditions[free]]
    if not how.any():
        return None
    ordinals = np.concatenate([ordinals for ordinals, _ in parts])
    order = np.argsort(ordinals, kind="stable")
    # Values of neighbours are neighbours, as their subscriptions are.
    texts = pa.chunked_array([words for _, words in parts]).combine_chunks()
    coded = texts.take(pa.array(order)).dictionary_encode()
    return Listing(ordinals[order], coded.indices.to_numpy(), coded.dictionary, sorted(columns), how)


def build_lists(grid: Grid, rects: Floats, listing: Listing) -> TextIndex:
    """`rects` are those of all subscriptions. The arrays are those of the index of words, but for the alternatives
    (`list_kernels.py`); there is no dictionary."""
    frame, hashes = frame_of(grid), hash_terms(listing.vocabulary)[listing.terms]
    levels, sides = choose_levels(read_only(rects[listing.ordinals]), frame)
    fold_levels(levels, sides)
    each = read_only(np.arange(len(levels) + 1))
    heights, codes, scatters, boxes, rows = enter_values(levels, sides, hashes, count_entries(levels, sides, each))
    postings = Postings(heights, codes, scatters, rows.astype(np.int32))
    order = sort_order(scatters, CODE_MAX)
    order = argsort(heights, argsort(codes, order, CODE_MAX), LEVELS)
    alternatives = np.empty((len(levels), 2), np.uint64)
    alternatives[:, 0] = listing.ordinals
    alternatives[:, 1] = hashes << np.uint64(32) | listing.terms.astype(np.uint64)
    tables, packed = tables_of(order, postings), pack_entries(order, Entries(boxes, rows), alternatives)
    none = np.empty((0, 2), np.uint64), np.empty((0, 4), np.uint64)
    return TextIndex._make(read_only(array) for array in (*none, frame, *tables, *packed))


def value_tokens(columns: Mapping[str, pa.Array], keys: Sequence[str], count: int) -> Tokens:
    """What events say by the values of their columns, which may lack: a term for each key and event at most."""
    said = [_values(columns, *key.split("\0")) for key in keys]
    texts = pa.concat_arrays([pa.array([], pa.string()), *said])
    rows = rows_of(texts)
    valid = texts.is_valid().to_numpy(zero_copy_only=False).reshape(len(keys), count).T
    place = np.flatnonzero(valid.ravel())
    place = place % len(keys) * count + place // len(keys) if len(keys) else place
    found = rows._replace(begins=rows.begins[place], ends=rows.ends[place])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(valid.sum(axis=1))])
    return Tokens(offsets, hash_rows(found), found.begins, found.ends, rows.data.copy())


def _values(columns: Mapping[str, pa.Array], name: str, kind: str) -> pa.StringArray:
    """The term that each event has by a column; null: none."""
    column = columns[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    family = family_of(column.type)
    if kind == _OBJECT or (kind == _TEXT and family is Family.TEXT):
        texts = column.cast(pa.string())
    elif kind == _NUMBER and family is Family.NUMBER:
        texts = _whole(column).cast(pa.string())
    else:
        return pa.nulls(len(column), pa.string())
    return pc.binary_join_element_wise(pa.scalar(_term(name, kind, "")), texts, "")


def _whole(column: pa.Array) -> pa.Array:
    """Numbers as integers; null: it is none of 64 bits."""
    if pa.types.is_floating(column.type):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null is NaN
        fits = np.isfinite(numbers) & (np.trunc(numbers) == numbers) & (np.abs(numbers) < _WHOLE_MAX)
        return pa.array(np.where(fits, numbers, 0).astype(np.int64), mask=~fits)
    if column.type == pa.uint64():
        fits = pc.less(column, pa.scalar(_WHOLE_MAX, pa.uint64()))
        return pc.if_else(fits, column, pa.scalar(None, pa.uint64())).cast(pa.int64())
    return column.cast(pa.int64())


def _choose(texts: list[str], uses: Ints) -> dict[str, _Option]:
    """For each condition that is used, the values by which it is found soonest: those that fewest ask for."""
    options = {text: _options(clause_of(text)) for text, n in zip(texts, uses.tolist(), strict=True) if text and n}
    asked = Counter[str]()
    for text, n in zip(texts, uses.tolist(), strict=True):
        for option in options.get(text, ()):
            for term in option.terms:
                asked[term] += n
    return {
        text: min(some, key=lambda option: (sum(asked[term] for term in option.terms), option.terms))
        for text, some in options.items()
        if some
    }


def _options(clause: Clause) -> list[_Option]:
    parts = clause.parts if isinstance(clause, And) else (clause,)
    found = list[_Option]()
    for part in parts:
        if isinstance(part, Compare) and part.comparison == "=" and isinstance(part.other, Value):
            values: tuple[Value, ...] = (part.other,)
        elif isinstance(part, In) and len(part.values) <= LISTED_VALUES_MAX:
            values = part.values
        else:
            continue
        terms = [_term_of(part.column.name, value) for value in values]
        known = sorted({term for term in terms if term is not None})
        if None not in terms and len({term.split("\0", 2)[1] for term in known}) == 1:
            found.append(_Option(part.column.name, known, len(parts) == 1))
    return found


def _term_of(column: str, value: Value) -> str | None:
    """None: which values of a column are equal to it cannot be said by one term."""
    given = value.given
    if isinstance(given, bool) or "\0" in column:
        return None
    if isinstance(given, str):
        try:
            time_us(given)  # a column of times has it in other words
        except ValueError:
            return _term(column, _TEXT, given)
        return None
    is_whole = isinstance(given, int) or given.is_integer()
    return _term(column, _NUMBER, str(int(given))) if is_whole and abs(given) < _WHOLE_MAX else None


def _term(column: str, kind: str, value: str) -> str:
    return f"{_key(column, kind)}\0{value}"


def _key(column: str, kind: str) -> str:
    return f"{column}\0{kind}"


def _joined(prefix: pa.Scalar, words: pa.StringArray, terms: Terms) -> pa.StringArray:
    return pc.binary_join_element_wise(prefix, words, "").take(pa.array(terms))
