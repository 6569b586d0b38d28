"""Parses one expression: text in, conjunctions out, or an InputError that names the character and the remedy.

`expression.py` wraps the result, and parses millions at once. PS2Stream §II-A.

    expression  :=  conjunction (OR conjunction)*
    conjunction :=  unit ([AND] unit)*               AND binds tighter; side by side means AND
    unit        :=  NOT unit | word | "quoted words" | ( expression )

NOT stands beside words that must be there: in each alternative of the expression, written out, one at least must be.
AND, OR and NOT may be written in any case. A word is cut like texts (`tokens.py`), so `flood-river` asks for both
words, also in quotes. Quotes do not search for a phrase: they are the way to ask for the words "and", "or" and "not".
The NOT and OR of other search languages (`-dam`, `!dam`, `dam|river`) are refused rather than misunderstood.

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
BANNED_MAX = 256
"""Terms of one conjunction that must not occur: each is looked up where the others do."""
BAN = "-"
"""The first character of a term that must not occur; no term has it."""
CONJUNCTIONS_MAX = 256
"""Conjunctions of one expression, written out: each is an entry in the index of every cell of the region."""

Conjunctions = tuple[tuple[str, ...], ...]

_PIECE = re.compile(r'\s+|(?P<mark>[()])|"(?P<quoted>[^"]*)"|(?P<word>[^\s()"]+)|(?P<quote>")')


@dataclass(frozen=True)
class _Unit:
    """An operand: the number of its conjunctions, the most terms of one that must occur and that must not, and the
    conjunctions, if not too many."""

    conjunctions: int
    terms: int
    banned: int
    written_out: list[frozenset[str]]

    @property
    def is_too_large(self) -> bool:
        return self.conjunctions > CONJUNCTIONS_MAX or self.terms > TERMS_MAX or self.banned > BANNED_MAX

    def negate(self) -> "_Unit":
        """NOT (a b OR c) is (NOT a OR NOT b) AND NOT c. What is too large stays so."""
        if self.is_too_large:
            return self
        parts = [[frozenset({_turn(term)}) for term in sorted(row)] for row in self.written_out]
        banned = [[term.startswith(BAN) for row in part for term in row] for part in parts]
        total = prod(map(len, parts))
        wanted, unwanted = sum(not all(part) for part in banned), sum(any(part) for part in banned)
        made = _Unit(total, wanted, unwanted, [])
        return made if made.is_too_large else _Unit(total, wanted, unwanted, _product(parts))


def _turn(term: str) -> str:
    return term.removeprefix(BAN) if term.startswith(BAN) else BAN + term


@dataclass
class _Open:
    """A parenthesis that is not closed yet, or the whole expression."""

    position: int
    alternatives: list[list[_Unit]] = field(default_factory=lambda: [[]])
    operator: tuple[str, int] | None = None  # the last piece, if that was an operator
    is_negated: bool = False  # whether NOT stands before the next operand

    def add(self, unit: _Unit) -> None:
        self.alternatives[-1].append(unit.negate() if self.is_negated else unit)
        self.operator, self.is_negated = None, False

    def close(self) -> _Unit:
        if self.operator:
            name, at = self.operator
            _refuse(at, f"{name} has nothing to its right", "write a word behind it, or leave it out")
        counts = [prod(unit.conjunctions for unit in units) for units in self.alternatives]
        terms = max(sum(unit.terms for unit in units) for units in self.alternatives)
        banned = max(sum(unit.banned for unit in units) for units in self.alternatives)
        made = _Unit(sum(counts), terms, banned, [])
        if made.is_too_large:
            return made
        rows = [c for units in self.alternatives for c in _product([unit.written_out for unit in units])]
        return _Unit(sum(counts), terms, banned, rows)


def conjunctions_of(text: str) -> Conjunctions:
    """The conjunctions of an expression, sorted; none contains another. Terms that must not occur are last, behind
    BAN."""
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
    if whole.banned > BANNED_MAX:
        raise InputError(f"{whole.banned} words under NOT, limit {BANNED_MAX}: leave some of them out")
    found = _absorb([row for row in whole.written_out if not any(BAN + term in row for term in row)])
    not_at = next((p.start() + 1 for p in _PIECE.finditer(text) if (p["word"] or "").upper() == "NOT"), 1)
    if not found:
        _refuse(not_at, "no text has a word and has it not", "leave one of the two out")
    if any(terms[0].startswith(BAN) for terms in found):
        _refuse(not_at, "NOT has no word beside it that must be there", "write one, such as flood AND NOT drill")
    return found


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
        open_[-1].add(unit)
    elif piece["quote"]:
        _refuse(position, '" is never closed', 'add a " or leave it out')
    elif word and word.upper() == "NOT":
        here.operator, here.is_negated = (word, position), not here.is_negated
    elif word and word.upper() in ("AND", "OR"):
        if here.operator or not here.alternatives[-1]:
            _refuse(position, f"{word} has nothing to its left", f'write a word before it, or "{word}" for the word')
        here.operator = (word, position)
        if word.upper() == "OR":
            here.alternatives.append([])
    elif word is not None or piece["quoted"] is not None:
        here.add(_word(word, piece["quoted"], position))


def _word(word: str | None, quoted: str | None, position: int) -> _Unit:
    if word is not None and (word[0] in "-!" or "|" in word) and any(map(str.isalnum, word)):
        _refuse(position, f"{shorten(word)} reads like NOT or OR", "write OR between words, or NOT before one")
    shown = word if word is not None else f'"{quoted}"'
    terms = runs_of(fold(shown))
    if not terms:
        _refuse(
            position, f"{shorten(shown)} has no letter or digit", "write a word; operators are AND, OR, NOT and ( )"
        )
    for term in terms:
        if len(term) > TERM_CHARS_MAX:
            _refuse(position, f"a word of {len(term)} characters, limit {TERM_CHARS_MAX}", "use a shorter one")
    distinct = frozenset(terms)
    return _Unit(1, len(distinct), 0, [distinct])


def _product(parts: list[list[frozenset[str]]]) -> list[frozenset[str]]:
    rows = parts[0]
    for part in parts[1:]:
        rows = [a | b for a in rows for b in part]
    return rows


def _absorb(rows: list[frozenset[str]]) -> Conjunctions:
    """Leaves out conjunctions that contain another: a text that satisfies them satisfies that one."""
    kept: list[frozenset[str]] = []
    for row in sorted(set(rows), key=len):
        if not any(other <= row for other in kept):
            kept.append(row)
    return tuple(sorted(tuple(sorted(row, key=lambda term: (term.startswith(BAN), term))) for row in kept))


def _refuse(position: int, what: str, remedy: str) -> NoReturn:
    raise InputError(f"at character {position}: {what}: {remedy}")


def shorten(word: str) -> str:
    return word if len(word) <= 40 else word[:37] + "..."


def _count(number: int) -> str:
    return str(number) if number < 10**15 else f"about 10^{len(str(number)) - 1}"
