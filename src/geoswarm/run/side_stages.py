"""Keyed operators beside the matching, on the stream of events or on that of matches; and transitions within it.

    events ── route, match ──┬── transitions ── sink
      └── Stage(on="events") └── Stage(on="matches")

`keyed.py` processes the rows; this file connects it to the two streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import pyarrow as pa

from geoswarm.config import KeyTuning, Tuning
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.aggregates.operator import Aggregates
from geoswarm.flow.keyed.max_events import MaxEvents
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.ordered_transitions import OrderedTransitions
from geoswarm.flow.keyed.reorder import ReorderSettings
from geoswarm.flow.keyed.route import feed_schema
from geoswarm.flow.keyed.told_rows import Telling
from geoswarm.flow.keyed.transitions import Transitions, Vagueness, all_inside
from geoswarm.flow.keyed.ways import Crossings
from geoswarm.flow.stages.beside import drop_followers, split_into_pairs
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import SUB_ID, SUB_IDS, USER
from geoswarm.run.held_fixes import HeldRun
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.rows import Rows
from geoswarm.run.sinks import Console, Delta, Kafka, Parquet, Sink, SinkLike, as_sink
from geoswarm.store import held_fixes
from geoswarm.store.checkpoint import Checkpoint

OBJECT_INTERVALS = 4
"""Where an object was is kept for three whole intervals and the current one."""


MATCH_COLUMNS = (SUB_ID, USER)
"""What stages on matches are given beside the columns of events; alerts have more."""


@dataclass(frozen=True)
class Stage:
    """A keyed operator that an engine runs beside the matching."""

    operator: Operator
    sink: SinkLike
    on: Literal["events", "matches"] = "events"
    """The stream: "events", validated; or "matches", one row for each event and subscription, with its `user`."""
    tuning: KeyTuning = field(default_factory=KeyTuning)


def check_stages(
    stages: Sequence[Stage], sinks: Sequence[Sink], events: pa.Schema, beside: Sequence[pa.Field] = MATCH_COLUMNS
) -> None:
    """Refuse stages that cannot work, before the stream starts. `sinks` are those beside theirs, and `beside` the
    columns of matches that their events do not have."""
    _check_names(stages)
    sinks = [*sinks, *(as_sink(stage.sink) for stage in stages)]
    places = [s.path if isinstance(s, Parquet | Delta) else id(s) for s in sinks if not isinstance(s, Kafka | Console)]
    if len(set(places)) < len(places):
        raise SettingsError(
            "two sinks are one and the same, so each would take the other's batches for its own: "
            "give the matches, the aggregates and every stage a sink of their own"
        )
    for stage in stages:
        if stage.on not in ("events", "matches"):
            raise SettingsError(f"stage {stage.operator.name} is on {stage.on!r}: use events or matches")
        rows = events
        if stage.on == "matches":
            if USER.name in rows.names:
                raise SchemaError(
                    f"events have a column {USER.name}, which stages on matches make themselves: rename it"
                )
            rows = pa.schema([*rows, *beside])
        feed_schema(stage.operator, rows)


def _check_names(stages: Sequence[Stage]) -> None:
    """Refuse two operators with one name: they would use the same folder for their state."""
    names = [stage.operator.name for stage in stages]
    own = (Transitions.name, Aggregates.name, MaxEvents.name, held_fixes.FOLDER)
    taken = sorted({name for name in names if names.count(name) > 1 or name in own})
    if taken:
        raise SettingsError(f"operators named {', '.join(taken)} are there already: give each a `name` of its own")


class TransitionRun:
    """Turns matches into transitions, for subscriptions to objects that enter, leave or stay."""

    def __init__(self, checkpoint: Checkpoint, tuning: Tuning) -> None:
        keys = KeyTuning(
            executors=checkpoint.plan.executors,
            interval_s=tuning.object_ttl_s / (OBJECT_INTERVALS - 1),
            round_s=min(tuning.round_s, tuning.object_ttl_s / (OBJECT_INTERVALS - 1)),
        )
        idle = Transitions(all_inside, OBJECT_INTERVALS)
        self._run = KeyedRun(checkpoint.storage, checkpoint.journal, idle, keys, checkpoint.fence.check)
        self._held = HeldRun(checkpoint.storage, tuning, checkpoint.fence.check)
        self._is_under_way = False

    def apply(self, matches: Rows, task: BatchTask, reordering: ReorderSettings | None) -> Rows:
        """`matches` have the shape "arrays"; if objects are followed, they include every event. For alerts, so have the
        rows that it returns, with what subscriptions are told (`TOLD`). `reordering` is what the version of the batch
        says about the order of fixes."""
        self._is_under_way = task.follows
        if task.follows:
            vagueness = Vagueness(task.tuning.accuracy_max_m, task.tuning.accuracy_needed)
            sequence_us = round(task.tuning.object_ttl_s * 1e6) if task.tuning.matches == "alerts" else None
            state = task.state
            crossings = Crossings(state.on_cross, task.grid, task.now_us, task.tuning.cross_way_m_max)
            telling = None
            if sequence_us is not None and state.asks_to_be_told():
                telling = Telling(state.notify, state.begun, task.grid, task.now_us, sequence_us)
            reorder = self._held.begin(task.batch_id, task.now_us, reordering)
            make = Transitions if reorder is None else partial(OrderedTransitions, reorder)
            operator = make(
                state.follow_rules, OBJECT_INTERVALS, vagueness, sequence_us, state.regions, crossings, telling
            )
            changed = self._run.apply(matches, task.batch_id, task.now_us, operator)
        else:
            changed = matches.map(drop_followers(task), matches.schema)
        if task.tuning.matches != "pairs":
            return changed
        fields = [f for f in matches.schema if f.name != SUB_IDS.name]
        return changed.map(split_into_pairs, pa.schema([*fields, SUB_ID]))

    def scale(self, executors: int) -> None:
        self._run.scale(executors)

    def finish(self, batch_id: int, newest_us: int | None) -> Mapping[str, int]:
        """Commit what is known about objects, and what is held back of them; while no subscription asks for it, it is
        outdated, and dropped. `newest_us` is the time of the newest event. Returns what was counted."""
        if self._is_under_way:
            self._is_under_way = False
            worked = self._run.finish()
            self._held.finish(batch_id, newest_us, worked.executors)
            return worked.counts
        self._run.forget(batch_id)
        self._held.forget(batch_id)
        return {}
