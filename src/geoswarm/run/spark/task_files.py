"""Files that tasks read themselves, where they route them. Spark's stream keeps the log of which files a batch has.

A DataFrame of `sources.py` that nobody has changed is noted here with its format. Its rows need not go through Spark:
the tasks read the files that Spark's log names, so that no row is turned from columns into rows and back. In all other
cases, also for single batches whose log cannot be read, the rows come from the DataFrame as ever.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DateType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.flow.stages.task import Body
from geoswarm.run.columns import PLAIN, Columns
from geoswarm.run.file_formats import FOREIGN
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.pieces import share_out
from geoswarm.run.spark.schemas import ORDER
from geoswarm.run.spark.task_rows import TaskRows
from geoswarm.run.stream_log import TakenFile


class FilesOf(NamedTuple):
    """The files behind a DataFrame of `sources.py`."""

    kind: str
    folder: Path
    columns: pa.Schema
    """Those of the DataFrame, and MALFORMED."""
    names: Columns = PLAIN
    """What the files call them."""

    def can_read(self, files: Sequence[TakenFile]) -> bool:
        """Not where the names of folders are columns, as in `day=1/`, nor text that Hadoop compressed."""
        if self.kind != "parquet" and any(file.path.name.endswith(FOREIGN) for file in files):
            return False
        depth = len(self.folder.parts)
        return not any("=" in part for file in files for part in file.path.parts[depth:-1])

    def rows(self, spark: SparkSession, files: Sequence[TakenFile]) -> TaskRows:
        numbers = {str(file.path): file.number for file in files}
        shares = share_out([*numbers], self.kind, spark.sparkContext.defaultParallelism)
        tasks = [[piece._replace(number=numbers[piece.path]) for piece in share] for share in shares]
        return TaskRows.read(spark, max(1, len(tasks)), _reading(tasks, self), self.columns)

    def batches(self, files: Sequence[TakenFile]) -> Iterator[pa.RecordBatch]:
        """The rows of all files, read in this process, in the order of the files."""
        for file in files:
            yield from read_piece(Piece(str(file.path), number=file.number), self.kind, self.columns, self.names)

    def tables(self, files: Sequence[TakenFile]) -> Iterator[pa.Table]:
        """The rows of each file, read in this process, in the order of the files."""
        for file in files:
            rows = read_piece(Piece(str(file.path)), self.kind, self.columns, self.names)
            batches = [batch for batch in rows if len(batch)]
            if batches:
                yield pa.Table.from_batches(batches)

    def with_columns(self, columns: pa.Schema) -> "FilesOf":
        malformed = pa.field(MALFORMED, pa.string())
        return self._replace(columns=columns if MALFORMED in columns.names else columns.append(malformed))


_noted: WeakKeyDictionary[DataFrame, tuple[str, Path, Columns]] = WeakKeyDictionary()
"""The format of the files of a DataFrame, their folder, and what they call its columns."""
_IN_TEXT = (StringType, BooleanType, IntegralType, FractionalType, TimestampType, DateType)
"""Types that are read from JSON and CSV as Spark reads them. It has rules of its own for the others."""


def note_files(frame: DataFrame, path: str, kind: str, names: Columns = PLAIN) -> DataFrame:
    """The same DataFrame."""
    _noted[frame] = kind, Path(path.removeprefix("file:").removeprefix("//")).absolute(), names
    return frame


def files_of(frame: DataFrame | None) -> FilesOf | None:
    """The files that tasks may read instead of a DataFrame; None if they may not. Spark reads what only it can reach,
    patterns of names, columns in text that are neither numbers nor texts nor times, and times without a zone where
    the session's is not UTC."""
    if frame is None or frame not in _noted:
        return None
    kind, folder, names = _noted[frame]
    columns = StructType([field for field in frame.schema if field.name != ORDER])
    if not folder.is_dir() or not (_is_in_utc(frame) if kind == "parquet" else has_simple_columns(frame)):
        return None
    return FilesOf(kind, folder, pa.schema([]), names).with_columns(to_arrow_schema(columns, timezone="UTC"))


def has_simple_columns(frame: DataFrame) -> bool:
    """Whether the tasks read text as Spark does for these columns."""
    return _is_in_utc(frame) and all(isinstance(field.dataType, _IN_TEXT) for field in frame.schema)


def _is_in_utc(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC"


def _reading(tasks: Sequence[Sequence[Piece]], files: FilesOf) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # the number alone; but a worker that leaves something unread is not used again
            pass
        for piece in tasks[number] if tasks else ():
            yield from read_piece(piece, files.kind, files.columns, files.names)

    return run
