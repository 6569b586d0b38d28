"""The state of a keyed operator, as values: which files hold it, and which of them a batch may see.

`store/keyed_state.py` reads and writes the files. A file belongs to an interval, and is deleted when that leaves the
window. It names the plan under which it was written, and by that plan the keys that it may hold.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.operator import KEY, Moment, Operator

DELTAS_MAX = 4
"""Files of one executor and interval before some are merged; each file costs every key a look-up."""


@dataclass(frozen=True)
class IntervalClock:
    """The interval of a moment. Counting continues when intervals are made longer or shorter."""

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
    """The epoch of the plan under which it was written."""
    executor: int
    rows: int
    bytes: int
    generation: int = 0
    """Which of the schemas that the operator has had its rows have, from 0; the operator lists them (`kept_before`)."""
    part: int = 0
    """What kind of rows it holds, where an operator keeps several apart."""
    due_us: int | None = None
    """The event time at which something that it holds is over; None: nothing is by event time."""


@dataclass(frozen=True)
class Commit:
    """The state after a batch."""

    batch: int
    interval: int
    files: tuple[StateFile, ...]
    seals: dict[int, str]
    """The seals of the plans under which its files were written, by epoch."""
    columns: str = ""
    """The columns of the rows in its files, without which they cannot be read."""
    clock: IntervalClock | None = None
    closed_us: int | None = None
    """The event time up to which all that is due has been given; None: nothing has."""
    watermark_us: int | None = None
    """The watermark of the next batch; None: it has none."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def alive(self, interval: int, window: int) -> tuple[StateFile, ...]:
        return tuple(file for file in self.files if file.interval > interval - window)

    def leaving(self, interval: int, window: int) -> tuple[StateFile, ...]:
        """Files of intervals that are out of the window now."""
        return tuple(file for file in self.files if file.interval <= interval - window)

    def clock_at(self, now_us: int, interval_us: int) -> IntervalClock:
        """The clock of the next batch, which is at `now_us`."""
        if self.clock is None or self.clock.interval_us == interval_us:
            return self.clock or IntervalClock(interval_us)
        return IntervalClock(interval_us, now_us, self.interval)

    def after(
        self,
        moment: Moment,
        window: int,
        files: "FileChanges",
        plan: tuple[int, str],
        columns: str,
        clock: IntervalClock,
    ) -> "Commit":
        """The state after a batch; `plan` is the epoch and the seal of the plan under which it ran."""
        kept = [file for file in self.alive(moment.interval, window) if file.name not in files.gone]
        all_files = tuple(sorted([*kept, *files.added], key=lambda file: file.name))
        used = {file.epoch for file in all_files}
        seals = {epoch: seal for epoch, seal in (self.seals | dict([plan])).items() if epoch in used}
        return Commit(moment.batch, moment.interval, all_files, seals, columns, clock)


class FileChanges(NamedTuple):
    """The files that the executors of a batch added and removed."""

    added: Sequence[StateFile]
    gone: Collection[str]
    """Names of files that were merged into one of the added files."""


NOTHING_KEPT = Commit(-1, -1, (), {})


def state_schemas(operator: Operator, key: pa.DataType) -> tuple[pa.Schema, ...]:
    """The columns of rows of state, generation by generation; the last are those of now."""
    field = pa.field(KEY, key, nullable=False)
    return tuple(pa.schema([field, *kept]) for kept in (*operator.kept_before, operator.kept))


def files_to_merge(deltas: Sequence[StateFile], fresh_rows: int) -> list[StateFile]:
    """Files of one executor, interval and plan, oldest first, to be merged with a new one of so many rows: those of
    similar size, so that a row is rewritten a logarithmic number of times."""
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


def keys_in_file(file: StateFile, plans: dict[int, KeyPlan], ids: Ints, owners: dict[int, Ints]) -> Bools:
    """Which keys may have rows in the file: those that its plan gave to its executor, whole or in part."""
    plan = plans[file.epoch]
    if file.epoch not in owners:
        owners[file.epoch] = plan.route(ids).astype(np.int64)
    mask: Bools = owners[file.epoch] == file.executor
    return mask | np.isin(ids, plan.split_keys_at(file.executor)) if len(plan.split_keys) else mask
