"""A stream of subscriptions that count, with its oracle: who meets whom is drawn, and what tasks count is made row by
row, so that the state of aggregates is tested without matching.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.config import AggregateSettings, Contract, Tuning
from geoswarm.core.aggregates.columns import groups_of, values_of
from geoswarm.core.aggregates.partials import make_partials, partial_fields
from geoswarm.core.aggregates.spec import AggregateSpec
from geoswarm.core.subscriptions.aggregate import NO_SPEC
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.flow.aggregates.counted import COUNTED
from geoswarm.flow.stages.keyed import route_keys
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import TIMESTAMP
from geoswarm.run.aggregates import AggregateRun
from geoswarm.run.oracle.aggregates import AggregateOracle
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from stepped import rows_of, task_of

CONTRACT = Contract(columns=8, rows=8, executors=3)
BOUNDS = (-180.0, -90.0, 180.0, 90.0)
LATENESS_S, AHEAD_S = 5.0, 1000.0
SECOND = 1_000_000
FUNCTIONS = [
    "count",
    "count",
    "sum(v)",
    "avg(n)",
    "min(v)",
    "max(n)",
    "distinct(kind)",
    "quantile(v, 0.5)",
    "top(kind, 2)",
]
WINDOWS = [
    "tumbling(10 s)", "tumbling(3 s)", "sliding(12 s, 3 s)", "sliding(60 s, 20 s)", "tumbling(500 s)",
    "count(1)", "count(3)", "count(8)", "session(4 s)", "session(9 s)",
]  # fmt: skip
WHENS = [None, None, None, "count > 2", "value > 1 OR value IS NULL"]


class CountedWorld:
    """One checkpoint, its oracle and the run whose state is tested."""

    def __init__(self, folder: Path) -> None:
        self.tuning = Tuning(aggregates=AggregateSettings(lateness_s=LATENESS_S, ahead_s=AHEAD_S))
        self.checkpoint = Checkpoint(str(folder / "checkpoint"), CONTRACT, self.tuning)
        self.oracle = Oracle(BOUNDS)
        self.counted = AggregateOracle(self.oracle, round(LATENESS_S * SECOND), round(AHEAD_S * SECOND))
        self.restart()
        self.number, self.task = 0, None

    def restart(self) -> None:
        self.run = AggregateRun(self.checkpoint, self.tuning)

    def begin(self, now_us: int, operations: list[dict[str, Any]]) -> None:
        """The next batch: operations take effect."""
        table = operation_table(operations)
        manifest = self.checkpoint.prepare(self.number, lambda: [table], now_us)
        assert manifest.refused == self.oracle.operate(table, now_us)
        self.state = StoredBatch(self.checkpoint.storage, self.number, manifest)

    def expect(self, events: pa.Table, met: set[Pair]) -> list[Any]:
        return rows_shown(self.counted.run(events, self.state.manifest.now_us, met))

    def give(self, events: pa.Table, met: set[Pair], rng: np.random.Generator) -> list[Any]:
        """What the run gives; nothing is committed."""
        watermark_us = self.run.watermark_us(self.number)
        counted = rows_of(count_by_hand(self.state, events, met, watermark_us, rng), int(rng.integers(1, 4)))
        self.state.forget_attempt()  # it may be the batch of before, cut into other tasks
        keyed = self.run.begin(self.number, self.state.manifest.now_us, self.state, counted.name_task)
        for number, batches in enumerate(counted._tasks()):
            self.state.put_counted("match", number, route_keys(keyed)(number, batches))
        task: BatchTask = replace(task_of(self.state, CONTRACT, self.tuning, events.schema), counting=keyed)
        return rows_shown(self.run.give(counted, task, self.state.counted_names()).to_arrow().to_pylist())

    def finish(self, events: pa.Table) -> None:
        times = events.column("ts").cast(pa.int64()).to_numpy()
        times = times[times <= self.state.manifest.now_us + AHEAD_S * SECOND]
        self.run.finish(self.number, int(times.max()) if len(times) else None)
        self.checkpoint.finish(self.number)
        self.number += 1

    def files(self) -> int:
        return len(self.run._run.before(self.number).files)

    def close(self) -> None:
        self.checkpoint.close()


def count_by_hand(
    state: StoredBatch, events: pa.Table, met: set[Pair], watermark_us: int | None, rng: np.random.Generator
) -> pa.Table:
    """The rows that tasks make of these matches: each is one of an event, or of some of those of a pane."""
    subs = sorted({sub for _, sub in met})
    values = state.aggregates(np.array(subs, np.int64))
    ids = events.column("event_id").to_pylist()
    rows = [COUNTED.empty_table()]
    for sub, code, began in zip(subs, values.codes.tolist(), values.began.tolist(), strict=True):
        if code != NO_SPEC:
            mine = [place for place, event in enumerate(ids) if (event, sub) in met]
            some = events.take(pa.array(mine, pa.int64())).combine_chunks()
            rows += _rows_of(sub, began, values.spec(code), some.to_batches()[0], watermark_us, rng)
    table = pa.concat_tables(rows)
    return table.take(pa.array(rng.permutation(len(table))))


def _rows_of(
    sub: int,
    began: int,
    spec: AggregateSpec,
    events: pa.RecordBatch,
    watermark_us: int | None,
    rng: np.random.Generator,
) -> list[pa.Table]:
    function, window = spec.aggregate.function, spec.window
    times = events.column("ts").cast(pa.int64()).to_numpy()
    groups = groups_of(spec, events).to_pylist()
    made: dict[tuple[Any, ...], list[int]] = {}
    for place, (time, group) in enumerate(zip(times.tolist(), groups, strict=True)):
        pane = time // window.slide_us * window.slide_us if window.slide_us else time
        if window.kind == "count":
            made[group, time, place] = [place]
        elif watermark_us is None or (time if window.kind == "session" else pane) + window.length_us > watermark_us:
            key = (group, pane, place) if window.kind == "session" else (group, pane, int(rng.integers(0, 2)))
            made.setdefault(key, []).append(place)
    rows = []
    for (group, first, _), places in made.items():
        values = values_of(spec, events.take(pa.array(places)))
        partials = make_partials(function, values, np.array([0, len(places)]))
        event = events.column("event_id")[places[0]].as_py() if window.kind == "count" else 0
        known = {"sub_id": [sub], "began": [began], "group": [group], "first_us": [first], "last_us": [first]}
        known |= {"event_id": [event]}
        known |= {field.name: column for field, column in zip(partial_fields(function), partials, strict=True)}
        missing = {field.name: pa.nulls(1, field.type) for field in COUNTED if field.name not in known}
        whole = known | missing
        rows.append(pa.table({field.name: whole[field.name] for field in COUNTED}, schema=COUNTED))
    return rows


def rows_shown(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows of the engine or of the oracle, as they are compared."""
    shown = []
    for row in rows:
        start, end = (
            row[name] if isinstance(row[name], int) else _us(row[name]) for name in ("window_start", "window_end")
        )
        top = row["top"] and [(one["value"], one["times"]) if isinstance(one, dict) else one for one in row["top"]]
        shown.append(
            (row["sub_id"], row["user"] or "", row["group"], start, end, row["count"], row["value"], top or None)
        )
    return sorted(shown, key=repr)


def _us(moment: Any) -> int:
    return int(pa.scalar(moment, TIMESTAMP).cast(pa.int64()).as_py())


def draw_operations(
    rng: np.random.Generator, world: CountedWorld, count: int, ids: int, now_us: int
) -> list[dict[str, Any]]:
    """Registrations, replaces that change much or little, cancels; some expire."""
    drawn = list[dict[str, Any]]()
    for sub in rng.integers(0, ids, count).tolist():
        live = world.oracle.live.get(sub)
        if live is not None and rng.random() < 0.25:
            drawn.append({"op": "cancel", "sub_id": sub})
            continue
        counting = world.oracle.counting.get(sub)
        said: dict[str, Any] = {
            "aggregate": str(rng.choice(FUNCTIONS)),
            "window": str(rng.choice(WINDOWS)),
            "group_by": "kind" if rng.random() < 0.3 else None,
        }
        if counting is not None and rng.random() < 0.6:
            spec = counting.spec
            said = {"aggregate": str(spec.aggregate), "window": str(spec.window), "group_by": spec.group_by}
        said["when"] = None if said["aggregate"].startswith("top") else WHENS[int(rng.integers(0, len(WHENS)))]
        expires = now_us + int(rng.integers(1, 60)) * SECOND if rng.random() < 0.2 else None
        row = registration(sub, (0.0, 0.0, 1.0, 1.0), replace=True, user=str(rng.choice(["ana", "ben"])), **said)
        drawn.append(row | {"expires": None if expires is None else pa.scalar(expires, TIMESTAMP).as_py()})
    return drawn


def draw_events(
    rng: np.random.Generator, world: CountedWorld, count: int, at_us: int, first_id: int
) -> tuple[pa.Table, set[Pair]]:
    """Events, most of them of now, some late; and who meets them."""
    late = np.where(rng.random(count) < 0.1, rng.integers(0, 40 * SECOND, count), rng.integers(0, 3 * SECOND, count))
    ts = at_us - late // (SECOND // 2) * (SECOND // 2)
    ids = np.arange(first_id, first_id + count)
    table = pa.table(
        {
            "event_id": ids,
            "ts": pa.array(ts).cast(TIMESTAMP),
            "x": np.full(count, 0.5),
            "y": np.full(count, 0.5),
            "v": pa.array(rng.choice([0.1, 0.25, -3.0, 1e300, 7.5], count), mask=rng.random(count) < 0.1),
            "n": pa.array(rng.integers(-3, 9, count), mask=rng.random(count) < 0.2),
            "kind": pa.array([[None, "a", "b", "ç"][i] for i in rng.integers(0, 4, count)], pa.string()),
        }
    )
    live = sorted(world.oracle.counting)
    met = {(int(event), sub) for event in ids for sub in live if rng.random() < 0.3}
    return table, met
