"""Pairs of an object and a subscription in the state of transitions: which are in two lists, and the next number of
their sequence."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.flow.keyed.state_lists import flat_lists, lists_beside


class PairCodes(NamedTuple):
    """A number for each pair of an object and one of some subscriptions."""

    ids: SubIds

    @classmethod
    def of(cls, subs: SubIds) -> "PairCodes":
        return cls(np.unique(subs))

    def of_pairs(self, groups: Ints, subs: SubIds) -> Ints:
        """-1 for a subscription that is none of them."""
        if not len(self.ids):
            return np.full(len(subs), -1, np.int64)
        place = np.minimum(np.searchsorted(self.ids, subs), len(self.ids) - 1)
        return np.where(self.ids[place] == subs, groups * len(self.ids) + place, -1)


class OpenPairs(NamedTuple):
    """What is open about some objects, in lists of their state: a run, a pause or a sequence."""

    groups: Ints
    subs: SubIds
    run_us: Ints
    run_fixes: Ints
    quiet_us: Ints
    sequence: Ints
    told_us: Ints

    @classmethod
    def of(cls, held: pa.RecordBatch) -> "OpenPairs":
        subs, offsets = flat_lists(held.column("open_subs"))
        values = (lists_beside(held.column(name), offsets) for name in cls._fields[2:])
        return cls(np.repeat(np.arange(len(held)), np.diff(offsets)), subs, *values)

    def find(self, codes: PairCodes, groups: Ints, subs: SubIds) -> Ints:
        """Where each pair is, or -1."""
        held, wanted = codes.of_pairs(self.groups, self.subs), codes.of_pairs(groups, subs)
        if not len(held):
            return np.full(len(wanted), -1, np.int64)
        order = np.argsort(held)
        place = np.minimum(np.searchsorted(held[order], wanted), len(held) - 1)
        hit: Bools = held[order][place] == wanted
        return np.where(hit, order[place], -1)

    def next_numbers(self, found: Ints, ts_us: Ints, sequence_us: int) -> Ints:
        """The number of an alert at `ts_us` of each pair that was found: a sequence goes on for `sequence_us`."""
        sequence, told_us = (np.append(values, 0)[found] for values in (self.sequence, self.told_us))
        goes_on = (found >= 0) & (sequence > 0) & (ts_us - told_us <= sequence_us)
        return np.where(goes_on, sequence + 1, 1)
