"""Small batches, which the driver runs itself: a job of Spark's takes longer to start than they take to run.

The driver has what a task has: the same stages (`run/process_rows.py` runs them), the files of subscriptions, which it
keeps open for itself, and the files of the batch, which Spark's log names before anything runs. Reports, sinks and
state are those of tasks; so is the output, and a batch may be run again on the other road.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from geoswarm.config import Tuning
from geoswarm.errors import SettingsError
from geoswarm.run.kafka_sending import check_options
from geoswarm.run.load_kernels import load_kernels
from geoswarm.run.process_rows import Evaluation, LocalRows
from geoswarm.run.spark.rows import SparkRows
from geoswarm.run.spark.task_files import FilesOf
from geoswarm.run.stream_log import TakenFile


class DriverRows(LocalRows):
    """Rows that tasks in the driver make, one after the other."""

    def __init__(self, schema: pa.Schema, evaluate: Evaluation, spark: SparkSession) -> None:
        super().__init__(schema, evaluate)
        self._spark = spark

    @classmethod
    def read(cls, spark: SparkSession, files: FilesOf, taken: Sequence[TakenFile]) -> Self:
        return cls(files.columns, lambda: [files.batches(taken)], spark)

    def _derive(self, schema: pa.Schema, evaluate: Evaluation) -> Self:
        return type(self)(schema, evaluate, self._spark)

    def tasks_for(self, executors: int) -> int:
        return 1  # which serves them all, as one on a cluster of one slot does

    def write_kafka(self, key_by: Sequence[str], options: Mapping[str, str], headers: Mapping[str, str]) -> None:
        try:
            check_options(options)
        except SettingsError:  # Spark's writer may do what our client cannot
            SparkRows(self.native()).write_kafka(key_by, options, headers)
            return
        super().write_kafka(key_by, options, headers)

    def native(self) -> DataFrame:
        """A function of the user's is given a DataFrame, as it is by tasks; its rows are there already."""
        table = self.to_arrow()
        if not len(table):  # PySpark wants one chunk of each column at least
            table = pa.Table.from_batches([pa.RecordBatch.from_pylist([], table.schema)])
        return self._spark.createDataFrame(table)


class Driver:
    """Decides which batches the driver runs."""

    def __init__(self, tuning: Tuning) -> None:
        # Other ways to match are there to be compared, as they are on a cluster.
        is_usual = tuning.keeps_index and tuning.exchange == "packed"
        self._bytes_max = tuning.driver_bytes_max if is_usual else 0

    def takes(self, files: Sequence[TakenFile]) -> bool:
        """Whether these are few bytes. The first small batches go to tasks all the same, while this process loads its
        kernels: the workers have theirs."""
        if not self._bytes_max:
            return False
        try:
            size = sum(file.path.stat().st_size for file in files)
        except OSError:
            return False  # a file is gone: the task that misses it says so
        return size <= self._bytes_max and is_warm()


def is_warm() -> bool:
    """Whether this process has its kernels. The first call begins to load them, beside what runs."""
    global _warming
    if _warming is None:
        _warming = threading.Thread(target=_warm, name="geoswarm-warm", daemon=True)
        _warming.start()
    return not _warming.is_alive()


def _warm() -> None:
    with suppress(Exception):  # without it, the first batch that the driver runs is slower
        load_kernels()


_warming: threading.Thread | None = None
