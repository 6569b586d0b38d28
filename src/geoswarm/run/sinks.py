"""Sinks, which receive the matches. If a sink writes the same batch again, the result is the same.

`Parquet` and `Memory` are exactly once by themselves: a batch has one place, filled in one step. `Kafka` and
`Console` may repeat a batch after a crash; a row carries (event_id, subscription, version), by which a reader drops
repeats, and a message of Kafka names its batch. The same sinks serve every engine; the differences are in `Rows`.
"""

import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pydantic import Field
from rich.console import Console as Terminal
from rich.table import Table

from geoswarm.errors import SettingsError
from geoswarm.run.kafka_sending import BATCH_HEADER, CHECKPOINT_HEADER
from geoswarm.run.rows import Rows

KEYS = ("event_id", "user", "key", "region")


class Sink(ABC):
    def bind(self, checkpoint: str) -> None:  # noqa: B027 - most sinks do not need it
        """Called once before the first batch, with the identity of the checkpoint that the batches come from."""

    @abstractmethod
    def write(self, matches: Rows, batch_id: int) -> None: ...


class Parquet(Sink):
    """Write `path/batch=N/` per batch, put in place by one rename once all of it is written."""

    def __init__(self, path: str) -> None:
        if "://" in path and not path.startswith("file://"):
            raise SettingsError(
                f"a Parquet sink at {path} has no atomic rename: write to a mounted path, or use a function sink"
            )
        self.path = Path(path.removeprefix("file://")).absolute()

    def bind(self, checkpoint: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        owner = self.path / "_checkpoint"
        if not owner.exists() and not any(self.path.glob("batch=*")):
            owner.write_text(checkpoint)
        if not owner.exists() or owner.read_text() != checkpoint:
            raise SettingsError(
                f"{self.path} holds the matches of another checkpoint, whose batches have the same numbers: "
                "choose another folder, or remove it"
            )

    def write(self, matches: Rows, batch_id: int) -> None:
        final = self.path / f"batch={batch_id}"
        if final.exists():
            return  # a replay: the folder is complete
        for left in self.path.glob(f"_staged-{batch_id}-*"):
            shutil.rmtree(left, ignore_errors=True)
        # A new name: a Spark that outlived its driver may still be writing the last one.
        staged = self.path / f"_staged-{batch_id}-{uuid.uuid4().hex}"
        matches.write_parquet(str(staged))
        staged.rename(final)

    def read(self) -> pa.Table:
        """All batches delivered so far, with the column `batch`."""
        files = [str(file) for file in sorted(self.path.glob("batch=*/*.parquet"))]
        partitioning = ds.partitioning(pa.schema([("batch", pa.int64())]), flavor="hive")
        return ds.dataset(files, format="parquet", partitioning=partitioning).to_table() if files else pa.table({})


class Kafka(Sink):
    """Send one JSON message per row, keyed by event_id, or else by what keyed operators have. Its headers name the
    checkpoint, the batch and the version: a batch that is sent again after a crash has the same ones."""

    def __init__(self, bootstrap: str, topic: str, options: dict[str, str] | None = None) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **(options or {})}
        self._checkpoint = ""

    def bind(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint

    def write(self, matches: Rows, batch_id: int) -> None:
        headers = {CHECKPOINT_HEADER: self._checkpoint, BATCH_HEADER: str(batch_id)}
        matches.write_kafka(KEYS, self.options, headers)


class Memory(Sink):
    """Keep batches as Arrow tables in the driver: for tests, notebooks and small streams."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def write(self, matches: Rows, batch_id: int) -> None:
        self.batches[batch_id] = matches.to_arrow()

    def table(self) -> pa.Table:
        """All matches so far, in the order of their batches."""
        return pa.concat_tables(self.batches[b] for b in sorted(self.batches)) if self.batches else pa.table({})


class Console(Sink):
    """Show the first rows of each batch on the terminal, with the count of all."""

    def __init__(self, rows_max: Annotated[int, Field(ge=1)] = 10, terminal: Terminal | None = None) -> None:
        self._rows_max, self._terminal = rows_max, terminal or Terminal()

    def write(self, matches: Rows, batch_id: int) -> None:
        table = matches.to_arrow()
        shown = Table(title=f"batch {batch_id}: {len(table)} rows", title_justify="left")
        for name in table.schema.names:
            shown.add_column(name)
        for row in table.slice(0, self._rows_max).to_pylist():
            shown.add_row(*(str(value) for value in row.values()))
        self._terminal.print(shown)


class Noop(Sink):
    """Make every match and keep none: to measure, or for the keyed operators beside the matching alone."""

    def write(self, matches: Rows, batch_id: int) -> None:
        matches.run()


class Function(Sink):
    """Call any `(DataFrame, batch_id)`, on the local engine `(Table, batch_id)`, perhaps again after a crash."""

    def __init__(self, function: Callable[[Any, int], object]) -> None:
        self._function = function

    def write(self, matches: Rows, batch_id: int) -> None:
        self._function(matches.native(), batch_id)


SinkLike = Sink | Callable[[Any, int], object]


def as_sink(sink: SinkLike) -> Sink:
    return sink if isinstance(sink, Sink) else Function(sink)
