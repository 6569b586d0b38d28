"""The subscriptions that have reached their `max_events` in a batch, for the version after it, which ends them.

    batch 7 ── its sink has the rows ──► reached/7: (id, counted from) ──► batch 7 is committed
                                                         └──► the next version ends them, and notes 7

The file of a batch that is run again is the same, unless the settings are others: then it is replaced, or removed. A
version takes in each file once, by the number that it notes; a subscription that was replaced meanwhile is counted from
another version, and goes on.
"""

from collections.abc import Iterator
from typing import NamedTuple

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.store.storage import Storage

REACHED_FOLDER = "reached"


class Reached(NamedTuple):
    batch: int
    ids: SubIds
    """Ascending."""
    counted_from: Ints


def write_reached(storage: Storage, reached: Reached) -> None:
    """Files of batches before are taken in by now: the version of this one has them."""
    for batch, name in _files(storage):
        if batch < reached.batch:
            storage.remove(name)
    arrays = {"ids": reached.ids, "counted_from": reached.counted_from}
    storage.write_arrays(_name_of(reached.batch), arrays)


def forget_reached(storage: Storage, batch: int) -> None:
    """For a batch with which none ends: an attempt that crashed may have left a file."""
    storage.remove(_name_of(batch))


def reached_since(storage: Storage, mark: int) -> Iterator[Reached]:
    """Those of batches with a larger number."""
    for batch, name in _files(storage):
        if batch > mark:
            yield Reached(batch, **storage.map_arrays(name))


def _name_of(batch: int) -> str:
    return f"{REACHED_FOLDER}/{batch:012d}"


def _files(storage: Storage) -> list[tuple[int, str]]:
    return [(int(name), f"{REACHED_FOLDER}/{name}") for name in storage.names(REACHED_FOLDER)]
