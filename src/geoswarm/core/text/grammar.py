"""Parses one expression: text in, conjunctions out, or an InputError that names the character and the remedy.

`expression.py` wraps the result, and parses millions at once. PS2Stream §II-A.

    expression  :=  conjunction (OR conjunction)*
    conjunction :=  unit ([AND] unit)*               AND binds tighter; side by side means AND
    unit        :=  word | "quoted words" | ( expression )

AND and OR may be written in any case. A word is cut like texts (`tokens.py`), so `flood-river` asks for both words,
also in quotes. Quotes do not search for a phrase: they are the way to ask for the words "and", "or" and "not". The NOT
and OR of other search languages (`NOT dam`, `-dam`, `!dam`, `dam|river`) are refused rather than misunderstood.

Time and memory are bounded for any text: the size of the result is counted before it is written out.
"""

import re
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn

from geoswarm.core.text.tokens import TERM_CHARS_MAX, runs_of
from geoswarm.core.text.unicode_tables import fold
from geoswarm.errors import InputError

EXPRESSION_CHARS_MAX = 4096
"""Characters of one expression: room for hundreds of words; also bounds the cost of parsing."""
NESTING_MAX = 64
"""The greatest depth of parentheses; no useful expression is deeper."""
TERMS_MAX = 32
"""Terms of one conjunction, as written: an event must have them all, and a post has about a dozen."""
CONJUNCTIONS_MAX = 256
"""Conjunctions of one expression, written out: each is an entry in the index of every cell of the region."""

Conjunctions = tuple[tuple[str, ...], ...]

_PIECE = re.compile(r'\s+|(?P<mark>[()])|"(?P<quoted>[^"]*)"|(?P<word>[^\s()"]+)|(?P<quote>")')


@dataclass(frozen=True)
class _Unit:
    """An operand: the number of its conjunctions, of their terms, and the conjunctions, if not too many."""

    conjunctions: int
    terms: int
    written_out: list[frozenset[str]]


@dataclass
class _Open:
    """A parenthesis that is not closed yet, or the whole expression."""

    position: int
    alternatives: list[list[_Unit]] = field(default_factory=lambda: [[]])
    operator: tuple[str, int] | None = None  # the last piece, if that was an operator

    def close(self) -> _Unit:
        if self.operator:
            name, at = self.operator
            _refuse(at, f"{name} has nothing to its right", "write a word behind it, or leave it out")
        counts = [prod(unit.conjunctions for unit in units) for units in self.alternatives]
        total, widest = sum(counts), max(sum(unit.terms for unit in units) for units in self.alternatives)
        if total > CONJUNCTIONS_MAX or widest > TERMS_MAX:
            return _Unit(total, widest, [])
        return _Unit(total, widest, [c for units in self.alternatives for c in _product(units)])


def conjunctions_of(text: str) -> Conjunctions:
    """The conjunctions of an expression, sorted; none contains another."""
    if len(text) > EXPRESSION_CHARS_MAX:
        raise InputError(f"an expression of {len(text)} characters, limit {EXPRESSION_CHARS_MAX}: use fewer words")
    open_ = [_Open(0)]
    for piece in _PIECE.finditer(text):
        _read(piece, open_)
    if len(open_) > 1:
        _refuse(open_[-1].position, "( is never closed", "add a ) or leave it out")
    if open_ == [_Open(0)]:
        raise InputError("an empty expression: write at least one word, or leave it null to match any text")
    whole = open_[0].close()
    if whole.conjunctions > CONJUNCTIONS_MAX:
        raise InputError(
            f"written out, this expression has {_count(whole.conjunctions)} alternatives, limit {CONJUNCTIONS_MAX}: "
            f"use fewer ORs within ANDs, or several subscriptions"
        )
    if whole.terms > TERMS_MAX:
        raise InputError(
            f"{whole.terms} words must occur together in this expression, limit {TERMS_MAX}: leave some of them out"
        )
    return _absorb(whole.written_out)


def _read(piece: re.Match[str], open_: list[_Open]) -> None:
    here, position = open_[-1], piece.start() + 1
    word = piece["word"]
    if piece["mark"] == "(":
        if len(open_) > NESTING_MAX:
            _refuse(position, f"parentheses more than {NESTING_MAX} deep", "write the expression flatter")
        open_.append(_Open(position))
    elif piece["mark"] == ")":
        if len(open_) == 1:
            _refuse(position, ") closes nothing", "add a ( before it or leave it out")
        if here.alternatives == [[]] and not here.operator:
            _refuse(here.position, "() has nothing inside", "write a word between them, or leave them out")
        unit = open_.pop().close()
        open_[-1].alternatives[-1].append(unit)
        open_[-1].operator = None
    elif piece["quote"]:
        _refuse(position, '" is never closed', 'add a " or leave it out')
    elif word and word.upper() in ("AND", "OR"):
        if here.operator or not here.alternatives[-1]:
            _refuse(position, f"{word} has nothing to its left", f'write a word before it, or "{word}" for the word')
        here.operator = (word, position)
        if word.upper() == "OR":
            here.alternatives.append([])
    elif word is not None or piece["quoted"] is not None:
        here.alternatives[-1].append(_word(word, piece["quoted"], position))
        here.operator = None


def _word(word: str | None, quoted: str | None, position: int) -> _Unit:
    if word is not None and word.upper() == "NOT":
        _refuse(position, f"{word} is no operator here", f'only AND and OR are; write "{word}" for the word')
    if word is not None and (word[0] in "-!" or "|" in word) and any(map(str.isalnum, word)):
        _refuse(position, f"{shorten(word)} reads like NOT or OR", "write OR between words; there is no NOT")
    shown = word if word is not None else f'"{quoted}"'
    terms = runs_of(fold(shown))
    if not terms:
        _refuse(position, f"{shorten(shown)} has no letter or digit", "write a word; operators are AND, OR and ( )")
    for term in terms:
        if len(term) > TERM_CHARS_MAX:
            _refuse(position, f"a word of {len(term)} characters, limit {TERM_CHARS_MAX}", "use a shorter one")
    distinct = frozenset(terms)
    return _Unit(1, len(distinct), [distinct])


def _product(units: list[_Unit]) -> list[frozenset[str]]:
    rows = units[0].written_out
    for unit in units[1:]:
        rows = [a | b for a in rows for b in unit.written_out]
    return rows


def _absorb(rows: list[frozenset[str]]) -> Conjunctions:
    """Leaves out conjunctions that contain another: a text that satisfies them satisfies that one."""
    kept: list[frozenset[str]] = []
    for row in sorted(set(rows), key=len):
        if not any(other <= row for other in kept):
            kept.append(row)
    return tuple(sorted(tuple(sorted(row)) for row in kept))


def _refuse(position: int, what: str, remedy: str) -> NoReturn:
    raise InputError(f"at character {position}: {what}: {remedy}")


def shorten(word: str) -> str:
    return word if len(word) <= 40 else word[:37] + "..."


def _count(number: int) -> str:
    return str(number) if number < 10**15 else f"about 10^{len(str(number)) - 1}"
