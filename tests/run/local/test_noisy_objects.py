"""Alerts from noisy GPS are what brute force says: with confirm, cooldown and vague fixes, late events, subscriptions
that come and go, plans that change, executors that come and go, and a start for every batch; as arrays and as rows that
say what they are of."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.errors import SchemaError
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import alerts_of, pairs_of
from geoswarm.run.side_stages import OBJECT_INTERVALS
from geoswarm.service.cli.run_view import status_table
from geoswarm.service.watch import status as checkpoint_status
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

WORLD = gs.Contract(columns=90, rows=45, executors=3)
BATCHES, BATCH_S, INTERVAL_S, STEP = 9, 10.0, 20.0, 5.0
WAY_M_MAX = 600_000.0
STRATEGIES = ("auto", "ps2-hybrid", "swarm")
AHEAD_S = 8.0
REORDER_S = (8.0, 8.0, 20.0, 20.0, 5.0, 0.0, 12.0, 12.0, 12.0)
"""Of each batch, where fixes are put in order."""


def batch(seed: int, number: int) -> pa.Table:
    """In one world with words and facts, except for the column that alerts have of their own."""
    rng = np.random.default_rng((seed, number))
    walks = worlds.border_walks(
        rng, 300, step=STEP, objects=12, first_id=1000 * number, at_us=round(number * BATCH_S * 1e6)
    )
    walks = worlds.with_accuracy(rng, walks)
    return worlds.with_facts(rng, worlds.with_texts(rng, walks)).drop_columns(["since"]) if seed == 3 else walks


def storm(seed: int, number: int) -> pa.Table:
    rng = np.random.default_rng((seed, 1000 + number))
    asked = worlds.operations(
        rng, 30 if number else 60, ids=40, now_us=round(number * BATCH_S * 1e6), near=20.0, lasts_us=10**8
    )
    asked = worlds.with_alert_rules(rng, worlds.with_on(rng, worlds.with_borders(asked, STEP)))
    asked = worlds.with_ways(rng, worlds.with_buffers(rng, worlds.with_shapes(rng, asked)))
    asked = worlds.with_payloads(rng, asked)
    return worlds.with_demands(rng, worlds.with_keywords(rng, asked, 0.1), 0.12) if seed == 3 else asked


class Dies(gs.sinks.Memory):
    """Fails at a batch, after it has written it, as if the process had ended there."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        if batch_id == self.at:
            raise RuntimeError("the process ended")


def play(folder: Path, seed: int, tuning: gs.Tuning) -> dict[int, pa.Table]:
    """Each batch by an engine of its own, which may have another strategy and other executors, and where fixes are put
    in order another time for it."""
    told = dict[int, pa.Table]()
    for number in range(BATCHES):
        tables, storms = ([make(seed, k) for k in range(number + 1)] for make in (batch, storm))
        reorder_s = REORDER_S[number] if tuning.reorder_s else 0.0
        chosen = tuning.model_copy(
            update={"strategy": STRATEGIES[number // 2 % len(STRATEGIES)], "reorder_s": reorder_s}
        )
        for dies in [True, False] if number == 4 else [False]:
            sink = Dies(number if dies else -1)
            clock = partial(float, number * BATCH_S)
            with gs.LocalEngine(WORLD, chosen, checkpoint=str(folder), clock=clock) as engine:
                if number in (3, 6) and not dies:
                    engine.scale(5 if number == 3 else 2)
                run = engine.start(events=tables, operations=storms, sink=sink, available_now=True)
                if dies:
                    with pytest.raises(RuntimeError, match="the process ended"):
                        run.wait()
                else:
                    run.wait()
            for known, table in sink.batches.items():
                before = told.setdefault(known, table)
                # No NaN is equal to itself.
                same = before.drop_columns(["accuracy_m"]).equals(table.drop_columns(["accuracy_m"]))
                assert same, "a batch that is run again gives the same rows in the same order"
    return told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_alerts_of_noisy_objects_are_what_brute_force_finds(tmp_path: Path, seed: int) -> None:
    """In the last two worlds fixes are put in order, and in one of these some ask for words, objects, columns."""
    tuning = gs.Tuning(
        object_ttl_s=(OBJECT_INTERVALS - 1) * INTERVAL_S,
        round_s=5.0,
        accuracy_max_m=20.0,
        accuracy_needed=seed % 2 == 1,
        deltas_max=2,
        matches="alerts" if seed % 4 else "arrays",
        cross_way_m_max=WAY_M_MAX,
        reorder_s=REORDER_S[0] if seed > 2 else 0.0,
        aggregates=gs.AggregateSettings(ahead_s=AHEAD_S),
    )
    told, oracle, kinds, longest = play(tmp_path, seed, tuning), Oracle(worlds.BOUNDS), Counter[str](), 0
    oracle.following.accuracy_max_m, oracle.following.accuracy_needed = 20.0, tuning.accuracy_needed
    oracle.way_m_max, oracle.waiting.ahead_us = WAY_M_MAX, round(AHEAD_S * 1e6)
    oracle.following.sequence_us = round(tuning.object_ttl_s * 1e6)
    entries = {entry.batch: entry for entry in JournalReader(Storage(str(tmp_path))).read(BatchEntry)}
    for number in range(BATCHES):
        now_us = round(number * BATCH_S * 1e6)
        assert oracle.operate(storm(seed, number), now_us) == entries[number].operations_refused
        cooled, vague = oracle.following.cooled, oracle.following.vague
        oracle.waiting.reorder_us = round(REORDER_S[number] * 1e6) if tuning.reorder_s else 0
        want = oracle.tell(batch(seed, number), now_us, int(number * BATCH_S // INTERVAL_S), OBJECT_INTERVALS)
        assert sorted(pairs_of([told[number]])) == sorted(want)
        if tuning.matches == "alerts":
            assert sorted(alerts_of([told[number]])) == oracle.alerts(want)
            longest = max([longest, *(said.sequence or 0 for said in want.values())])
        counted = entries[number].cooled, entries[number].vague
        assert counted == (oracle.following.cooled - cooled, oracle.following.vague - vague)
        assert entries[number].held_fixes == len(oracle.waiting.fixes)
        kinds.update(str(oracle.on.get(sub, "inside")) for _, sub in want)
    assert kinds.keys() >= {"inside", "enter", "exit", "cross"}
    assert kinds["cross"] > (5 if seed == 3 else 20)
    assert longest > 3 or tuning.matches == "arrays"
    totals = entries[BATCHES - 1].totals
    assert (totals.cooled, totals.vague) == (oracle.following.cooled, oracle.following.vague)
    assert totals.cooled > 0
    assert totals.gaps == oracle.following.gaps > 20
    assert totals.vague > 50
    assert (totals.late_fixes, totals.ahead_fixes) == (
        oracle.following.late + oracle.waiting.late,
        oracle.waiting.ahead,
    )
    assert totals.late_fixes > 20
    assert (oracle.waiting.late > 20, totals.ahead_fixes > 20) == (tuning.reorder_s > 0, tuning.reorder_s > 0)


def test_what_was_left_out_is_in_the_status(tmp_path: Path) -> None:
    rows = {
        "event_id": [1, 2, 3, 4, 5],
        "ts": pa.array([1, 2, 3, 4, 5], pa.timestamp("s", "UTC")),
        "x": [1.0, 5.0, 1.0, 9.0, 1.0],
        "y": [1.0] * 5,
        "object_id": ["a"] * 5,
        "accuracy_m": pa.array([5.0, 5.0, 5.0, 500.0, None]),
    }
    matches = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, gs.Tuning(accuracy_max_m=30.0), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, (0.0, 0.0, 2.0, 2.0), on="enter", cooldown="60 s")
        engine.start(events=pa.table(rows), sink=matches, available_now=True).wait()
        status = engine.status()
        view = View.open(engine._checkpoint.storage, engine._checkpoint.manifest)
    (shown,) = view.table(np.array([1]), 0).to_pylist()
    assert pairs_of([matches.table()]) == [(1, 1)]
    assert (status["cooled"], status["vague"]) == (1, 1)
    names, values = status_table(checkpoint_status(str(tmp_path))).columns
    shown_status = dict(zip(names.cells, values.cells, strict=True))
    assert shown_status["transitions"] == "1 reported, 1 left out by a cooldown, 1 events too inaccurate to decide by"
    assert (shown["on"], shown["confirm"], shown["cooldown"]) == ("enter", None, "60 s")


def test_a_limit_of_accuracy_needs_the_column(tmp_path: Path) -> None:
    table = worlds.border_walks(np.random.default_rng(0), 5, step=1.0, objects=2)
    with gs.LocalEngine(WORLD, gs.Tuning(accuracy_max_m=30.0), checkpoint=str(tmp_path)) as engine:
        with pytest.raises(SchemaError, match="accuracy_max_m is set and events have no column accuracy_m"):
            engine.start(events=table, sink=gs.sinks.Noop())
        words = table.append_column("accuracy_m", pa.array(["near"] * 5))
        with pytest.raises(SchemaError, match="accuracy_m of events is string, wanted is a number of metres"):
            engine.start(events=words, sink=gs.sinks.Noop())
    with pytest.raises(ValueError, match="says nothing without accuracy_max_m"):
        gs.Tuning(accuracy_needed=True)
