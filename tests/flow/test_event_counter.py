"""Pairs that are counted, in the rows that a brute-force count has; the others are reported as they came."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.aggregates.partials import make_partials, merge_partials, partial_fields
from geoswarm.core.aggregates.spec import AggregateSpec, read_spec
from geoswarm.core.arrays.jit import SubIds
from geoswarm.core.subscriptions.aggregate import NO_SPEC, AggregateValues
from geoswarm.flow.aggregates import count
from geoswarm.flow.aggregates.count import EventCounter
from geoswarm.flow.aggregates.counted import COUNTED
from geoswarm.flow.match.match import MatchRun
from geoswarm.model import TIMESTAMP

SECOND_US = 1_000_000
SPECS = [
    read_spec("count", "tumbling(5 s)"),
    read_spec("count", "tumbling(5 s)", None, "count > 3"),
    read_spec("count", "sliding(12 s, 3 s)"),
    read_spec("count", "count(3)"),
    read_spec("sum(v)", "sliding(6 s, 2 s)", "kind"),
    read_spec("avg(v)", "session(1500 ms)", "kind"),
    read_spec("count", "session(2 s)"),
    read_spec("max(v)", "session(4 s)"),
    read_spec("min(v)", "count(2)", "kind"),
    read_spec("sum(gone)", "tumbling(10 s)", "nowhere"),
    read_spec("top(kind, 2)", "tumbling(10 s)"),
    read_spec("distinct(v)", "tumbling(10 s)"),
]
TEXTS = pa.array([spec.text for spec in SPECS])


class World:
    """Subscriptions of which two thirds count, and matches by the run."""

    def __init__(self, seed: int, subs: int = 60) -> None:
        self.rng = np.random.default_rng(seed)
        spread = int(self.rng.choice([1, 977, 2**53]))
        self.ids = (np.arange(subs) - subs // 2) * spread
        self.codes = self.rng.integers(0, len(SPECS), subs)
        self.codes[self.rng.random(subs) < 0.3] = NO_SPEC
        self.began = self.rng.integers(0, 9, subs)

    def look_up(self, ids: SubIds) -> AggregateValues:
        assert (np.diff(ids) > 0).all()
        place = np.searchsorted(self.ids, ids)
        return AggregateValues(self.codes[place], TEXTS, self.began[place])

    def spec(self, sub: int) -> AggregateSpec | None:
        code = int(self.codes[np.searchsorted(self.ids, sub)])
        return None if code == NO_SPEC else SPECS[code]

    def run(self, events: int, first: int, span_s: float) -> MatchRun:
        rng = self.rng
        met = [np.sort(rng.choice(self.ids, int(rng.integers(0, 6)), replace=False)) for _ in range(events)]
        ts = rng.integers(round(-span_s * SECOND_US), round(span_s * SECOND_US), events)
        values = rng.normal(size=events).round(2)
        table = {
            "event_id": np.arange(first, first + events),
            "ts": pa.array(ts).cast(TIMESTAMP),
            "v": pa.array(values, mask=rng.random(events) < 0.1),
            "kind": pa.array(rng.choice(["a", "b", "ç"], events), mask=rng.random(events) < 0.2),
        }
        offsets = np.append(0, np.cumsum([len(some) for some in met]))
        return MatchRun(pa.record_batch(table), offsets, np.concatenate([[], *met]).astype(np.int64))


Event = tuple[int, int, Any, str | None]
"""`ts` in microseconds, id, value and kind."""
Row = tuple[Any, ...]


def expected(world: World, runs: list[MatchRun], watermark_us: int | None) -> tuple[dict[Row, list[Any]], int]:
    """The values of each row by (sub, began, group, first, last, event), and how many windows were missed."""
    rows: dict[Row, list[Any]] = defaultdict(list)
    sessions: dict[Row, list[tuple[int, Any]]] = defaultdict(list)
    late = 0
    for run in runs:
        times = run.events.column("ts").cast(pa.int64()).to_pylist()
        for i, event in enumerate(run.events.to_pylist()):
            for sub in run.subs[run.offsets[i] : run.offsets[i + 1]].tolist():
                spec = world.spec(sub)
                if spec is None:
                    continue
                began = int(world.began[np.searchsorted(world.ids, sub)])
                key = sub, began, event["kind"] if spec.group_by == "kind" else None
                value, ts, window = event.get(spec.aggregate.column), times[i], spec.window
                if window.kind == "count":
                    rows[*key, ts, ts, event["event_id"]].append(value)
                elif window.kind == "session":
                    if watermark_us is not None and ts + window.length_us <= watermark_us:
                        late += 1
                    else:
                        sessions[*key, window.length_us].append((ts, value))
                else:
                    pane = ts // window.slide_us * window.slide_us
                    ends = [pane + k * window.slide_us for k in range(1, window.length_us // window.slide_us + 1)]
                    missed = 0 if watermark_us is None else sum(end <= watermark_us for end in ends)
                    late += missed
                    if missed < len(ends):
                        rows[*key, pane, pane, 0].append(value)
    for (*whose, gap), found in sessions.items():
        part: list[tuple[int, Any]] = []
        for ts, value in [*sorted(found, key=lambda one: one[0]), (2**62, None)]:
            if part and ts - part[-1][0] >= gap:
                rows[*whose, part[0][0], part[-1][0], 0] = [held for _, held in part]
                part = []
            part.append((ts, value))
    return rows, late


def shown(function: str, columns: list[pa.Array]) -> list[Any]:
    packed_sketch = function in ("distinct", "top")
    return [column.to_pylist() for column in (columns[:1] if packed_sketch else columns)]


@pytest.mark.quick
@pytest.mark.parametrize("watermark_s", [None, -3.0, 0.0, 2.5, 30.0])
@pytest.mark.parametrize("seed", range(6))
def test_counted_rows_are_those_of_brute_force(
    seed: int, watermark_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count, "ROWS_HELD", 300)
    monkeypatch.setattr(count, "CHUNK_BYTES_MAX", 2000)
    monkeypatch.setattr(count, "JOINED_BYTES_MAX", 1 << (12 if seed % 2 else 28))
    world = World(seed)
    runs = [world.run(events, 1000 * n, span_s=12.0) for n, events in enumerate([150, 0, 1, 90, 300])]
    watermark_us = None if watermark_s is None else int(watermark_s * SECOND_US)
    counter = EventCounter(world.look_up, watermark_us)
    for run in runs:
        left = counter.take(run)
        assert left.events is run.events
        for i in range(len(run.events)):
            met = run.subs[run.offsets[i] : run.offsets[i + 1]]
            reports = left.subs[left.offsets[i] : left.offsets[i + 1]]
            assert reports.tolist() == [sub for sub in met.tolist() if world.spec(sub) is None]
    batches = list(counter.counted())
    want, late = expected(world, runs, watermark_us)
    assert counter.late == late
    assert want or watermark_s == 30.0
    got: dict[Row, list[list[pa.Array]]] = defaultdict(list)
    for batch in batches:
        assert batch.schema == COUNTED
        for i in range(len(batch)):
            row = batch.slice(i, 1)
            spec = world.spec(row["sub_id"][0].as_py())
            assert spec is not None
            key = tuple(row[name][0].as_py() for name in COUNTED.names[:6])
            fields = [field.name for field in partial_fields(spec.aggregate.function)]
            assert all(row[name].null_count for name in COUNTED.names[7:] if name not in fields)
            got[key].append([row[name] for name in fields])
    if not seed % 2:
        assert all(len(rows) == 1 for rows in got.values())  # one for each span, whatever the number of runs
        assert got.keys() == want.keys()
    for key, parts in merged_spans(world, got).items():
        spec = world.spec(key[0])
        assert spec is not None
        function = spec.aggregate.function
        columns = [pa.concat_arrays(some) for some in zip(*parts, strict=True)]
        merged = merge_partials(function, columns, np.array([0, len(parts)]))
        kind = pa.string() if function == "top" else pa.float64()
        values = None if function == "count" else pa.array(want[key], kind)
        assert shown(function, merged) == shown(
            function, make_partials(function, values, np.array([0, len(want[key])]))
        )


def merged_spans(world: World, got: dict[Row, list[list[pa.Array]]]) -> dict[Row, list[list[pa.Array]]]:
    """Parts of one session, which were too large to be joined by the task, under the span of all."""
    found: dict[Row, list[list[pa.Array]]] = {}
    before: Row | None = None
    for key in sorted(got, key=lambda key: (key[:2], str(key[2]), key[3:])):
        spec = world.spec(key[0])
        assert spec is not None
        is_session = spec.window.kind == "session"
        if before is not None and is_session and key[:3] == before[:3] and key[3] - before[4] < spec.window.length_us:
            parts = found.pop(before) + got[key]
            before = (*before[:4], max(before[4], key[4]), 0)
            found[before] = parts
        else:
            before = key
            found[key] = got[key]
    return found


def test_a_time_at_the_end_of_time_stops_nothing() -> None:
    world = World(1)
    run = world.run(4, 0, span_s=1.0)
    times = pa.array([2**63 - 1, -(2**63), 0, 2**62]).cast(TIMESTAMP)
    events = run.events.set_column(1, "ts", times)
    every = np.tile(world.ids, 4)
    for watermark_us in (None, -(2**63), 0, 2**63 - 1):
        counter = EventCounter(world.look_up, watermark_us)
        counter.take(MatchRun(events, np.arange(5) * len(world.ids), every))
        counted = pa.Table.from_batches(counter.counted(), COUNTED)
        spans = np.stack([counted["first_us"].to_numpy(), counted["last_us"].to_numpy()])
        assert (np.abs(spans) <= 2**61 + 20 * SECOND_US).all()
        assert counter.late >= 0


def test_where_nothing_counts_matches_are_what_they_were() -> None:
    world = World(2)
    world.codes[:] = NO_SPEC
    run, counter = world.run(50, 0, 5.0), EventCounter(world.look_up, 0)
    assert counter.take(run) is run
    assert not list(counter.counted())
