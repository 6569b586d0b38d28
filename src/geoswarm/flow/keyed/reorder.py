"""Puts the fixes of objects in order: they are held back, with what they met, until a watermark has passed them.

    fixes with what they met ──┬── subscriptions on `inside` ──────────────────────────► out, in their batch
                               └── late: counted     in time: held, in files ── (watermark) ──► transitions

Only what is older than the watermark goes on, so `transitions.py` gets all fixes in the order of (ts, event_id), from
batch to batch. `ordered_transitions.py` is the operator, `held_fixes.py` the work of an executor, `store/held_fixes.py`
has the files, and `run/held_fixes.py` the watermark. In none of the papers.

The exact rules:
 - the watermark of a batch is the newest `ts` of the valid events of the batches before it, less `reorder_s`; it never
   goes back. Before the first event there is none;
 - a fix that arrives older than the watermark is late: counted, and passed over for transitions. Every other one is
   held, and goes on in the first batch whose watermark is greater than its `ts`, whether its object sends more or not;
 - an event whose `ts` is more than `ahead_s` ahead of the clock of its batch moves no watermark; as a fix it has a
   wrong clock, and is counted and passed over, too;
 - what a fix is inside of is found when it arrives: by the subscriptions, and the words and columns, of its batch. What
   it means is decided when it goes on: by the rules that are in force then, exit buffers and ways included. To who is
   on `inside` when the fix arrives or when it goes on, it says nothing more;
 - with more than `reorder_bytes_max` held after a batch, the watermark passes all of it in the next one;
 - with `reorder_s = 0` all that is held goes on at once;
 - a batch that is run again has the settings that it was begun with (`store/manifest.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from geoswarm.config import Tuning
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.subscriptions.trigger import RulesLookup
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.flow.keyed.state import StateFile
from geoswarm.flow.keyed.transition_kernels import number_subs
from geoswarm.model import INSIDE, SUB_IDS

EVER_US = 1 << 62
"""Later than all times."""


@dataclass(frozen=True)
class ReorderSettings:
    """The settings by which a batch puts fixes in order. The version of the batch has them: a batch that is run again
    under other settings, after its sink has its rows, must hold and hand on the same fixes."""

    reorder_us: int
    ahead_us: int
    bytes_max: int

    @classmethod
    def of(cls, tuning: Tuning) -> Self:
        return cls(round(tuning.reorder_s * 1e6), tuning.aggregates.ahead_us, tuning.reorder_bytes_max)


class HeldRows(NamedTuple):
    """Fixes of one file, by time."""

    ids: Ints
    """Of their keys."""
    ts_us: Ints
    rows: pa.RecordBatch
    """As they were fed."""


class HeldFiles(Protocol):
    """The files of held fixes, as tasks use them. It travels to every task."""

    @property
    def place(self) -> str:
        """The name of the folder, unique among all checkpoints."""

    def open_fixes(self, file: StateFile) -> HeldRows: ...

    def write_fixes(self, held: HeldRows, name: str, epoch: int, executor: int) -> StateFile: ...

    def forget_copies(self, names: Collection[str]) -> None: ...

    def report(self, attempt: str, stage: str, number: int, counted: KeyedReport) -> None: ...


class Reorder(NamedTuple):
    """What the tasks of a batch know of fixes that are held."""

    store: HeldFiles
    held: tuple[StateFile, ...]
    """The files before the batch."""
    since_us: int
    """Fixes older than this have gone on before."""
    watermark_us: int
    """Of the batch: fixes older than this go on in it; -EVER_US: there is none."""
    bound_us: int
    """A fix that is newer has a wrong clock."""
    attempt: str
    """Separates the reports of several attempts at one batch."""
    is_on: bool = True
    """False: nothing is held back, or late, any more."""


def without_inside(rows: pa.RecordBatch, lookup: RulesLookup) -> pa.RecordBatch:
    """All rows, without their subscriptions that are on `inside` or not live."""
    lists = rows.column(SUB_IDS.name)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    subs = lists.flatten().to_numpy()
    numbers, ids = number_subs(subs)
    order = np.argsort(ids)
    follows = np.empty(len(ids), np.bool_)
    follows[order] = lookup(ids[order]).on != INSIDE
    kept = follows[numbers]
    ends = np.append(0, np.cumsum(kept))[offsets - offsets[0]].astype(np.int32)
    fewer = pa.ListArray.from_arrays(pa.array(ends), pa.array(subs[kept]), type=SUB_IDS.type)
    place = rows.schema.get_field_index(SUB_IDS.name)
    return pa.record_batch([*rows.columns[:place], fewer, *rows.columns[place + 1 :]], schema=rows.schema)
