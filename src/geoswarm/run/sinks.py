"""Sinks, which receive the matches. If a sink writes the same batch again, the result is the same.

`Parquet`, `Delta` and `Memory` are exactly once by themselves: a batch is put into place in one step. `Kafka` and
`Console` may repeat a batch after a crash; a row carries (event_id, subscription, version), by which a reader drops
repeats, and a message of Kafka names its batch. The same sinks serve every engine; the differences are in `Rows`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field
from rich.console import Console as Terminal

from geoswarm.errors import SettingsError
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.stages.in_order import in_order, route_by
from geoswarm.model import OBJECT, SUB_ID, TRANSITION
from geoswarm.parameters import check_arguments
from geoswarm.run.delta import DeltaFolder, require_deltalake
from geoswarm.run.kafka_sending import BATCH_HEADER, CHECKPOINT_HEADER
from geoswarm.run.message_writing import FORMAT, REGISTRY, SentAs, SentFormat
from geoswarm.run.parquet_rolls import RollingFolder, read_folder
from geoswarm.run.rows import Rows
from geoswarm.run.shown_rows import show_rows

KEYS = ("event_id", "user", "key", "region")
SENDERS_MAX = 8
"""Tasks that send messages by subscription; each has a producer of its own."""


class Sink(ABC):
    def bind(self, checkpoint: str) -> None:  # noqa: B027 - most sinks do not need it
        """Called once before the first batch, with the identity of the checkpoint that the batches come from."""

    @abstractmethod
    def write(self, matches: Rows, batch_id: int) -> None: ...

    def end(self) -> None:  # noqa: B027
        """Called when the stream has ended, for any reason: a sink that holds batches back delivers them."""


def local_path(path: str, noun: str) -> Path:
    """The absolute path of a sink's folder."""
    if "://" in path and not path.startswith("file://"):
        raise SettingsError(
            f"a {noun} sink writes to paths only, and {path} is an address: use a mounted path, or a function sink"
        )
    return Path(path.removeprefix("file://")).absolute()


class Parquet(Sink):
    """Write folders `path/batch=N/` of Parquet files, each put in place by one rename.

    Batches of less than `roll_rows` rows are put together, until they have so many or `roll_s` seconds have passed
    since the last folder; until then no reader sees them. With `roll_s` 0 every batch is a folder, at once. Folders are
    removed `keep_s` seconds after they were written; without it, never.
    """

    @check_arguments
    def __init__(
        self,
        path: str,
        roll_rows: Annotated[int, Field(ge=1)] = 100_000,
        roll_s: Annotated[float, Field(ge=0)] = 60.0,
        keep_s: Annotated[float, Field(gt=0)] | None = None,
    ) -> None:
        self.path = local_path(path, "Parquet")
        self._open_folder = partial(RollingFolder, self.path, roll_rows, roll_s, keep_s)
        self._folder: RollingFolder | None = None

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
        self.end()
        self._folder = self._open_folder()

    def write(self, matches: Rows, batch_id: int) -> None:
        folder = self._folder = self._folder or self._open_folder()
        if folder.has(batch_id):
            return  # a replay
        staged = folder.stage(batch_id)
        matches.write_parquet(str(staged))
        folder.add(staged, batch_id)

    def end(self) -> None:
        if self._folder is not None:
            self._folder.end()

    def read(self) -> pa.Table:
        """All batches delivered so far, also those that no reader sees yet, with the column `batch`: the first batch of
        the folder that a row is in."""
        return read_folder(self.path)


class Delta(Sink):
    """Add each batch to a Delta table in one transaction, once. It needs the package deltalake (geoswarm[delta])."""

    def __init__(self, path: str) -> None:
        self.path = local_path(path, "Delta")
        require_deltalake()
        self._checkpoint = ""
        self._folder: DeltaFolder | None = None

    def bind(self, checkpoint: str) -> None:
        self._checkpoint, self._folder = checkpoint, None

    def write(self, matches: Rows, batch_id: int) -> None:
        folder = self._folder = self._folder or DeltaFolder(self.path, self._checkpoint, matches.schema)
        if folder.has(batch_id):
            return  # a replay
        staged = folder.stage(batch_id)
        matches.write_parquet(str(staged))
        folder.add(staged, batch_id)


class Kafka(Sink):
    """Send one message per row, JSON by default. Its headers name the checkpoint, the batch and the version: a batch
    that is sent again after a crash has the same ones.

    Messages are keyed by `event`, `object` or `subscription`: alerts about objects by the object, if nothing is said,
    other matches by the event; what a row lacks, by what keyed operators have. Of one key, alerts of a batch are sent
    in the order of (ts, event_id); so are all rows that are keyed by the subscription. With `reorder_s`, an object's
    alerts on `inside` do not wait for those on transitions: what came late of them is behind these, and these come in
    later batches than newer ones on `inside`.
    """

    @check_arguments
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        options: dict[str, str] | None = None,
        format: SentFormat = "json",
        registry: str = "",
        key: Literal["event", "object", "subscription"] | None = None,
    ) -> None:
        """With `format` "cloudevents" each message is a CloudEvent; with "avro" it has a schema of the `registry`."""
        said = {FORMAT: format, REGISTRY: registry} if format != "json" or registry else {}
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **(options or {}), **said}
        SentAs.of(self.options)
        self._checkpoint, self._key = "", key

    def bind(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint

    def write(self, matches: Rows, batch_id: int) -> None:
        headers = {CHECKPOINT_HEADER: self._checkpoint, BATCH_HEADER: str(batch_id)}
        key = self._key_column(matches.schema)
        if key == SUB_ID.name:
            tasks = matches.tasks_for(SENDERS_MAX)
            routed = matches.map(route_by(key, tasks), PACKED).exchange(tasks)
            matches = routed.map(in_order(matches.schema), matches.schema)
        matches.write_kafka((key, *KEYS), self.options, headers)

    def _key_column(self, rows: pa.Schema) -> str:
        is_alerts = TRANSITION.name in rows.names
        key = self._key or ("object" if is_alerts and OBJECT.name in rows.names else "event")
        column: str = {"event": "event_id", "object": OBJECT.name, "subscription": SUB_ID.name}[key]
        if self._key is not None and column not in rows.names:
            advice = 'set [tuning] matches = "alerts" or "pairs"' if key == "subscription" else "choose another key"
            raise SettingsError(f"messages cannot be keyed by {key}: the rows have no column {column}; {advice}")
        return column


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
        show_rows(self._terminal, table.slice(0, self._rows_max), f"batch {batch_id}: {len(table)} rows")


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
