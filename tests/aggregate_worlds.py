"""Small worlds for aggregates: batches of events and operations by seed, and what the oracle answers to them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import geoswarm as gs
import worlds
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.aggregates import AggregateOracle
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage

SETTINGS = gs.AggregateSettings(lateness_s=4.0, ahead_s=30.0)
NOON_US = 1_800_000_000_000_000
STEP_US = 3_000_000
"""From one batch to the next."""
CONTRACT = gs.Contract(columns=30, rows=20, executors=3)
COLUMNS = ("sub_id", "user", "group", "window_start", "window_end", "count", "value", "top")

Answer = tuple[Any, ...]


class Expected(NamedTuple):
    answers: list[Answer]
    pairs: set[Pair]
    """The matches of subscriptions that count nothing."""
    late: int
    ahead: int
    windows: int
    """Those that are open after the batch."""


@dataclass(frozen=True)
class AggregateWorld:
    seed: int
    batches: int = 8
    rows: int = 120
    follows: bool = False
    """Whether some subscriptions are on what objects do."""
    areas: bool = False

    def now_us(self, number: int) -> int:
        return NOON_US + number * STEP_US

    def events(self, number: int) -> pa.Table:
        """Points about the middle of the world, some of them late, early or from next year; now and then none."""
        rng = np.random.default_rng((self.seed, number))
        rows = 0 if rng.random() < 0.15 else self.rows
        table = worlds.with_texts(rng, worlds.events(rng, rows, first_id=1000 * number, snap=1.0))
        near = rng.integers(-40, 41, (2, rows)) / 2
        at_us = self.now_us(number) + rng.integers(-9_000_000, 1_000_000, rows) // 250_000 * 250_000
        at_us += np.where(rng.random(rows) < 0.02, 86_400_000_000, 0)
        at_us -= np.where(rng.random(rows) < 0.03, 60_000_000, 0)
        x = pa.array(near[0], mask=rng.random(rows) < 0.02)
        values = np.where(rng.random(rows) < 0.05, np.nan, rng.integers(-4, 5, rows) / 4)
        columns = {
            "event_id": table["event_id"],
            "ts": pa.array(at_us).cast(TIMESTAMP),
            "x": x,
            "y": pa.array(near[1]),
            "text": table["text"],
            "v": pa.array(values, mask=rng.random(rows) < 0.1),
            "n": pa.array(rng.integers(-3, 9, rows), pa.int32(), mask=rng.random(rows) < 0.1),
            "kind": pa.array(rng.choice(["a", "b", "ç"], rows), mask=rng.random(rows) < 0.2),
            "object_id": pa.array(rng.integers(0, 12, rows), mask=rng.random(rows) < 0.1),
        }
        made = pa.table(columns)
        return worlds.with_areas(rng, made, 0.2, snap=1.0, near=40.0) if self.areas else made

    def operations(self, number: int) -> pa.Table:
        """A storm, of which two thirds count."""
        rng = np.random.default_rng((self.seed, number, 1))
        count, now_us = (40 if number == 0 else 12), self.now_us(number)
        drawn = worlds.operations(rng, count, ids=30, now_us=now_us, near=20.0, lasts_us=5 * STEP_US)
        drawn = worlds.with_keywords(rng, worlds.with_shapes(rng, drawn, snap=1.0), 0.3)
        if self.follows:
            on = [("enter", "exit", None)[k] for k in rng.choice(3, count, p=[0.1, 0.1, 0.8])]
            drawn = drawn.append_column("on", pa.array(on, pa.string()))
        return worlds.with_aggregates(rng, drawn)

    def expected(self) -> Iterator[Expected]:
        oracle = Oracle(worlds.BOUNDS)
        counting = AggregateOracle(oracle, SETTINGS.lateness_us, SETTINGS.ahead_us)
        for number in range(self.batches):
            now_us, events = self.now_us(number), self.events(number)
            oracle.operate(self.operations(number), now_us)
            late, ahead = counting.late, counting.ahead
            rows = counting.run(events, now_us)
            pairs = oracle.deliver(events, now_us, 0)
            found = sorted((answer_of(row) for row in rows), key=repr)
            yield Expected(found, pairs, counting.late - late, counting.ahead - ahead, counting.windows_open())


def answer_of(row: Mapping[str, Any]) -> Answer:
    """Of the oracle; times are numbers there."""
    return tuple(row[name] for name in COLUMNS)


def answers_of(table: pa.Table) -> list[Answer]:
    """The same of an engine's rows."""
    if not table.schema.names:
        return []
    for name in ("window_start", "window_end"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(TIMESTAMP).cast(pa.int64()))
    return sorted((_answer(row) for row in table.to_pylist()), key=repr)


def _answer(row: dict[str, Any]) -> Answer:
    top: Sequence[dict[str, Any]] | None = row["top"]
    said = None if top is None else [(one["value"], one["times"]) for one in top]
    return answer_of(row | {"user": row["user"] or "", "top": said})


def check(folder: Path | str, world: AggregateWorld, matches: gs.sinks.Memory, answers: gs.sinks.Memory) -> int:
    """Every batch against the oracle. Returns the number of answers."""
    entries = {entry.batch: entry for entry in JournalReader(Storage(str(folder))).read(BatchEntry)}
    given = 0
    for number, want in enumerate(world.expected()):
        entry = entries[number]
        assert sorted(pairs_of([matches.batches[number]])) == sorted(want.pairs), number
        got = answers_of(answers.batches[number]) if number in answers.batches else []
        assert got == want.answers, number
        assert (entry.late, entry.ahead) == (want.late, want.ahead), number
        given += len(got)
    return given
