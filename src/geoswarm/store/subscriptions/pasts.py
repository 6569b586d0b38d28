"""The subscriptions of a version that wait for their past, and from when on each wants it.

A version has those that took effect since the last batch. The batch that runs with it gives them their past
(`flow/stages/past.py`), so the version after it begins with none; a replay finds them with the version of its batch.
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.subscriptions.attributes import SINCE
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.model import NEVER_US
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, places
from geoswarm.store.storage import Storage

KIND = "past"
"""The ending of the file's name."""


class Pasts(NamedTuple):
    ids: SubIds
    """Ascending."""
    since_us: Ints

    def without(self, ids: SubIds) -> "Pasts":
        """Without some subscriptions, which were cancelled, or replaced by others."""
        if not len(self.ids):
            return self
        kept = ~np.isin(self.ids, ids)
        return self if kept.all() else Pasts(self.ids[kept], self.since_us[kept])

    def born(self, subs: Subs) -> "Pasts":
        """With those of new subscriptions that ask for it; what waited under their ids before does not count."""
        asks = np.flatnonzero(subs[SINCE] != NEVER_US)
        left = self.without(subs.ids)
        if not len(asks):
            return left
        ids, since_us = np.append(left.ids, subs.ids[asks]), np.append(left.since_us, subs[SINCE][asks])
        order = np.argsort(ids)
        return Pasts(ids[order], since_us[order])

    def since_of(self, ids: SubIds) -> Ints:
        """From when on each of some subscriptions, all of which wait, wants its past."""
        return self.since_us[places(self.ids, ids)]


NONE_WAITS = Pasts(np.empty(0, np.int64), np.empty(0, np.int64))


def write_pasts(storage: Storage, stem: str, pasts: Pasts) -> str | None:
    """Returns the name of the file; None if there is none, since nobody waits. The checkpoint makes it durable."""
    if not len(pasts.ids):
        return None
    name = f"{stem}.{KIND}"
    storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}", pasts._asdict(), durable=False)
    return name


def open_pasts(storage: Storage, name: str | None) -> Pasts:
    return Pasts(**storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}")) if name is not None else NONE_WAITS
