"""The executor of each key: F(k) = the table's entry, else h(k). Immutable and numbered, like the plan of space.

The content of the table is decided in `control/keyed/`; the hash is `hashing.py`. Mixed §II-A, equation 1.

    keys     -7   12   90            the table
    targets   3    0    3            every other key goes to h(k)

An entry that agrees with the hash is left out, so equal plans have equal tables.

A key that is too heavy for any executor may be split into parts: its rows are dealt out over names that only the plan
knows, and each part is routed and planned like a key. Mixed has no remedy for such keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from geoswarm.config import EXECUTORS_MAX
from geoswarm.core.arrays.jit import Bools, Ints, kernel
from geoswarm.core.keys.hashing import KeyOwners, scramble, slot_of_key, slot_owners, slots_of_keys, stir
from geoswarm.errors import PlanError

NOT_LISTED = -1


@dataclass(frozen=True, eq=False)
class KeyPlan:
    epoch: int
    executors: tuple[int, ...]
    """Ascending; numbers may be missing, since any executor can leave."""
    keys: Ints
    """Ascending."""
    targets: KeyOwners
    split_keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Ascending."""
    split_ways: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The number of parts of each split key, 2 or more."""

    @classmethod
    def first(cls, executors: Sequence[int]) -> "KeyPlan":
        """Epoch 0, with an empty table: every key goes where its hash sends it."""
        return cls(0, tuple(executors), np.empty(0, np.int64), np.empty(0, np.int32))

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            remedy = f"plan {self.epoch - 1} stays in force" if self.epoch > 0 else "correct it"
            raise PlanError(f"key plan {self.epoch} {problem}: refused; {remedy}")
        for array in (self.keys, self.targets, self.split_keys, self.split_ways):
            array.flags.writeable = False

    def with_table(self, keys: Ints, targets: KeyOwners) -> "KeyPlan":
        """The next epoch with another table, given in any order; entries that agree with the hash are dropped."""
        keys, targets = np.asarray(keys, np.int64), np.asarray(targets, np.int32)
        needed = self.homes(keys) != targets
        order = np.argsort(keys[needed])
        table = keys[needed][order], targets[needed][order]
        return replace(self, epoch=self.epoch + 1, keys=table[0], targets=table[1])

    def with_splits(self, keys: Ints, ways: Ints) -> "KeyPlan":
        """The next epoch in which exactly these keys are split, given in any order."""
        order = np.argsort(keys)
        return replace(self, epoch=self.epoch + 1, split_keys=keys[order], split_ways=ways[order])

    def with_executors(self, executors: Sequence[int]) -> "KeyPlan":
        """The next epoch with other executors. Entries of the table whose executor has left are dropped."""
        keys, targets = self.keys[:0].copy(), self.targets[:0].copy()
        plan = replace(self, executors=tuple(sorted(executors)), keys=keys, targets=targets)
        stays = np.isin(self.targets, plan.executors)
        return plan.with_table(self.keys[stays], self.targets[stays])

    def route(self, keys: Ints) -> KeyOwners:
        """F: the executor of each key."""
        return _route(_as_ids(keys), slot_owners(self.executors), self._probe_keys, self._probe_targets)

    def deal(self, keys: Ints, numbers: Ints | None = None) -> Ints:
        """The names by which rows with these keys are routed: the key, or its parts in turn. `numbers`, if given, has
        one for each row, and rows of a key that agree in it go to the same part."""
        if not len(self.split_keys):
            return keys
        dealt = _as_ids(keys).copy()
        for key, ways in zip(self.split_keys, self.split_ways, strict=True):
            rows = np.flatnonzero(dealt == key)
            places = np.arange(len(rows)) if numbers is None else slots_of_keys(numbers[rows])
            dealt[rows] = parts_of(int(key), int(ways))[places % ways]
        return dealt

    def is_listed(self, keys: Ints) -> Bools:
        """Whether each key is in the table."""
        if not len(self.keys):
            return np.zeros(len(keys), np.bool_)
        found: Bools = self.keys[np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)] == keys
        return found

    def is_split(self, keys: Ints) -> Bools:
        return np.isin(keys, self.split_keys)

    def split_keys_at(self, executor: int) -> Ints:
        """The split keys of which the executor has a part."""
        return self._split_keys_at.get(executor, self.split_keys[:0])

    def homes(self, keys: Ints) -> KeyOwners:
        """h: the executor of each key without the table."""
        return _homes(_as_ids(keys), slot_owners(self.executors))

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "executors": list(self.executors),
            "keys": self.keys.tolist(),
            "targets": self.targets.tolist(),
            "splits": [self.split_keys.tolist(), self.split_ways.tolist()],
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "KeyPlan":
        try:
            epoch = index(written["epoch"])
            executors = tuple(map(index, written["executors"]))
            keys = np.fromiter(map(index, written["keys"]), np.int64)
            targets = np.fromiter(map(index, written["targets"]), np.int32)
            splits = [np.fromiter(map(index, part), np.int64) for part in written["splits"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"a written key plan cannot be read: {error!r}; use `to_json`") from error
        return cls(epoch, executors, keys, targets, *splits)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, KeyPlan)
            and (self.epoch, self.executors) == (other.epoch, other.executors)
            and np.array_equal(self.keys, other.keys)
            and np.array_equal(self.targets, other.targets)
            and np.array_equal(self.split_keys, other.split_keys)
            and np.array_equal(self.split_ways, other.split_ways)
        )

    def __hash__(self) -> int:
        return hash((self.epoch, self.executors, self.keys.tobytes(), self.targets.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out derived arrays, which are built again on arrival."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}

    @cached_property
    def _probes(self) -> tuple[Ints, KeyOwners]:
        """The table as a hash table, at most half full, so that a search seldom takes a second step."""
        places = 16
        while places < 2 * len(self.keys):
            places *= 2
        return _probe_table(self.keys, self.targets, places)

    @cached_property
    def _split_keys_at(self) -> dict[int, Ints]:
        splits = zip(self.split_keys, self.split_ways, strict=True)
        owners = [set(self.route(parts_of(int(key), int(ways))).tolist()) for key, ways in splits]
        return {e: self.split_keys[[e in some for some in owners]] for e in set().union(*owners)}

    @property
    def _probe_keys(self) -> Ints:
        return self._probes[0]

    @property
    def _probe_targets(self) -> KeyOwners:
        return self._probes[1]

    def _problem(self) -> str | None:
        if not self.executors:
            return "has no executor"
        if list(self.executors) != sorted(set(self.executors)):
            return "does not name each executor once, in ascending order"
        if not 0 <= self.executors[0] <= self.executors[-1] < EXECUTORS_MAX:
            return f"has executors {self.executors[0]}..{self.executors[-1]}, allowed are 0..{EXECUTORS_MAX - 1}"
        if self.epoch < 0:
            return "counts below 0"
        if len(self.keys) != len(self.targets):
            return f"has {len(self.keys)} keys and {len(self.targets)} targets in its table"
        if np.any(self.keys[1:] <= self.keys[:-1]):
            return f"does not name each of {len(self.keys)} keys once, in ascending order"
        strangers = int((~np.isin(self.targets, self.executors)).sum())
        if strangers:
            return f"sends {strangers} of {len(self.keys)} keys to executors that it does not have"
        if len(self.split_keys) != len(self.split_ways) or np.any(self.split_keys[1:] <= self.split_keys[:-1]):
            return f"does not split each of {len(self.split_keys)} keys once, in ascending order"
        if np.any(self.split_ways < 2):
            return "splits a key into fewer than 2 parts"
        idle = int((self.homes(self.keys) == self.targets).sum())
        return f"repeats the hash in {idle} of {len(self.keys)} entries" if idle else None


@kernel
def parts_of(key: int, ways: int) -> Ints:
    """The names of a split key's parts; the first is the key itself."""
    parts = np.empty(ways, np.int64)
    parts[0] = key
    for part in range(1, ways):
        parts[part] = np.int64(stir(scramble(key), scramble(part)))
    return parts


def _as_ids(keys: Ints) -> Ints:
    if keys.dtype == np.uint64:
        return keys.view(np.int64)
    return np.ascontiguousarray(keys, np.int64)


@kernel
def _homes(keys: Ints, owners: KeyOwners) -> KeyOwners:
    found = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        found[i] = owners[slot_of_key(scramble(keys[i]))]
    return found


@kernel
def _probe_table(keys: Ints, targets: KeyOwners, places: int) -> tuple[Ints, KeyOwners]:
    held, says = np.zeros(places, np.int64), np.full(places, NOT_LISTED, np.int32)
    for i in range(len(keys)):
        at = np.int64(scramble(keys[i]) & np.uint64(places - 1))
        while says[at] != NOT_LISTED:
            at = (at + 1) & (places - 1)
        held[at], says[at] = keys[i], targets[i]
    return held, says


@kernel
def _route(keys: Ints, owners: KeyOwners, held: Ints, says: KeyOwners) -> KeyOwners:
    found = np.empty(len(keys), np.int32)
    last = len(held) - 1
    for i in range(len(keys)):
        bits = scramble(keys[i])
        at = np.int64(bits & np.uint64(last))
        while says[at] != NOT_LISTED and held[at] != keys[i]:
            at = (at + 1) & last
        found[i] = owners[slot_of_key(bits)] if says[at] == NOT_LISTED else says[at]
    return found
