"""Algorithm 4: halve the users by K-Means++ until those who are left made the same hotspots; then judge them.

`guard.py` blocks, `features.py` and `causes.py` count. Thesis §5.4.

    all users ──2-means──► the half with the higher ALQR ──► ... ──► all in the same hotspots (sd of x11 near zero)
                                                                              │
    the others' ALQR × β  <  theirs?  in hotspots now?  ──► suspicious ──► found so before? ──► confirmed

In the thesis, ALQR of a cluster is the mean of its users' x14; it is not normalised, because then the least rate would
be 0 and every other infinitely larger. A cluster is confirmed if exactly these users were suspicious together in an
earlier round. The "careful" algorithm, the default, differs; the reasons and figures are in `docs/guard.md`.

 1. Only makers of this round's hotspots are clustered (`causes.py`), and looked at before they are first halved.
 2. A user's rate is the focus on this round's hotspots, and the ALQR that β is applied to is of sums, not a mean.
 3. Users are suspected and confirmed one by one: a user who joins late or is absent once does not protect the others.
 4. It runs again on the makers who are left, until one cluster is normal.
 5. No user is confirmed without the conditions of `causes.py`, nor where there are few others to compare with.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints
from geoswarm.guard.causes import Causes
from geoswarm.guard.features import X3, X6, X7, X11, X14, FeatureTable, ratio_or_zero
from geoswarm.guard.findings import Evidence, UserCluster
from geoswarm.guard.rules import GuardRules

NO_CODES = np.empty(0, np.int64)
CLUSTERS_REMEMBERED_MAX = 64
"""The most suspicious clusters of the thesis' algorithm: by default, one a round for at most half an hour."""


class Detection(NamedTuple):
    suspicious: Ints
    """Codes, ascending, of all users found in this round, with those confirmed."""
    confirmed: Ints
    evidence: Evidence


class Detector:
    def __init__(self, rules: GuardRules, rng: np.random.Generator) -> None:
        self._rules, self._rng = rules, rng
        self._since = np.empty(0, np.int64)
        self._until = np.empty(0, np.int64)  # by code: the rounds of suspicion, first and last; -1: none
        self._clusters: list[tuple[int, int, Ints]] = []  # of the thesis' algorithm: since, until, codes

    def detect(self, table: FeatureTable, now_round: int, causes: Causes | None = None) -> Detection:
        """Judges a round. `causes` is needed except for the thesis' algorithm."""
        if causes is None or self._rules.algorithm == "printed":
            return self._detect_as_printed(table, now_round)
        return self._detect_with_care(table, now_round, causes)

    def suspects(self, now_round: int) -> Ints:
        return np.flatnonzero(self._until >= now_round)

    def forget(self, codes: Ints) -> None:
        codes = codes[codes < len(self._since)]
        self._since[codes] = self._until[codes] = -1

    def _detect_as_printed(self, table: FeatureTable, now_round: int) -> Detection:
        self._clusters = [known for known in self._clusters if known[1] >= now_round]
        rates, rows = table.raw[:, X14], np.arange(len(table.codes))
        if len(rows) < 2:
            return Detection(NO_CODES, NO_CODES, Evidence(users=len(rows)))
        rows = self.narrow(table, self._half(table, rows, rates), rates)
        rate, norm = float(rates[rows].mean()), float(np.delete(rates, rows).mean()) if len(rows) < len(rates) else 0.0
        evidence = Evidence(users=len(rows), alqr=round(rate, 4), alqr_normal=round(norm, 4))
        if rate <= norm * self._rules.beta or not (table.raw[rows, X3] > 0).all():
            return Detection(NO_CODES, NO_CODES, evidence)
        codes, until = table.codes[rows], now_round + self._removal()
        for i, (since, _, before) in enumerate(self._clusters):
            if np.array_equal(before, codes):
                self._clusters[i] = (since, until, codes)
                return Detection(codes, codes, evidence)
        self._clusters = [*self._clusters, (now_round, until, codes)][-CLUSTERS_REMEMBERED_MAX:]
        return Detection(codes, NO_CODES, evidence)

    def _detect_with_care(self, table: FeatureTable, now_round: int, causes: Causes) -> Detection:
        causes.expire(now_round)
        rates = causes.rates(table.codes, now_round)
        rows = np.flatnonzero(rates)
        normal = int(np.count_nonzero(table.raw[:, X6]))
        clusters: list[UserCluster] = []
        found = [NO_CODES]
        while len(rows) and len(clusters) < self._rules.clusters_max:
            cluster = self.narrow(table, rows, rates)
            normal -= len(cluster)
            rate, norm = causes.compare(table.codes[cluster], now_round)
            clusters.append(UserCluster(len(cluster), round(rate, 4), round(norm, 4)))
            if rate <= norm * self._rules.beta or normal < self._rules.normal_users_min:
                break
            found.append(cluster)
            rows = np.setdiff1d(rows, cluster, assume_unique=True)
        rows = np.sort(np.concatenate(found))
        codes = table.codes[rows]
        again = self._suspect(codes, now_round)
        cancels = ratio_or_zero(table.raw[rows, X7], table.raw[rows, X6])[again]
        guilty, charge = causes.guilty(codes[again], cancels)
        evidence = Evidence(clusters=tuple(clusters), hotspots=charge.hotspots, suspected_before=int(again.sum()))
        if guilty.any():
            held = (charge.places, charge.rounds, cancels[guilty])
            places, rounds, cancelled = (round(float(np.min(values)), 3) for values in held)
            evidence = replace(evidence, places_least=places, rounds_least=rounds, cancels_least=cancelled)
        return Detection(codes, codes[again][guilty], evidence)

    def narrow(self, table: FeatureTable, rows: Ints, rates: Floats) -> Ints:
        """Lines 3 to 11. Ends at the latest with one user, or with users whom no feature distinguishes."""
        while len(rows) > 1 and not self._agree(table.raw[rows, X11]):
            half = self._half(table, rows, rates)
            if len(half) == len(rows):
                break
            rows = half
        return rows

    def _agree(self, sequences: Floats) -> bool:
        """Whether all had new queries in nearly the same hotspots: see `GuardRules.near_zero`."""
        return float(np.std(sequences)) <= self._rules.near_zero * float(np.mean(sequences))

    def _half(self, table: FeatureTable, rows: Ints, rates: Floats) -> Ints:
        """The one of two clusters with the higher ALQR; all rows, if they cannot be distinguished."""
        first = self._first_cluster(table.normalised[rows])
        if first.all() or not first.any():
            return rows
        return rows[first if rates[rows[first]].mean() > rates[rows[~first]].mean() else ~first]

    def _first_cluster(self, points: Array) -> Bools:
        if (points == points[0]).all():
            return np.ones(len(points), np.bool_)
        from sklearn.cluster import KMeans  # imported here: it takes a second, and a calm stream never needs it
        from threadpoolctl import threadpool_limits

        drawn = points
        if len(points) > self._rules.clustered_rows_max:
            drawn = points[self._rng.choice(len(points), self._rules.clustered_rows_max, replace=False)]
            if (drawn == drawn[0]).all():
                drawn = points
        seed = int(self._rng.integers(1 << 31))
        with threadpool_limits(1):  # sums in one order, so that one seed gives one answer on any machine
            means = KMeans(2, init="k-means++", n_init=self._rules.clusterings, random_state=seed).fit(drawn)
            first: Bools = means.predict(points) == 0
        return first

    def _suspect(self, codes: Ints, now_round: int) -> Bools:
        """Remembers the users; returns who was suspected before."""
        if len(codes) and (rows := int(codes.max()) + 1) > len(self._since):
            more = np.full(max(rows, 2 * len(self._since)) - len(self._since), -1, np.int64)
            self._since, self._until = np.concatenate([self._since, more]), np.concatenate([self._until, more])
        again = self._until[codes] >= now_round
        self._since[codes[~again]] = now_round
        self._until[codes] = now_round + self._removal()
        return again & (self._since[codes] < now_round)

    def _removal(self) -> int:
        """The round in which a suspicion is forgotten, the same for all of a round, as for a cluster of the thesis."""
        return int(self._rng.integers(self._rules.suspicious_rounds_min, self._rules.suspicious_rounds_max + 1))

    def to_arrays(self) -> dict[str, Array]:
        codes = np.flatnonzero(self._until >= 0)
        clusters = [np.array([since, until, *members], np.int64) for since, until, members in self._clusters]
        return {
            "suspects": np.column_stack([codes, self._since[codes], self._until[codes]]),
            "cluster_lengths": np.array([len(c) for c in clusters], np.int64),
            "clusters": np.concatenate([NO_CODES, *clusters]),
        }

    @classmethod
    def from_arrays(cls, rules: GuardRules, rng: np.random.Generator, arrays: dict[str, Array]) -> "Detector":
        self = cls(rules, rng)
        codes, since, until = arrays["suspects"].astype(np.int64).T
        if len(codes):
            self._since = np.full(int(codes.max()) + 1, -1, np.int64)
            self._until = self._since.copy()
            self._since[codes], self._until[codes] = since, until
        lengths = arrays["cluster_lengths"]
        if len(lengths):
            parts = np.split(arrays["clusters"], np.cumsum(lengths)[:-1])
            self._clusters = [(int(part[0]), int(part[1]), part[2:]) for part in parts]
        return self
