"""Keyed operators beside the matching: on the stream of events, or on that of matches. And the one in its midst.

    events ── route, match ──┬── transitions ── sink
      └── Stage(on="events") └── Stage(on="matches")

`keyed.py` has what happens to the rows; here is where they come from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from geoswarm.config import KeyTuning, Tuning
from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.route import fed_schema
from geoswarm.flow.keyed.transitions import Transitions, without_object
from geoswarm.flow.merge import apart, as_pairs
from geoswarm.flow.validate import validate_events
from geoswarm.model import INSIDE, SUB_ID, SUB_IDS
from geoswarm.run.spark.keyed import KeyedRun
from geoswarm.run.spark.route import Stage as MapStage
from geoswarm.run.spark.schemas import arrow_schema, validated_schema
from geoswarm.run.spark.sinks import Console, Kafka, Parquet, Sink, SinkLike, as_sink
from geoswarm.run.spark.tasks import BatchTask
from geoswarm.store.checkpoint import Checkpoint

USER = "user"
OBJECT_INTERVALS = 4
"""An object's whereabouts are kept for three whole intervals and the one under way."""


@dataclass(frozen=True)
class Stage:
    """A keyed operator that an engine runs beside the matching."""

    operator: Operator
    sink: SinkLike
    on: Literal["events", "matches"] = "events"
    """Validated events; or matches, one row for each event and subscription, with its `user`."""
    tuning: KeyTuning = field(default_factory=KeyTuning)


def check_stages(stages: Sequence[Stage], sink: Sink, events: DataFrame) -> None:
    """What cannot work is said before the stream starts."""
    _check_names(stages)
    sinks = [sink, *(as_sink(stage.sink) for stage in stages)]
    places = [s.path if isinstance(s, Parquet) else id(s) for s in sinks if not isinstance(s, Kafka | Console)]
    if len(set(places)) < len(places):
        raise SettingsError(
            "two sinks are one and the same, so each would take the other's batches for its own: "
            "give the matches and every stage a sink of their own"
        )
    for stage in stages:
        if stage.on not in ("events", "matches"):
            raise SettingsError(f"stage {stage.operator.name} is on {stage.on!r}: use events or matches")
        rows = arrow_schema(events)
        if stage.on == "matches":
            if USER in rows.names:
                raise SchemaError(f"events have a column {USER}, which stages on matches make themselves: rename it")
            rows = rows.append(SUB_ID).append(pa.field(USER, pa.string()))
        fed_schema(stage.operator, rows)


def _check_names(stages: Sequence[Stage]) -> None:
    """State lies in a folder named by the operator: two of one name would take each other's for their own."""
    names = [stage.operator.name for stage in stages]
    taken = sorted({name for name in names if names.count(name) > 1 or name == Transitions.name})
    if taken:
        raise SettingsError(f"operators named {', '.join(taken)} are there already: give each a `name` of its own")


def sound_events(events: DataFrame, task: BatchTask) -> DataFrame:
    """Those that validation lets pass; it has written down the others on their way to the matcher."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield validate_events(batch, task.grid, DeadLetters("event", task.batch_id))

    return events.mapInArrow(run, validated_schema(events.schema))


def owned_pairs(matches: DataFrame, task: BatchTask) -> DataFrame:
    """Matches as one row for each event and subscription, with the subscription's user."""
    fields = [f for f in matches.schema if f.name not in (SUB_IDS.name, SUB_ID.name)]
    schema = StructType([*fields, StructField(SUB_ID.name, LongType()), StructField(USER, StringType())])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pairs = as_pairs(apart(batch)) if SUB_IDS.name in batch.schema.names else iter([batch])
            for rows in pairs:
                ids, at = np.unique(rows.column(SUB_ID.name).to_numpy(), return_inverse=True)
                users = task.users(ids).take(pa.array(at)) if len(ids) else pa.array([], pa.string())
                own = [rows.column(f.name) for f in fields]
                yield pa.record_batch([*own, rows.column(SUB_ID.name), users], names=schema.names)

    return matches.mapInArrow(run, schema)


class Following:
    """Transitions: what becomes of matches where subscriptions ask for what objects do."""

    def __init__(self, checkpoint: Checkpoint, tuning: Tuning) -> None:
        keys = KeyTuning(
            executors=checkpoint.plan.executors,
            interval_s=tuning.object_ttl_s / (OBJECT_INTERVALS - 1),
            round_s=min(tuning.round_s, tuning.object_ttl_s / (OBJECT_INTERVALS - 1)),
        )
        nobody = Transitions(_no_subscriptions, OBJECT_INTERVALS)
        self._run = KeyedRun(checkpoint.storage, checkpoint.journal, nobody, keys, checkpoint.fence.check)
        self._is_under_way = False

    def apply(self, matches: DataFrame, task: BatchTask) -> DataFrame:
        """`matches` are of the shape "arrays"; where objects are followed, with every event."""
        self._is_under_way = task.follows
        if task.follows:
            operator = Transitions(task.on, OBJECT_INTERVALS)
            told = self._run.apply(matches, task.batch_id, task.manifest.now_us, operator)
        else:  # without a column for it, no event is of any object
            told = matches.mapInArrow(_without_objects(task), matches.schema)
        if task.tuning.matches == "arrays":
            return told
        fields = [f for f in matches.schema if f.name != SUB_IDS.name]
        return told.mapInArrow(_pairs, StructType([*fields, StructField(SUB_ID.name, LongType(), nullable=False)]))

    def scale(self, executors: int) -> None:
        self._run.scale(executors)

    def finish(self, batch_id: int) -> None:
        """While nobody asks, objects are not followed: what is known of them is out of date, and forgotten."""
        if self._is_under_way:
            self._run.finish()
            self._is_under_way = False
        else:
            self._run.forget(batch_id)


def _no_subscriptions(sub_ids: SubIds) -> Ints:
    return np.full(len(sub_ids), INSIDE, np.int64)


def _without_objects(task: BatchTask) -> MapStage:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield without_object(batch, task.on)

    return run


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from as_pairs(apart(batch))
