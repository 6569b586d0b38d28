"""The files of kept events, and the sealed documents that say which of them count.

    kept/parts/BATCH-TASK-TOKEN.events       what a task has kept, or what was merged of it
    kept/runs/FIRST-LAST.json                a run: the parts of batches FIRST to LAST, which are committed

A part counts if a run names it. A run is written when its batch is committed, and again, with the same events, if the
batch is run again. A run of several batches takes the place of theirs by being written; theirs are removed later, and
their parts that it does not name. So each batch is in exactly one run that counts: the longest.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import NamedTuple

from geoswarm.core.arrays.jit import Array
from geoswarm.flow.keep import KeptPart
from geoswarm.store.storage import Storage

PARTS_FOLDER, RUNS_FOLDER = "kept/parts", "kept/runs"


class KeptBatch(NamedTuple):
    number: int
    now_us: int
    """When it came, by the engine's clock; its age counts from then."""
    rows: int
    bytes: int
    """Of its parts as they were first written."""
    plan_epoch: int
    """The plan that its events were routed by."""


@dataclass(frozen=True)
class KeptRun:
    batches: tuple[KeptBatch, ...]
    parts: tuple[KeptPart, ...]
    first_kept: int
    """The oldest batch that counts, as of the newest batch of this run."""
    cut: int
    """Batches that went early since the checkpoint was made, because there were too many bytes."""

    @property
    def first(self) -> int:
        return self.batches[0].number

    @property
    def last(self) -> int:
        return self.batches[-1].number

    @property
    def name(self) -> str:
        return f"{self.first:012d}-{self.last:012d}.json"

    @cached_property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @cached_property
    def bytes(self) -> int:
        """Of its batches as they were first written."""
        return sum(batch.bytes for batch in self.batches)


def write(storage: Storage, stem: str, arrays: Mapping[str, Array]) -> tuple[str, int]:
    """Write a part. Returns its name, which is never used again, and its bytes."""
    name = f"{stem}-{uuid.uuid4().hex[:8]}.events"
    return name, storage.write_arrays(f"{PARTS_FOLDER}/{name}", arrays)


def write_run(storage: Storage, run: KeptRun) -> None:
    storage.write_document(f"{RUNS_FOLDER}/{run.name}", asdict(run))


def read_run(storage: Storage, name: str) -> KeptRun:
    body = storage.read_document(f"{RUNS_FOLDER}/{name}")
    batches = tuple(KeptBatch(*batch) for batch in body["batches"])
    return KeptRun(batches, tuple(map(KeptPart.of, body["parts"])), body["first_kept"], body["cut"])


def run_names(storage: Storage) -> list[str]:
    """The runs that count, in order: those that lie in no other."""
    spans = sorted((span_of(name) for name in storage.names(RUNS_FOLDER)), key=lambda span: (span[0], -span[1]))
    chosen, until = list[str](), -1
    for first, last in spans:
        if last > until:
            chosen.append(f"{first:012d}-{last:012d}.json")
            until = last
    return chosen


def span_of(name: str) -> tuple[int, int]:
    """The first and the last batch of a run, by its name."""
    first, last = name.removesuffix(".json").split("-")
    return int(first), int(last)


def remove_runs(storage: Storage, runs: Iterable[KeptRun], named: Collection[str] = ()) -> None:
    """First the documents, then the parts but for those that another run names: a document never names what is gone."""
    gone = list(runs)
    for run in gone:
        storage.remove(f"{RUNS_FOLDER}/{run.name}")
    for part in (part for run in gone for part in run.parts):
        if part.name not in named:
            remove_part(storage, part.name)


def remove_part(storage: Storage, name: str) -> None:
    storage.remove(f"{PARTS_FOLDER}/{name}")
    storage.forget(f"{PARTS_FOLDER}/{name}")
