"""Keyed operators on any stream, without subscriptions: counts, joins, or a user's own operators.

`spark/` and `local/` add `start`. A stream owns its checkpoint until it is closed. `keyed.py` processes a batch; in an
engine the same operators run beside the matching (`engine.py`).
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyarrow as pa

from geoswarm.config import EXECUTORS_MIN, KeyTuning
from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.route import feed_schema
from geoswarm.model import DEAD_LETTER
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.rows import Rows
from geoswarm.run.sinks import Sink, SinkLike, as_sink
from geoswarm.run.stream import Run
from geoswarm.store import batch_times as turns
from geoswarm.store import dead_files
from geoswarm.store.fence import Fence
from geoswarm.store.journal import Journal
from geoswarm.store.key_source import KeySource
from geoswarm.store.storage import Storage

DEAD_LETTER_FOLDERS_MAX = 10_000


class BaseKeyedStream:
    def __init__(
        self,
        operator: Operator,
        tuning: KeyTuning | None = None,
        *,
        checkpoint: str,
        key: KeySource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a `key`, the key of the environment is used, if there is one."""
        self.operator, self._clock = operator, clock
        self._storage = Storage(str(checkpoint), key=key)
        self._fence = Fence(self._storage)
        try:
            self._identify(operator)
            self.journal = Journal(self._storage)
            check, number = self._fence.check, max(self._cluster_executors(), EXECUTORS_MIN)
            self._keyed = KeyedRun(self._storage, self.journal, operator, tuning or KeyTuning(), check, number)
        except BaseException:
            self._fence.release()
            raise
        self._run: Run | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare_stream(self, columns: pa.Schema, sink: SinkLike) -> Sink:
        """The first step of every `start`; `columns` are those of the rows."""
        if self._run is not None and self._run.is_active:
            raise StreamError("this stream is running already: stop it first, or use another checkpoint")
        feed_schema(self.operator, columns)  # what cannot work is refused before the stream starts
        target = as_sink(sink)
        target.bind(self._storage.read_document("identity.json")["id"])
        return target

    def _run_batch(self, rows: Rows, batch_id: int, content: str, sink: Sink) -> None:
        self._fence.check()
        now_us = turns.fix(self._storage, batch_id, int(self._clock() * 1e6), content)
        self._storage.remove_folder(dead_files.folder_of(dead_files.EVENTS, batch_id))
        sink.write(self._keyed.apply(rows, batch_id, now_us), batch_id)
        self._keyed.finish()
        dead_files.forget(self._storage, DEAD_LETTER_FOLDERS_MAX, -1)

    def scale(self, executors: int) -> None:
        """Change the number of executors that share the keys, from the next batch on, also while the stream runs."""
        self._keyed.scale(executors)

    def _cluster_executors(self) -> int:
        """As many executors as the cluster runs tasks at once."""
        raise NotImplementedError

    def dead_letters(self) -> pa.Table:
        return pa.concat_tables([DEAD_LETTER.empty_table(), *dead_files.read(self._storage)])

    def close(self) -> None:
        """Stop, and release the checkpoint for the next stream."""
        if self._run is not None:
            self._run.stop()
        self._fence.release()

    def _identify(self, operator: Operator) -> None:
        if self._storage.exists("identity.json"):
            held = self._storage.read_document("identity.json").get("operator", "none, but of an engine")
            if held != operator.name:
                raise SettingsError(
                    f"checkpoint {self._storage.root} holds the state of operator {held}, not of {operator.name}: "
                    "use that one, or another checkpoint"
                )
        else:
            self._storage.write_document("identity.json", {"id": self._fence.token, "operator": operator.name})
