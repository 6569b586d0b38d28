"""Fourteen features of every user (Table 5.1), counted from operations and hotspots, and faded round by round.

Users are numbers here (`names.py` has their names), and `detector.py` judges them. Thesis §5.3.

    this round            faded: half of before, and this round's          ever
    x1  requested         x6                                               x11  sum of the hotspots' ids, where a
    x2  deleted           x7                                                    query was new in that same round
    x3  hotspots          x8                                               x14  mean of x13, over rounds in which
    x4  queries in them   x9                                                    it was not 0
    x5  sum of their ids  x10
    x12 as x4, but a query of age i weighs 1/2^i, and one of five rounds or more nothing
    x13 = x12 / x6: the share of recent requests that lies in hotspots

Beyond the thesis: a row remembers in which round it began, and older queries do not count in x12, because their
requests are not in x6 either. Otherwise a user whose row was given to another, and who returns, would seem to have all
queries in hotspots.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Array, Floats, Ints
from geoswarm.guard.sensor import AGES, HotspotSummary

FEATURE_NAMES = (
    "new_queries", "deleted_queries", "lrb_involvement", "lrb_contribution", "hotspot_seq",
    "new_queries_faded", "deleted_queries_faded", "lrb_involvement_faded", "lrb_contribution_faded",
    "hotspot_seq_faded", "hotspot_seq_new", "lrb_weighted_contribution", "lrb_queries_rate", "lrb_queries_rate_mean",
)  # fmt: skip
X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14 = range(14)
WEIGHTS = 0.5 ** np.arange(AGES)
TABLE_ROWS_MIN = 1024

Normalised = npt.NDArray[np.float32]


class FeatureTable(NamedTuple):
    codes: Ints
    raw: Floats
    """The features of each user, (n, 14)."""
    normalised: Normalised
    """The same with each column from 0 to 1; a constant column is 0."""


class HotspotUsers(NamedTuple):
    """The users of one hotspot: their queries in it, and what all users asked for."""

    codes: Ints
    weights: Floats
    """Each user's queries in it, weighted by age as in x12."""
    asked: Floats
    """Each user's recent requests: the present x6."""
    fresh: Ints
    """Each user's queries in it from this round."""
    fresh_asked: Floats
    """Each user's requests in this round: x1."""
    asked_all: float
    users: int
    """The number of users with recent requests."""


class Features:
    def __init__(self) -> None:
        self.round = 0
        """The current round."""
        self.hotspot_id = 0
        """The id of the last hotspot; the first is 1."""
        self._now = np.zeros((TABLE_ROWS_MIN, 6))  # x1 .. x5, x12
        self._faded = np.zeros((TABLE_ROWS_MIN, 5))  # x6 .. x10 as of the last round
        self._ever = np.zeros((TABLE_ROWS_MIN, 3))  # x11, sum of x13, rounds with x13
        self.born = np.zeros(TABLE_ROWS_MIN, np.int64)
        self.active = np.full(TABLE_ROWS_MIN, -1, np.int64)
        """The round in which a row was used last; -1: it is free."""

    @property
    def rows(self) -> int:
        return len(self.born)

    def begin(self, codes: Ints) -> None:
        """Empties rows for new users. Tables grow by doubling; `names.py` limits them."""
        if len(codes):
            self._grow(int(codes.max()) + 1)
            self.end(codes)
            self.born[codes] = self.active[codes] = self.round

    def end(self, codes: Ints) -> None:
        for table in (self._now, self._faded, self._ever):
            table[codes] = 0.0
        self.active[codes] = -1

    def count_requests(self, codes: Ints, counts: Ints) -> None:
        """Counts requests. `codes` may repeat; those below 0 are left out."""
        self._count(codes, counts, X1)

    def count_deletions(self, codes: Ints, counts: Ints) -> None:
        self._count(codes, counts, X2)

    def add_hotspot(self, hotspot: HotspotSummary) -> HotspotUsers:
        """Counts a hotspot that has made the cluster rebalance."""
        self.hotspot_id += 1
        codes, counts = hotspot.users, hotspot.counts
        seen = np.arange(AGES) <= (self.round - self.born[codes])[:, None]
        weights: Floats = (counts[:, :AGES] * seen) @ WEIGHTS
        now = self._now
        now[codes, X3] += 1
        now[codes, X4] += counts.sum(axis=1)
        now[codes, X5] += self.hotspot_id
        now[codes, 5] += weights
        self._ever[codes[counts[:, 0] > 0], 0] += self.hotspot_id
        requests = self.recent_requests()
        asked, total = requests[codes], float(requests.sum())
        return HotspotUsers(codes, weights, asked, counts[:, 0], now[codes, X1], total, int(np.count_nonzero(requests)))

    def recent_requests(self) -> Floats:
        """The recent requests of each row's user: the present x6."""
        requests: Floats = self._now[:, X1] + self._faded[:, 0] / 2
        return requests

    def close_round(self, rounds: int = 1, without: Ints | None = None) -> FeatureTable:
        """The features of all users but `without`; then one round passes, or several after a pause."""
        codes = np.flatnonzero(self.active >= 0)
        now = self._now[codes]
        faded = self._faded[codes] / 2 + now[:, :5]
        x13 = ratio_or_zero(now[:, 5], faded[:, 0])
        ever = self._ever[codes]
        ever[:, 1] += x13
        ever[:, 2] += x13 > 0
        raw = np.column_stack([now[:, :5], faded, ever[:, 0], now[:, 5], x13, ratio_or_zero(ever[:, 1], ever[:, 2])])
        self._faded[codes] = faded * 0.5 ** (rounds - 1)
        self._ever[codes] = ever
        self._now[codes] = 0.0
        self.round += rounds
        if without is not None and len(without):
            kept = ~np.isin(codes, without)
            codes, raw = codes[kept], raw[kept]
        return FeatureTable(codes, raw, normalise(raw))

    def to_arrays(self) -> dict[str, Array]:
        """The tables, cut to the rows in use."""
        codes = np.flatnonzero(self.active >= 0)
        tables = {"now": self._now, "faded": self._faded, "ever": self._ever, "born": self.born, "active": self.active}
        return {"codes": codes, **{name: table[codes] for name, table in tables.items()}}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], now_round: int, hotspot_id: int) -> "Features":
        self = cls()
        self.round, self.hotspot_id = now_round, hotspot_id
        codes = arrays["codes"].astype(np.int64)
        if len(codes):
            self._grow(int(codes.max()) + 1)
        self._now[codes], self._faded[codes], self._ever[codes] = arrays["now"], arrays["faded"], arrays["ever"]
        self.born[codes], self.active[codes] = arrays["born"], arrays["active"]
        return self

    def _count(self, codes: Ints, counts: Ints, column: int) -> None:
        known = codes >= 0
        if not known.all():
            codes, counts = codes[known], counts[known]
        if len(codes) * 4 < self.rows:
            np.add.at(self._now[:, column], codes, counts)
        else:  # a large batch is counted first, then added at once
            self._now[:, column] += np.bincount(codes, counts, minlength=self.rows)
        self.active[codes] = self.round

    def _grow(self, rows: int) -> None:
        if rows <= self.rows:
            return
        rows = max(rows, 2 * self.rows)
        self._now, self._faded, self._ever = (_longer(t, rows, 0) for t in (self._now, self._faded, self._ever))
        self.born, self.active = _longer(self.born, rows, 0), _longer(self.active, rows, -1)


def normalise(raw: Floats) -> Normalised:
    """Normalises each column by Equation 5.2."""
    if not len(raw):
        return raw.astype(np.float32)
    low = raw.min(axis=0)
    span = raw.max(axis=0) - low
    normalised: Normalised = ((raw - low) / np.where(span > 0, span, 1.0)).astype(np.float32)
    return normalised


def ratio_or_zero(part: Floats, whole: Floats) -> Floats:
    """part / whole, and 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _longer(table: Array, rows: int, fill: int) -> Array:
    longer = np.full((rows, *table.shape[1:]), fill, table.dtype)
    longer[: len(table)] = table
    return longer
