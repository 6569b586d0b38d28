"""Subscriptions with an aggregate in a stream: every answer is the oracle's, and matches are those of the others."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from aggregate_worlds import CONTRACT, NOON_US, SETTINGS, AggregateWorld, check
from geoswarm.model import TIMESTAMP
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import KeyedBatchEntry
from geoswarm.store.key_source import KEY_FILE, make_key_file
from geoswarm.store.scale_requests import put_request
from geoswarm.store.storage import Storage

TUNING = gs.Tuning(aggregates=SETTINGS, round_s=1.0, deltas_max=2)


def play(
    where: Path | str, world: AggregateWorld, tuning: gs.Tuning, scales: Mapping[int, int] | None = None
) -> tuple[gs.sinks.Memory, gs.sinks.Memory]:
    """`scales`: the executors that are asked for when a batch has come so far."""
    matches, answers = gs.sinks.Memory(), gs.sinks.Memory()
    events = [world.events(number) for number in range(world.batches)]
    operations = [world.operations(number) for number in range(world.batches)]

    def clock() -> float:
        done = len(matches.batches)
        if done in (scales or {}):
            put_request(Storage(str(where)), (scales or {})[done], done)
        return world.now_us(done) / 1e6

    with gs.LocalEngine(CONTRACT, tuning, checkpoint=str(where), clock=clock) as engine:
        run = engine.start(events=events, operations=operations, sink=matches, aggregates=answers, available_now=True)
        run.wait()
    return matches, answers


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_the_oracles(tmp_path: Path, seed: int) -> None:
    world = AggregateWorld(seed)
    assert check(tmp_path, world, *play(tmp_path, world, TUNING)) > 5


@pytest.mark.parametrize(
    "tuning",
    [
        {"matches": "pairs"},
        {"exchange": "rows"},
        {"pipeline": "sps"},
        {"pipeline": "rihps", "matches": "pairs"},
        {"pipeline": "risps"},
        {"join_at": "stream"},
        {"pipeline": "sps", "join_at": "stream"},
        {"strategy": "ps2-hybrid"},
        {"strategy": "ps2-hybrid", "matches": "pairs"},
        {"strategy": "ps2-adjusted"},
        {"strategy": "swarm"},
        {"keeps_objects": True},
        {"match_rows_max": 7, "match_pairs_max": 11, "route_rows_max": 13},
        {"window": gs.WindowSettings(keep="1 hour", marks_past=True)},
    ],
    ids=str,
)
@pytest.mark.parametrize("areas", [False, True])
def test_they_are_on_every_road(tmp_path: Path, tuning: dict[str, object], areas: bool) -> None:
    world = AggregateWorld(31 + areas, batches=5, areas=areas)
    matches, answers = play(tmp_path, world, TUNING.model_copy(update=tuning))
    assert check(tmp_path, world, matches, answers) > 5


@pytest.mark.parametrize("shape", ["arrays", "pairs"])
def test_subscriptions_on_what_objects_do_are_beside_those_that_count(tmp_path: Path, shape: str) -> None:
    world = AggregateWorld(40, follows=True)
    matches, answers = play(tmp_path, world, TUNING.model_copy(update={"matches": shape}))
    assert check(tmp_path, world, matches, answers) > 5


def test_executors_come_and_go_while_windows_are_open(tmp_path: Path) -> None:
    world = AggregateWorld(50, batches=10)
    tuning = TUNING.model_copy(update={"strategy": "swarm-measured"})
    matches, answers = play(tmp_path, world, tuning, {2: 7, 4: 1, 6: 4})
    assert check(tmp_path, world, matches, answers) > 5
    entries = JournalReader(Storage(str(tmp_path))).read(KeyedBatchEntry)
    assert {len(entry.executors) for entry in entries if entry.operator == "aggregates"} >= {1, 4, 7}


def test_what_is_counted_is_encrypted_with_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key_file(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    world = AggregateWorld(51)
    assert check(tmp_path / "state", world, *play(tmp_path / "state", world, TUNING)) > 5
    files = [file for file in (tmp_path / "state" / "keyed" / "aggregates").rglob("*") if file.is_file()]
    assert files
    assert all(b"aggregates" not in file.read_bytes() and b"ARROW" not in file.read_bytes() for file in files)


def test_sketches_are_within_the_error_that_their_answers_state(tmp_path: Path) -> None:
    """Of ten times as many values as are counted exactly, from several tasks and batches."""
    rng, batches, rows = np.random.default_rng(1), 4, 15_000
    n = np.append(np.arange(40_000), rng.integers(0, 40_000, batches * rows - 40_000))
    rng.shuffle(n)
    v, words = rng.normal(size=batches * rows), rng.zipf(1.3, batches * rows).clip(max=8_000)
    events = [
        pa.table(
            {
                "event_id": np.arange(first, first + rows),
                "ts": pa.array(np.full(rows, NOON_US + first)).cast(TIMESTAMP),
                "x": rng.uniform(-180, 180, rows),
                "y": rng.uniform(-90, 90, rows),
                "n": n[first : first + rows],
                "v": v[first : first + rows],
                "w": pa.array(words[first : first + rows]).cast(pa.string()),
            }
        )
        for first in range(0, batches * rows, rows)
    ]
    last = events[0].slice(0, 1).set_column(1, "ts", pa.array([NOON_US + 7_200_000_000]).cast(TIMESTAMP))
    given = gs.sinks.Memory()
    with gs.LocalEngine(CONTRACT, TUNING, checkpoint=str(tmp_path), clock=lambda: NOON_US / 1e6 + 1e6) as engine:
        for sub, aggregate in enumerate(("distinct(n)", "quantile(v, 0.9)", "top(w, 5)")):
            engine.subscribe(sub, (-180.0, -90.0, 180.0, 90.0), aggregate=aggregate, window="tumbling(1 h)")
        stream = gs.local.from_tables(*events, last, last)
        engine.start(events=stream, sink=gs.sinks.Noop(), aggregates=given, available_now=True).wait()
    distinct, quantile, top = sorted(given.table().to_pylist(), key=lambda row: row["sub_id"])
    assert [row["count"] for row in (distinct, quantile, top)] == [batches * rows] * 3
    assert all(row["error"] > 0 for row in (distinct, quantile, top)), "they were counted exactly"
    assert abs(distinct["value"] - 40_000) <= distinct["error"] * 40_000
    # In one of 100 cases the rank is further off than the error, and in none of a million by twice as much.
    assert abs((v <= quantile["value"]).mean() - 0.9) <= 2 * quantile["error"]
    often = Counter(words.tolist())
    for one, (_, times) in zip(top["top"], often.most_common(5), strict=True):
        assert abs(one["times"] - times) <= top["error"] * batches * rows
        assert abs(one["times"] - often[int(one["value"])]) <= top["error"] * batches * rows
