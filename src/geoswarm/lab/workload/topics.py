"""The words of posts, one row each, whose frequencies change slowly: the keys of a word count.

Posts and their words come from `posts.py`; here some words are exchanged for others as time goes on. `stocks.py` has
abrupt changes.

    interval    0   1   2   3
    "river"    12  11  17  17      each interval, a small share of the words change places with one that is up to
    "dam"      18  18  12  12      twice as frequent: a topic comes up, another goes down

Mixed §V, "Real-World Data": five days of 5 000 000 posts, 180 000 topic words; "the word frequency usually changes
slowly".
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.posts import Posts

ROWS_PER_POST_MAX = 1 << 10
"""A row's id is that of its post and, in the low ten bits, the word's place in it."""
RATIO_MAX = 2.0
"""The largest ratio between the ranks of two words that change places."""


def terms(posts: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each word of each post: (row_id, ts, key). A word that occurs twice has two rows."""
    words = pc.split_pattern(posts.column("text"), " ")
    parents = np.asarray(pc.list_parent_indices(words))
    nth = np.arange(len(parents)) - np.searchsorted(parents, parents)
    ids = np.asarray(posts.column("event_id"))[parents] * ROWS_PER_POST_MAX + nth
    said_at = pc.take(posts.column("ts"), pa.array(parents))
    return pa.record_batch([pa.array(ids), said_at, words.flatten()], names=["row_id", "ts", "key"])


@dataclass(frozen=True)
class Topics:
    posts: Posts = field(default_factory=lambda: Posts(words=180_000, regional_share=0.0))
    drift_share: float = 0.1
    """The share of words that change places from one interval to the next."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.drift_share <= 1.0:
            raise SettingsError(f"drift_share of the topics is {self.drift_share}: give a share from 0 to 1")

    def rows(self, interval: int, n: int) -> pa.RecordBatch:
        """The words of n posts of an interval, as `terms` returns them: about 12 rows a post."""
        rows = terms(self.posts.events(interval * n, n))
        if interval == 0 or self.drift_share == 0.0:
            return rows
        vocabulary = self.posts.vocabulary()
        numbers = np.asarray(pc.index_in(rows.column("key"), value_set=vocabulary)).astype(np.int64)
        words = pc.take(vocabulary, pa.array(self.places(interval)[numbers]))
        return pa.record_batch([*rows.columns[:2], words], names=rows.schema.names)

    def places(self, interval: int) -> Ints:
        """For each word of the vocabulary, the number of the word that replaces it in this interval."""
        return _places(self, interval)


@lru_cache(maxsize=64)
def _places(topics: Topics, interval: int) -> Ints:
    words = topics.posts.words
    if interval <= 0:
        return np.arange(words)
    rng = np.random.default_rng([topics.posts.seed, interval])
    # Word 0 is the most frequent, so numbers are ranks. Pairs are disjoint: a word that comes up twice keeps the first.
    ranks = rng.permutation(words)[: max(1, round(topics.drift_share * words / 2))] + 1
    others = np.minimum(np.ceil(ranks * rng.uniform(1.0, RATIO_MAX, len(ranks))).astype(np.int64), words)
    _, at = np.unique(np.stack([ranks, others], axis=1).ravel(), return_index=True)
    alone = np.zeros(2 * len(ranks), np.bool_)
    alone[at] = True
    both = alone.reshape(-1, 2).all(axis=1) & (ranks != others)
    low, high = ranks[both] - 1, others[both] - 1
    places = _places(topics, interval - 1).copy()
    places[low], places[high] = places[high], places[low]
    places.flags.writeable = False
    return places
