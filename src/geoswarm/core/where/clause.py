"""What a condition on rows is made of, and how it is printed.

`read.py` makes clauses from text, `types.py` compares them with a schema, `evaluate.py` applies them to columns.
Keyword expressions, which ask for words of a text, are something else (`core/text/expression.py`).

Equal clauses print alike, and what is printed reads as an equal clause. NOT is never doubled, and AND is never directly
within AND, nor OR within OR.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from geoswarm.errors import InputError

Comparison = Literal["=", "<>", "<", "<=", ">", ">="]
Given = bool | int | float | str
"""A value as it was written; a float is finite. Times are texts until a column says that it has times."""

RESERVED = frozenset({"AND", "OR", "NOT", "IS", "NULL", "BETWEEN", "IN", "LIKE", "TRUE", "FALSE"})
"""Words that name a column only in double quotes, in whichever case."""
BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
"""A column that needs no quotes."""


@dataclass(frozen=True)
class Column:
    name: str
    position: int = field(compare=False, default=0)
    """Its first character in the text, from 1, for errors."""

    def __str__(self) -> str:
        if BARE_NAME.fullmatch(self.name) and self.name.upper() not in RESERVED:
            return self.name
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Value:
    given: Given
    position: int = field(compare=False, default=0)

    def __str__(self) -> str:
        if isinstance(self.given, bool):
            return str(self.given).upper()
        return "'" + self.given.replace("'", "''") + "'" if isinstance(self.given, str) else repr(self.given)


@dataclass(frozen=True)
class Compare:
    column: Column
    comparison: Comparison
    other: Column | Value

    def __str__(self) -> str:
        return f"{self.column} {self.comparison} {self.other}"


class HasNotWithin(ABC):
    """A test whose NOT is written within: `x NOT IN (1, 2)`."""

    @abstractmethod
    def show(self, not_: str) -> str:
        """`not_` is "NOT " or nothing."""

    def __str__(self) -> str:
        return self.show("")


@dataclass(frozen=True)
class Between(HasNotWithin):
    column: Column
    low: Value
    high: Value

    def show(self, not_: str) -> str:
        return f"{self.column} {not_}BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True)
class In(HasNotWithin):
    column: Column
    values: tuple[Value, ...]

    def show(self, not_: str) -> str:
        return f"{self.column} {not_}IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True)
class Like(HasNotWithin):
    """`%` stands for any characters, `_` for one, and a backslash takes the meaning from what follows it."""

    column: Column
    pattern: Value

    def show(self, not_: str) -> str:
        return f"{self.column} {not_}LIKE {self.pattern}"


@dataclass(frozen=True)
class IsNull(HasNotWithin):
    column: Column

    def show(self, not_: str) -> str:
        return f"{self.column} IS {not_}NULL"


@dataclass(frozen=True)
class IsTrue:
    """A column of booleans by itself."""

    column: Column

    def __str__(self) -> str:
        return str(self.column)


@dataclass(frozen=True)
class Not:
    part: "Clause"

    def __str__(self) -> str:
        if isinstance(self.part, HasNotWithin):
            return self.part.show("NOT ")
        return f"NOT ({self.part})" if isinstance(self.part, And | Or) else f"NOT {self.part}"


@dataclass(frozen=True)
class And:
    parts: tuple["Clause", ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Or:
    parts: tuple["Clause", ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


Test = Compare | Between | In | Like | IsNull | IsTrue
"""What looks at columns itself."""
Clause = Test | Not | And | Or


def refuse(position: int, what: str, remedy: str) -> NoReturn:
    raise InputError(f"at character {position} of the condition: {what}: {remedy}")


def tests_of(clause: Clause) -> list[Test]:
    """From left to right."""
    if isinstance(clause, Not):
        return tests_of(clause.part)
    if isinstance(clause, And | Or):
        return [test for part in clause.parts for test in tests_of(part)]
    return [clause]


def columns_of(clause: Clause) -> set[str]:
    """The names of the columns that are looked at."""
    tests = tests_of(clause)
    others = [test.other for test in tests if isinstance(test, Compare) and isinstance(test.other, Column)]
    return {column.name for column in (*(test.column for test in tests), *others)}


def negate(clause: Clause) -> Clause:
    return clause.part if isinstance(clause, Not) else Not(clause)


def join(kind: type[And] | type[Or], parts: list[Clause]) -> Clause:
    """The parts as one clause; those of the same kind give their own parts."""
    if len(parts) == 1:
        return parts[0]
    flat: list[Clause] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else (part,)
    return kind(tuple(flat))
