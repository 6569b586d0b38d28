"""Real posts as a stream, with queries made from them: the places and the words of queries are those of posts.

`real_posts.py` reads the files; `posts.py` makes posts and queries up. The posts come again from the beginning once
they are used up, as SWARM's tweets do (§6). PS2Stream §VI-A and §VI-C: a query is a square round the place of a post,
with one to three words that are drawn as often as posts have them; one word of a query of Q2 is not in the top 1 %.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.subscriptions.attributes import operation_batch
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.core.text.tokens import terms_of
from geoswarm.errors import InputError
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.draw import key_of
from geoswarm.lab.workload.lifetimes import Lifetimes
from geoswarm.lab.workload.posts import POST, QueryKind
from geoswarm.lab.workload.queries import (
    KEYWORDS_MAX,
    SIDE_MAX_Q1_KM,
    SIDE_MAX_Q2_KM,
    Words,
    draws,
    expressions,
    is_q2,
    squares,
)
from geoswarm.lab.workload.real_posts import real_posts
from geoswarm.lab.workload.words import TOP_SHARE

OPERATORS = ("and", "or", "not")
"""Words that queries cannot ask for without quotes."""
DRAW_COUNT, DRAW_PLACE, DRAW_WORDS = 1, 4, 5
"""Numbers of the draws of a query; those of its side and its operator are in `queries.py`."""


@dataclass(frozen=True, eq=False)
class RealStream:
    posts: pa.RecordBatch
    """As `POST`."""
    bounds: Bounds
    seed: int = 0

    @classmethod
    def of(cls, name: str, bounds: Bounds, seed: int = 0, folder: Path | None = None) -> "RealStream":
        """The posts of a source that lie within the bounds."""
        rows = real_posts(name, folder)
        x, y = (rows.column(side).to_numpy() for side in ("x", "y"))
        within = (x >= bounds[0]) & (y >= bounds[1]) & (x < bounds[2]) & (y < bounds[3])
        if not within.any():
            raise InputError(f"none of the {rows.num_rows} posts of {name!r} lies within {bounds}: choose other bounds")
        return cls(rows.filter(pa.array(within)), bounds, seed)

    def events(self, first_id: int, count: int) -> pa.RecordBatch:
        ids = np.arange(first_id, first_id + count)
        rows = self.posts.take(pa.array(ids % self.posts.num_rows))
        return pa.RecordBatch.from_arrays([pa.array(ids), *rows.columns[1:]], schema=POST)

    def subscriptions(self, first_id: int, count: int, queries: QueryKind = "Q1", interval: int = 0) -> pa.RecordBatch:
        return self.subscriptions_of(np.arange(first_id, first_id + count), queries, interval)

    def subscriptions_of(self, ids: Ints, queries: QueryKind = "Q1", interval: int = 0) -> pa.RecordBatch:
        key = key_of(self.seed, "queries")
        at = pa.array((draws(key, ids, DRAW_PLACE) * self.posts.num_rows).astype(np.int64))
        x, y = (self.posts.column(side).take(at).to_numpy() for side in ("x", "y"))
        rare = np.full(len(ids), queries == "Q2")
        if queries == "Q3":
            rare = is_q2(ids, x, y, self.bounds, self.seed, interval)
        sides = squares(key, ids, x, y, np.where(rare, SIDE_MAX_Q2_KM, SIDE_MAX_Q1_KM), np.array(self.bounds))
        words = expressions(key, ids, self._keywords(ids, rare), self._vocabulary[0], np.zeros(len(ids), np.bool_))
        drawn = dict(zip((*SIDES, "keywords"), (*map(pa.array, sides), words), strict=True))
        verbs, users = (pa.repeat(pa.scalar(text), len(ids)) for text in ("register", "reader"))
        return operation_batch({"op": verbs, "sub_id": pa.array(ids), "user": users, **drawn})

    def departures(self, live: int, numbers: Ints) -> Ints:
        return Lifetimes(live, self.seed).departing(numbers)

    def _keywords(self, ids: Ints, rare: Bools) -> Words:
        """(KEYWORDS_MAX, n) words, -1 for none; a word that is drawn again is left out."""
        key, (_, said, seldom) = key_of(self.seed, "queries"), self._vocabulary
        found = np.full((KEYWORDS_MAX, len(ids)), -1, np.int32)
        wanted = 1 + (draws(key, ids, DRAW_COUNT) * KEYWORDS_MAX).astype(np.int64)
        for n in range(KEYWORDS_MAX):
            chance: Floats = draws(key, ids, DRAW_WORDS + n)
            words = said[(chance * len(said)).astype(np.int64)]
            if n == 0:
                words = np.where(rare, seldom[(chance * len(seldom)).astype(np.int64)], words)
            fresh = (n < wanted) & (found[:n] != words).all(axis=0)
            found[n, fresh] = words[fresh]
        return found

    @cached_property
    def _vocabulary(self) -> tuple[pa.Array, Ints, Ints]:
        """All words; the word of each place in all posts; and of each place whose word is not in the top 1 %."""
        spoken = [
            term
            for text in self.posts.column("text").to_pylist()
            for term in terms_of(text)
            if term not in OPERATORS and term.isalnum()
        ]
        words, said, counts = np.unique(spoken, return_inverse=True, return_counts=True)
        top = np.zeros(len(words), np.bool_)
        top[np.argsort(-counts, kind="stable")[: max(1, int(len(words) * TOP_SHARE))]] = True
        return pa.array(words.tolist()), said, said[~top[said]]
