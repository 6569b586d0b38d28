"""The time and content of each batch of a stream without subscriptions, fixed before the batch runs, so that a replay
gives the same. An engine with subscriptions has manifests for this (`manifest.py`).
"""

from geoswarm.errors import StateError
from geoswarm.store.storage import Storage

TURNS_FOLDER = "turns"
KEPT = 2


def fix(storage: Storage, batch: int, now_us: int, content: str) -> int:
    """The time of a batch, in microseconds since 1970: fixed at its first attempt, and never before an earlier batch's.
    `content` is a digest of what the source put into it, where it is known."""
    numbers = [int(name.split(".")[0]) for name in storage.names(TURNS_FOLDER)]
    newest = max(numbers, default=-1)
    if batch in numbers:
        held = storage.read_document(_name(batch))
        if content and held["content"] and content != held["content"]:
            raise StateError(
                f"batch {batch} has been run with other rows than Spark now puts into it: "
                "entries of spark/offsets were removed; restore them, or start a new checkpoint"
            )
        return int(held["now_us"])
    if numbers and batch != newest + 1:
        raise StateError(
            f"Spark asks for batch {batch}, but the newest of this checkpoint is {newest}: "
            "the folder spark/ and the rest of it are not of the same moment; restore both together"
        )
    if numbers:
        now_us = max(now_us, int(storage.read_document(_name(newest))["now_us"]))
    storage.write_document(_name(batch), {"now_us": now_us, "content": content}, replace=False)
    for old in sorted(numbers)[: 1 - KEPT]:
        storage.remove(_name(old))
    return now_us


def _name(batch: int) -> str:
    return f"{TURNS_FOLDER}/{batch:012d}.json"
