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
from pyspark.sql.types import StructType

from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.flow.stages.task import Body
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.pieces import share_out
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.schemas import ORDER
from geoswarm.run.stream_log import TakenFile


class FilesOf(NamedTuple):
    """The files behind a DataFrame of `sources.py`."""

    kind: str
    columns: pa.Schema
    """Those of the DataFrame, and MALFORMED."""

    def rows(self, spark: SparkSession, files: Sequence[TakenFile]) -> SparkRows:
        tasks = share_out([str(file.path) for file in files], self.kind, spark.sparkContext.defaultParallelism)
        return SparkRows.read_by_tasks(spark, max(1, len(tasks)), _reading(tasks, self), self.columns)

    def tables(self, files: Sequence[TakenFile]) -> Iterator[pa.Table]:
        """The rows of each file, read in this process, in the order of the files."""
        for file in files:
            batches = [batch for batch in read_piece(Piece(str(file.path)), self.kind, self.columns) if len(batch)]
            if batches:
                yield pa.Table.from_batches(batches)

    def with_columns(self, columns: pa.Schema) -> "FilesOf":
        malformed = pa.field(MALFORMED, pa.string())
        return FilesOf(self.kind, columns if MALFORMED in columns.names else columns.append(malformed))


_noted: WeakKeyDictionary[DataFrame, str] = WeakKeyDictionary()
"""The format of the files of a DataFrame."""


def note_files(frame: DataFrame, path: str, kind: str | None) -> DataFrame:
    """The same DataFrame. Not noted are places that only Spark can reach, folders whose names are columns, and time
    zones in which Spark reads times that name none."""
    folder = path.removeprefix("file://")
    is_near = "://" not in folder and not any(Path(folder).glob("*=*/"))
    if kind is not None and is_near and frame.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC":
        _noted[frame] = kind
    return frame


def files_of(frame: DataFrame | None) -> FilesOf | None:
    """The files that tasks may read instead of a DataFrame; None if they may not."""
    kind = _noted.get(frame) if frame is not None else None
    if frame is None or kind is None:
        return None
    columns = StructType([field for field in frame.schema if field.name != ORDER])
    return FilesOf(kind, pa.schema([])).with_columns(to_arrow_schema(columns, timezone="UTC"))


def _reading(tasks: Sequence[Sequence[Piece]], files: FilesOf) -> Body:
    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # the number alone; but a worker that leaves something unread is not used again
            pass
        for piece in tasks[number] if tasks else ():
            yield from read_piece(piece, files.kind, files.columns)

    return run
