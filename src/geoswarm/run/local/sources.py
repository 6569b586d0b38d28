"""The sources of the local engine: files, tables in memory, and generated streams.

An offset is how far a source has been read. It has the format of Spark's sources of the same kind, so that either
engine goes on where the other stopped.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from geoswarm.config import SubIdKind
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.errors import SettingsError
from geoswarm.flow.conform import cast_columns
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import EVENT
from geoswarm.run.columns import PLAIN, Columns
from geoswarm.run.file_formats import first_parquet, guess_format
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.generated import Offering, Pace, Workload, id_ranges, read_range
from geoswarm.run.local.ddl import parse_columns
from geoswarm.run.made_ids import FileNumbers, check_room, place_ids
from geoswarm.run.source_times import read_times, timed
from geoswarm.run.stream_log import Offset, StreamLog, TakenFile
from geoswarm.run.undeclared import LeftOut, extra_field, first_lines, keeps_extra, split_all

ReadTask = Callable[[], Iterator[pa.RecordBatch]]


class Source(ABC):
    schema: pa.Schema
    """The columns of its rows, with MALFORMED if rows may be unreadable."""
    declared_ids: SubIdKind | None = None
    """What ids of subscriptions are said to be, where the format has no types."""

    def open(self, log: StreamLog, number: int, *, available_now: bool) -> None:  # noqa: B027 - most keep no log
        """Called before the first batch; `number` is the source's position in the stream. With `available_now`, rows
        that arrive later are left for another run."""

    @abstractmethod
    def latest(self, start: Offset | None) -> Offset | None:
        """How far the next batch may go from `start`, where None is the beginning; `start` if there is nothing new."""

    @abstractmethod
    def read(self, start: Offset | None, end: Offset) -> list[ReadTask]:
        """The rows between two offsets, the same each time."""


class FileSource(Source):
    """A folder to which files are added, read in the order of their times."""

    def __init__(
        self, path: str, kind: str, schema: pa.Schema, files_per_batch: int | None, columns: Columns = PLAIN
    ) -> None:
        self._folder = Path(path.removeprefix("file://")).absolute()
        if not self._folder.is_dir():
            raise SettingsError(f"there is no folder {path} to read from: create it first")
        self._kind, self.schema, self._files_per_batch = kind, schema, files_per_batch
        self._columns, self._numbers, self._left_out = columns, FileNumbers(), LeftOut()
        self.declared_ids = None if kind == "parquet" else columns.sub_id

    def open(self, log: StreamLog, number: int, *, available_now: bool) -> None:
        self._log, self._number = log, number
        self._last, self._newest = log.last_step(number), list[TakenFile]()
        self._seen = {file.path for file in log.all_files(number)}
        self._seen_names = {path.name for path in self._seen if path.parent == self._folder}
        self._listing = self._list() if available_now else None

    def latest(self, start: Offset | None) -> Offset | None:
        last = self._last
        taken = -1 if start is None else int(start["logOffset"])
        if last > taken:
            return {"logOffset": last}  # logged by a run that crashed before it began the batch
        listing = self._list() if self._listing is None else self._listing
        fresh = [file for file in listing if file.path not in self._seen][: self._files_per_batch]
        if not fresh:
            return start
        self._last, self._newest = last + 1, [file._replace(step=last + 1) for file in fresh]
        self._log.take(self._number, self._last, self._newest)
        self._seen.update(file.path for file in fresh)
        self._seen_names.update(file.path.name for file in fresh)
        return {"logOffset": self._last}

    def read(self, start: Offset | None, end: Offset) -> list[ReadTask]:
        after, until = -1 if start is None else int(start["logOffset"]), int(end["logOffset"])
        is_newest = self._newest and (after, until) == (self._last - 1, self._last)
        files = self._newest if is_newest else self._log.files(self._number, after, until)
        if self._columns.makes_ids:
            files = self._numbers.number(self._log, self._number, after, files)
            check_room(files)
        files = sorted(files, key=_age)
        if self._kind == "json" and files and self._left_out.is_due:
            self._left_out.look(first_lines(files), self._columns, self.schema, str(self._folder))

        def rows() -> Iterator[pa.RecordBatch]:
            for file in files:
                yield from read_piece(Piece(str(file.path), number=file.number), self._kind, self.schema, self._columns)

        return [rows] if files else []

    def _list(self) -> list[TakenFile]:
        """The files that are not known to be seen: asking for the time of every file of a large folder takes long."""
        entries = (e for e in os.scandir(self._folder) if e.name not in self._seen_names)
        shown = (entry for entry in entries if not entry.name.startswith((".", "_")) and entry.is_file())
        found = (TakenFile(Path(entry.path), entry.stat().st_mtime_ns // 1_000_000, -1) for entry in shown)
        return sorted(found, key=_age)


def _age(file: TakenFile) -> tuple[int, str]:
    return file.modified_ms, str(file.path)


class TableSource(Source):
    """Tables in memory, one for each batch. After a restart the same tables must be given again."""

    def __init__(self, tables: Sequence[pa.Table], columns: Columns = PLAIN) -> None:
        if not tables:
            raise SettingsError("no tables are given: give at least one, which may have no rows, for its columns")
        self._tables, self._given, self._columns = list(tables), tables[0].schema, columns
        bound = columns.bind(self._given, "the table")
        self.schema = timed(bound, columns.ts_unit)
        self._is_read = columns == PLAIN and self.schema == bound
        """Whether the tables are as they are wanted."""
        if not self._is_read and MALFORMED not in self.schema.names:
            self.schema = self.schema.append(pa.field(MALFORMED, pa.string()))

    def append(self, table: pa.Table) -> None:
        """Add a batch, also while the stream runs."""
        self._tables.append(table.cast(self._given))

    def latest(self, start: Offset | None) -> Offset | None:
        done = 0 if start is None else int(start["tables"])
        return {"tables": done + 1} if done < len(self._tables) else start

    def read(self, start: Offset | None, end: Offset) -> list[ReadTask]:
        first = 0 if start is None else int(start["tables"])
        tables = self._tables[first : int(end["tables"])]
        if self._is_read:
            return [partial(_batches_of, table) for table in tables]
        return [partial(self._read, table, number) for number, table in enumerate(tables, first)]

    def _read(self, table: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in table.to_batches():
            taken = self._columns.take(batch, self.schema)
            whole = cast_columns(read_times(taken, self._columns.ts_unit), self.schema)
            yield place_ids(whole, number, row + np.arange(len(whole))) if self._columns.makes_ids else whole
            row += len(whole)


def _batches_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches())


class GeneratedSource(Source):
    """A generated stream, replayed exactly from its offsets."""

    def __init__(self, workload: Workload, pace: Pace, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._workload, self._pace = workload, pace
        self._offering = Offering(workload, pace, clock_s)
        self.schema = workload.events(0, 1).schema

    def open(self, log: StreamLog, number: int, *, available_now: bool) -> None:
        if available_now and self._pace.rows_total is None:
            raise SettingsError("a made-up stream without rows_total never ends: set it, or leave available_now out")

    def latest(self, start: Offset | None) -> Offset | None:
        next_id = 0 if start is None else int(start["next_id"])
        end_id = min(self._offering.end_id(next_id), next_id + self._pace.rows_per_batch)
        return {"next_id": end_id} if end_id > next_id else start

    def read(self, start: Offset | None, end: Offset) -> list[ReadTask]:
        first_id = 0 if start is None else int(start["next_id"])
        ranges = id_ranges(first_id, int(end["next_id"]) - first_id, self._pace.partitions)
        return [partial(read_range, self._workload, *piece) for piece in ranges]


# -- as users write them; `run/spark/sources.py` has the same names


def events_from_files(
    path: str,
    *,
    format: str | None = None,
    extra: str = "",
    files_per_batch: int | None = None,
    columns: Mapping[str, str] | None = None,
    ts_unit: str | None = None,
    event_id: str | None = None,
) -> FileSource:
    """A folder to which files are added. `extra` declares further columns of JSON and CSV events, as in SQL:
    "text string, speed double"; with "all", in JSON, all others become one column (`run/undeclared.py`). Parquet
    declares its own columns. `columns` says what they are called in the files, as {"x": "lng", "event_id": "trip.id"},
    and `ts_unit` what numbers in `ts` count: "s", "ms", "us" or "ns". `event_id` is "integer", "text", or "made" where
    the files have none (`run/made_ids.py`)."""
    kind, (extra, takes_all) = format or guess_format(path), split_all(extra)
    names = Columns.of(columns, ts_unit, event_id, has_extra=takes_all and keeps_extra(kind))
    declared = [*(field.with_nullable(True) for field in EVENT), *parse_columns(extra)]
    if names.has_extra:
        declared.append(extra_field(declared))
    return _from_files(path, kind, declared, files_per_batch, names)


def operations_from_files(
    path: str,
    *,
    format: str | None = None,
    files_per_batch: int | None = None,
    columns: Mapping[str, str] | None = None,
    sub_id: str | None = None,
) -> FileSource:
    """Operations take effect in the order of the files' times, and in order within a file. `columns` is as for
    events. `sub_id` is "text" where JSON or CSV has ids that are texts, for a checkpoint with
    Contract(subscription_ids="text")."""
    as_text = [pa.field(f.name, pa.string() if f.name == "geometry" else f.type) for f in OPERATION]
    return _from_files(path, format, as_text, files_per_batch, Columns.of(columns, sub_id=sub_id))


def _from_files(
    path: str, format: str | None, fields: Sequence[pa.Field], files_per_batch: int | None, columns: Columns
) -> FileSource:
    kind = format or guess_format(path)
    if kind == "parquet":
        first = first_parquet(path)
        if first is None:
            raise SettingsError(f"there is no Parquet file in {path} yet, and the columns are those of the first one")
        declared = timed(first.usable_columns(columns), columns.ts_unit)
    else:
        declared = columns.declare(fields)
    return FileSource(path, kind, declared.append(pa.field(MALFORMED, pa.string())), files_per_batch, columns)


def from_tables(
    *tables: pa.Table,
    columns: Mapping[str, str] | None = None,
    ts_unit: str | None = None,
    event_id: str | None = None,
) -> TableSource:
    """Arrow tables, a batch each. `columns`, `ts_unit` and `event_id` are as for files."""
    return TableSource(tables, Columns.of(columns, ts_unit, event_id))


def from_workload(
    workload: Workload,
    *,
    rows_per_batch: int,
    rows_total: int | None = None,
    partitions: int = 2,
    paced: bool = False,
) -> GeneratedSource:
    """Rows of a generated stream, such as `gs.Tweets(seed=1)`."""
    return GeneratedSource(workload, Pace(rows_per_batch, rows_total, partitions, paced))
