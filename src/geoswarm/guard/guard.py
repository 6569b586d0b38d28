"""Guard finds in each round, from operations and hotspots, which users to block.

This file connects the parts and keeps the list of blocked users; `detector.py` decides. Thesis chapter 5.

    operations ──► admits? ──► names ──► features ──┐ a round ends
                                                    ├──► detector ──► blocked users ──► admits?
    hotspots ─────────────────► features ──► causes ┘

Queries that a blocked user already has stay; the engine decides whether to remove them.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.errors import InputError
from geoswarm.guard import saved
from geoswarm.guard.causes import Causes
from geoswarm.guard.detector import Detection, Detector
from geoswarm.guard.features import FEATURE_NAMES, Features, FeatureTable
from geoswarm.guard.findings import DetectionEntry, Evidence
from geoswarm.guard.names import NAME_BYTES_MAX, Names, short_name
from geoswarm.guard.rules import GuardRules
from geoswarm.guard.sensor import AGES, HotspotSummary

ROUNDS_AT_ONCE_MAX = 64
"""The most rounds that are counted after a pause: after so many halvings all counts have faded."""


class ClosedRound(NamedTuple):
    blocked: list[str]
    """Users blocked in this round."""
    entry: DetectionEntry
    """For the journal: what was found and why."""


class Block(NamedTuple):
    since_s: float
    why: str
    by_operator: bool


class Guard:
    def __init__(self, rules: GuardRules | None = None, seed: int = 0) -> None:
        self.rules = rules or GuardRules()
        self._rng = np.random.default_rng(seed)
        self._features = Features()
        self._causes = Causes(self.rules)
        self._detector = Detector(self.rules, self._rng)
        self._names = Names(self.rules, self._features, self._rng, self._detector.forget)
        self._blocked: dict[str, Block] = {}
        self._exempt: set[str] = set()
        self._starts: list[float] = []  # the starts of the last rounds in seconds, the current one last
        self._hotspots = 0  # the number in this round

    @property
    def round(self) -> int:
        return self._features.round

    @property
    def users(self) -> int:
        """The number of users that it has a row for."""
        return len(self._names)

    def codes(self, users: pa.StringArray) -> Ints:
        """A number for each user; -1 for null, and where there is no room. They hold until the next call."""
        return self._names.codes(users, self._causes.makers)

    def admits(self, users: pa.StringArray) -> Bools:
        """Which users may pass: False where one is blocked. A user without a name cannot be blocked."""
        if not self._blocked:
            return np.ones(len(users), np.bool_)
        if (pc.max(pc.binary_length(users)).as_py() or 0) > NAME_BYTES_MAX:
            users = pa.array([None if name is None else short_name(name) for name in users.to_pylist()], pa.string())
        blocked = pc.is_in(users, value_set=pa.array(list(self._blocked), users.type))
        return ~np.asarray(blocked.to_numpy(zero_copy_only=False), np.bool_)

    def count_operations(self, users: pa.StringArray, registered: Bools, cancelled: Bools, now_s: float) -> None:
        """Counts the operations of one batch that were accepted. A replacement is both, registered and cancelled."""
        self._begin(now_s)
        if len(users) != len(registered) or len(users) != len(cancelled):
            raise InputError(
                f"{len(users)} users, {len(registered)} registered, {len(cancelled)} cancelled: give one per operation"
            )
        codes = self.codes(users)
        for column, chosen in (
            (self._features.count_requests, registered),
            (self._features.count_deletions, cancelled),
        ):
            column(codes[chosen], np.ones(int(np.count_nonzero(chosen)), np.int64))

    def add_hotspot(self, hotspot: HotspotSummary) -> None:
        """Counts a hotspot that has made the cluster rebalance. Its codes are from the last call of `codes`."""
        users, counts = hotspot.users, hotspot.counts
        if counts.shape != (len(users), AGES + 1):
            raise InputError(f"counts of {counts.shape} for {len(users)} users: use `sensor.summarise_hotspot`")
        if len(users) and (users[0] < 0 or users[-1] >= self._features.rows):
            raise InputError(f"codes {users[0]} to {users[-1]} are not all users': ask `Guard.codes` for them")
        touched = self._features.add_hotspot(hotspot)
        gone = np.isin(touched.codes, self._rows_of(self._blocked))
        if gone.any():  # rows without a user count for no one
            touched = touched._replace(weights=np.where(gone, 0.0, touched.weights))
        self._causes.add(self._features.hotspot_id, self.round, hotspot.place, touched)
        self._hotspots += 1

    def is_due(self, now_s: float) -> bool:
        self._begin(now_s)
        return now_s - self._starts[-1] >= self.rules.round_s

    def round_at(self, at_s: float) -> int:
        """The detection round of a moment; all moments before those remembered have the same."""
        return int(self.rounds_at(np.array([at_s]))[0])

    def rounds_at(self, at_s: Floats) -> Ints:
        which = np.searchsorted(self._starts, at_s, side="right")
        return np.where(which == 0, self.round - AGES - 1, self.round - len(self._starts) + which)

    def close_round(self, now_s: float) -> ClosedRound:
        """Judges the round, and begins the next."""
        self._begin(now_s)
        closed, hotspots = self.round, self._hotspots
        passed = int(np.clip((now_s - self._starts[-1]) // self.rules.round_s, 1, ROUNDS_AT_ONCE_MAX))
        kept_out = self._rows_of([*self._blocked, *self._exempt])
        table = self._features.close_round(passed, kept_out)
        verdict = self._detector.detect(table, closed, self._causes)
        self._hotspots = 0
        begun_s = self._starts[-1]
        between = [begun_s + (i + 1) * self.rules.round_s for i in range(passed - 1)]
        self._starts = [*self._starts, *between, max(now_s, begun_s)][-AGES - 1 :]
        names = [self._names.name(code) for code in verdict.confirmed.tolist()]
        entry = DetectionEntry(
            round=closed,
            now_us=round(now_s * 1e6),
            users=len(table.codes),
            users_driven_out=self._names.driven_out,
            hotspots=hotspots,
            suspicious=tuple(self._names_for_journal(verdict.suspicious)),
            suspicious_users=len(verdict.suspicious),
            blocked=tuple(names[: self.rules.listed_max]),
            blocked_users=len(names),
            evidence=verdict.evidence,
            features=self._features_by_user(table, verdict),
            features_others=_mean_of_others(table, verdict),
        )
        block = Block(now_s, _why(closed, verdict.evidence), False)
        lifted = [old for user in names for old in self._block(user, block)]
        self._forget(verdict.confirmed)
        return ClosedRound(names, replace(entry, lifted=tuple(lifted[: self.rules.listed_max])))

    def block(self, user: str, why: str, now_s: float) -> None:
        """Blocks a user for an operator. Such a block is never lifted to make room."""
        self._exempt.discard(short_name(user))
        self._block(short_name(user), Block(now_s, why, True))
        self._forget(self._rows_of([user]))

    def unblock(self, user: str) -> bool:
        """Unblocks a user and forgets the evidence. Returns whether the user was blocked."""
        self._forget(self._rows_of([user]))
        return self._blocked.pop(short_name(user), None) is not None

    def exempt(self, user: str) -> None:
        """Exempts a user, whom Guard then never blocks."""
        self.unblock(user)
        self._exempt.add(short_name(user))

    def unexempt(self, user: str) -> bool:
        known = short_name(user) in self._exempt
        self._exempt.discard(short_name(user))
        return known

    def blocked_users(self) -> list[tuple[str, float, str]]:
        return [(user, block.since_s, block.why) for user, block in self._blocked.items()]

    def exempt_users(self) -> list[str]:
        return sorted(self._exempt)

    def busiest(self, most: int) -> list[tuple[str, float]]:
        """The users with the most recent requests, and their number, faded by the round (x6); most first."""
        asked = self._features.recent_requests()
        codes = np.argsort(-asked, kind="stable")[:most]
        return [(self._names.name(code), float(asked[code])) for code in codes.tolist() if asked[code] > 0]

    def suspects(self) -> list[str]:
        """Users whom an earlier round found suspicious, and whose suspicion is not yet forgotten."""
        return sorted(filter(None, (self._names.name(code) for code in self._detector.suspects(self.round).tolist())))

    def to_bytes(self) -> bytes:
        """The memory that must survive a restart: the users' names, and about 200 bytes for each."""
        head = {
            "round": self.round,
            "hotspot_id": self._features.hotspot_id,
            "hotspots": self._hotspots,
            "starts": self._starts,
            "blocked": {user: list(block) for user, block in self._blocked.items()},
            "exempt": sorted(self._exempt),
            "rng": self._rng.bit_generator.state,
            "driven_out": self._names.driven_out,
        }
        parts = {
            "features": self._features.to_arrays(),
            "causes": self._causes.to_arrays(),
            "detector": self._detector.to_arrays(),
        }
        return saved.pack_memory(head, parts, self._names.to_strings())

    @classmethod
    def from_bytes(cls, data: bytes, rules: GuardRules | None = None) -> "Guard":
        head, arrays, names = saved.unpack_memory(data)
        self = cls(rules)
        self._rng.bit_generator.state = head["rng"]
        self._features = Features.from_arrays(arrays["features"], head["round"], head["hotspot_id"])
        self._causes = Causes.from_arrays(self.rules, arrays["causes"])
        self._detector = Detector.from_arrays(self.rules, self._rng, arrays["detector"])
        self._names = Names(self.rules, self._features, self._rng, self._detector.forget)
        self._names.restore(names)
        self._names.driven_out = head["driven_out"]
        self._blocked = {user: Block(*block) for user, block in head["blocked"].items()}
        self._exempt = set(head["exempt"])
        self._starts, self._hotspots = head["starts"], head["hotspots"]
        return self

    def _begin(self, now_s: float) -> None:
        if not np.isfinite(now_s):
            raise InputError(f"{now_s} is no time for Guard's rounds: give seconds since some moment")
        if not self._starts:
            self._starts = [now_s]

    def _block(self, user: str, block: Block) -> list[str]:
        """Returns the users whose block had to be lifted to make room."""
        lifted = []
        if user not in self._blocked and len(self._blocked) >= self.rules.blocked_max:
            lifted = [next((old for old, known in self._blocked.items() if not known.by_operator), "")]
            self._blocked.pop(lifted[0], None)
        self._blocked[user] = block
        return [old for old in lifted if old]

    def _forget(self, codes: Ints) -> None:
        if len(codes):
            self._causes.forget(codes)
            self._names.drop(codes)

    def _rows_of(self, users: Iterable[str]) -> Ints:
        codes = np.array([self._names.code(user) for user in users], np.int64)
        return codes[codes >= 0]

    def _names_for_journal(self, codes: Ints) -> list[str]:
        return [self._names.name(code) for code in codes[: self.rules.listed_max].tolist()]

    def _features_by_user(self, table: FeatureTable, verdict: Detection) -> dict[str, dict[str, float]]:
        """The features of each user by name, confirmed users first."""
        order = np.concatenate([verdict.confirmed, np.setdiff1d(verdict.suspicious, verdict.confirmed)])
        codes = order[: self.rules.listed_max]
        rows = table.raw[np.searchsorted(table.codes, codes)]
        return {
            self._names.name(code): {name: round(value, 4) for name, value in zip(FEATURE_NAMES, row, strict=True)}
            for code, row in zip(codes.tolist(), rows.tolist(), strict=True)
        }


def _mean_of_others(table: FeatureTable, verdict: Detection) -> dict[str, float]:
    """The mean features of users who are not suspicious, for comparison."""
    others = table.raw[~np.isin(table.codes, verdict.suspicious)]
    means = others.mean(axis=0) if len(others) else np.zeros(len(FEATURE_NAMES))
    return {name: round(value, 4) for name, value in zip(FEATURE_NAMES, means.tolist(), strict=True)}


def _why(closed: int, evidence: Evidence) -> str:
    made = [str(hotspot.id) for hotspot in evidence.hotspots or ()]
    hotspots = f"made hotspots {', '.join(made[-8:])}" if made else "was suspicious with the same users before"
    return f"detection round {closed}: {hotspots}"
