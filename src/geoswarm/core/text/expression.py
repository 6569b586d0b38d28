"""Boolean keyword expressions: `flood AND (river OR dam)` as a list of conjunctions, one by one and by the million.

`grammar.py` parses and refuses them. PS2Stream §II-A (STS queries).

An expression is kept as the alternatives that satisfy it, none of which contains another:

    flood AND (river OR dam)            ->   dam flood | flood river
    flood AND NOT (drill OR exercise)   ->   flood, and neither drill nor exercise

Each has a word that must be there, by which events find it. Without NOT this form is unique: expressions with equal
meaning have equal conjunctions.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.buffers import rows_of, strings_of
from geoswarm.core.arrays.jit import Array, Bools, Ints
from geoswarm.core.text.flat import FlatExpressions, read_flat
from geoswarm.core.text.grammar import BAN, EXPRESSION_CHARS_MAX, Conjunctions, conjunctions_of
from geoswarm.errors import InputError

Terms = npt.NDArray[np.int32]  # positions in a vocabulary


@dataclass(frozen=True)
class Expression:
    """One conjunction must hold, with all of its terms, and without those behind BAN, which are last. Both are sorted;
    no conjunction contains another."""

    conjunctions: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        """An expression that parses to the same."""
        return " OR ".join(" AND ".join(map(_quote, terms)) for terms in self.conjunctions)


def _quote(term: str) -> str:
    if term.startswith(BAN):
        return f"NOT {_quote(term[len(BAN) :])}"
    return f'"{term}"' if term in ("and", "or", "not") else term


def parse(text: str) -> Expression:
    """Raises InputError, which names the position and what to write instead."""
    return Expression(conjunctions_of(text))


def satisfied(expression: Expression, terms: AbstractSet[str]) -> bool:
    """The definition of a match in text. `terms` are those of an event (`tokens.terms_of`)."""
    return any(all(_holds(term, terms) for term in conjunction) for conjunction in expression.conjunctions)


def _holds(term: str, terms: AbstractSet[str]) -> bool:
    return term[len(BAN) :] not in terms if term.startswith(BAN) else term in terms


class Expressions(NamedTuple):
    """One row per subscription; no conjunctions means no condition on text.

    Conjunctions of row i: conjunctions_offsets[i]:conjunctions_offsets[i + 1]. Terms of conjunction c:
    terms[terms_offsets[c]:terms_offsets[c + 1]], positions in the vocabulary, which holds folded terms, each once; ~p
    of a position p is a term that must not occur.
    Within a row, terms and conjunctions are in the order of `Expression`, whatever the order of the vocabulary.
    """

    conjunctions_offsets: Ints
    terms_offsets: Ints
    terms: Terms
    vocabulary: pa.StringArray

    def take(self, rows: Ints) -> "Expressions":
        """These rows, in this order, repeats allowed; the vocabulary keeps what they use."""
        taken = self.select(np.asarray(rows, np.int64))
        used = np.zeros(len(self.vocabulary), np.bool_)
        used[np.where(taken.terms < 0, ~taken.terms, taken.terms)] = True
        places = np.cumsum(used, dtype=np.int64) - 1
        vocabulary = self.vocabulary.take(pa.array(np.flatnonzero(used)))
        return taken._replace(terms=_renumber(taken.terms, places), vocabulary=vocabulary)

    def wanted(self) -> "Expressions":
        """The same, without the terms that must not occur."""
        if not len(self.terms) or self.terms.min() >= 0:
            return self
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.terms >= 0)])
        return self._replace(terms_offsets=ends[self.terms_offsets], terms=self.terms[self.terms >= 0])

    def select(self, rows: Ints) -> "Expressions":
        """These rows over the same vocabulary."""
        conjunctions_offsets, conjunctions = _spans(self.conjunctions_offsets, rows)
        terms_offsets, terms = _spans(self.terms_offsets, conjunctions)
        return Expressions(conjunctions_offsets, terms_offsets, self.terms[terms], self.vocabulary)

    def blank(self, rows: Bools) -> "Expressions":
        """The same over the same vocabulary, with no condition in these rows."""
        lengths = np.where(rows, 0, np.diff(self.conjunctions_offsets))
        return self.select(np.flatnonzero(~rows))._replace(conjunctions_offsets=_offsets(lengths))

    def expression(self, row: int) -> Expression | None:
        """One row as a value; None: no condition."""
        conjunctions = range(self.conjunctions_offsets[row], self.conjunctions_offsets[row + 1])
        spans = [self.terms[self.terms_offsets[c] : self.terms_offsets[c + 1]] for c in conjunctions]
        rows = tuple(tuple(self._term(t) for t in span.tolist()) for span in spans)
        return Expression(rows) if rows else None

    def _term(self, t: int) -> str:
        return str(self.vocabulary[t] if t >= 0 else f"{BAN}{self.vocabulary[~t]}")

    def to_arrays(self) -> dict[str, Array]:
        """Flat arrays for a memory-mapped file: the vocabulary as `vocabulary_offsets` and `vocabulary_bytes`."""
        words = rows_of(self.vocabulary)
        offsets = np.append(words.begins, words.ends[-1:]) if len(words.begins) else np.zeros(1, np.int64)
        return {
            "conjunctions_offsets": self.conjunctions_offsets,
            "terms_offsets": self.terms_offsets,
            "terms": self.terms,
            "vocabulary_offsets": offsets - offsets[0],
            "vocabulary_bytes": words.data[offsets[0] : offsets[-1]],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Expressions":
        """The inverse of `to_arrays`; copies the vocabulary's offsets only."""
        vocabulary = strings_of(arrays["vocabulary_offsets"], arrays["vocabulary_bytes"])
        return cls(arrays["conjunctions_offsets"], arrays["terms_offsets"], arrays["terms"], vocabulary)


def no_conditions(rows: int) -> Expressions:
    """Rows of subscriptions that do not ask for words."""
    empty = np.zeros(1, np.int64)
    return Expressions(np.zeros(rows + 1, np.int64), empty, np.empty(0, np.int32), pa.array([], pa.string()))


def concatenate_expressions(parts: Sequence[Expressions]) -> Expressions:
    """The rows of all parts, in order, over one vocabulary."""
    words = pa.concat_arrays([pa.array([], pa.string()), *(part.vocabulary for part in parts)]).dictionary_encode()
    places = words.indices.to_numpy()
    first_words = np.cumsum([0, *(len(part.vocabulary) for part in parts)])
    own = np.split(places, first_words[1:])
    terms = [_renumber(part.terms, names) for part, names in zip(parts, own, strict=False)]
    return Expressions(
        _chain_offsets([part.conjunctions_offsets for part in parts]),
        _chain_offsets([part.terms_offsets for part in parts]),
        np.concatenate([np.empty(0, np.int32), *terms]).astype(np.int32),
        words.dictionary,
    )


def _renumber(terms: Terms, places: Ints) -> Terms:
    """The terms by the new places of theirs."""
    if not len(terms):
        return terms
    found = places[np.where(terms < 0, ~terms, terms)]
    return np.where(terms < 0, ~found, found).astype(np.int32)


def _chain_offsets(offsets: Sequence[Ints]) -> Ints:
    """The offsets of all parts, concatenated."""
    lengths = [np.diff(part) for part in offsets]
    return np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()


def compile_expressions(texts: pa.StringArray) -> tuple[Expressions, list[tuple[int, str]]]:
    """Parse every row. A null is no condition; neither is a bad row, which is listed as (row, reason).

    Each distinct text is read once: by a kernel if it is flat, else by the parser.
    """
    if texts.null_count == len(texts):
        return no_conditions(len(texts)), []
    coded = texts.dictionary_encode()
    distinct = rows_of(coded.dictionary)
    simple, others = read_flat(distinct, EXPRESSION_CHARS_MAX)
    parsed, reasons = _parse_each([distinct.text(row) for row in others.tolist()])
    read = concatenate_expressions([_of_flat(simple), parsed, no_conditions(1)])

    source = np.empty(len(distinct.begins) + 1, np.int64)  # the place of each distinct text; the last is null
    source[simple.rows] = np.arange(len(simple.rows))
    source[others] = len(simple.rows) + np.arange(len(others))
    source[-1] = len(distinct.begins)
    codes = coded.indices.fill_null(len(distinct.begins)).to_numpy()
    bad_codes = {int(others[i]): reason for i, reason in reasons.items()}
    bad_rows = np.flatnonzero(np.isin(codes, list(bad_codes))) if bad_codes else np.empty(0, np.int64)
    return read.select(source[codes]), [(row, bad_codes[codes[row]]) for row in bad_rows.tolist()]


def _of_flat(simple: FlatExpressions) -> Expressions:
    """All words of a row form one conjunction, or each word forms one."""
    words = strings_of(simple.bounds, simple.folded).dictionary_encode()
    lengths = np.diff(simple.word_offsets)
    conjunctions = np.where(simple.any_of, lengths, 1)
    terms = np.repeat(np.where(simple.any_of, 1, lengths), conjunctions)
    return Expressions(_offsets(conjunctions), _offsets(terms), words.indices.to_numpy(), words.dictionary)


def _parse_each(texts: list[str]) -> tuple[Expressions, dict[int, str]]:
    """Parse texts one by one; a text that is refused has no conjunctions and a reason."""
    reasons: dict[int, str] = {}
    rows: list[Conjunctions] = []
    for i, text in enumerate(texts):
        try:
            rows.append(conjunctions_of(text))
        except InputError as error:
            reasons[i] = str(error)
            rows.append(())
    every = [conjunction for row in rows for conjunction in row]
    terms = [term for conjunction in every for term in conjunction]
    words = pa.array([term.removeprefix(BAN) for term in terms], pa.string()).dictionary_encode()
    codes, is_banned = words.indices.to_numpy(), np.array([term.startswith(BAN) for term in terms], np.bool_)
    offsets = _offsets(list(map(len, rows))), _offsets(list(map(len, every)))
    return Expressions(*offsets, np.where(is_banned, ~codes, codes), words.dictionary), reasons


def _offsets(lengths: Ints | list[int]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.asarray(lengths, np.int64)]).cumsum()


def _spans(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The spans of some rows, concatenated: their offsets, and the places that they cover."""
    lengths = offsets[rows + 1] - offsets[rows]
    ends = _offsets(lengths)
    return ends, np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], lengths)
