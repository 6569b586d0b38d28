"""Subscriptions end after `max_events`, exactly, and are told why they end, once: as brute force says, over worlds in
which they come and go, plans change, batches are run again, and each batch has a start of its own."""

import re
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import InputError, SettingsError
from geoswarm.flow.stages.in_order import in_order, route_by
from geoswarm.run import max_events
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import alerts_of, ends_of, unprompted_of
from geoswarm.run.side_stages import OBJECT_INTERVALS
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage

WORLD = gs.Contract(columns=90, rows=45, executors=3)
BATCHES, BATCH_S, INTERVAL_S, STEP = 8, 10.0, 5.0, 5.0
STRATEGIES = ("auto", "ps2-hybrid", "swarm")
WAY_M_MAX = 600_000.0
TUNING = gs.Tuning(
    matches="alerts",
    object_ttl_s=(OBJECT_INTERVALS - 1) * INTERVAL_S,
    round_s=5.0,
    deltas_max=2,
    cross_way_m_max=WAY_M_MAX,
)


def batch(seed: int, number: int) -> pa.Table:
    rng, at_us = np.random.default_rng((seed, number)), round(number * BATCH_S * 1e6)
    return worlds.border_walks(rng, 300, step=STEP, objects=60, first_id=1000 * number, at_us=at_us)


def storm(seed: int, number: int) -> pa.Table:
    rng, now_us = np.random.default_rng((seed, 1000 + number)), round(number * BATCH_S * 1e6)
    asked = worlds.operations(rng, 60, ids=50, now_us=now_us, near=20.0, lasts_us=5 * 10**7)
    asked = worlds.with_alert_rules(rng, worlds.with_on(rng, worlds.with_borders(asked, STEP)))
    asked = worlds.with_ways(rng, worlds.with_buffers(rng, worlds.with_shapes(rng, asked)))
    asked = worlds.with_endings(rng, worlds.with_payloads(rng, asked))
    return without_initial(asked) if seed == IN_ORDER else asked


def without_initial(operations: pa.Table) -> pa.Table:
    """Where fixes are put in order, nobody can ask for it."""
    others = pc.replace_substring_regex(operations["notify"], r"^ *initial(,|$)", "")
    others = pc.if_else(pc.equal(others, ""), pa.scalar(None, pa.string()), others)
    return operations.set_column(operations.schema.get_field_index("notify"), "notify", others)


DEATHS = {
    2: (gs.sinks.Memory, "write"),
    3: (max_events, "write_reached"),
    4: (KeyedRun, "finish"),
    5: (Checkpoint, "finish"),
}
"""After what the process ends, in the batch with this number."""


def and_die(act: Any) -> Any:
    def last(*given: Any) -> None:
        act(*given)
        raise RuntimeError("the process ended")

    return last


IN_ORDER = 3
"""The world in which fixes are put in order, and ids of subscriptions are texts."""
REORDER_S = 8.0


def with_text_ids(operations: pa.Table) -> pa.Table:
    texts = pc.binary_join_element_wise("fence", operations["sub_id"].cast(pa.string()), " ")
    return operations.set_column(operations.schema.get_field_index("sub_id"), "sub_id", texts)


def with_numbers(alerts: pa.Table) -> pa.Table:
    numbers = pc.replace_substring(alerts["sub_id"], "fence ", "").cast(pa.int64())
    return alerts.set_column(alerts.schema.get_field_index("sub_id"), "sub_id", numbers)


@pytest.mark.parametrize("seed", range(4))
def test_subscriptions_end_as_brute_force_says(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told, oracle, reasons, counted = dict[int, pa.Table](), Oracle(worlds.BOUNDS), Counter[str](), 0
    kinds, times, world, reorder_s = Counter[str](), dict[int, int](), WORLD, 0.0
    if seed == IN_ORDER:
        world, reorder_s = WORLD.model_copy(update={"subscription_ids": "text"}), REORDER_S
    oracle.way_m_max, oracle.waiting.reorder_us = WAY_M_MAX, round(reorder_s * 1e6)
    oracle.following.sequence_us = round(TUNING.object_ttl_s * 1e6)
    for number in range(BATCHES):
        tables, storms = ([make(seed, k) for k in range(number + 1)] for make in (batch, storm))
        strategy = STRATEGIES[(number // 2 + seed) % len(STRATEGIES)]
        chosen = TUNING.model_copy(update={"strategy": strategy, "reorder_s": reorder_s})
        if seed == IN_ORDER:
            storms = [with_text_ids(each) for each in storms]
        for dies in [True, False] if number in DEATHS else [False]:
            sink, clock = gs.sinks.Memory(), partial(float, number * BATCH_S)
            if dies:
                place, name = DEATHS[number]
                monkeypatch.setattr(place, name, and_die(getattr(place, name)))
            with gs.LocalEngine(world, chosen, checkpoint=str(tmp_path), clock=clock) as engine:
                if number in (3, 6):
                    engine.scale(5 if number == 3 else 2)
                run = engine.start(events=tables, operations=storms, sink=sink, available_now=True)
                if dies:
                    with pytest.raises(RuntimeError, match="the process ended"):
                        run.wait()
                    monkeypatch.undo()
                else:
                    run.wait()
            for known, given in sink.batches.items():
                table = with_numbers(given) if seed == IN_ORDER else given
                assert told.setdefault(known, table).equals(table), "a batch that is run again gives the same rows"
        now_us, events = round(number * BATCH_S * 1e6), batch(seed, number)
        refused = oracle.operate(storm(seed, number), now_us)
        entry = [e for e in JournalReader(Storage(str(tmp_path))).read(BatchEntry) if e.batch == number][-1]
        assert refused == entry.operations_refused
        met = oracle.tell(events, now_us, int(number * BATCH_S // INTERVAL_S), OBJECT_INTERVALS)
        times |= dict(zip(events["event_id"].to_pylist(), events["ts"].cast(pa.int64()).to_pylist(), strict=True))
        want = oracle.endings.limit(met, times, oracle.users, oracle.payloads)
        counted += len(met) - len(want)
        assert sorted(alerts_of([told[number]])) == oracle.alerts(want)
        said = unprompted_of([told[number]])
        assert sorted(said, key=str) == sorted(oracle.unprompted, key=str)
        kinds.update(each.told.transition for each in said)
        ends = ends_of([told[number]])
        assert ends == oracle.endings.take()
        reasons.update(end.reason for end in ends)
    assert set(reasons) == {"expired", "cancelled", "max_events"}
    assert min(reasons.values()) > 0
    if seed == IN_ORDER:
        assert kinds["ended"] > 0 == kinds["initial"], f"{reasons} {kinds} {counted}"
    else:
        assert min(kinds["initial"], kinds["ended"]) > 2, f"{reasons} {kinds} {counted}"
    assert counted > 20, "some alerts are left out in the batch in which their subscription ends"


BOX = (0.0, 0.0, 2.0, 2.0)


def fixes(*numbers: int) -> pa.Table:
    """An event inside the box at each of these seconds."""
    return pa.table(
        {
            "event_id": pa.array(numbers, pa.int64()),
            "ts": pa.array(numbers, pa.timestamp("s", "UTC")),
            "x": np.ones(len(numbers)),
            "y": np.ones(len(numbers)),
            "object_id": ["van"] * len(numbers),
        }
    )


def seconds(alerts: pa.Table, sub: int) -> list[Any]:
    """The events of the alerts of a subscription; in place of an event that there is not, why it ended."""
    rows = [row for row in alerts.to_pylist() if row["sub_id"] == sub]
    return [row["ended_reason"] if row["event_id"] is None else row["event_id"] for row in rows]


def test_a_replace_counts_anew_and_the_id_is_free_after_the_end(tmp_path: Path) -> None:
    sink, tables = gs.sinks.Memory(), [fixes(0, 1), fixes(2, 3), fixes(4, 5)]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        for sub in (1, 2, 3):
            engine.subscribe(sub, BOX, max_events=3, notify="ended")
        for number in range(3):
            engine.start(events=tables[: number + 1], sink=sink, available_now=True).wait()
            if number == 0:
                engine.subscribe(2, BOX, max_events=3, replace=True)
            elif number == 1:
                assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == [1, 2, 3]
                engine.subscribe(1, BOX)
                engine.cancel(2)
        assert engine.status()["operations_refused"] == 0
        assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == [1]
    told = sink.table()
    assert seconds(told, 1) == [0, 1, 2, "max_events", 4, 5]
    assert seconds(told, 2) == [0, 1, 2, 3], "it asked for no end when it was replaced"
    assert seconds(told, 3) == [0, 1, 2, "max_events"]


def test_who_comes_again_before_the_next_batch_has_not_ended(tmp_path: Path) -> None:
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        for sub in (1, 2):
            engine.subscribe(sub, BOX, notify="ended")
        engine.start(events=[fixes(0)], sink=sink, available_now=True).wait()
        engine.cancel(1, 2)
        engine.subscribe(1, BOX, user="ana")
        engine.start(events=[fixes(0), fixes(1), fixes(2)], sink=sink, available_now=True).wait()
    assert seconds(sink.table(), 1) == [0, 1, 2]
    assert seconds(sink.table(), 2) == [0, "cancelled"]


@pytest.mark.parametrize("executors", [1, 3])
def test_of_events_that_were_sent_twice_no_more_count_than_may(tmp_path: Path, executors: int) -> None:
    sink, world = gs.sinks.Memory(), gs.Contract(columns=90, rows=45, executors=executors)
    twice = pa.concat_tables([fixes(1, 1, 0, 1, 2), fixes(1, 2)])
    names = pa.array(["van", "bus", "van", "van", "bus", None, None])
    twice = twice.set_column(4, "object_id", names)
    with gs.LocalEngine(world, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, max_events=3)
        engine.start(events=[twice], sink=sink, available_now=True).wait()
    assert sorted(seconds(sink.table(), 1)) == [0, 1, 1]


def drive(*places: tuple[float, str]) -> pa.Table:
    """An event a second, each at x = its number, of an object."""
    rows = fixes(*range(len(places)))
    rows = rows.set_column(2, "x", pa.array([float(x) for x, _ in places]))
    return rows.set_column(4, "object_id", pa.array([name for _, name in places]))


def lives(alerts: pa.Table, sub: int) -> list[tuple[Any, ...]]:
    """The object, the transition, the second since when, the number and the second of each alert."""
    rows = [row for row in alerts.to_pylist() if row["sub_id"] == sub]
    at = [(row["since"].timestamp(), row["sequence"], row["ts"].timestamp()) for row in rows]
    return [(row["object_id"], row["transition"], *times) for row, times in zip(rows, at, strict=True)]


def test_who_is_inside_when_a_subscription_begins_is_told_once_and_can_leave(tmp_path: Path) -> None:
    sink = gs.sinks.Memory()
    ways = drive((1, "van"), (9, "bus"), (1, "van"), (1, "bus"), (9, "van"), (1, "van"))
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.start(events=ways.slice(0, 2), sink=sink, available_now=True).wait()
        for sub, on in enumerate(("enter", "exit", "dwell(2)"), 1):
            engine.subscribe(sub, BOX, on=on, confirm="2 fixes", notify="initial")
        engine.subscribe(4, BOX, on="exit", objects=["bus"], notify="initial")
        parts = [ways.slice(0, 2), ways.slice(2, 1), ways.slice(3)]
        engine.start(events=parts[:2], sink=sink, available_now=True).wait()
        engine.subscribe(1, BOX, on="enter", notify="initial", replace=True)
        engine.start(events=parts, sink=sink, available_now=True).wait()
    told = sink.table()
    assert lives(told, 1) == [
        ("van", "initial", 0, 1, 0),
        ("bus", "enter", 3, 1, 3),
        ("van", "enter", 5, 2, 5),
    ], "a stay that a replace continues is not told again"
    assert lives(told, 2) == [("van", "initial", 0, 1, 0)], "one fix outside does not confirm an exit"
    assert lives(told, 3) == [("van", "initial", 0, 1, 0), ("van", "dwell", 0, 2, 2)]
    assert lives(told, 4) == []


def test_an_object_that_falls_silent_inside_has_ended_and_enters_anew(tmp_path: Path) -> None:
    sink, now_s = gs.sinks.Memory(), [0.0]
    ways = drive((1, "van"), (1, "bus"), (9, "bus"), (1, "van"), (1, "van"))
    tables = [ways.slice(0, 2), ways.slice(2, 1), ways.slice(3, 1), ways.slice(4)]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path), clock=lambda: now_s[0]) as engine:
        engine.subscribe(1, BOX, on="exit", notify="ended")
        engine.subscribe(2, BOX, on="enter", notify="ended")
        engine.subscribe(3, BOX, on="exit")
        engine.subscribe(4, BOX, notify="ended")
        for number in range(4):
            now_s[0] = number * TUNING.object_ttl_s * 0.7
            engine.start(events=tables[: number + 1], sink=sink, available_now=True).wait()
    told = sink.table()
    reasons = Counter(zip(told["sub_id"].to_pylist(), told["ended_reason"].to_pylist(), strict=True))
    assert {key: n for key, n in reasons.items() if key[1]} == {(1, "silent"): 1, (2, "silent"): 1}
    assert lives(told, 1) == [("bus", "exit", 1, 1, 2), ("van", "ended", 0, 1, 0)]
    assert lives(told, 2)[-2:] == [("van", "ended", 0, 2, 0), ("van", "enter", 3, 1, 3)]
    assert lives(told, 3) == [("bus", "exit", 1, 1, 2)]


def test_a_stage_is_given_the_alerts_of_events_with_columns_as_before(tmp_path: Path) -> None:
    sink, counted = gs.sinks.Memory(), gs.sinks.Memory()
    stage = gs.Stage(gs.operators.Count(key="transition"), counted, on="matches")
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, max_events=2, notify="ended")
        engine.start(events=fixes(0, 1, 2), sink=sink, stages=[stage], available_now=True).wait()
    assert seconds(sink.table(), 1) == [0, 1, "max_events"]
    assert [(row["key"], row["count"]) for row in counted.table().to_pylist()] == [("inside", 2)]


def test_a_stream_without_alerts_is_refused_and_refuses(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, notify="ended")
        with pytest.raises(SettingsError, match=r'have notify, and this stream gives arrays: .* matches = "alerts"'):
            engine.start(events=fixes(0), sink=gs.sinks.Memory(), available_now=True)
        engine.cancel(1)
        asked = operation_table([registration(2, BOX, max_events=5), registration(3, BOX, notify=["ended"])])
        engine.start(events=fixes(0), operations=asked, sink=gs.sinks.Memory(), available_now=True).wait()
        details = engine.dead_letters().to_pydict()
    assert sorted(details["reason"]) == ["max_events", "notify"]
    assert all("and the stream gives no alerts: set [tuning]" in detail for detail in details["detail"])


WRONG: dict[str, dict[str, Any]] = {
    "max_events = 0": {"max_events": 0},
    "max_events = 2000000000": {"max_events": 2_000_000_000},
    'max_events = 5` with `aggregate = "count"': {"max_events": 5, "aggregate": "count", "window": "tumbling(1 s)"},
    'max_events = 5` with `since = "1 hour"': {"max_events": 5, "since": "1 hour"},
    'notify = ""': {"notify": ""},
    'notify = "end"': {"notify": "end"},
    'notify = "ended,"': {"notify": "ended,"},
    'notify = "ended, ended"': {"notify": ["ended", "ended"]},
    'notify = "Ended"': {"notify": "Ended"},
    'notify = "initial"`, `on = "inside"': {"notify": "initial"},
    'notify = "initial"`, `on = "cross"': {"notify": "initial", "on": "cross"},
    'notify = "initial"` with `keywords = "flood"': {"notify": "initial", "on": "enter", "keywords": "flood"},
    'notify = "initial"` with `where = "speed > 80"': {"notify": "initial", "on": "enter", "where": "speed > 80"},
}


@pytest.mark.parametrize("shown", WRONG)
def test_what_cannot_be_used_is_refused_as_the_docs_say(tmp_path: Path, shown: str) -> None:
    running = (Path(__file__).parents[3] / "docs/running.md").read_text().split("### How a subscription ends")[1]
    says = next(line for line in running.splitlines() if line.startswith(f"| `{shown}`")).split(" | ")[1]
    tuning = TUNING.model_copy(update={"window": WindowSettings(keep="1 hour", marks_past=True)})
    with (
        gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine,
        pytest.raises(InputError, match=re.escape(says.removesuffix(" |"))),
    ):
        engine.subscribe(7, BOX, **WRONG[shown])


def test_alerts_of_a_subscription_are_sorted_with_those_without_an_event() -> None:
    rows = pa.record_batch(
        {
            "event_id": pa.array([2, None, 1, None], pa.int64()),
            "ts": pa.array([5, 5, 5, 5], pa.timestamp("us", "UTC")),
            "object_id": ["van", None, "van", "van"],
            "sub_id": pa.array([7, 7, 7, 7], pa.int64()),
        }
    )
    parcels = route_by("sub_id", 1)(0, iter([rows]))
    (table,) = in_order(rows.schema)(0, parcels)
    assert table["event_id"].to_pylist() == [None, 1, 2, None]
    assert table["object_id"].to_pylist() == ["van", "van", "van", None]
    assert table.schema == rows.schema


def test_who_has_had_its_most_and_expires_is_told_once(tmp_path: Path) -> None:
    sink, now_s = gs.sinks.Memory(), [0.0]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path), clock=lambda: now_s[0]) as engine:
        for sub in (1, 2):
            engine.subscribe(
                sub, BOX, max_events=1 + sub, notify="ended", expires=datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
            )
        engine.start(events=[fixes(0, 1)], sink=sink, available_now=True).wait()
        now_s[0] = 10.0
        engine.start(events=[fixes(0, 1), fixes(2), fixes(3)], sink=sink, available_now=True).wait()
    assert seconds(sink.table(), 1) == [0, 1, "max_events"]
    assert seconds(sink.table(), 2) == [0, 1, "expired"]


def lives_until_5_s() -> datetime:
    return datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def die_in(monkeypatch: pytest.MonkeyPatch, batch: int, run: Any) -> None:
    """Run a stream whose process ends in a batch, as in the world above."""
    place, name = DEATHS[batch]
    monkeypatch.setattr(place, name, and_die(getattr(place, name)))
    with pytest.raises(RuntimeError, match="the process ended"):
        run().wait()
    monkeypatch.undo()


def test_arrays_are_given_again_once_all_with_a_limit_have_expired(tmp_path: Path) -> None:
    sink, now_s, tables = gs.sinks.Memory(), [0.0], [fixes(0), fixes(1), fixes(2)]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path), clock=lambda: now_s[0]) as engine:
        engine.subscribe(1, BOX, max_events=5, expires=lives_until_5_s())
        engine.subscribe(2, BOX)
        for number in (1, 2):
            engine.start(events=tables[:number], sink=sink, available_now=True).wait()
            now_s[0] = 10.0
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path), clock=lambda: 20.0) as engine:
        engine.start(events=tables, sink=sink, available_now=True).wait()
    assert sink.batches[2]["sub_ids"].to_pylist() == [[2]]


def test_a_batch_of_alerts_that_failed_is_run_again_as_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, max_events=5)
        engine.subscribe(2, BOX)
        die_in(monkeypatch, 2, lambda: engine.start(events=[fixes(0)], sink=sink, available_now=True))
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.cancel(1)
        engine.start(events=[fixes(0), fixes(1)], sink=sink, available_now=True).wait()
    assert [sink.batches[batch]["sub_ids"].to_pylist() for batch in (0, 1)] == [[[1, 2]], [[2]]]


def test_a_subscription_goes_on_if_its_batch_has_fewer_alerts_when_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(metres: float, *numbers: int) -> pa.Table:
        return fixes(*numbers).append_column("accuracy_m", pa.array([metres] * len(numbers)))

    sink, tables = gs.sinks.Memory(), [measured(50.0, 0), measured(5.0, 1)]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, on="enter", max_events=1)
        die_in(monkeypatch, 3, lambda: engine.start(events=tables[:1], sink=gs.sinks.Memory(), available_now=True))
    exact = TUNING.model_copy(update={"accuracy_max_m": 30.0})
    with gs.LocalEngine(WORLD, exact, checkpoint=str(tmp_path)) as engine:
        engine.start(events=tables, sink=sink, available_now=True).wait()
    assert seconds(sink.table(), 1) == [1]


def test_events_may_have_a_column_ended_reason_where_matches_are_no_alerts(tmp_path: Path) -> None:
    counted, events = gs.sinks.Memory(), fixes(0, 1).append_column("ended_reason", pa.array(["a", "b"]))
    stage = gs.Stage(gs.operators.Count(key="user"), counted, on="matches")
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, user="ana")
        engine.start(events=events, sink=gs.sinks.Memory(), stages=[stage], available_now=True).wait()
    assert [(row["key"], row["count"]) for row in counted.table().to_pylist()] == [("ana", 2)]


def test_an_operator_cannot_have_the_name_of_the_state_of_limits(tmp_path: Path) -> None:
    stage = gs.Stage(gs.operators.Count(key="object_id", name="max-events"), gs.sinks.Memory())
    with (
        gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine,
        pytest.raises(SettingsError, match="operators named max-events are there already"),
    ):
        engine.start(events=fixes(0), sink=gs.sinks.Memory(), stages=[stage], available_now=True)


@pytest.mark.parametrize("dies", [False, True])
def test_an_end_that_no_batch_has_told_needs_a_batch_of_alerts(
    tmp_path: Path, dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, tables = gs.sinks.Memory(), [fixes(0), fixes(1), fixes(2)]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, notify="ended")
        engine.start(events=tables[:1], sink=sink, available_now=True).wait()
        engine.cancel(1)
        if dies:
            die_in(monkeypatch, 2, lambda: engine.start(events=tables[:2], sink=sink, available_now=True))
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(2, BOX)
        with pytest.raises(SettingsError, match=r"are to be told so \(notify\), and this stream gives arrays"):
            engine.start(events=tables[:2], sink=sink, available_now=True)
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.start(events=tables[:2], sink=sink, available_now=True).wait()
    assert seconds(sink.table(), 1) == [0, "cancelled"]
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.start(events=tables, sink=sink, available_now=True).wait()
    assert sink.batches[2]["sub_ids"].to_pylist() == [[2]]


def test_who_is_registered_anew_without_initial_is_not_told_for_who_expired_before(tmp_path: Path) -> None:
    sink, now_s, tables = gs.sinks.Memory(), [0.0], [drive((1, "van")), drive((1, "bus"))]
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path), clock=lambda: now_s[0]) as engine:
        engine.start(events=tables[:1], sink=sink, available_now=True).wait()
        engine.subscribe(1, BOX, on="enter", notify="initial", expires=lives_until_5_s())
        now_s[0] = 10.0
        engine.subscribe(1, BOX, on="enter")
        engine.subscribe(2, BOX, on="enter", notify="initial")
        engine.start(events=tables, sink=sink, available_now=True).wait()
    told = sink.table()
    assert [transition for _, transition, *_ in lives(told, 1)] == ["enter"]
    assert sorted(transition for _, transition, *_ in lives(told, 2)) == ["enter", "initial"]


def test_who_was_in_no_batch_has_not_ended(tmp_path: Path) -> None:
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, TUNING, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, BOX, notify="ended")
        engine.cancel(1)
        engine.subscribe(2, BOX, notify="ended")
        engine.start(events=[fixes(0)], sink=sink, available_now=True).wait()
        engine.cancel(2)
        engine.subscribe(3, BOX, notify="ended")
        engine.cancel(3)
        engine.start(events=[fixes(0), fixes(1)], sink=sink, available_now=True).wait()
    assert [seconds(sink.table(), sub) for sub in (1, 2, 3)] == [[], [0, "cancelled"], []]
