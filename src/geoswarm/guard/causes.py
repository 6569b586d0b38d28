"""Who made the hotspots of the last half hour, and where: the conditions that must hold before a user is blocked.

This is not in the thesis, which blocks users whom `detector.py` finds suspicious twice. That also finds a festival: new
queries of many users in repeated hotspots at one place, which is no attack. Unlike a crowd, an attack moves: its users
register here and cancel elsewhere, or the same users make one place after another hot; and they do little else. These
conditions only make blocking rarer.

A *maker* of a hotspot is a user most of whose recent queries (`focus_min`) lie round it. Hotspots close to each other
are one place, also through others between them: a crowd that drifts stays one crowd.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Array, Bools, Floats, Ints
from geoswarm.guard.features import HotspotUsers, ratio_or_zero
from geoswarm.guard.findings import HotspotNote
from geoswarm.guard.rules import GuardRules
from geoswarm.guard.sensor import MapPlace

MAKER_COLUMNS = ("codes", "weights", "asked", "focus")


class Cause(NamedTuple):
    hotspot_id: int
    round: int
    place: MapPlace
    weight_all: float
    """The weight of all new queries round the hotspot, of all users."""
    asked_all: float
    """What all users asked for, everywhere."""
    codes: Ints
    weights: Floats
    asked: Floats
    focus: Floats


class Charge(NamedTuple):
    """The evidence against each user of a group, as parallel arrays."""

    places: Ints
    rounds: Ints
    """The rounds with a hotspot that nearly all of the user's operations were for."""
    hotspots: tuple[HotspotNote, ...]
    """The hotspots that the group made."""


class Causes:
    def __init__(self, rules: GuardRules) -> None:
        self._rules = rules
        self._causes: deque[Cause] = deque(maxlen=rules.hotspots_max)

    def add(self, hotspot_id: int, now_round: int, place: MapPlace, touched: HotspotUsers) -> None:
        rules = self._rules
        focus = self._focus(touched)
        made = np.flatnonzero((focus >= rules.focus_min) & (touched.weights > 0))
        if len(made) == 0 or len(made) >= rules.crowd_min * touched.users:
            return
        if len(made) > rules.makers_max:
            heaviest = np.argpartition(-touched.weights[made], rules.makers_max)[: rules.makers_max]
            made = np.sort(made[heaviest])
        parts: list[Array] = [column[made] for column in (touched.codes, touched.weights, touched.asked, focus)]
        weight_all = float(touched.weights.sum())
        self._causes.append(Cause(hotspot_id, now_round, place, weight_all, touched.asked_all, *parts))

    def _focus(self, touched: HotspotUsers) -> Floats:
        """The share of each user's recent requests that lies round the hotspot; or of this round's alone, if that is
        more, since a user who has just moved has done nothing else since. 0 for too few requests."""
        few = self._rules.queries_min
        lately = np.where(touched.weights >= few, ratio_or_zero(touched.weights, touched.asked), 0.0)
        fresh = np.where(
            touched.fresh >= few, ratio_or_zero(touched.fresh.astype(np.float64), touched.fresh_asked), 0.0
        )
        return np.minimum(np.maximum(lately, fresh), 1.0)

    def expire(self, now_round: int) -> None:
        while self._causes and now_round - self._causes[0].round > self._rules.suspicious_rounds_max:
            self._causes.popleft()

    def forget(self, codes: Ints) -> None:
        """Forgets what these users did; the hotspots' totals stay."""
        for i, cause in enumerate(self._causes):
            keep = ~np.isin(cause.codes, codes)
            if not keep.all():
                self._causes[i] = cause._replace(**{name: getattr(cause, name)[keep] for name in MAKER_COLUMNS})

    def makers(self) -> Ints:
        """The makers of all remembered hotspots."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(cause.codes for cause in self._causes)]))

    def rates(self, codes: Ints, now_round: int) -> Floats:
        """The highest focus of each user on one of this round's hotspots, codes ascending; 0: made none."""
        rates = np.zeros(len(codes))
        for cause in self._causes:
            if cause.round == now_round and len(codes):
                at = np.minimum(np.searchsorted(codes, cause.codes), len(codes) - 1)
                known = codes[at] == cause.codes
                rates[at[known]] = np.maximum(rates[at[known]], cause.focus[known])
        return rates

    def compare(self, group: Ints, now_round: int) -> tuple[float, float]:
        """ALQR of a group and of all others, over the hotspots that the group made in this round: the share of their
        recent requests that lies there. It is a ratio of sums, because users with few requests dominate a mean: one
        query that is in a hotspot by chance is 100 %."""
        theirs, others = [0.0], [0.0]
        for cause in self._causes:
            members = np.isin(cause.codes, group) & (cause.round == now_round)
            if members.any():
                weight, asked = float(cause.weights[members].sum()), float(cause.asked[members].sum())
                theirs.append(weight / asked)
                others.append((cause.weight_all - weight) / max(cause.asked_all - asked, 1.0))
        return sum(theirs) / max(len(theirs) - 1, 1), sum(others) / max(len(others) - 1, 1)

    def charge(self, group: Ints) -> Charge:
        """The evidence against a group, codes ascending: only hotspots that would not exist without it count."""
        theirs: list[tuple[Cause, Bools, float]] = []
        for cause in self._causes:
            members = np.isin(cause.codes, group)
            if members.any():
                members &= cause.weights >= self._rules.alike_min * np.median(cause.weights[members])
                share = float(cause.weights[members].sum()) / cause.weight_all
                if share >= self._rules.share_min:
                    theirs.append((cause, members, share))
        at = [np.searchsorted(group, cause.codes[members]) for cause, members, _ in theirs]
        labels = separate([cause.place for cause, _, _ in theirs], self._rules.place_gap)
        steady = [
            where[cause.focus[members] >= self._rules.trade_focus_min]
            for where, (cause, members, _) in zip(at, theirs, strict=True)
        ]
        listed = tuple(_note(cause, share, int(members.sum())) for cause, members, share in theirs)
        rounds = _distinct(steady, [cause.round for cause, _, _ in theirs], len(group))
        return Charge(_distinct(at, labels, len(group)), rounds, listed)

    def guilty(self, group: Ints, cancels: Floats) -> tuple[Bools, Charge]:
        """Which users of a group to block. `cancels` is the share of their registrations that they cancelled.

        A user who is not guilty leaves with a share of the evidence, so the rest is charged again, until all are."""
        rules, left = self._rules, np.ones(len(group), np.bool_)
        while True:
            charge = self.charge(group[left])
            trades = (charge.rounds >= rules.trade_rounds_min) & (cancels[left] >= rules.trade_cancels_min)
            held = trades | (charge.places >= rules.places_min)
            if held.all():
                return left, charge
            left[np.flatnonzero(left)[~held]] = False

    def to_arrays(self) -> dict[str, Array]:
        lengths = [len(cause.codes) for cause in self._causes]
        heads = [(c.hotspot_id, c.round, *c.place, c.weight_all, c.asked_all) for c in self._causes]
        empty = {name: np.empty(0, np.int64 if name == "codes" else np.float64) for name in MAKER_COLUMNS}
        flat = {
            name: np.concatenate([empty[name], *(getattr(c, name) for c in self._causes)]) for name in MAKER_COLUMNS
        }
        return {"heads": np.array(heads, np.float64).reshape(-1, 6), "lengths": np.array(lengths, np.int64), **flat}

    @classmethod
    def from_arrays(cls, rules: GuardRules, arrays: dict[str, Array]) -> "Causes":
        self = cls(rules)
        ends = np.cumsum(arrays["lengths"])
        for head, start, end in zip(arrays["heads"].tolist(), ends - arrays["lengths"], ends, strict=True):
            number, at, x, y, weight_all, asked_all = head
            parts = (arrays[name][start:end] for name in MAKER_COLUMNS)
            self._causes.append(Cause(int(number), int(at), (x, y), weight_all, asked_all, *parts))
        return self


def separate(places: list[MapPlace], gap: float) -> list[int]:
    """A label for each place, the same for places within `gap` of each other, also step by step. A place that is
    unknown has a label of its own."""
    x, y = np.array(places, np.float64).reshape(-1, 2).T
    near = np.maximum(np.abs(x[:, None] - x), np.abs(y[:, None] - y)) <= gap
    labels = np.arange(len(places))
    while True:
        lowest = np.minimum(np.where(near, labels, len(places)).min(axis=1, initial=len(places)), labels)
        if (lowest == labels).all():
            return [int(label) for label in labels]
        labels = lowest


def _distinct(at: list[Ints], labels: list[int], members: int) -> Ints:
    """The number of different labels of each member."""
    if not at:
        return np.zeros(members, np.int64)
    pairs = np.concatenate([where * (max(labels) + 1) + label for where, label in zip(at, labels, strict=True)])
    return np.bincount(np.unique(pairs) // (max(labels) + 1), minlength=members)


def _note(cause: Cause, share: float, members: int) -> HotspotNote:
    x, y = cause.place
    place = None if np.isnan(x) else (round(x, 4), round(y, 4))
    return HotspotNote(cause.hotspot_id, cause.round, round(share, 3), members, place)
