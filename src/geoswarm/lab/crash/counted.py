"""The answers of a scenario's run beside brute force: which are lost, repeated or wrong.

`scenario.py` compares the matches of a run; this what its subscriptions with an aggregate were given, batch by batch.
"""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from geoswarm.lab.crash.scenario import (
    CONTRACT,
    EVENTS_SCHEMA,
    START,
    STEP_S,
    Scenario,
    batches_of,
    delivered,
    is_sound,
)
from geoswarm.lab.crash.victim import AGGREGATES
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.aggregates import AggregateOracle
from geoswarm.run.oracle.oracle import Oracle

Answer = tuple[Any, ...]
COLUMNS = ("sub_id", "user", "group", "window_start", "window_end", "count", "value", "top")


class AnswerComparison(NamedTuple):
    batches: int
    answers: int
    """That there should be."""
    lost: int
    repeated: int
    wrong: int


def compare_answers(scenario: Scenario, checkpoint: Path, answers: Path) -> AnswerComparison:
    """`answers` is the folder into which a finished run has put them, a folder for each batch."""
    want = _expected(scenario, checkpoint)
    got = {
        numbers[0]: Counter(map(_given, pa.concat_tables(tables).to_pylist()))
        for numbers, tables in delivered(answers, len(want))
        if tables
    }
    lost = repeated = wrong = 0
    for batch, wanted in enumerate(want):
        found = got.pop(batch, Counter())
        lost += (wanted - found).total()
        repeated += sum(max(0, times - max(1, wanted[row])) for row, times in found.items())
        wrong += len(set(found) - set(wanted))
    wrong += sum(found.total() for found in got.values())  # of batches that there are none of
    return AnswerComparison(len(want), sum(map(Counter.total, want)), lost, repeated, wrong)


def _expected(scenario: Scenario, checkpoint: Path) -> list["Counter[Answer]"]:
    oracle, found = Oracle(CONTRACT.bounds), []
    counting = AggregateOracle(oracle, AGGREGATES.lateness_us, AGGREGATES.ahead_us)
    for number, batch in enumerate(batches_of(checkpoint)):
        now_us = int((START.timestamp() + number * STEP_S) * 1e6)
        for file in batch.operations:
            oracle.operate(scenario.operations(file), now_us)
        tables = [scenario.events(file) for file in batch.events]
        events = pa.concat_tables(tables) if tables else EVENTS_SCHEMA.empty_table()
        sound = events.filter(pa.array([is_sound(row) for row in events.to_pylist()], pa.bool_()))
        found.append(Counter(map(_wanted, counting.run(sound, now_us))))
    return found


def _wanted(row: dict[str, Any]) -> Answer:
    top = None if row["top"] is None else tuple(row["top"])
    return tuple((row | {"top": top})[name] for name in COLUMNS)


def _given(row: dict[str, Any]) -> Answer:
    times = {name: pa.scalar(row[name], TIMESTAMP).cast(pa.int64()).as_py() for name in ("window_start", "window_end")}
    top = None if row["top"] is None else tuple((one["value"], one["times"]) for one in row["top"])
    return tuple((row | times | {"user": row["user"] or "", "top": top})[name] for name in COLUMNS)
