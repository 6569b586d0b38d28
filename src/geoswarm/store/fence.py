"""One engine per checkpoint: a second one is refused, and one that was replaced can no longer commit.

There are two protections, because neither suffices alone. A lock held by the process keeps a second engine out for as
long as the first lives, on a file system that has locks. A term, a number taken once by each start, is checked before
every commit, so that an engine which was replaced without noticing (a stalled machine, storage without locks) stops.
SWARM §4.1.1 elects a new coordinator by agreement; here the checkpoint decides.
"""

import fcntl
import os
import uuid
from pathlib import Path
from typing import IO

from geoswarm.errors import FencedOut
from geoswarm.store.storage import Storage

TERMS_FOLDER = "terms"


class Fence:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = _lock(storage)
        try:
            self.term = newest_term(storage) + 1
            # On storage that cannot refuse to replace, two starts may take one number; the token distinguishes them.
            self.token = uuid.uuid4().hex
            self._holder = {"term": self.term, "token": self.token}
            storage.write_document(_name(self.term), self._holder, replace=False)
            for name in storage.names(TERMS_FOLDER)[:-2]:
                storage.remove(f"{TERMS_FOLDER}/{name}")
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        newest = newest_term(self._storage)
        if newest != self.term or self._storage.read_document(_name(newest)) != self._holder:
            raise FencedOut(
                f"this engine is number {self.term} on {self._storage.root}, and number {newest} has started since: "
                "this one stops, its unfinished batch is left to the other"
            )

    def release(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None


def _name(term: int) -> str:
    return f"{TERMS_FOLDER}/{term:08d}.json"


def newest_term(storage: Storage) -> int:
    return max((int(name.split(".")[0]) for name in storage.names(TERMS_FOLDER)), default=0)


def _lock(storage: Storage) -> IO[str] | None:
    if storage.is_remote:
        return None
    path = Path(storage.path("lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read() or "(not known yet)"
        file.close()
        raise FencedOut(
            f"checkpoint {storage.root} is in use by process {holder}: stop that engine, or choose another checkpoint"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
