"""Numbers of executors that someone asked for: files in scale/ that wait for the next batch.

Any process may write one, whether an engine runs or not. A request is written whole or not at all, and removed once the
plan with its number is durable. After a crash in between it is taken again, which gives the same number; no batch has
run meanwhile. Of several, the newest holds.
"""

import uuid
from typing import NamedTuple

from geoswarm.errors import CorruptState, InputError, SettingsError
from geoswarm.store.founding import CONTRACT, read_contract
from geoswarm.store.storage import Storage

SCALE_FOLDER = "scale"
REQUESTS_MAX = 1000
"""Requests that may wait; with more, no engine seems to run."""


class ScaleRequest(NamedTuple):
    executors: int
    at_us: int
    """When it was written, in microseconds since 1970."""


class WaitingRequests(NamedTuple):
    names: list[str]
    """All files, damaged ones included."""
    newest: ScaleRequest | None
    """None if there is none that can be read."""


def put_request(storage: Storage, executors: int, at_us: int) -> None:
    """Write a request to disk, for the engine that runs, or else for the next."""
    if not storage.exists(CONTRACT):
        raise InputError(f"{storage.root} is no checkpoint of an engine: give the folder that one uses")
    limit = read_contract(storage).executors_max
    if not 1 <= executors <= limit:
        raise SettingsError(f"{executors} executors: use 1 to {limit}")
    waiting = len(storage.names(SCALE_FOLDER))
    if waiting >= REQUESTS_MAX:
        raise InputError(f"{waiting} requests to scale wait, the limit is {REQUESTS_MAX}: start the engine")
    name = f"{SCALE_FOLDER}/{at_us:020d}-{uuid.uuid4().hex[:8]}.json"
    storage.write_document(name, {"executors": executors, "at_us": at_us}, replace=False)


def waiting_requests(storage: Storage) -> WaitingRequests:
    names, newest = storage.names(SCALE_FOLDER), None
    for name in reversed(names):
        try:
            found = ScaleRequest(**storage.read_document(f"{SCALE_FOLDER}/{name}"))
        except (CorruptState, TypeError):
            continue  # it must not stop the stream
        if isinstance(found.executors, int) and isinstance(found.at_us, int):
            newest = found
            break
    return WaitingRequests(names, newest)


def clear_requests(storage: Storage, names: list[str]) -> None:
    for name in names:
        storage.remove(f"{SCALE_FOLDER}/{name}")
