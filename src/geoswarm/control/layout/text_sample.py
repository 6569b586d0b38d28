"""A sample of the stream for layouts: places and words of events, places and words of subscriptions.

It counts and decides nothing. Words become numbers, the same in events and subscriptions, and each subscription is
indexed under the rarest word of each of its conjunctions (PS2Stream §IV-C), as in `core/index/words.py`. Frequencies
are those of the sample's events.

A subscription without a condition on words is indexed under `ANYTHING`, a term that every event has.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.control.layout.blocks import BLOCKS, common_numbers, count_in_blocks, count_met, cut_blocks
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.stats.triostat import Box
from geoswarm.core.text.expression import Expressions, compile_expressions
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import hash_terms, tokenize
from geoswarm.errors import InputError

ANYTHING = 0
"""The number of the term that stands for no condition on words. It belongs to share 0 of a place."""
BLOCKS_MAX = 4
"""The value of this engine's index (`core/index/words.py`), so a rectangle round the world is not in every block."""


class Lists(NamedTuple):
    """Lists of terms by row: those of row i are terms[offsets[i]:offsets[i + 1]], each once."""

    offsets: Ints
    terms: Array

    @classmethod
    def of(cls, rows: Ints, terms: Ints, count: int) -> "Lists":
        """Lists from pairs of a row and a term, in any order, with repeats."""
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
        """The lists of some rows, and the positions of their pairs."""
        lengths = np.diff(self.offsets)[rows]
        ends = np.cumsum(lengths)
        pairs = np.arange(int(lengths.sum())) + np.repeat(self.offsets[rows] - ends + lengths, lengths)
        return Lists(np.concatenate([np.zeros(1, np.int64), ends]), self.terms[pairs]), pairs


@dataclass(frozen=True, eq=False)
class TextSample:
    grid: Grid
    rows: Ints
    """The row of each event's cell."""
    columns: Ints
    said: Lists
    """All terms of each event, and ANYTHING."""
    boxes: CellBox
    """The cells that each subscription's rectangle meets."""
    keywords: Lists
    """All terms of each subscription."""
    postings: Lists
    """The terms that each subscription is indexed under."""
    hashes: Hashes
    """The hash of each term."""
    deletions: float = 1.0
    """Deletions per insertion: 1 where the number of subscriptions is constant (§VI-A)."""
    blocks_max: int = BLOCKS_MAX
    """The most blocks that a rectangle is listed in; with more, it is listed in coarser ones. The paper's index has one
    level, so there it is `BLOCKS` squared."""
    own_lists: bool = False
    """Whether each executor has lists of its own, with the subscriptions that meet its part of a block, as the paper's
    machines do. Else all share one index, and where a block is cut, events still meet all entries of its lists."""

    @classmethod
    def of(
        cls, grid: Grid, points: Floats, rects: Floats, texts: pa.StringArray, keywords: pa.StringArray
    ) -> "TextSample":
        """A sample from points (n, 2) and rects (m, 4) within the bounds. Subscriptions with invalid keywords are left
        out."""
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
        """The same sample with only some of the events."""
        other = replace(self, rows=self.rows[events], columns=self.columns[events], said=self.said.take(events)[0])
        asked, pairs = self.asked.take(events)
        other.__dict__["_met"] = asked, self.checks[pairs]  # lists depend on subscriptions only, which stay
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
        """Whether each term has a subscription indexed under it."""
        found = np.zeros(self.terms, np.bool_)
        found[self.postings.terms] = True
        return found

    @cached_property
    def said_counts(self) -> Ints:
        """The number of events with each term."""
        counts: Ints = np.bincount(self.said.terms, minlength=self.terms)
        return counts

    @cached_property
    def asked(self) -> Lists:
        """The terms of each event that have a list in its block, as H2 of §IV-C does by cell."""
        return self._met[0]

    @cached_property
    def checks(self) -> Ints:
        """The number of subscriptions on the list of each pair of `asked`."""
        return self._met[1]

    @cached_property
    def _entered(self) -> Ints:
        """A key for each list that each subscription is on."""
        lengths = (self.grid.rows, self.grid.columns, self.grid.rows, self.grid.columns)
        box = CellBox(*(side * BLOCKS // length for side, length in zip(self.boxes, lengths, strict=True)))
        return _list_keys(box, self.postings, self.terms, self.blocks_max)

    @property
    def entries(self) -> int:
        """The number of entries, (block, term), of all subscriptions."""
        return len(self._entered)

    @cached_property
    def _met(self) -> tuple[Lists, Ints]:
        sides = ((self.rows, self.grid.rows), (self.columns, self.grid.columns))
        block_row, block_column = (side * BLOCKS // length for side, length in sides)
        keys, sizes = distinct_counts(self._entered)
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
        """The number of entries in all lists that each event meets."""
        return np.bincount(self.asked.rows, self.checks, minlength=self.events).astype(np.float64)

    @cached_property
    def blocks(self) -> Ints:
        """The block of each event."""
        found: Ints = self.rows * BLOCKS // self.grid.rows * BLOCKS + self.columns * BLOCKS // self.grid.columns
        return found

    @cached_property
    def _in_blocks(self) -> Ints:
        """The number of subscriptions that meet each block."""
        every, sides = np.arange(self.queries), (self.grid.rows, self.grid.columns)
        return count_in_blocks(every, self.boxes, sides, np.ones(BLOCKS * BLOCKS, np.bool_))

    def kept_shares(self, box: Box, queries: Ints) -> Floats | None:
        """By block, the share of its subscriptions that are among `queries`, which are those that meet the box. None
        where executors share their lists, or the box cuts no block."""
        sides = (self.grid.rows, self.grid.columns)
        cut = cut_blocks(box, sides) if self.own_lists else None
        if cut is None or not cut.any():
            return None
        kept = count_in_blocks(queries, self.boxes, sides, cut)
        return np.where(cut, kept / np.maximum(self._in_blocks, 1), 1.0)

    def shares_met(self, boxes: Ints) -> Floats:
        """By block, the share of its subscriptions that meet the parts of it that belong to these boxes (n, 4)."""
        sides = (self.grid.rows, self.grid.columns)
        found: Floats = count_met(self.boxes, boxes, sides) / np.maximum(self._in_blocks, 1)
        return found

    def shares_in_both(self, first: Ints, second: Ints, wanted: Bools) -> Floats:
        """By wanted block, the share of its subscriptions that are in both, which ascend."""
        common = common_numbers(first, second)
        kept = count_in_blocks(common, self.boxes, (self.grid.rows, self.grid.columns), wanted)
        found: Floats = kept / np.maximum(self._in_blocks, 1)
        return found

    @cached_property
    def selectivity(self) -> float:
        """The share of all pairs of an event and a subscription that the index compares."""
        return float(self.checks.sum()) / max(1, self.events * self.queries)


def distinct_counts(values: Array) -> tuple[Array, Ints]:
    """The distinct values, ascending, and how often each occurs. `np.unique` hashes, and takes ten times as long."""
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), np.bool_), ordered[1:] != ordered[:-1]]))
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _keywords(expressions: Expressions, number_of_word: Ints) -> Lists:
    expressions = expressions.wanted()
    subscription = np.repeat(np.arange(len(expressions.conjunctions_offsets) - 1), _lengths(expressions))
    return Lists.of(subscription, number_of_word[expressions.terms], len(expressions.conjunctions_offsets) - 1)


def _lengths(expressions: Expressions) -> Ints:
    """The number of terms of each subscription, in all its conjunctions."""
    lengths: Ints = np.diff(expressions.terms_offsets[expressions.conjunctions_offsets])
    return lengths


def _postings(expressions: Expressions, number_of_word: Ints, frequencies: Ints) -> Lists:
    """The rarest term of each conjunction, the first of equally rare ones, as in `core/index/words.py`."""
    expressions = expressions.wanted()
    conjunctions = np.diff(expressions.conjunctions_offsets)
    conjunction = np.repeat(np.arange(len(expressions.terms_offsets) - 1), np.diff(expressions.terms_offsets))
    order = np.lexsort((frequencies[expressions.terms], conjunction))  # stable, so the first of equals stays first
    rarest = number_of_word[expressions.terms[order[expressions.terms_offsets[:-1]]]]
    silent = np.flatnonzero(conjunctions == 0)
    subscription = np.concatenate([np.repeat(np.arange(len(conjunctions)), conjunctions), silent])
    return Lists.of(subscription, np.concatenate([rarest, np.full(len(silent), ANYTHING)]), len(conjunctions))


@kernel
def _key(level: int, row: Any, column: Any, term: Any, terms: int) -> Any:
    return ((level * BLOCKS + row) * BLOCKS + column) * terms + term


@kernel
def _list_keys(box: CellBox, postings: Lists, terms: int, blocks_max: int) -> Ints:
    """A key for each list that a subscription is on, at the finest level with at most `blocks_max` blocks."""
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
