"""The engine's API without `start`, which the engines on Spark and in one process add: subscribe, status, scale, block.

An engine owns its checkpoint until it is closed. `pipeline.py` processes a batch.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import EXECUTORS_MIN, Contract, SubIdKind, Tuning
from geoswarm.control.balance.static import OverPartitioned
from geoswarm.control.coordinator import fresh_plan_entry
from geoswarm.control.registry import first_plan, resolve_strategy
from geoswarm.control.strategy import KeepsPlans, Sample, Strategy, SuitsPairs, draws_from_sample, watch_places
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.attributes import SubId, operation_table, registration
from geoswarm.core.subscriptions.id_texts import id_text, with_numbers
from geoswarm.errors import InputError, SchemaError, SettingsError, StreamError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.keep import BATCH
from geoswarm.flow.stages.show_ids import shown_field
from geoswarm.flow.validate import conform_operations, validate_operations
from geoswarm.guard.commands import Command
from geoswarm.guard.limits import Removes
from geoswarm.guard.rules import GuardRules
from geoswarm.model import ACCURACY, ALERT, DEAD_LETTER, EVENT_ALERT, OBJECT, PAST, SUB_ID
from geoswarm.run.answers import check_aggregates
from geoswarm.run.asks_past import AsksPast
from geoswarm.run.asks_subscriptions import AsksSubscriptions
from geoswarm.run.collection import Subscriptions
from geoswarm.run.held_fixes import check_initial
from geoswarm.run.max_events import check_alerts
from geoswarm.run.past import Past
from geoswarm.run.pipeline import Pipeline
from geoswarm.run.questions import Rectangle
from geoswarm.run.side_stages import MATCH_COLUMNS, Stage, check_stages
from geoswarm.run.sinks import SinkLike, as_sink
from geoswarm.run.stream import Run
from geoswarm.store import dead_files
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.founding import read_contract
from geoswarm.store.guard_files import GuardFiles, put_command
from geoswarm.store.journal import JournalReader
from geoswarm.store.kept.summary import kept_status
from geoswarm.store.key_source import KeySource
from geoswarm.store.loading import LoadProgress, LoadResult, load
from geoswarm.store.scale_requests import put_request
from geoswarm.store.subscriptions.fresh_ids import fresh_id, fresh_text
from geoswarm.store.subscriptions.lacking import put_columns

_LOG = logging.getLogger(__name__)


class BaseEngine(AsksPast, AsksSubscriptions):
    """All of an engine except its sources and what its tasks run on."""

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
        """`checkpoint` is a path, or an address that pyarrow.fs knows (s3://...). `strategy` is a name or an
        instance; without it the tuning names the strategy and its options. `sample` is a sample of the stream, for
        strategies that draw their first plan from it. With a `key`, or one in the environment,
        everything at rest is encrypted (`docs/running.md`). With a `guard`, rules or GuardSettings, users are limited
        and may be blocked (`docs/guard.md`); then every operation needs a user."""
        self.contract, self.tuning = contract or Contract(), tuning or Tuning()
        self._clock = clock
        options = {} if strategy is not None and strategy != self.tuning.strategy else self.tuning.options
        self._resolve_strategy = partial(resolve_strategy, strategy or self.tuning.strategy, options)
        self._is_guarded = guard is not None
        made, draw = self._make_strategy(), partial(self._first_plan, sample)
        span, number = self.tuning.executors, self._cluster_executors()
        if span is not None and span.min > self.contract.executors_max:
            raise SettingsError(f"{span.min} executors at least: use 1 to {self.contract.executors_max} on this grid")
        number = max(number, EXECUTORS_MIN) if span is None else span.clamp(number)
        self._checkpoint = Checkpoint(str(checkpoint), self.contract, self.tuning, draw, key, guard, number)
        if self._checkpoint.plan.drawn_by != made.name:
            self._take_over(made, draw, waits=sample is None and draws_from_sample(made))
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._past = Past(self._checkpoint.storage)
        self._subscriptions = Subscriptions(
            self._checkpoint.storage, clock=clock, known=lambda: self._checkpoint.view.segments
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- subscriptions

    def subscribe(
        self,
        sub_id: SubId | None = None,
        rectangle: Rectangle | None = None,
        *,
        geometry: str | bytes | None = None,
        keywords: str | None = None,
        on: str | None = None,
        predicate: str | None = None,
        user: str = "",
        expires: datetime | None = None,
        since: datetime | str | None = None,
        aggregate: str | None = None,
        window: str | None = None,
        group_by: str | None = None,
        when: str | None = None,
        payload: Any = None,
        replace: bool = False,
        **attributes: Any,
    ) -> Any:
        """Register a subscription to events in `rectangle`, or in `geometry`, whose text satisfies `keywords`, such as
        "flood AND (river OR dam)"; the place may be left out. A `geometry` is WKT, WKB or GeoJSON, or "CIRCLE(lon lat,
        metres)". `on` is "inside", every such event, by default; or, for events that have an `object_id`, those with
        which an object enters the region ("enter"), leaves it ("exit"), has stayed in it for so long
        ("dwell(SECONDS)"), or has passed through it since the one before ("cross"). `predicate` is the relation of the
        region to an event, which may be an area: "intersects", the default, "contains", "within" or "covers". The
        subscription is on disk when this returns, and in force from the next batch on. A region that could never match
        is an error here; a taken id becomes a dead letter.
        With `since`, a time or "1 hour" ago, kept events come first (`docs/past.md`). With an `aggregate`, such as
        "count" or "avg(speed)", it reports an answer for each `window`, such as "tumbling(60 s)", instead of matches:
        one for each value of the column `group_by`, `when` a condition such as "count > 100" is true
        (`docs/aggregates.md`). A `payload` is kept with it: JSON as text, or what json.dumps takes.
        `attributes` are further columns of operations (`core/subscriptions/attributes.py`): `objects`, a list of the
        ids whose events count; `where`, a condition on columns such as "speed > 80 AND status = 'free'"; `confirm`, "3
        fixes" or "20 s" before an enter or exit counts, `exit_buffer_m`, and `cooldown`, a pause after each alert;
        `max_events`, the alerts after which it ends; `notify=["ended"]`, to be told of its end.
        Returns the id; without a `sub_id`, one that is free (`store/subscriptions/fresh_ids.py`). Where ids are texts
        (`Contract.subscription_ids`) it is a text, a UUID or an integer, of which its text is the id."""
        said = {"user": user, "expires": expires, "geometry": geometry, "keywords": keywords, "on": on, "since": since}
        counts = {"aggregate": aggregate, "window": window, "group_by": group_by, "when": when}
        if sub_id is None:
            view, draw = self._checkpoint.view, secrets.randbits
            sub_id = fresh_text(draw) if self._ids == "text" else fresh_id(view, self._now_us(), draw)
        given = said | counts | {"predicate": predicate, "payload": payload} | attributes
        self.submit(operation_table([registration(self._id_of(sub_id), rectangle, replace=replace, **given)]))
        return sub_id

    def cancel(self, *sub_ids: SubId, user: str | None = None) -> None:
        """Cancel subscriptions. With Guard on, only the `user` who owns them may."""
        self.submit(operation_table([{"op": "cancel", "sub_id": self._id_of(each), "user": user} for each in sub_ids]))

    def submit(self, operations: pa.Table) -> None:
        """Submit operations, in order, with the columns of `columns.OPERATION`. All or none are accepted."""
        table = conform_operations(operations, self._ids).combine_chunks()
        dead = DeadLetters("operation", -1)
        stream = self._checkpoint.stream if self.is_running else None
        for batch in table.to_batches():
            batch = with_numbers(batch) if self._ids == "text" else batch
            validate_operations(batch, self._checkpoint.grid, self._now_us(), dead, self.tuning.window, stream)
        if len(dead):
            raise InputError(
                f"{len(dead)} of {len(table)} operations cannot be taken; the first: {dead.table()['detail'][0]}"
            )
        nameless = pc.sum(pc.equal(pc.binary_length(table["user"]).fill_null(0), 0)).as_py() or 0
        if self._checkpoint.guarding is not None and nameless:
            raise InputError(f"{nameless} of {len(table)} operations have no user: Guard is on and needs it")
        self._checkpoint.submit(table)
        if not self.is_running:
            with self._lock:
                self._checkpoint.fold(self._now_us())

    def load(self, path: str, progress: LoadProgress | None = None) -> LoadResult:
        """Register every row of a Parquet file, once: a file that was loaded before is skipped, and a load that was cut
        short is continued. Rows that cannot be used become dead letters. `progress` is called with the rows done and
        the rows in all."""
        if self.is_running:
            raise StreamError(
                "a bulk load would hold up the running stream: stop it first, or send the file as operations"
            )
        with self._lock:
            return load(self._checkpoint, path, self._now_us(), progress)

    # -- the stream

    def _prepare_stream(
        self, columns: pa.Schema, sink: SinkLike, stages: Sequence[Stage], aggregates: SinkLike | None, every_s: float
    ) -> Pipeline:
        """The first step of every `start`; `columns` are those of validated events."""
        if self.is_running:
            raise StreamError("this engine is running already: stop it first, or use another checkpoint")
        window = self.tuning.window
        if window is not None and window.marks_past and PAST.name in columns.names:
            raise SchemaError(f"events have a column {PAST.name}, which marks_past adds to matches: rename it")
        if window is not None and BATCH.name in columns.names:
            raise SchemaError(f"events have a column {BATCH.name}, which kept events have of their own: rename it")
        taken = [name for name in columns.names if name in ALERT.names] if self.tuning.matches == "alerts" else []
        if taken:
            raise SchemaError(
                f"events have a column {taken[0]}, which alerts have of their own: give it another name, such as "
                f'event_{taken[0]} = "{taken[0]}" in the columns of the source'
            )
        if self.tuning.accuracy_max_m is not None and ACCURACY.name not in columns.names:
            raise SchemaError(
                f"accuracy_max_m is set and events have no column {ACCURACY.name}, only {', '.join(columns.names)}: "
                "add it, rename one, or leave accuracy_max_m out"
            )
        if self.tuning.reorder_s and OBJECT.name not in columns.names:
            raise SchemaError(
                f"reorder_s is set and events have no column {OBJECT.name}, only {', '.join(columns.names)}: add it, "
                "rename one, or leave reorder_s out"
            )
        target, answers = as_sink(sink), check_aggregates(aggregates, self._checkpoint)
        check_alerts(self.tuning, self._checkpoint)
        check_initial(self.tuning, self._checkpoint)
        beside = [target] if answers is None else [target, answers]
        matched = EVENT_ALERT if self.tuning.matches == "alerts" else MATCH_COLUMNS
        if self._ids == "text":
            matched = pa.schema([shown_field(f) if f.name == SUB_ID.name else f for f in matched])
        check_stages(stages, beside, columns, matched)
        for each in (*beside, *(as_sink(stage.sink) for stage in stages)):
            each.bind(self._checkpoint.identity)
        made, held = self._make_strategy(), self._checkpoint
        if self._run is not None:
            self._run.stop()  # it has ended, but perhaps nobody has waited for its end
        gives_alerts, reorders = self.tuning.matches == "alerts", self.tuning.reorder_s > 0
        held.stream = AggregateStream(columns, answers is not None, gives_alerts, reorders)
        put_columns(held.storage, columns)
        for lacking in held.lacking():
            _LOG.warning("%s", lacking.sentence)
        return Pipeline(
            held, self.contract, self.tuning, made, target, self._clock, stages, answers, every_s, self._cluster_slots
        )

    def scale(self, executors: int) -> None:
        """Change the number of executors that match, from the next batch on; the request is on disk when this returns.
        No subscription moves: new executors map the same files. The strategy gives them work once it sees that they
        have none. With a range in the tuning, the number goes on to follow the load."""
        put_request(self._checkpoint.storage, executors, self._now_us())

    @property
    def executors(self) -> int:
        """The number of executors that match, by the newest plan."""
        return self._checkpoint.plan.executors

    @property
    def _ids(self) -> SubIdKind:
        return self.contract.subscription_ids

    def _id_of(self, given: SubId) -> Any:
        """As operations have it: where ids are texts, an integer of any length is the text of its digits."""
        return id_text(given) if self._ids == "text" else given

    @property
    def is_running(self) -> bool:
        return self._run is not None and self._run.is_active

    # -- users

    def block(self, user: str, why: str = "", *, remove: Removes = "nothing") -> None:
        """Refuse a user's operations from the next batch on, and cancel "recent" or "all" subscriptions of the user."""
        self._command("block", user, why, remove)

    def unblock(self, user: str) -> None:
        """End a block, and forget the findings against the user."""
        self._command("unblock", user)

    def exempt(self, user: str) -> None:
        """Never block or limit the user; a block ends."""
        self._command("exempt", user)

    def unexempt(self, user: str) -> None:
        self._command("unexempt", user)

    def blocked(self) -> list[tuple[str, float, str]]:
        """Users, since when in seconds since 1970, and why."""
        return self._guarding().guard.blocked_users()

    def exempted(self) -> list[str]:
        return self._guarding().guard.exempt_users()

    def _command(self, command: str, user: str, why: str = "", removes: Removes = "nothing") -> None:
        """Write a command to disk. It is in force at once, or from the next batch on while a stream runs."""
        self._guarding()
        put_command(self._checkpoint.storage, Command(command, user, self._now_us(), why, removes))
        if not self.is_running:
            with self._lock:
                self._checkpoint.fold(self._now_us())

    def _guarding(self) -> GuardFiles:
        if self._checkpoint.guarding is None:
            raise SettingsError("Guard is off: start the engine with guard=GuardRules(), or [guard] in the settings")
        return self._checkpoint.guarding

    # -- status

    def status(self) -> dict[str, Any]:
        """Totals since the checkpoint was made, and the newest batch."""
        manifest = self._checkpoint.manifest
        return {
            "running": self.is_running,
            "subscriptions": manifest.subs,
            "subscription_bytes": manifest.bytes,
            "version": manifest.version,
            "plan_epoch": self._checkpoint.plan.epoch,
            "executors": self.executors,
            "kept": kept_status(self._checkpoint.storage),
            "lacking": [each.to_json() for each in self._checkpoint.lacking()],
            **JournalReader(self._checkpoint.storage).progress(),
        }

    def dead_letters(self) -> pa.Table:
        return pa.concat_tables([DEAD_LETTER.empty_table(), *dead_files.read(self._checkpoint.storage)])

    def close(self) -> None:
        """Stop, and release the checkpoint for the next engine."""
        if self._run is not None:
            self._run.stop()
        self._checkpoint.close()

    def _cluster_executors(self) -> int:
        """As many executors as the cluster runs tasks at once; the number for a checkpoint that has none yet."""
        raise NotImplementedError

    def _cluster_slots(self) -> int | None:
        """The most tasks that run at once; None if it is not known, or follows the number of tasks."""
        return None

    def _make_strategy(self) -> Strategy:
        made = self._resolve_strategy()
        if isinstance(made, SuitsPairs) and not self.tuning.keeps_index:
            return made.for_pairs()
        return watch_places(made) if self._is_guarded else made

    def _first_plan(self, sample: Sample | None, grid: Grid, executors: int) -> Plan:
        return first_plan(self._make_strategy(), sample, grid, executors)

    def _take_over(self, strategy: Strategy, draw: Callable[[Grid, int], Plan], *, waits: bool) -> None:
        """Go on from the plan of another strategy, or draw a first plan; one that `waits` does so in its first
        batch."""
        checkpoint, before = self._checkpoint, self._checkpoint.plan
        keeps, number = isinstance(strategy, KeepsPlans) and strategy.keeps(before), before.executors
        if before.drawn_by == OverPartitioned.name:  # its plan has several executors for each that was asked for
            keeps, number = False, read_contract(checkpoint.storage).executors or number
        keeps = keeps and bool(before.drawn_by)
        if waits and not keeps:
            if number != before.executors:
                checkpoint.adopt_plan(before.with_executors(number))
            return
        try:
            if keeps:
                checkpoint.adopt_plan(before.for_strategy(strategy.name))
            else:
                fresh = draw(checkpoint.grid, number)
                checkpoint.adopt_plan(before.replace_by(fresh, fresh.drawn_by))
        except BaseException:
            checkpoint.close()
            raise
        began = "goes on with the plan in force" if keeps else "began with a plan of its own"
        why = {"decision": f"{strategy.name} {began}, last run with {before.drawn_by or 'another version'}"}
        checkpoint.journal.append(fresh_plan_entry(before, checkpoint.plan, 0, why))

    def _now_us(self) -> int:
        return int(self._clock() * 1e6)
