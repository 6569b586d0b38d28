"""What a keyed operator remembers, on disk: immutable files of rows sorted by key, and which of them a batch may see.

    keyed/NAME/files/     rows of state: one file per batch and executor, then merged within their interval
    keyed/NAME/commits/   after each batch, the files that are in force
    keyed/NAME/plans/     each plan of keys, by epoch

A batch reads the state that the batch before it left, whatever has happened since: a batch that is run again finds the
same. Files belong to an interval, and go when it leaves the window. Any worker maps any of them, so giving a key to
another executor moves nothing; a file remembers the plan it was written under, and that plan tells which keys it may
hold. Decides nothing about keys: `control/keyed/` does.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.keyed.operator import KEY, Moment, Operator
from geoswarm.flow.keyed.turn import Shelf
from geoswarm.store.storage import Storage

FORMAT = 1
DELTAS_MAX = 4
"""Files of one executor and interval before some are merged; each costs every key one look-up."""
COMMITS_KEPT = 2
"""The newest may belong to a batch that will be run again, which needs the one before."""
PLANS_KEPT = 100
"""To look back at; those that files in force were written under are kept as long as these."""


@dataclass(frozen=True)
class Clock:
    """Which interval a moment belongs to. It counts on when intervals are made longer or shorter."""

    interval_us: int
    origin_us: int = 0
    origin: int = 0

    def interval(self, now_us: int) -> int:
        return self.origin + max(0, now_us - self.origin_us) // self.interval_us


@dataclass(frozen=True)
class StateFile:
    name: str
    interval: int
    epoch: int
    """Of the plan by which its keys were given to `executor`."""
    executor: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Commit:
    """What is remembered after a batch."""

    batch: int
    interval: int
    files: tuple[StateFile, ...]
    seals: dict[int, str]
    """Of the plans that its files were written under, by epoch."""
    columns: str = ""
    """The columns of its files' rows, without which they cannot be read."""
    clock: Clock | None = None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def alive(self, interval: int, window: int) -> tuple[StateFile, ...]:
        return tuple(file for file in self.files if file.interval > interval - window)

    def leaving(self, interval: int, window: int) -> tuple[StateFile, ...]:
        """Files of intervals that are out of the window now."""
        return tuple(file for file in self.files if file.interval <= interval - window)

    def clock_at(self, now_us: int, interval_us: int) -> Clock:
        """The clock of the next batch, which is at `now_us`."""
        if self.clock is None or self.clock.interval_us == interval_us:
            return self.clock or Clock(interval_us)
        return Clock(interval_us, now_us, self.interval)

    def after(
        self, moment: Moment, window: int, files: "Files", plan: tuple[int, str], columns: str, clock: Clock
    ) -> "Commit":
        """What is remembered after a batch; `plan` is the epoch and the seal of the one it ran under."""
        kept = [file for file in self.alive(moment.interval, window) if file.name not in files.gone]
        all_files = tuple(sorted([*kept, *files.added], key=lambda file: file.name))
        used = {file.epoch for file in all_files}
        seals = {epoch: seal for epoch, seal in (self.seals | dict([plan])).items() if epoch in used}
        return Commit(moment.batch, moment.interval, all_files, seals, columns, clock)


class Files(NamedTuple):
    """What the executors of a batch did."""

    added: Sequence[StateFile]
    gone: Collection[str]
    """Files that were merged into one of `added`."""


NOTHING = Commit(-1, -1, (), {})


class KeyedState:
    """The folder of one operator. The driver prepares and commits; tasks write files and read."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage, self.folder = storage, f"keyed/{name}"

    def sweep(self) -> None:
        """Remove what killed processes were writing."""
        for kind in ("files", "commits", "plans"):
            self.storage.sweep(f"{self.folder}/{kind}")

    # -- commits

    def before(self, batch: int) -> Commit:
        """The newest commit that is older than the batch: the state that it may see."""
        older = [number for number in self._numbers("commits") if number < batch]
        if not older:
            if any(number >= batch for number in self._numbers("commits")[1:]):
                raise StateError(
                    f"batch {batch} of {self.folder} is asked for, but what came before it is forgotten: "
                    "the folder spark/ was restored from an older copy than the rest; restore both together"
                )
            return NOTHING
        return self._commit(older[-1])

    def commit(self, commit: Commit) -> None:
        body = {"format": FORMAT, **asdict(commit), "seals": {str(k): v for k, v in commit.seals.items()}}
        self.storage.write_document(f"{self.folder}/commits/{commit.batch:012d}.json", body)
        self._forget(commit.batch)

    def _commit(self, batch: int) -> Commit:
        body = self.storage.read_document(f"{self.folder}/commits/{batch:012d}.json")
        if body.pop("format") != FORMAT:
            raise CorruptState(f"{self.folder} was written by another version of geoswarm: use that one, or remove it")
        body["files"] = tuple(StateFile(**file) for file in body["files"])
        body["seals"] = {int(epoch): seal for epoch, seal in body["seals"].items()}
        body["clock"] = Clock(**body["clock"]) if body["clock"] else None
        return Commit(**body)

    def _forget(self, batch: int) -> None:
        for number in self._numbers("commits")[:-COMMITS_KEPT]:
            self.storage.remove(f"{self.folder}/commits/{number:012d}.json")
        commits = [self._commit(number) for number in self._numbers("commits")]
        used = {file.name for commit in commits for file in commit.files}
        for name in self.storage.names(f"{self.folder}/files"):
            if name not in used and int(name.split("-")[0]) <= batch:
                self.storage.remove(f"{self.folder}/files/{name}")
        needed = min((epoch for commit in commits for epoch in commit.seals), default=1 << 62)
        for old in self._numbers("plans")[:-PLANS_KEPT]:
            if old < needed:
                self.storage.remove(f"{self.folder}/plans/{old:010d}.json")

    def _numbers(self, kind: str) -> list[int]:
        return [int(name.split(".")[0]) for name in self.storage.names(f"{self.folder}/{kind}")]

    # -- files

    def write(self, shelf: Shelf, moment: Moment, plan: KeyPlan, executor: int, attempt: str) -> StateFile:
        """`attempt` sets apart what two attempts at one task write."""
        name = f"{moment.batch:012d}-{executor:05d}-{attempt}"
        payload = np.frombuffer(shelf.rows.serialize(), np.uint8)
        arrays: dict[str, Any] = {"ids": shelf.ids, "batches": shelf.batches, "payload": payload}
        size = self.storage.write_arrays(f"{self.folder}/files/{name}", arrays)
        return StateFile(name, shelf.interval, plan.epoch, executor, len(shelf.ids), size)

    def open(self, file: StateFile, schema: pa.Schema) -> Shelf:
        """`schema` is the key's field and the operator's `kept`."""
        arrays = self.storage.map_arrays(f"{self.folder}/files/{file.name}")
        rows = pa.ipc.read_record_batch(pa.py_buffer(arrays["payload"]), schema)
        return Shelf(arrays["ids"], arrays["batches"], rows, file.interval)

    # -- plans

    def write_plan(self, plan: KeyPlan) -> str:
        name = f"{self.folder}/plans/{plan.epoch:010d}.json"
        return self.storage.write_document(name, plan.to_json(), replace=False)

    def read_plan(self, epoch: int, seal: str) -> KeyPlan:
        body, held = self.storage.read_sealed(f"{self.folder}/plans/{epoch:010d}.json")
        if held != seal:
            raise CorruptState(f"plan {epoch} in {self.folder} is not the one its state was kept under: restore it")
        return KeyPlan.from_json(body)

    def newest_plan(self) -> tuple[KeyPlan, str] | None:
        numbers = self._numbers("plans")
        if not numbers:
            return None
        body, seal = self.storage.read_sealed(f"{self.folder}/plans/{numbers[-1]:010d}.json")
        return KeyPlan.from_json(body), seal


def state_schema(operator: Operator, key: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(KEY, key, nullable=False), *operator.kept])


def mergeable(deltas: Sequence[StateFile], fresh_rows: int) -> list[StateFile]:
    """Files of one executor, interval and plan, oldest first, that a new one of so many rows should swallow: those of
    like size, so that a row is rewritten a logarithmic number of times."""
    if len(deltas) < DELTAS_MAX:
        return []
    chosen: list[StateFile] = []
    total = fresh_rows
    for file in reversed(deltas):
        if file.rows > 2 * total and len(chosen) >= 2:
            break
        chosen.append(file)
        total += file.rows
    return chosen[::-1]


def keys_on(file: StateFile, plans: dict[int, KeyPlan], ids: Ints, owners: dict[int, Ints]) -> Bools:
    """Which of the keys may have rows in the file: those that its plan gave to its executor, and split ones."""
    plan = plans[file.epoch]
    if file.epoch not in owners:
        owners[file.epoch] = plan.route(ids).astype(np.int64)
    mask: Bools = owners[file.epoch] == file.executor
    return mask | plan.is_split(ids) if len(plan.split_keys) else mask
