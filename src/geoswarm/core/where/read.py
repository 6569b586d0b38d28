"""Reads a condition: text in, a clause out, or an InputError that names the character and the remedy.

    clause :=  chain (OR chain)*
    chain  :=  unit (AND unit)*                        AND binds tighter than OR, and NOT tighter than AND
    unit   :=  NOT unit  |  ( clause )  |  test
    test   :=  operand = <> != < <= > >= operand       one of the two is a column
            |  column [NOT] BETWEEN value AND value
            |  column [NOT] IN ( value, ... )
            |  column [NOT] LIKE 'pattern'
            |  column IS [NOT] NULL
            |  column                                  of booleans

Reserved words may be written in any case. A value is a number, 'a text' ('' within it is one quote), TRUE or FALSE; a
time is a text such as '2026-01-31T12:00'. A column is a bare name or "any name". There is no arithmetic, and NULL is no
value. `core/text/grammar.py` has the grammar of keywords.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, NoReturn

from geoswarm.core.text.grammar import NESTING_MAX, shorten
from geoswarm.core.where.clause import (
    RESERVED,
    And,
    Between,
    Clause,
    Column,
    Compare,
    Comparison,
    In,
    IsNull,
    IsTrue,
    Like,
    Or,
    Value,
    join,
    negate,
    refuse,
)
from geoswarm.errors import InputError

WHERE_CHARS_MAX = 16_384
"""Characters of one condition: room for a list of a thousand ids."""
TESTS_MAX = 256
"""Tests in one condition: each looks at a whole column."""
CLAUSES_KEPT = 100_000
"""Clauses that a process keeps once they are read: about a kilobyte each."""

_PIECE = re.compile(
    r"\s+|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d]\w*)"
    r"""|(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")+")|(?P<mark><=|>=|<>|!=|==|[=<>(),+-])|(?P<other>.)""",
    re.DOTALL,
)
_COMPARISONS: dict[str, Comparison] = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_TURNED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS = "operators are AND, OR, NOT, =, <>, <, <=, >, >=, BETWEEN, IN, LIKE, IS NULL and ( )"


class _Piece(NamedTuple):
    kind: str
    """number, word, text, name or mark; or the end."""
    shown: str
    position: int

    @property
    def key(self) -> str:
        """A reserved word in capitals, a mark as it is; else nothing."""
        if self.kind == "word":
            return self.shown.upper() if self.shown.upper() in RESERVED else ""
        return self.shown if self.kind == "mark" else ""


def read_where(text: str) -> Clause:
    """A condition on rows. Whether it fits the columns of a stream is for `types.py` to say."""
    if len(text) > WHERE_CHARS_MAX:
        raise InputError(f"a condition of {len(text)} characters, limit {WHERE_CHARS_MAX}: ask for less at a time")
    reader = _Reader(_pieces_of(text))
    if reader.next.kind == "end":
        raise InputError("an empty condition: write a test such as speed > 80, or leave it out")
    clause = reader.clause(0)
    if reader.next.shown == ")":
        refuse(reader.next.position, ") closes nothing", "add a ( before it or leave it out")
    if reader.next.kind != "end":
        refuse(reader.next.position, f"{shorten(reader.next.shown)} follows a complete test", "join tests by AND or OR")
    return clause


@lru_cache(maxsize=CLAUSES_KEPT)
def clause_of(text: str) -> Clause:
    """The clause of a condition that has been accepted before."""
    return read_where(text)


def _pieces_of(text: str) -> list[_Piece]:
    pieces = list[_Piece]()
    for found in _PIECE.finditer(text):
        position, shown = found.start() + 1, found.group()
        if found.lastgroup == "other" and shown in "'\"":
            refuse(position, f"{shown} is never closed", f"add a {shown} where it ends")
        if found.lastgroup == "other":
            refuse(position, f"{shown} is no operator here", _OPERATORS)
        if found.lastgroup is not None:
            pieces.append(_Piece(found.lastgroup, shown, position))
    return [*pieces, _Piece("end", "the end", len(text) + 1)]


class _Reader:
    def __init__(self, pieces: list[_Piece]) -> None:
        self._pieces, self._at, self._tests = pieces, 0, 0

    @property
    def next(self) -> _Piece:
        return self._pieces[self._at]

    def clause(self, depth: int) -> Clause:
        return join(Or, self._joined("OR", lambda: self._chain(depth)))

    def _chain(self, depth: int) -> Clause:
        return join(And, self._joined("AND", lambda: self._unit(depth)))

    def _joined(self, word: str, part: Callable[[], Clause]) -> list[Clause]:
        parts = [part()]
        while self._took(word):
            parts.append(part())
        return parts

    def _unit(self, depth: int) -> Clause:
        first = self.next
        if first.key in ("NOT", "(") and depth == NESTING_MAX:
            refuse(first.position, f"parentheses and NOT more than {NESTING_MAX} deep", "write the condition flatter")
        if self._took("NOT"):
            return negate(self._unit(depth + 1))
        if self._took("("):
            inner = self.clause(depth + 1)
            if not self._took(")"):
                self._refuse_next(f"the ( at character {first.position} is not closed", "add a ), or AND or OR")
            return inner
        self._tests += 1
        if self._tests > TESTS_MAX:
            refuse(first.position, f"more than {TESTS_MAX} tests", "use IN for a list of values, or ask for less")
        return self._test()

    def _test(self) -> Clause:
        left = self._operand("a test such as speed > 80")
        if self.next.shown in _COMPARISONS:
            return self._comparison(left)
        if isinstance(left, Value):
            refuse(left.position, f"{shorten(str(left))} by itself is no test", "compare it with a column")
        if self._took("IS"):
            is_not = self._took("NOT")
            if not self._took("NULL"):
                self._refuse_next(f"{'IS NOT' if is_not else 'IS'} is not followed by NULL", "write NULL, or = a value")
            return negate(IsNull(left)) if is_not else IsNull(left)
        if self.next.key == "NOT" and self._pieces[self._at + 1].key in ("BETWEEN", "IN", "LIKE"):
            self._at += 1
            return negate(self._of_values(left))
        return self._of_values(left)

    def _comparison(self, left: Column | Value) -> Compare:
        sign = self._take()
        comparison, right = _COMPARISONS[sign.shown], self._operand("a number, a 'text' or a column")
        if isinstance(left, Column):
            return Compare(left, comparison, right)
        if isinstance(right, Value):
            refuse(sign.position, f"{sign.shown} has no column on either side", "name a column on one of them")
        return Compare(right, _TURNED[comparison], left)

    def _of_values(self, column: Column) -> Between | In | Like | IsTrue:
        if self._took("BETWEEN"):
            low = self._value("BETWEEN")
            if not self._took("AND"):
                self._refuse_next("BETWEEN lacks its AND", "write BETWEEN the lowest AND the highest value")
            return Between(column, low, self._value("AND"))
        if self._took("LIKE"):
            return Like(column, self._pattern())
        if not self._took("IN"):
            return IsTrue(column)
        if not self._took("("):
            self._refuse_next("IN is not followed by a list", "write values in parentheses, with commas")
        values = [self._value("IN (")]
        while self._took(","):
            values.append(self._value(","))
        if not self._took(")"):
            self._refuse_next("the list of IN is never closed", "add a ), and commas between values")
        return In(column, tuple(values))

    def _pattern(self) -> Value:
        pattern = self._value("LIKE")
        if not isinstance(pattern.given, str):
            refuse(pattern.position, f"LIKE {pattern} has no text to its right", "write a pattern such as 'A%'")
        if (len(pattern.given) - len(pattern.given.rstrip("\\"))) % 2:
            refuse(pattern.position, "the pattern ends with a single backslash", r"write \\ for a backslash")
        return pattern

    def _value(self, behind: str) -> Value:
        value = self._operand(f"a value behind {behind}")
        if isinstance(value, Column):
            refuse(
                value.position, f"{shorten(value.name)} is a column, where a value must be", "write 'texts' in quotes"
            )
        return value

    def _operand(self, wanted: str) -> Column | Value:
        piece = self._take()
        if piece.key in ("+", "-") and self.next.kind == "number":
            return _number(self._take(), piece.position, -1 if piece.key == "-" else 1)
        if piece.kind == "number":
            return _number(piece, piece.position, 1)
        if piece.key in ("TRUE", "FALSE"):
            return Value(piece.key == "TRUE", piece.position)
        if piece.key == "NULL":
            refuse(piece.position, "NULL is equal to nothing, not even to NULL", "write IS NULL or IS NOT NULL")
        if piece.kind == "text":
            return Value(piece.shown[1:-1].replace("''", "'"), piece.position)
        if piece.kind == "name":
            return Column(piece.shown[1:-1].replace('""', '"'), piece.position)
        if piece.kind != "word" or piece.key:
            remedy = f'write "{piece.shown}" if that is a column' if piece.kind == "word" else "write one there"
            refuse(piece.position, f"{piece.shown} stands where {wanted} is wanted", remedy)
        return Column(piece.shown, piece.position)

    def _took(self, key: str) -> bool:
        """Whether the next piece was this one; it is behind us then."""
        if self.next.key != key:
            return False
        self._at += 1
        return True

    def _take(self) -> _Piece:
        piece = self.next
        self._at += piece.kind != "end"
        return piece

    def _refuse_next(self, what: str, remedy: str) -> NoReturn:
        refuse(self.next.position, what, remedy)


def _number(piece: _Piece, position: int, sign: int) -> Value:
    number = float(piece.shown)
    if math.isinf(number):
        refuse(position, f"{shorten(piece.shown)} is beyond the largest number", "write one below 1.8e308")
    whole = piece.shown.lstrip("0") or "0"  # Python reads some thousand digits, and counts zeros
    return Value(sign * (int(whole) if whole.isdecimal() else number), position)
