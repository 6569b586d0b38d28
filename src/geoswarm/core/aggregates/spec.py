"""What a subscription counts: a function, a window, a group and a condition, read from texts and printed alike.

    aggregate   count   sum(c)   avg(c)   min(c)   max(c)   distinct(c)   quantile(c, 0.95)   top(c, 10)
    window      tumbling(60 s)   sliding(300 s, 60 s)   count(1000)   session(30 s)
    group_by    the name of a column
    when        a condition on the answer (`core/where/when.py`)

Functions and windows may be written in any case. A column c is a bare name or "any name", as in conditions. Units are
ms, s, min, h and day. Equal specs print alike, and what is printed reads as an equal spec.
"""

import json
import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, NoReturn

from geoswarm.config import KEPT_SECONDS
from geoswarm.core.text.grammar import shorten
from geoswarm.core.where.clause import Column, refuse, tests_of
from geoswarm.core.where.when import COUNT, read_when
from geoswarm.errors import InputError

TUMBLING, SLIDING, COUNTED, SESSION = WINDOW_KINDS = ("tumbling", "sliding", "count", "session")
FUNCTIONS = ("count", "sum", "avg", "min", "max", "distinct", "quantile", "top")
SKETCHED = ("distinct", "quantile", "top")
"""The functions that need a sketch."""

TEXT_CHARS_MAX = 1000
"""Characters of an aggregate, a window or a condition: room for any sensible one. Segments keep each distinct one."""
COLUMN_CHARS_MAX = 256
"""Characters of a column's name: more than tables and topics have."""
LENGTH_MS_MAX = 366 * 86_400_000
"""The longest window or gap, in milliseconds: a year. An open window is state that is carried from batch to batch."""
PANES_MAX = 1440
"""Slides in the length of a sliding window: a day by the minute. Each window that closes merges so many panes."""
EVENTS_MAX = 1_000_000_000
"""Events in a window of `count`: days of a stream of thousands a second."""
TOP_MAX = 100
"""Values in one answer of `top`: what a person looks at. A sketch keeps 768."""
SPECS_CACHED = 10_000
"""Distinct specs that a process keeps read, about 1 KB each."""

_UNITS_MS = {"ms": 1, "millisecond": 1} | {unit: int(seconds * 1000) for unit, seconds in KEPT_SECONDS.items()}
_PIECE = re.compile(
    r"\s+|(?P<number>\d+(?:_\d+)*(?:\.\d+)?)|(?P<word>[^\W\d]\w*)|(?P<name>\"(?:[^\"]|\"\")+\")|(?P<mark>[(),])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_FUNCTIONS = "count, sum(c), avg(c), min(c), max(c), distinct(c), quantile(c, 0.95) or top(c, 10), c being a column"
_WINDOWS = "tumbling(60 s), sliding(300 s, 60 s), count(1000) or session(30 s)"


class Aggregate(NamedTuple):
    function: str
    """One of FUNCTIONS."""
    column: str | None
    """None: `count`, which counts events."""
    argument: float | None
    """The rank of a quantile, the number of values of a top."""

    def __str__(self) -> str:
        if self.column is None:
            return self.function
        shown = str(Column(self.column))
        return (
            f"{self.function}({shown})"
            if self.argument is None
            else f"{self.function}({shown}, {_number(self.argument)})"
        )


class Window(NamedTuple):
    kind: str
    """One of WINDOW_KINDS."""
    length_us: int
    """Of a session, the gap that ends it. 0: `count`."""
    slide_us: int
    """From the start of a window to that of the next: the length of a pane. 0: `count` and `session`."""
    events: int
    """0: all but `count`."""

    def __str__(self) -> str:
        if self.kind == COUNTED:
            return f"{self.kind}({self.events})"
        length = _duration(self.length_us)
        return (
            f"{self.kind}({length}, {_duration(self.slide_us)})" if self.kind == SLIDING else f"{self.kind}({length})"
        )


class AggregateSpec(NamedTuple):
    aggregate: Aggregate
    window: Window
    group_by: str | None
    when: str | None

    @property
    def state_key(self) -> str:
        """What must be equal for a replaced subscription to go on counting: all but the condition."""
        return json.dumps([str(self.aggregate), str(self.window), self.group_by], ensure_ascii=False)

    @property
    def text(self) -> str:
        """All of it, for `parse_spec`."""
        return json.dumps([str(self.aggregate), str(self.window), self.group_by, self.when], ensure_ascii=False)


def read_spec(aggregate: str, window: str, group_by: str | None = None, when: str | None = None) -> AggregateSpec:
    """Raises an InputError that says what is wrong and what to send, as all functions here do."""
    asked = read_aggregate(aggregate)
    return AggregateSpec(asked, read_window(window), read_group_by(group_by), _canonical_when(when, asked.function))


@lru_cache(SPECS_CACHED)
def parse_spec(text: str) -> AggregateSpec:
    """The spec whose `text` this is."""
    aggregate, window, group_by, when = json.loads(text)
    return AggregateSpec(read_aggregate(aggregate), read_window(window), group_by, when)


@lru_cache(SPECS_CACHED)
def read_aggregate(text: str) -> Aggregate:
    reader = _Reader(text, "aggregate", _FUNCTIONS)
    function = reader.word(FUNCTIONS)
    if function == "count":
        if reader.next.shown == "(":
            reader.refuse(reader.next, "count counts events and has no column", "write count, or distinct(c)")
        reader.end()
        return Aggregate(function, None, None)
    reader.mark("(")
    column, argument = reader.column(), None
    if function in ("quantile", "top"):
        reader.mark(",")
        argument = _rank(reader) if function == "quantile" else _most(reader)
    reader.mark(")")
    reader.end()
    return Aggregate(function, column, argument)


@lru_cache(SPECS_CACHED)
def read_window(text: str) -> Window:
    reader = _Reader(text, "window", _WINDOWS)
    kind = reader.word(WINDOW_KINDS)
    reader.mark("(")
    if kind == COUNTED:
        window = Window(kind, 0, 0, reader.integer("events", EVENTS_MAX))
    else:
        length_us = slide_us = reader.duration_us()
        if kind == SLIDING:
            reader.mark(",")
            at = reader.next
            slide_us = reader.duration_us()
            if length_us % slide_us:
                reader.refuse(
                    at,
                    f"a length of {_duration(length_us)} is no multiple of a slide of {_duration(slide_us)}",
                    "choose a slide that divides the length",
                )
            if length_us // slide_us > PANES_MAX:
                reader.refuse(
                    at,
                    f"{length_us // slide_us} slides in one length, limit {PANES_MAX}",
                    "choose a longer slide or a shorter length",
                )
        window = Window(kind, length_us, 0 if kind == SESSION else slide_us, 0)
    reader.mark(")")
    reader.end()
    return window


def read_group_by(text: str | None) -> str | None:
    if text is None:
        return None
    if not text:
        raise InputError("group_by is empty: name a column of the events, or leave it out")
    if len(text) > COLUMN_CHARS_MAX:
        raise InputError(f"group_by has {len(text)} characters, limit {COLUMN_CHARS_MAX}: name a column of the events")
    return text


def _canonical_when(text: str | None, function: str) -> str | None:
    if text is None:
        return None
    if len(text) > TEXT_CHARS_MAX:
        raise InputError(f"a condition `when` of {len(text)} characters, limit {TEXT_CHARS_MAX}: write a shorter one")
    clause = read_when(text, function)
    if function == "top":
        sides = [side for test in tests_of(clause) for side in (test.column, getattr(test, "other", None))]
        for column in (side for side in sides if isinstance(side, Column) and side.name != COUNT):
            refuse(column.position, f"an answer of top is a list, and has no {column.name} to compare", "compare count")
    return str(clause)


class _Piece(NamedTuple):
    kind: str
    """number, word, name, mark or other; or the end."""
    shown: str
    position: int
    """Its first character in the text, from 1."""


class _Reader:
    """Takes the pieces of a text from left to right."""

    def __init__(self, text: str, what: str, forms: str) -> None:
        self._what, self._forms, self._at = what, forms, 0
        if len(text) > TEXT_CHARS_MAX:
            raise InputError(f"{len(text)} characters of {what}, limit {TEXT_CHARS_MAX}: write {forms}")
        found = (piece for piece in _PIECE.finditer(text) if piece.lastgroup is not None)
        self._pieces = [_Piece(str(piece.lastgroup), piece.group(), piece.start() + 1) for piece in found]
        self._pieces.append(_Piece("end", "the end", len(text) + 1))

    @property
    def next(self) -> _Piece:
        return self._pieces[self._at]

    def refuse(self, piece: _Piece, what: str, remedy: str) -> NoReturn:
        raise InputError(f"at character {piece.position} of the {self._what}: {what}: {remedy}")

    def word(self, known: tuple[str, ...]) -> str:
        piece = self._take()
        if piece.shown.lower() not in known:
            self.refuse(piece, f"{shorten(piece.shown)} is no {self._what}", f"write {self._forms}")
        return piece.shown.lower()

    def mark(self, mark: str) -> None:
        piece = self._take()
        if piece.shown != mark or piece.kind != "mark":
            self.refuse(piece, f"{shorten(piece.shown)} stands where {mark} is wanted", f"write {self._forms}")

    def end(self) -> None:
        if self.next.kind != "end":
            self.refuse(self.next, f"{shorten(self.next.shown)} follows a complete {self._what}", "leave it out")

    def column(self) -> str:
        piece = self._take()
        if piece.kind not in ("word", "name"):
            remedy = "write its name, in double quotes if it is no plain word"
            self.refuse(piece, f"{shorten(piece.shown)} stands where a column is wanted", remedy)
        name = piece.shown if piece.kind == "word" else piece.shown[1:-1].replace('""', '"')
        if len(name) > COLUMN_CHARS_MAX:
            self.refuse(piece, f"a column of {len(name)} characters", f"use a name of at most {COLUMN_CHARS_MAX}")
        return name

    def number(self, wanted: str) -> tuple[_Piece, Fraction]:
        piece = self._take()
        if piece.kind != "number":
            self.refuse(piece, f"{shorten(piece.shown)} stands where {wanted} is wanted", f"write {self._forms}")
        return piece, Fraction(piece.shown)

    def integer(self, of: str, most: int) -> int:
        piece, given = self.number(f"a number of {of}")
        if given != int(given) or not 1 <= given <= most:
            self.refuse(piece, f"{shorten(piece.shown)} is no number of {of}", f"write a whole number from 1 to {most}")
        return int(given)

    def duration_us(self) -> int:
        piece, given = self.number("a time")
        unit = self._take()
        name = unit.shown.lower()
        per_unit = _UNITS_MS.get(name) or _UNITS_MS.get(name.removesuffix("s"))
        if per_unit is None:
            self.refuse(unit, f"{shorten(unit.shown)} is no unit of time", "write ms, s, min, h or day behind a number")
        length_ms = given * per_unit
        if length_ms != int(length_ms) or not 1 <= length_ms <= LENGTH_MS_MAX:
            remedy = f"use whole milliseconds, from 1 ms to {LENGTH_MS_MAX // 86_400_000} days"
            self.refuse(piece, f"{shorten(piece.shown)} {unit.shown} is no length of a window", remedy)
        return int(length_ms) * 1000

    def _take(self) -> _Piece:
        piece = self.next
        self._at += piece.kind != "end"
        return piece


def _rank(reader: _Reader) -> float:
    piece, given = reader.number("a rank")
    if given > 1:
        reader.refuse(piece, f"a rank of {shorten(piece.shown)}", "write a number from 0 to 1; 0.5 is the median")
    return float(given)


def _most(reader: _Reader) -> float:
    return float(reader.integer("values", TOP_MAX))


def _duration(length_us: int) -> str:
    return f"{length_us // 1_000_000} s" if length_us % 1_000_000 == 0 else f"{length_us // 1000} ms"


def _number(number: float) -> str:
    """Without an exponent, and without a fraction if it is whole."""
    return str(int(number)) if number == int(number) else format(Decimal(repr(number)), "f")
