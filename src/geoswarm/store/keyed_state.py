"""What a keyed operator remembers, on disk: immutable files of rows sorted by key, and a commit for each batch.

    keyed/NAME/files/     rows of state: one file per batch and executor, then merged within their interval
    keyed/NAME/commits/   after each batch, the files that are in force
    keyed/NAME/plans/     each plan of keys, by epoch

A batch reads the state that the batch before it left, whatever has happened since: a batch that is run again finds the
same. Files belong to an interval, and go when it leaves the window. Any worker maps any of them, so giving a key to
another executor moves nothing; a file remembers the plan it was written under, and from that plan follows which keys it
may hold. `control/keyed/` decides about keys.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.core.keys.plan import KeyPlan
from geoswarm.errors import CorruptState, StateError
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.flow.keyed.operator import Moment
from geoswarm.flow.keyed.state import NOTHING_KEPT, Commit, IntervalClock, StateFile
from geoswarm.flow.keyed.turn import Shelf
from geoswarm.store import dead_files
from geoswarm.store.storage import Storage

FORMAT, FORMATS = 3, (1, 2, 3)
"""What is written, and what is read: in the first, files have no generation, before the third nothing is due."""
COMMITS_KEPT = 2
"""The number of commits kept. The newest may belong to a batch that will be run again, which needs the one before."""
PLANS_KEPT = 100
"""The number of plans kept for inspection; plans of files in force are kept as long as the files."""


class KeyedState:
    """The folder of one operator. The driver prepares and commits; tasks write files and read."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage, self.folder = storage, f"keyed/{name}"

    @property
    def place(self) -> str:
        """The folder's address, unique among all checkpoints."""
        return f"{self.storage.root}/{self.folder}"

    def sweep(self) -> None:
        """What killed processes were writing."""
        for kind in ("files", "commits", "plans"):
            self.storage.sweep(f"{self.folder}/{kind}")

    # -- commits

    def before(self, batch: int) -> Commit:
        """What the batch may see."""
        older = [number for number in self._numbers("commits") if number < batch]
        if not older:
            if any(number >= batch for number in self._numbers("commits")[1:]):
                raise StateError(
                    f"batch {batch} of {self.folder} is asked for, but what came before it is forgotten: "
                    "the folder spark/ was restored from an older copy than the rest; restore both together"
                )
            return NOTHING_KEPT
        return self.after(older[-1])

    def newest_batch(self) -> int | None:
        """The newest batch that was committed; None: none was."""
        return max(self._numbers("commits"), default=None)

    def commit(self, commit: Commit) -> None:
        body = {"format": FORMAT, **asdict(commit), "seals": {str(k): v for k, v in commit.seals.items()}}
        self.storage.write_document(f"{self.folder}/commits/{commit.batch:012d}.json", body)
        self._forget(commit.batch)

    def after(self, batch: int) -> Commit:
        """What a batch has left, one of the newest."""
        body = self.storage.read_document(f"{self.folder}/commits/{batch:012d}.json")
        if body.pop("format") not in FORMATS:
            raise CorruptState(f"{self.folder} was written by another version of geoswarm: use that one, or remove it")
        body["files"] = tuple(StateFile(**file) for file in body["files"])
        body["seals"] = {int(epoch): seal for epoch, seal in body["seals"].items()}
        body["clock"] = IntervalClock(**body["clock"]) if body["clock"] else None
        return Commit(**body)

    def _forget(self, batch: int) -> None:
        for number in self._numbers("commits")[:-COMMITS_KEPT]:
            self.storage.remove(f"{self.folder}/commits/{number:012d}.json")
        commits = [self.after(number) for number in self._numbers("commits")]
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

    def write(
        self, shelf: Shelf, moment: Moment, plan: KeyPlan, executor: int, attempt: str, generation: int
    ) -> StateFile:
        """Write rows of state. `attempt` keeps the files of two attempts at one task apart."""
        name = f"{moment.batch:012d}-{executor:05d}-{attempt}"
        payload = np.frombuffer(shelf.rows.serialize(), np.uint8)
        arrays: dict[str, Any] = {"ids": shelf.ids, "batches": shelf.batches, "payload": payload}
        size = self.storage.write_arrays(f"{self.folder}/files/{name}", arrays)
        return StateFile(name, shelf.interval, plan.epoch, executor, len(shelf.ids), size, generation)

    def open(self, file: StateFile, schemas: Sequence[pa.Schema]) -> Shelf:
        """Open a file of rows, with the last of the operator's `state_schemas`."""
        arrays = self.storage.map_arrays(f"{self.folder}/files/{file.name}")
        held, now = schemas[file.generation], schemas[-1]
        rows = pa.ipc.read_record_batch(pa.py_buffer(arrays["payload"]), held)
        missing = [pa.nulls(len(rows), now.field(place).type) for place in range(len(held), len(now))]
        rows = pa.record_batch([*rows.columns, *missing], schema=now)
        return Shelf(arrays["ids"], arrays["batches"], rows, file.interval)

    def forget_copies(self, names: Collection[str]) -> None:
        """Remove this host's copies of remote files that it no longer needs."""
        for name in names:
            self.storage.forget(f"{self.folder}/files/{name}")

    # -- what tasks report

    def report(self, attempt: str, stage: str, number: int, counted: KeyedReport) -> None:
        """Keep what a task counted. The last attempt of a task wins."""
        name = f"{self._report_folder(attempt)}/{stage}-{number:05d}.json"
        self.storage.write(name, json.dumps(counted.to_json()).encode(), durable=False)

    def report_loads(self, attempt: str, executor: int, loads: bytes) -> None:
        self.storage.write(f"{self._report_folder(attempt)}/loads-{executor:05d}", loads, durable=False)

    def reports(self, attempt: str) -> dict[str, dict[int, KeyedReport]]:
        """What tasks counted, by stage and number of the task."""
        stages: dict[str, dict[int, KeyedReport]] = {"route": {}, "work": {}}
        folder = self._report_folder(attempt)
        for name in self.storage.names(folder):
            stage, _, number = name.removesuffix(".json").partition("-")
            if stage in stages:
                stages[stage][int(number)] = KeyedReport.from_json(json.loads(self.storage.read(f"{folder}/{name}")))
        return stages

    def loads(self, attempt: str, executor: int) -> bytes:
        return self.storage.read(f"{self._report_folder(attempt)}/loads-{executor:05d}")

    def forget_reports(self, attempt: str | None = None) -> None:
        """Remove the reports of one attempt, or of all attempts."""
        self.storage.remove_folder(self._report_folder(attempt) if attempt else f"{self.folder}/reports")

    def _report_folder(self, attempt: str) -> str:
        return f"{self.folder}/reports/{attempt}"

    def file_dead_letters(self, batch: int, part: str, letters: pa.Table) -> None:
        dead_files.write(self.storage, dead_files.folder_of(dead_files.EVENTS, batch), part, letters)

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
