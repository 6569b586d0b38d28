"""An engine as a user meets it: subscribe, look, scale, block. `start` is for those who run it, on Spark or here.

Owns a checkpoint for as long as it lives. `pipeline.py` has what happens to a batch.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import EXECUTORS_MAX, Contract, Tuning
from geoswarm.control.coordinator import started_anew
from geoswarm.control.registry import first_plan, resolve_strategy
from geoswarm.control.strategy import Sample, Strategy
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.columns import operation_table
from geoswarm.errors import InputError, SettingsError, StreamError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations, validate_operations
from geoswarm.guard.commands import Command
from geoswarm.guard.limits import Removes
from geoswarm.guard.rules import GuardRules
from geoswarm.model import DEAD_LETTER
from geoswarm.run.pipeline import Pipeline
from geoswarm.run.sinks import SinkLike, as_sink
from geoswarm.run.stages import Stage, check_stages
from geoswarm.run.stream import Run
from geoswarm.store import dead_files
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.guard_files import GuardFiles, put_command
from geoswarm.store.journal import JournalReader
from geoswarm.store.key_source import KeySource
from geoswarm.store.loading import Loaded, Progress, load

Rectangle = tuple[float, float, float, float]


class BaseEngine:
    """All of an engine but where its stream comes from and what its tasks run on."""

    def __init__(
        self,
        contract: Contract | None = None,
        tuning: Tuning | None = None,
        *,
        checkpoint: str,
        strategy: str | Strategy | None = None,
        sample: Sample | None = None,
        key: KeySource | None = None,
        guard: GuardRules | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`checkpoint` is a path, or an address that pyarrow.fs knows (s3://...). `strategy` is a name, or one that is
        made already; without it the tuning names it, and its options. `sample` is what is known of the
        stream beforehand, for strategies whose first plan rests on it. With a `key`, or one in the environment,
        everything at rest is encrypted (`docs/running.md`). With a `guard`, rules or GuardSettings, users are limited
        and may be blocked (`docs/guard.md`); then every operation says its user."""
        self.contract, self.tuning = contract or Contract(), tuning or Tuning()
        self._clock = clock
        options = {} if strategy is not None and strategy != self.tuning.strategy else self.tuning.options
        self._make_strategy = partial(resolve_strategy, strategy or self.tuning.strategy, options)
        name, draw = self._make_strategy().name, partial(self._first_plan, sample)
        self._checkpoint = Checkpoint(str(checkpoint), self.contract, self.tuning, draw, key, guard)
        if self._checkpoint.plan.drawn_by != name:
            self._take_over(draw)
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._pipeline: Pipeline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- subscriptions

    def subscribe(
        self,
        sub_id: int,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        on: str | None = None,
        predicate: str | None = None,
        user: str = "",
        expires: datetime | None = None,
        replace: bool = False,
    ) -> None:
        """Events in `rectangle`, or in `geometry`, whose text satisfies `keywords`, such as "flood AND (river OR dam)";
        the place may be left out. A `geometry` is WKT, WKB or GeoJSON, or "CIRCLE(lon lat, metres)". `on` is "inside",
        every such event, which is the default; or, of events that have an `object_id`, those with which an object
        begins to be inside ("enter"), no longer is ("exit"), or has been for so long ("dwell(SECONDS)"). `predicate` is
        how the region must lie to an event, which may be an area: "intersects", the default, "contains", "within" or
        "covers". On disk when it returns, in force from the next batch on. A region that could never match is an error
        here; an id that turns out to be taken becomes a dead letter."""
        xmin, ymin, xmax, ymax = rectangle or (None,) * 4
        row: dict[str, Any] = {
            "op": "replace" if replace else "register",
            "sub_id": sub_id,
            "user": user,
            "expires": expires,
            "geometry": geometry.encode() if isinstance(geometry, str) else geometry,
            "keywords": keywords,
            "on": on,
            "predicate": predicate,
        }
        row |= {"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax}
        self.submit(operation_table([row]))

    def cancel(self, *sub_ids: int, user: str | None = None) -> None:
        """With Guard on, only the `user` whose they are may cancel subscriptions."""
        self.submit(operation_table([{"op": "cancel", "sub_id": sub_id, "user": user} for sub_id in sub_ids]))

    def submit(self, operations: pa.Table) -> None:
        """Many operations at once, in order, with the columns of `columns.OPERATION`. All or none are taken."""
        table = conform_operations(operations).combine_chunks()
        dead = DeadLetters("operation", -1)
        for batch in table.to_batches():
            validate_operations(batch, self._checkpoint.grid, self._now_us(), dead)
        if len(dead):
            raise InputError(
                f"{len(dead)} of {len(table)} operations cannot be taken; the first: {dead.table()['detail'][0]}"
            )
        nameless = pc.sum(pc.equal(pc.binary_length(table["user"]).fill_null(0), 0)).as_py() or 0
        if self._checkpoint.guarding is not None and nameless:
            raise InputError(f"{nameless} of {len(table)} operations say no user: Guard is on and must know who asks")
        self._checkpoint.submit(table)
        if not self.is_running:
            with self._lock:
                self._checkpoint.fold(self._now_us())

    def load(self, path: str, progress: Progress | None = None) -> Loaded:
        """Register every row of a Parquet file, once: a file that is in already is passed over, one that was cut short
        is gone on with. Rows that cannot be taken become dead letters; `progress` is called with the rows done and
        all."""
        if self.is_running:
            raise StreamError(
                "a bulk load would hold up the running stream: stop it first, or send the file as operations"
            )
        with self._lock:
            return load(self._checkpoint, path, self._now_us(), progress)

    # -- the stream

    def _prepare_stream(self, columns: pa.Schema, sink: SinkLike, stages: Sequence[Stage]) -> Pipeline:
        """What every `start` does first; `columns` are those of validated events."""
        if self.is_running:
            raise StreamError("this engine is running already: stop it first, or use another checkpoint")
        target = as_sink(sink)
        target.bind(self._checkpoint.identity)
        check_stages(stages, target, columns)
        for stage in stages:
            as_sink(stage.sink).bind(self._checkpoint.identity)
        made = self._make_strategy()
        self._pipeline = Pipeline(self._checkpoint, self.contract, self.tuning, made, target, self._clock, stages)
        return self._pipeline

    def scale(self, executors: int) -> None:
        """So many executors that match, from the next batch on, while the stream runs. No subscription moves: who joins
        maps the same files. Those that have joined get work as the strategy finds that they have none."""
        limit = min(EXECUTORS_MAX, self.contract.columns * self.contract.rows)
        if not 1 <= executors <= limit:
            raise SettingsError(f"{executors} executors: use 1 to {limit}")
        if self._pipeline is None or not self.is_running:
            raise StreamError("no stream is running that could be scaled: start it first")
        self._pipeline.scale(executors)

    @property
    def is_running(self) -> bool:
        return self._run is not None and self._run.is_active

    # -- users

    def block(self, user: str, why: str = "", *, remove: Removes = "nothing") -> None:
        """Refuse what a user asks for, from the next batch on, and cancel "recent" or "all" of what the user has."""
        self._command("block", user, why, remove)

    def unblock(self, user: str) -> None:
        """Also forget what was held against the user."""
        self._command("unblock", user)

    def exempt(self, user: str) -> None:
        """Never block the user, and set no limits; a block ends."""
        self._command("exempt", user)

    def unexempt(self, user: str) -> None:
        self._command("unexempt", user)

    def blocked(self) -> list[tuple[str, float, str]]:
        """Users, since when in seconds since 1970, and why."""
        return self._guarding().guard.blocked()

    def exempted(self) -> list[str]:
        return self._guarding().guard.exempted()

    def _command(self, command: str, user: str, why: str = "", removes: Removes = "nothing") -> None:
        """On disk when it returns. In force then, or from the next batch on while a stream runs."""
        self._guarding()
        put_command(self._checkpoint.storage, Command(command, user, self._now_us(), why, removes))
        if not self.is_running:
            with self._lock:
                self._checkpoint.fold(self._now_us())

    def _guarding(self) -> GuardFiles:
        if self._checkpoint.guarding is None:
            raise SettingsError("Guard is off: start the engine with guard=GuardRules(), or [guard] in the settings")
        return self._checkpoint.guarding

    # -- looking

    def status(self) -> dict[str, Any]:
        """Totals since the checkpoint was made, and the newest batch."""
        manifest = self._checkpoint.manifest
        return {
            "running": self.is_running,
            "subscriptions": manifest.subs,
            "subscription_bytes": manifest.bytes,
            "version": manifest.version,
            "plan_epoch": self._checkpoint.plan.epoch,
            **JournalReader(self._checkpoint.storage).progress(),
        }

    def dead_letters(self) -> pa.Table:
        return pa.concat_tables([DEAD_LETTER.empty_table(), *dead_files.read(self._checkpoint.storage)])

    def close(self) -> None:
        """Stop, and leave the checkpoint to the next engine."""
        if self._run is not None:
            self._run.stop()
        self._checkpoint.close()

    def _first_plan(self, sample: Sample | None, grid: Grid, executors: int) -> Plan:
        return first_plan(self._make_strategy(), sample, grid, executors)

    def _take_over(self, draw: Callable[[Grid, int], Plan]) -> None:
        """Another strategy begins with its own first plan: it may not understand the plan of the one before."""
        checkpoint = self._checkpoint
        try:
            before, fresh = checkpoint.plan, draw(checkpoint.grid, self.contract.executors)
            checkpoint.adopt_plan(before.replace_by(fresh, fresh.drawn_by))
        except BaseException:
            checkpoint.close()
            raise
        why = {"decision": f"started with {fresh.drawn_by}, last run with {before.drawn_by or 'another version'}"}
        checkpoint.journal.append(started_anew(before, checkpoint.plan, 0, why))

    def _now_us(self) -> int:
        return int(self._clock() * 1e6)
