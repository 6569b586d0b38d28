"""Users' names as row numbers, for a limited number of users at a time.

Here it is decided who leaves a full table, because an attacker can invent millions of names. This is not in the thesis,
whose 110 users all fit. In this order:

    idle      users without operations for longer than Guard remembers: nothing is lost
    young     users of the rounds that the sensor distinguishes: a flood of names removes its own
    others    at random: a user who returns begins again, which never makes a user look worse (`features.py`)
    makers    of remembered hotspots stay: no user can hide behind a flood of names; they fill half the table at most
"""

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.guard.features import Features
from geoswarm.guard.rules import GuardRules
from geoswarm.guard.sensor import AGES

NAME_BYTES_MAX = 200
"""A longer name is replaced by its beginning and a digest."""
NO_CODE = -1
"""The code where no name was given, or there is no room."""


def short_name(name: str) -> str:
    whole = name.encode("utf-8", "surrogatepass")
    if len(whole) <= NAME_BYTES_MAX:
        return name
    return name[:32] + "…" + hashlib.blake2b(whole, digest_size=16).hexdigest()


def is_text(names: pa.StringArray) -> Bools:
    """Which names are UTF-8, which Arrow does not check by itself."""
    try:
        names.validate(full=True)
        return np.ones(len(names), np.bool_)
    except pa.ArrowInvalid:
        coded = names.cast(pa.binary()).dictionary_encode()
        fine = np.array([_decodes(name) for name in coded.dictionary.to_pylist()], np.bool_)
        whole: Bools = np.append(fine, True)[coded.indices.fill_null(len(fine)).to_numpy(zero_copy_only=False)]
        return whole


def as_text(names: pa.StringArray) -> pa.StringArray:
    """The names with bytes that are not UTF-8 replaced: some may be from a time when Guard was off."""
    if is_text(names).all():
        return names
    return pa.array([name.decode(errors="replace") for name in names.cast(pa.binary()).to_pylist()], pa.string())


def _decodes(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


class Names:
    def __init__(
        self, rules: GuardRules, features: Features, rng: np.random.Generator, forget: Callable[[Ints], None]
    ) -> None:
        """`forget` is called with rows that lose their user, so that the next user does not inherit from them."""
        self._rules, self._features, self._rng, self._forget = rules, features, rng, forget
        self._codes: dict[str, int] = {}
        self._names: list[str | None] = []
        self._free: list[int] = []
        self.driven_out = 0
        """The number of users who had to leave since the start, without idle ones."""

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, name: str) -> int:
        return self._codes.get(short_name(name), NO_CODE)

    def name(self, code: int) -> str:
        return self._names[code] or ""

    def codes(self, users: pa.StringArray, makers: Callable[[], Ints]) -> Ints:
        """The code of each user, also of new ones. Codes hold until the next call, those of `makers` longer."""
        coded = pc.dictionary_encode(users)
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        names = [short_name(name) for name in coded.dictionary.to_pylist()]
        found = np.array([self._codes.get(name, NO_CODE) for name in names] or [NO_CODE], np.int64)
        new = np.flatnonzero(found[: len(names)] == NO_CODE)
        if len(new):
            wanted = list(dict.fromkeys(names[i] for i in new))
            rows = self._room(len(wanted), found[found >= 0], makers)
            self._give(wanted[: len(rows)], rows)
            found[new] = [self._codes.get(names[i], NO_CODE) for i in new]
        which = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(which < 0, NO_CODE, found[which])

    def drop(self, codes: Ints) -> None:
        for code in codes.tolist():
            name = self._names[code]
            if name is not None:
                del self._codes[name]
                self._names[code] = None
                self._free.append(code)
        self._free.sort()  # the order after a restart, so that rows are assigned in the same way
        self._features.end(codes)
        self._forget(codes)

    def _give(self, names: list[str], rows: Ints) -> None:
        self._features.begin(rows)
        for name, row in zip(names, rows.tolist(), strict=True):
            self._codes[name] = row
            self._names[row] = name

    def _room(self, wanted: int, pinned: Ints, makers: Callable[[], Ints]) -> Ints:
        """The rows for `wanted` new users, or fewer if there are not enough."""
        missing = wanted - len(self._free) - (self._rules.users_max - len(self._names))
        if missing > 0:
            self.drop(self._leaving(missing, pinned, makers))
        rows = [self._free.pop() for _ in range(min(wanted, len(self._free)))]
        fresh = range(len(self._names), min(len(self._names) + wanted - len(rows), self._rules.users_max))
        self._names.extend([None] * len(fresh))
        return np.array([*rows, *fresh], np.int64)

    def _leaving(self, wanted: int, pinned: Ints, makers: Callable[[], Ints]) -> Ints:
        features = self._features
        may_go = features.active >= 0
        may_go[pinned] = False
        may_go[makers()] = False
        idle = may_go & (features.active < features.round - self._rules.suspicious_rounds_max)
        young = may_go & ~idle & (features.born > features.round - AGES)
        leaving: list[Ints] = []
        for group in (idle, young, may_go & ~idle & ~young):
            left = wanted - sum(len(part) for part in leaving)
            if left <= 0:
                break
            codes = np.flatnonzero(group)
            leaving.append(codes if len(codes) <= left else self._rng.choice(codes, left, replace=False))
        self.driven_out += sum(len(part) for part in leaving[1:])
        return np.concatenate(leaving)

    def to_strings(self) -> pa.StringArray:
        """The name of each code; null where a row has no user."""
        return pa.array(self._names, pa.string())

    def restore(self, names: pa.StringArray) -> None:
        self._names = names.to_pylist()
        self._codes = {name: code for code, name in enumerate(self._names) if name is not None}
        self._free = [code for code, name in enumerate(self._names) if name is None]
