"""Posts with a place and words, and queries over both: the streams of PS2Stream's experiments.

Places and times are those of `tweets.py`, words those of `words.py`, queries those of `queries.py`; as in all of them,
a row depends on nothing but the parameters and its id, so any range can be drawn alone. Real posts: `real_posts.py`.

    id ──► tweet ──► ts, x, y ──► region ──► 10 to 15 words                        a post
    id ──► place ──► region, square of some km ──► 1 to 3 words, AND or OR         a query

PS2Stream §VI-A, §VI-C, §VI-D: five posts for each change of a query; as many queries come as go.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.subscriptions.attributes import operation_batch
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.draw import key_of
from geoswarm.lab.workload.lifetimes import Lifetimes
from geoswarm.lab.workload.queries import (
    SIDE_MAX_Q1_KM,
    SIDE_MAX_Q2_KM,
    Words,
    draws,
    expressions,
    is_q2,
    joined_by_or,
    keywords,
    squares,
)
from geoswarm.lab.workload.tweets import ID_MAX, START_S, Tweets, _ids
from geoswarm.lab.workload.words import (
    REGIONS,
    TOP_SHARE,
    WIDTH,
    WORDS_MAX,
    WORDS_PER_POST,
    Lexicon,
    WordShares,
    frequencies,
    lexicon,
    regions_of,
    vocabulary,
    write,
)
from geoswarm.model import EVENT

QueryKind = Literal["Q1", "Q2", "Q3"]

POST = EVENT.append(pa.field("text", pa.string(), nullable=False))

POSTS_PER_CHANGE = 5
ROWS_MAX = 16_000_000
"""Rows of one batch: its text has offsets of 31 bits."""
PLACES = 1 << 16
"""Places that are sampled for the share of each region in the posts."""


class BareSubscriptions(NamedTuple):
    """Queries as numbers."""

    sides: Floats
    """(4, n): xmin, ymin, xmax, ymax."""
    words: Words
    """(3, n): numbers of words in the vocabulary; -1 for none."""
    any_of: Bools
    """Whether the words are joined by OR."""


@dataclass(frozen=True)
class Posts:
    """Ids from 0. The parameters up to `users` are those of `Tweets`."""

    seed: int = 0
    bounds: Bounds = field(default=None)  # type: ignore[assignment]  # resolved below, as in Tweets
    country: str | None = None
    events_per_s: float = 10_000.0
    start_s: float = START_S
    background_share: float = 0.02
    burst_share: float = 0.05
    users: int = 1000
    words: int = 100_000
    """The number of words in the vocabulary."""
    regional_share: float = 0.6
    """Words of a post that come from its region's own vocabulary; 0 for one language everywhere."""
    exponent: float = 1.1
    shift: float = 20.0
    """The shift of the power law 1 / (rank + shift) ^ exponent. By default, the first word is 0.8 % of all and the top
    1 % are 55 %, as in English without its 30 commonest words; exponent 1 and shift 0 keep them, the first with 8 %."""
    text_only_share: float = 0.0
    """Queries with words and no place of their own: their rectangle is the whole map."""
    space_only_share: float = 0.0
    """Queries with a place and no words: their keywords are null."""
    tweets: Tweets = field(init=False, repr=False, compare=False)
    stream_name: ClassVar[str] = "geoswarm-posts"
    event_schema: ClassVar[pa.Schema] = POST
    id_max: ClassVar[int] = ID_MAX

    def __post_init__(self) -> None:
        names = ("seed", "bounds", "country", "events_per_s", "start_s", "background_share", "burst_share", "users")
        object.__setattr__(self, "tweets", Tweets(**{name: getattr(self, name) for name in names}))
        object.__setattr__(self, "bounds", self.tweets.bounds)
        _expect("words", self.words, 100, WORDS_MAX)
        _expect("regional_share", self.regional_share, 0.0, 1.0)
        _expect("exponent", self.exponent, 0.0, 10.0)
        _expect("shift", self.shift, 0.0, 1e6)
        _expect("text_only_share", self.text_only_share, 0.0, 1.0)
        _expect("space_only_share", self.space_only_share, 0.0, 1.0 - self.text_only_share)

    def events(self, first_id: int, count: int) -> pa.RecordBatch:
        """Posts first_id .. first_id + count - 1, as `POST`."""
        _expect_rows(count)
        rows = self.tweets.events(first_id, count)
        ids, x, y = (rows.column(name).to_numpy() for name in ("event_id", "x", "y"))
        text = np.empty(count * WORDS_PER_POST[1] * (WIDTH - 1) + WIDTH, np.uint8)
        ends = np.empty(count + 1, np.int32)
        write(key_of(self.seed, "posts"), ids, x, y, self._lexicon(), text, ends)
        buffers = (pa.py_buffer(ends), pa.py_buffer(text[: ends[-1]].copy()))  # the copy lets go of the slack
        return pa.record_batch([*rows.columns, pa.StringArray.from_buffers(count, *buffers)], schema=POST)

    def subscriptions(self, first_id: int, count: int, queries: QueryKind = "Q1", interval: int = 0) -> pa.RecordBatch:
        """Registrations of sub_id first_id .. first_id + count - 1, as `columns.OPERATION`.

        A tenth of the regions of Q3 switches with each `interval` of ids; with 0, none ever does."""
        _expect_rows(count)
        return self._rows(_ids(first_id, count), np.ones(count, np.bool_), queries, interval)

    def subscriptions_of(self, ids: Ints, queries: QueryKind = "Q1", interval: int = 0) -> pa.RecordBatch:
        """The registrations of these ids, in their order."""
        _expect_rows(len(ids))
        return self._rows(ids, np.ones(len(ids), np.bool_), queries, interval)

    def operations(
        self, first_id: int, count: int, mu: int, queries: QueryKind = "Q1", interval: int = 0
    ) -> pa.RecordBatch:
        """Changes after `subscriptions(0, mu)`: even ones register a new id, odd ones cancel one.

        change     0        1        2        3
        sub_id     mu   cancel(i)   mu+1  cancel(j)       about N(mu, 0.2 mu) registrations in a life
        """
        _expect_rows(count)
        numbers = _ids(first_id, count)
        new = numbers % 2 == 0
        ids = mu + numbers // 2
        ids[~new] = self.departures(mu, numbers[~new] // 2)
        return self._rows(ids, new, queries, interval)

    def departures(self, mu: int, numbers: Ints) -> Ints:
        """The query that each departure takes out, where `mu` queries stand at any time."""
        return Lifetimes(mu, self.seed).departing(numbers)

    def changes_before(self, event_id: int) -> int:
        """The number of changes before a post: posts a to b go with changes `changes_before(a)` to that of b."""
        return -(-event_id // POSTS_PER_CHANGE)

    def vocabulary(self) -> pa.Array:
        return vocabulary(self.words)

    def frequencies(self) -> Floats:
        """The share of each word of the vocabulary in the posts of an average day."""
        return _speech(self)[0]

    def _lexicon(self) -> Lexicon:
        return lexicon(self.seed, self.bounds, self._shares(), self.regional_share)

    def _shares(self) -> WordShares:
        return WordShares(self.words, self.exponent, self.shift)

    def _places(self, ids: Ints) -> tuple[Floats, Floats]:
        return self.tweets._points(ids, np.zeros(len(ids), np.int64), "subs", average=True)

    def _rows(self, ids: Ints, new: Bools, queries: QueryKind, interval: int) -> pa.RecordBatch:
        """The registration of each id where `new`, else its cancellation."""
        born = ids[new]
        sides, words = self._draw_queries(born, queries, interval)
        verbs = pa.array(["cancel", "register"]).take(pa.array(new.astype(np.int8)))
        place = np.where(new, np.cumsum(new) - 1, 0)
        at = None if new.all() else pa.array(place, mask=~new)
        columns = [column if at is None else column.take(at) for column in (*map(pa.array, sides), words)]
        users = self.tweets._users_of(ids)
        drawn = dict(zip((*SIDES, "keywords"), columns, strict=True))
        return operation_batch({"op": verbs, "sub_id": pa.array(ids), "user": users, **drawn})

    def bare_subscriptions(
        self, first_id: int, count: int, queries: QueryKind = "Q1", interval: int = 0
    ) -> "BareSubscriptions":
        """The same queries as `subscriptions`, as numbers: for those who draw millions. All have words."""
        _expect_rows(count)
        if self.space_only_share:
            raise InputError(f"{self.space_only_share:.0%} of the queries have no words: draw `subscriptions`")
        ids = _ids(first_id, count)
        sides, words, _ = self._draw_words(ids, queries, interval)
        return BareSubscriptions(sides, words, joined_by_or(key_of(self.seed, "queries"), ids))

    def _draw_queries(self, ids: Ints, queries: QueryKind, interval: int) -> tuple[Floats, pa.Array]:
        sides, words, silent = self._draw_words(ids, queries, interval)
        return sides, expressions(key_of(self.seed, "queries"), ids, words, self.vocabulary(), silent)

    def _draw_words(self, ids: Ints, queries: QueryKind, interval: int) -> tuple[Floats, Words, Bools]:
        """Squares and words, and which of the queries have no words after all."""
        if queries not in get_args(QueryKind) or interval < 0:
            raise InputError(f"no queries {queries!r} with interval {interval}: choose Q1, Q2 or Q3, and 0 or more")
        key, (x, y) = key_of(self.seed, "queries"), self._places(ids)
        rare = np.full(len(ids), queries == "Q2")
        if queries == "Q3":
            rare = is_q2(ids, x, y, self.bounds, self.seed, interval)
        sides = squares(key, ids, x, y, np.where(rare, SIDE_MAX_Q2_KM, SIDE_MAX_Q1_KM), np.array(self.bounds))
        mix = draws(key, ids, 3)
        sides[:, mix < self.text_only_share] = np.array(self.bounds)[:, None]
        silent = (mix >= self.text_only_share) & (mix < self.text_only_share + self.space_only_share)
        return sides, keywords(key, ids, x, y, rare, _speech(self)[1], self._lexicon()), silent


@lru_cache(maxsize=4)
def _speech(posts: Posts) -> tuple[Floats, Bools]:
    """The share of each word, and whether it is among the most frequent."""
    language, ids = posts._lexicon(), np.arange(PLACES)
    regions = regions_of(key_of(posts.seed, "posts"), ids, *posts._places(ids), language.frame)
    weights = np.bincount(regions, minlength=REGIONS * REGIONS).astype(np.float64)
    shares = frequencies(language, posts._shares().by_rank(), weights)
    top = np.zeros(posts.words, np.bool_)
    top[np.argsort(-shares, kind="stable")[: max(1, int(posts.words * TOP_SHARE))]] = True
    return shares, top


def _expect(key: str, value: Any, low: float, high: float) -> None:
    if not low <= value <= high:  # also true for NaN
        raise SettingsError(f"{key} of the posts is {value}: give a value from {low:g} to {high:g}")


def _expect_rows(count: int) -> None:
    if count > ROWS_MAX:
        raise InputError(f"{count} rows are too many for one batch, limit {ROWS_MAX}: ask for them in several")
