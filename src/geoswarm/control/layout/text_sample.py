"""What a layout knows of the stream before it starts: places and words of events, places and words of subscriptions.

Only counts what it is given, and decides nothing. Words become numbers, the same in events and subscriptions, and each
subscription is entered under the rarest word of each of its conjunctions (PS2Stream §IV-C), as the index does it
(`core/index/words.py`). Which word is the rarest is taken from the events of the sample.

A subscription that asks for no words is entered under `ANYTHING`, a term that every event says.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.text.expression import Expressions, compile_expressions
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import hash_terms, tokenize
from geoswarm.errors import InputError

ANYTHING = 0
"""The number of the term that stands for no condition on words. Its holder has share 0 of a place."""
BLOCKS = 64
"""Lists are counted by blocks, 64 on each side of the map: the granularity of the paper's indexes (§VI-B)."""
BLOCKS_MAX = 4
"""As in this engine's index (`core/index/words.py`), so that one round the world is not entered everywhere."""


class Lists(NamedTuple):
    """The terms of row i are terms[offsets[i]:offsets[i + 1]], each once."""

    offsets: Ints
    terms: Array

    @classmethod
    def of(cls, rows: Ints, terms: Ints, count: int) -> "Lists":
        """From pairs of a row and a term, in any order, repeats allowed."""
        span = int(terms.max(initial=0)) + 1
        keys, _ = distinct_counts(rows.astype(np.int64) * span + terms)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(keys // span, minlength=count), out=offsets[1:])
        return cls(offsets, (keys % span).astype(np.int32))

    @property
    def rows(self) -> Ints:
        """The row of each pair."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def take(self, rows: Ints) -> tuple["Lists", Ints]:
        """Some rows, and which pairs these are."""
        lengths = np.diff(self.offsets)[rows]
        ends = np.cumsum(lengths)
        pairs = np.arange(int(lengths.sum())) + np.repeat(self.offsets[rows] - ends + lengths, lengths)
        return Lists(np.concatenate([np.zeros(1, np.int64), ends]), self.terms[pairs]), pairs


@dataclass(frozen=True, eq=False)
class TextSample:
    grid: Grid
    rows: Ints
    """Of events: the row of their cell."""
    columns: Ints
    said: Lists
    """By event: all its terms, and ANYTHING."""
    boxes: CellBox
    """Of subscriptions: the cells that their rectangles meet."""
    keywords: Lists
    """By subscription: all its terms."""
    postings: Lists
    """By subscription: the terms that it is entered under."""
    hashes: Hashes
    """By term."""
    deletions: float = 1.0
    """Per insertion: where the number of subscriptions is steady, as many go as come (§VI-A)."""
    blocks_max: int = BLOCKS_MAX
    """How many blocks a rectangle is entered in before it is entered in coarser ones. The print's index has one level,
    so there it is `BLOCKS` squared."""

    @classmethod
    def of(
        cls, grid: Grid, points: Floats, rects: Floats, texts: pa.StringArray, keywords: pa.StringArray
    ) -> "TextSample":
        """Points are (n, 2), rects (m, 4), all within the bounds. Keywords that cannot be read are left out."""
        if points.ndim != 2 or points.shape[1] != 2 or rects.ndim != 2 or rects.shape[1] != 4:
            raise InputError(f"a sample has points {points.shape} and rects {rects.shape}: use (n, 2) and (n, 4)")
        if len(texts) != len(points) or len(keywords) != len(rects):
            raise InputError(
                f"a sample has {len(texts)} texts for {len(points)} points, and {len(keywords)} keywords for "
                f"{len(rects)} rects: give one to each, null where there is none"
            )
        expressions, bad = compile_expressions(keywords)
        fit = np.ones(len(rects), np.bool_)
        fit[[row for row, _ in bad]] = False
        expressions, rects = expressions.take(np.flatnonzero(fit)), rects[fit]
        tokens, words = tokenize(texts), hash_terms(expressions.vocabulary)
        known, _ = distinct_counts(np.concatenate([tokens.hashes, words]))
        terms = np.searchsorted(known, np.concatenate([tokens.hashes, words])) + 1
        said_by, spoken = np.repeat(np.arange(len(points)), np.diff(tokens.offsets)), terms[: len(tokens.hashes)]
        everyone = np.arange(len(points))
        said = Lists.of(
            np.concatenate([everyone, said_by]), np.concatenate([np.zeros_like(everyone), spoken]), len(points)
        )
        number_of_word = terms[len(tokens.hashes) :]
        frequencies = np.bincount(spoken, minlength=len(known) + 1)[number_of_word]
        cells = grid.locate(points[:, 0], points[:, 1]).astype(np.int64)
        return cls(
            grid,
            *np.divmod(cells, grid.columns),
            said,
            grid.cover(*rects.T),
            _keywords(expressions, number_of_word),
            _postings(expressions, number_of_word, frequencies),
            np.concatenate([np.zeros(1, np.uint64), known]),
        )

    def of_events(self, events: Ints) -> "TextSample":
        """The same with some of the events only."""
        other = replace(self, rows=self.rows[events], columns=self.columns[events], said=self.said.take(events)[0])
        asked, pairs = self.asked.take(events)
        other.__dict__["_met"] = asked, self.checks[pairs]  # lists are of subscriptions, which stay
        return other

    @property
    def events(self) -> int:
        return len(self.rows)

    @property
    def queries(self) -> int:
        return len(self.boxes.row0)

    @property
    def terms(self) -> int:
        return len(self.hashes)

    @cached_property
    def posted(self) -> Bools:
        """Of each term, whether anybody is entered under it."""
        found = np.zeros(self.terms, np.bool_)
        found[self.postings.terms] = True
        return found

    @cached_property
    def said_counts(self) -> Ints:
        """Of each term, the events that say it."""
        counts: Ints = np.bincount(self.said.terms, minlength=self.terms)
        return counts

    @cached_property
    def asked(self) -> Lists:
        """By event: those of its terms that have a list in its block. What H2 of §IV-C knows, cell by cell."""
        return self._met[0]

    @cached_property
    def checks(self) -> Ints:
        """For each pair of `asked`: how many subscriptions are on the list."""
        return self._met[1]

    @cached_property
    def _met(self) -> tuple[Lists, Ints]:
        sides = ((self.rows, self.grid.rows), (self.columns, self.grid.columns))
        block_row, block_column = (side * BLOCKS // length for side, length in sides)
        lengths = (self.grid.rows, self.grid.columns, self.grid.rows, self.grid.columns)
        box = CellBox(*(side * BLOCKS // length for side, length in zip(self.boxes, lengths, strict=True)))
        keys, sizes = distinct_counts(_list_keys(box, self.postings, self.terms, self.blocks_max))
        event, said = self.said.rows, self.said.terms
        could = self.posted[said]
        event, said = event[could], said[could]
        found = np.zeros(len(said), np.int64)
        for level in range(BLOCKS.bit_length() if len(keys) else 0):
            wanted = _key(level, block_row[event] >> level, block_column[event] >> level, said, self.terms)
            at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            found += np.where(keys[at] == wanted, sizes[at], 0)
        met = found > 0
        offsets = np.zeros(self.events + 1, np.int64)
        np.cumsum(np.bincount(event[met], minlength=self.events), out=offsets[1:])
        return Lists(offsets, said[met]), found[met]

    @cached_property
    def event_checks(self) -> Floats:
        """By event: the entries of all lists that it meets."""
        return np.bincount(self.asked.rows, self.checks, minlength=self.events).astype(np.float64)

    @cached_property
    def selectivity(self) -> float:
        """The share of all pairs of an event and a subscription that the index looks at."""
        return float(self.checks.sum()) / max(1, self.events * self.queries)


def distinct_counts(values: Array) -> tuple[Array, Ints]:
    """The distinct values, ascending, and how often each occurs. `np.unique` hashes, and takes ten times as long."""
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), np.bool_), ordered[1:] != ordered[:-1]]))
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _keywords(expressions: Expressions, number_of_word: Ints) -> Lists:
    subscription = np.repeat(np.arange(len(expressions.conjunctions_offsets) - 1), _lengths(expressions))
    return Lists.of(subscription, number_of_word[expressions.terms], len(expressions.conjunctions_offsets) - 1)


def _lengths(expressions: Expressions) -> Ints:
    """How many terms each subscription has, in all its conjunctions."""
    lengths: Ints = np.diff(expressions.terms_offsets[expressions.conjunctions_offsets])
    return lengths


def _postings(expressions: Expressions, number_of_word: Ints, frequencies: Ints) -> Lists:
    """Of equally rare terms of a conjunction the first, as in `core/index/words.py`."""
    conjunctions = np.diff(expressions.conjunctions_offsets)
    conjunction = np.repeat(np.arange(len(expressions.terms_offsets) - 1), np.diff(expressions.terms_offsets))
    order = np.lexsort((frequencies[expressions.terms], conjunction))  # stable: the first of equals stays the first
    rarest = number_of_word[expressions.terms[order[expressions.terms_offsets[:-1]]]]
    silent = np.flatnonzero(conjunctions == 0)
    subscription = np.concatenate([np.repeat(np.arange(len(conjunctions)), conjunctions), silent])
    return Lists.of(subscription, np.concatenate([rarest, np.full(len(silent), ANYTHING)]), len(conjunctions))


@kernel
def _key(level: int, row: Any, column: Any, term: Any, terms: int) -> Any:
    return ((level * BLOCKS + row) * BLOCKS + column) * terms + term


@kernel
def _list_keys(box: CellBox, postings: Lists, terms: int, blocks_max: int) -> Ints:
    """A key for each list that a subscription is on: at the level at which it meets `blocks_max` blocks at most."""
    levels, room = np.zeros(len(box.row0), np.int64), 0
    for i in range(len(box.row0)):
        while _blocks(box, i, levels[i]) > blocks_max:
            levels[i] += 1
        room += _blocks(box, i, levels[i]) * (postings.offsets[i + 1] - postings.offsets[i])
    keys = np.empty(room, np.int64)
    n = 0
    for i in range(len(box.row0)):
        level = levels[i]
        for p in range(postings.offsets[i], postings.offsets[i + 1]):
            for row in range(box.row0[i] >> level, (box.row1[i] >> level) + 1):
                for column in range(box.col0[i] >> level, (box.col1[i] >> level) + 1):
                    keys[n] = _key(level, row, column, np.int64(postings.terms[p]), terms)
                    n += 1
    return keys


@kernel
def _blocks(box: CellBox, i: int, level: int) -> int:
    rows, columns = (box.row1[i] >> level) - (box.row0[i] >> level), (box.col1[i] >> level) - (box.col0[i] >> level)
    return int((rows + 1) * (columns + 1))
