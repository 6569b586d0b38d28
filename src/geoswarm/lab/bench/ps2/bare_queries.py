"""Queries and posts as numbers: millions of queries, each the box of cells that it meets and the terms that index it.

`bare_keys.py` counts them under a plan. PS2Stream §IV-D: an AND is indexed under its rarest word, an OR under each.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.control.layout.blocks import BLOCKS
from geoswarm.control.layout.text_sample import Lists, TextSample
from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.core.text.tokens import hash_terms, tokenize
from geoswarm.lab.workload.posts import Posts, QueryKind

CHUNK = 500_000
"""Queries that are drawn at once."""

Boxes = npt.NDArray[np.int16]
Numbers = npt.NDArray[np.int32]


class BareQueries(NamedTuple):
    """Queries without texts: the cells of the plans' grid that they meet, and the terms that they are indexed under."""

    boxes: Boxes
    """(4, n): first row, first column, last row, last column."""
    postings: Lists

    @property
    def size(self) -> int:
        return len(self.postings.offsets) - 1

    def first(self, count: int) -> "BareQueries":
        """The first of them."""
        offsets = self.postings.offsets[: count + 1]
        return BareQueries(self.boxes[:, :count], Lists(offsets, self.postings.terms[: offsets[-1]]))

    def cell_box(self) -> CellBox:
        return CellBox(*(side.astype(np.int64) for side in self.boxes))


def draw_queries(
    posts: Posts, grid: Grid, count: int, queries: QueryKind, number_of_word: Ints, interval: int = 0
) -> BareQueries:
    """`number_of_word` is the term of each word of the vocabulary. The rarest word of a conjunction is that with the
    least share of all posts."""
    boxes, lengths, terms = np.empty((4, count), np.int16), [], []
    shares = posts.frequencies()
    for first in range(0, count, CHUNK):
        some = min(CHUNK, count - first)
        drawn = posts.bare_subscriptions(first, some, queries, interval)
        boxes[:, first : first + some] = np.stack(grid.cover(*drawn.sides))
        length, posted = _postings(drawn.words, drawn.any_of, shares, number_of_word)
        lengths.append(length)
        terms.append(posted)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    return BareQueries(boxes, Lists(offsets, np.concatenate(terms)))


def numbers_of_words(posts: Posts) -> tuple[Ints, Array]:
    """The term of each word of the vocabulary, from 1, and the hashes by term, the first of which stands for
    ANYTHING."""
    hashes = hash_terms(posts.vocabulary())
    ordered = np.sort(hashes)
    return np.searchsorted(ordered, hashes) + 1, np.concatenate([np.zeros(1, np.uint64), ordered])


@kernel
def _postings(words: Numbers, any_of: Bools, shares: Floats, number_of_word: Ints) -> tuple[Ints, Numbers]:
    """The number of terms that each query is indexed under, and these: all of an OR, the rarest of an AND."""
    lengths, terms = np.zeros(words.shape[1], np.int64), np.empty(words.size, np.int32)
    n = 0
    for i in range(words.shape[1]):
        rarest = words[0, i]
        for k in range(len(words)):
            word = words[k, i]
            if word < 0:
                continue
            if any_of[i]:
                terms[n] = number_of_word[word]
                n += 1
                lengths[i] += 1
            elif shares[word] < shares[rarest]:
                rarest = word
        if not any_of[i]:
            terms[n] = number_of_word[rarest]
            n += 1
            lengths[i] = 1
    return lengths, terms[:n].copy()


class WordPairs(NamedTuple):
    rows: Ints
    terms: Ints


def word_pairs(sample: TextSample) -> WordPairs:
    """Pairs of an event and a term that it says."""
    said = sample.said.terms > 0
    return WordPairs(sample.said.rows[said], sample.said.terms[said].astype(np.int64))


def text_sample(posts: Posts, grid: Grid, events: int, queries: BareQueries) -> TextSample:
    """The first posts, and these queries. Terms are those of the whole vocabulary."""
    _, hashes = numbers_of_words(posts)
    drawn = posts.events(0, events)
    tokens, everyone = tokenize(drawn.column("text")), np.arange(events)
    said_by = np.repeat(everyone, np.diff(tokens.offsets))
    spoken = np.searchsorted(hashes[1:], tokens.hashes) + 1
    said = Lists.of(np.concatenate([everyone, said_by]), np.concatenate([0 * everyone, spoken]), events)
    cells = grid.locate(drawn.column("x").to_numpy(), drawn.column("y").to_numpy()).astype(np.int64)
    boxes, postings = queries.cell_box(), queries.postings
    places = np.divmod(cells, grid.columns)
    return TextSample(grid, *places, said, boxes, postings, postings, hashes, blocks_max=BLOCKS**2)


def with_lists(sample: TextSample, asked: Lists, checks: Ints) -> TextSample:
    """The sample with these terms of each event as `asked`, and their lists by pair of `word_pairs`."""
    pairs, other = word_pairs(sample), replace(sample)
    at = np.searchsorted(pairs.rows * sample.terms + pairs.terms, asked.rows * sample.terms + asked.terms)
    other.__dict__["_met"] = asked, checks[at]
    return other


def asked_terms(sample: TextSample, is_asked: Bools) -> Lists:
    """The pairs of `word_pairs` that are asked for, by event."""
    pairs = word_pairs(sample)
    offsets = np.zeros(sample.events + 1, np.int64)
    np.cumsum(np.bincount(pairs.rows[is_asked], minlength=sample.events), out=offsets[1:])
    return Lists(offsets, pairs.terms[is_asked].astype(np.int32))
