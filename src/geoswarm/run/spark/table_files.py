"""The Parquet files behind a table, for tasks to read them themselves: then no row is turned from columns into rows.

Only for a DataFrame that is nothing but the files, as `spark.read.parquet` gives it: one filter or one new column, a
folder like `day=1/`, another format, or a column whose values Spark and Arrow may read differently, and the rows come
through Spark as ever. `task_files.py` does the same for streams.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
)

from geoswarm.flow.conform import cast_columns
from geoswarm.run.file_reading import Piece
from geoswarm.run.parquet_reading import ROWS_AT_ONCE
from geoswarm.run.pieces import share_out, size_of
from geoswarm.run.spark.slots import task_slots
from geoswarm.run.stream_log import path_of_uri

Batches = Iterator[pa.RecordBatch]
TASKS_PER_SLOT = 4
"""Rows differ in cost, and all slots should end together."""
TASK_BYTES = 4 << 20
"""Bytes of the files that are worth a further task of a slot: some 150,000 points, which are matched in about the time
that Spark takes to start it. In more and shorter tasks, the same points also share less of their work."""
_ALIKE = (IntegralType, DoubleType, FloatType, StringType, BinaryType, BooleanType)
"""Types whose values Spark and Arrow read alike, whatever Spark's settings are."""
_SETTINGS = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.hadoop.parquet.crypto.factory.class",
)
"""With any of these Spark reads what we would refuse."""


def map_files(table: DataFrame, names: Sequence[str], body: Callable[[Batches], Batches], result: StructType) -> Any:
    """What `table.select(names).mapInArrow(body, result)` gives, by tasks that read the files; None if they may not."""
    columns = StructType([table.schema[name] for name in names])
    paths = _paths_of(table) if all(isinstance(field.dataType, _ALIKE) for field in columns) else []
    if not paths:
        return None
    spark = table.sparkSession
    tasks = share_out(paths, "parquet", count_tasks(sum(size_of(path) for path in paths), task_slots(spark)))
    schema = to_arrow_schema(columns)

    def run(numbers: Batches) -> Batches:
        own = [task for batch in numbers for task in batch.column(0).to_pylist()]
        return body(batch for task in own for piece in tasks[task] for batch in _read(piece, schema))

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, result)


def count_tasks(size: int, slots: int) -> int:
    """The number of tasks for files of so many bytes: as many for each slot."""
    return slots * min(max(size // (slots * TASK_BYTES), 1), TASKS_PER_SLOT)


def _paths_of(table: DataFrame) -> list[str]:
    """The local files that a table of Parquet consists of, as they were when it was made; none if it is another."""
    java = getattr(table, "_jdf", None)  # a session over the network has none
    conf = table.sparkSession.conf
    if java is None or any(conf.get(name, "false") != "false" for name in _SETTINGS):
        return []
    plan = java.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return []
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation" or not relation.partitionSchema().isEmpty():
        return []
    kinds = [part.getClass().getSimpleName() for part in (relation.fileFormat(), relation.location())]
    uris = table.inputFiles() if kinds == ["ParquetFileFormat", "InMemoryFileIndex"] else []  # no layer above them
    return [str(path_of_uri(uri)) for uri in sorted(uris)] if all(uri.startswith("file:") for uri in uris) else []


def _read(piece: Piece, schema: pa.Schema) -> Batches:
    """As Spark reads: names in any case, and a column that the file lacks is null."""
    with pq.ParquetFile(piece.path, memory_map=True) as file:
        groups = None if piece.end is None else range(piece.first, piece.end)
        held = {name.lower(): name for name in file.schema_arrow.names} | {n: n for n in file.schema_arrow.names}
        own = {name: held.get(name, held.get(name.lower())) for name in schema.names}
        wanted = [name for name in own.values() if name is not None]
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=wanted, use_threads=False):
            renamed = {name: batch.column(theirs) for name, theirs in own.items() if theirs is not None}
            yield cast_columns(pa.record_batch(renamed) if renamed else batch, schema)
