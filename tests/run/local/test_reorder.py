"""Fixes of objects that arrive out of order, within a watermark, give the transitions of the stream in order."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import FencedOut, SchemaError, SettingsError, StateError, StreamError
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.run.held_fixes import HeldRun
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.oracle.outputs import Alert, alerts_of, pairs_of
from geoswarm.service.cli.run_view import status_table
from geoswarm.service.watch import status as checkpoint_status
from geoswarm.store.held_fixes import HeldFixes
from geoswarm.store.keyed_state import KeyedState
from geoswarm.store.storage import Storage

WORLD = gs.Contract(columns=90, rows=45, executors=3)
BOX = (0.0, 0.0, 2.0, 2.0)


def fixes(*rows: tuple[int, int, float], who: str = "a", **columns: Any) -> pa.Table:
    """Events of one object on a line: their id, second and x."""
    ids, seconds, x = zip(*rows, strict=True)
    times = pa.array(seconds, pa.int64()).cast(pa.timestamp("s", "UTC"))
    return pa.table(
        {"event_id": ids, "ts": times, "x": x, "y": [1.0] * len(rows), "object_id": [who] * len(rows)}
        | {name: [value] * len(rows) for name, value in columns.items()}
    )


def start(
    folder: Path, batches: list[pa.Table], *, on: tuple[str, ...] = ("enter", "exit"), **tuning: Any
) -> tuple[list[list[tuple[int, int]]], dict[str, Any]]:
    """The pairs that each batch of a new engine gives, and the status after them. The first start subscribes."""
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, gs.Tuning(**{"reorder_s": 10.0} | tuning), checkpoint=str(folder)) as engine:
        if not engine.status()["subscriptions"]:
            for number, each in enumerate(on):
                engine.subscribe(number, BOX, on=each)
        engine.start(events=batches, sink=sink, available_now=True).wait()
        return [sorted(pairs_of([table])) for _, table in sorted(sink.batches.items())], engine.status()


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_that_is_shuffled_within_the_time_gives_what_it_gives_in_order(tmp_path: Path, seed: int) -> None:
    rng, last_us = np.random.default_rng(seed), 200_000_000
    walks = worlds.border_walks(rng, 600, step=5.0, objects=9)
    ts_us = np.sort(rng.integers(0, last_us, len(walks)) // 500_000 * 500_000)
    in_order = walks.set_column(1, "ts", pa.array(ts_us, pa.timestamp("us", "UTC")))
    shuffled = in_order.take(np.argsort(ts_us + rng.uniform(0, 20_000_000, len(walks)), kind="stable"))
    ends = [fixes((10_000 + k, 1000 * k, -50.0), who="b").to_pylist()[0] | {"object_id": 99} for k in (1, 2)]
    asked = worlds.with_alert_rules(
        rng, worlds.with_on(rng, worlds.operations(rng, 200, ids=160, now_us=3 * 10**9, near=20.0, lasts_us=10**9))
    )
    asked = worlds.with_ways(rng, worlds.with_buffers(rng, worlds.with_borders(asked, 5.0)))

    def play(name: str, events: pa.Table, reorder_s: float) -> tuple[list[Alert], int]:
        batches = [events.slice(k, 100) for k in range(0, len(events), 100)]
        batches += [pa.Table.from_pylist([end], schema=events.schema) for end in ends]
        tuning = gs.Tuning(matches="alerts", reorder_s=reorder_s, cross_way_m_max=1e7, object_ttl_s=1e6)
        sink = gs.sinks.Memory()
        clock = partial(float, 3000.0)
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path / name), clock=clock) as engine:
            engine.start(events=batches, operations=[asked], sink=sink, available_now=True).wait()
            return sorted(alerts_of([sink.table()])), engine.status()["late_fixes"]

    want, none_late = play("in-order", in_order, 0.0)
    got, late = play("reordered", shuffled, 20.0)
    as_they_come, too_late = play("as-they-come", shuffled, 0.0)
    assert (got, late, none_late) == (want, 0, 0)
    kinds = [said.transition for _, said, _, _ in want]
    assert min(map(kinds.count, ("enter", "exit", "cross"))) > 1
    assert too_late > 20
    assert as_they_come != want


def test_a_fix_waits_until_the_watermark_has_passed_it(tmp_path: Path) -> None:
    batches = [fixes((1, 0, -1.0), (2, 20, 1.0)), fixes((3, 12, 1.0)), fixes((4, 31, 1.0)), fixes((5, 33, -1.0))]
    told, status = start(tmp_path, batches)
    assert told == [[], [], [], [(3, 0)]]  # the one of second 12, which came after that of second 20
    assert (status["late_fixes"], status["last_batch"]["held_fixes"]) == (0, 2)


def test_a_fix_older_than_the_watermark_is_late_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batches = [fixes((1, 0, -1.0), (2, 20, -1.0)), fixes((3, 9, 1.0), (4, 10, 1.0)), fixes((5, 60, 1.0))]
    with caplog.at_level(logging.WARNING):
        told, status = start(tmp_path, [*batches, fixes((6, 90, 1.0))], on=("enter", "exit", "inside"))
    assert told == [[], [(3, 2), (4, 2)], [(5, 2)], [(2, 1), (4, 0), (6, 2)]]
    assert status["late_fixes"] == 1
    assert "reorder_s = 11 would have been enough so far" in caplog.text
    names, values = status_table(checkpoint_status(str(tmp_path))).columns
    shown = dict(zip(names.cells, values.cells, strict=True))
    late = "1 events of objects came too late, 0 were ahead of the clock, 2 are held back (reorder_s)"
    assert shown["order of events"] == late


def test_fixes_go_on_when_their_object_sends_nothing_more(tmp_path: Path) -> None:
    others = [fixes((k, 10 * k, -1.0), who="b") for k in range(2, 5)]
    told, _ = start(tmp_path, [fixes((0, 0, -1.0), (1, 1, 1.0)), *others])
    assert told == [[], [], [(1, 0)], []]


def test_fixes_are_held_over_the_end_of_a_stream(tmp_path: Path) -> None:
    batches = [fixes((1, 0, -1.0), (2, 1, 1.0)), fixes((3, 60, 1.0)), fixes((4, 61, -1.0))]
    assert start(tmp_path, batches[:1])[0] == [[]]
    told, status = start(tmp_path, batches[:2])
    assert (told, status["last_batch"]["held_fixes"]) == ([[]], 3)
    assert start(tmp_path, batches)[0] == [[(2, 0)]]


def test_with_reorder_s_of_0_all_that_is_held_goes_on(tmp_path: Path) -> None:
    batches = [fixes((1, 0, -1.0), (3, 5, -1.0), (2, 1, 1.0)), fixes((4, 6, 1.0)), fixes((5, 5, -1.0))]
    assert start(tmp_path, batches[:1])[0] == [[]]
    told, status = start(tmp_path, batches, reorder_s=0.0)
    assert told == [[(2, 0), (3, 1), (4, 0)], []]
    assert (status["late_fixes"], status["last_batch"]["held_fixes"]) == (1, 0)


def test_what_is_held_is_dropped_when_nobody_follows_objects(tmp_path: Path) -> None:
    batches = [fixes((1, 0, -1.0), (2, 1, 1.0)), fixes((3, 60, 1.0)), fixes((4, 90, -1.0)), fixes((5, 120, -1.0))]
    assert start(tmp_path, batches[:1])[1]["last_batch"]["held_fixes"] == 2
    nameless = [batch.drop_columns(["object_id"]) for batch in batches[:2]]
    assert start(tmp_path, nameless, reorder_s=0.0)[1]["last_batch"]["held_fixes"] == 0
    told, status = start(tmp_path, batches)
    assert (told, status["last_batch"]["held_fixes"]) == ([[], []], 2)


def test_a_wrong_clock_makes_nothing_late(tmp_path: Path) -> None:
    """The clock of the engine is that of today, and `ahead_s` a minute."""
    in_50_years = 60 * 365 * 86_400 + 1_600_000_000
    batches = [fixes((1, 0, -1.0)), fixes((2, in_50_years, 1.0)), fixes((3, 20, 1.0)), fixes((4, 40, -1.0))]
    told, status = start(tmp_path, [*batches, fixes((5, 60, -1.0))])
    assert told == [[], [], [], [], [(3, 0)]]
    assert (status["late_fixes"], status["ahead_fixes"]) == (0, 1)


def test_more_held_bytes_than_the_limit_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = fixes(*((k, k % 7, -1.0) for k in range(6000)), note="x" * 200)
    batches = [many, fixes((10_000, 3, 1.0), (10_001, 7, 1.0), note="y"), fixes((10_002, 8, 1.0), note="y")]
    with caplog.at_level(logging.WARNING):
        told, status = start(tmp_path, batches, reorder_s=1000.0, reorder_bytes_max=1 << 20)
    assert told == [[], [], []]
    assert (status["late_fixes"], status["last_batch"]["held_fixes"]) == (1, 2)
    assert "and reorder_bytes_max is 1048576: they go on now" in caplog.text


def test_matches_on_inside_go_out_at_once_and_once(tmp_path: Path) -> None:
    batches = [fixes((1, 0, 1.0)), fixes((2, 30, 1.0)), fixes((3, 60, -1.0)), fixes((4, 90, -1.0))]
    told, _ = start(tmp_path, batches, on=("inside", "enter", "exit"))
    assert told == [[(1, 0)], [(2, 0)], [(1, 1)], []]


def test_the_rows_of_an_object_go_out_in_order_within_a_batch(tmp_path: Path) -> None:
    """Those of older fixes first, then those on inside."""
    sink = gs.sinks.Memory()
    batches = [fixes((0, 0, 1.0)), fixes((1, 30, -1.0)), fixes((4, 33, 1.0), (2, 31, 1.0), (3, 32, 1.0))]
    with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=10.0), checkpoint=str(tmp_path)) as engine:
        engine.subscribe(0, BOX)
        engine.subscribe(1, BOX, on="enter")
        engine.start(events=batches, sink=sink, available_now=True).wait()
    assert [table["event_id"].to_pylist() for _, table in sorted(sink.batches.items())] == [[0], [], [0, 2, 3, 4]]


def test_a_fix_is_about_the_subscriptions_of_its_arrival(tmp_path: Path) -> None:
    """Who registers later did not meet it; who is cancelled is told no more; who was on inside had it already."""
    sink = gs.sinks.Memory()
    batches = [fixes((k, 10 * k, 1.0)) for k in range(5)]
    storms: list[list[dict[str, Any]]] = [
        [{"sub_id": 1, "on": "enter"}, {"sub_id": 2, "on": "enter"}, {"sub_id": 3}],
        [{"sub_id": 4, "on": "enter"}, {"sub_id": 2, "op": "cancel"}, {"sub_id": 3, "op": "replace", "on": "enter"}],
    ]
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), BOX, strict=True))
    with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=15.0), checkpoint=str(tmp_path)) as engine:
        tables = [pa.Table.from_pylist([{"op": "register"} | sides | row for row in rows]) for rows in storms]
        engine.start(events=batches, operations=tables, sink=sink, available_now=True).wait()
    assert sorted(pairs_of([sink.table()])) == [(0, 1), (0, 3), (1, 3), (1, 4)]


def test_a_crash_between_the_two_commits_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [fixes((k, 7 * k, float(k % 3) - 0.5), (100 + k, 7 * k - 5, 1.0)) for k in range(8)]
    want, _ = start(tmp_path / "whole", batches)
    told, whole = list[list[tuple[int, int]]](), HeldFixes.commit
    for number in range(len(batches)):
        with monkeypatch.context() as patch:
            patch.setattr(HeldFixes, "commit", _dies)
            with pytest.raises(RuntimeError, match="the process ended"):
                start(tmp_path / "killed", batches[: number + 1])
        assert HeldFixes.commit is whole
        told += start(tmp_path / "killed", batches[: number + 1])[0]
    assert told == want
    assert sum(map(len, want)) > 4


def _dies(self: object, *given: object) -> None:
    raise RuntimeError("the process ended")


@pytest.mark.parametrize("crashed", [3, 0])
@pytest.mark.parametrize(("first_s", "then_s"), [(10.0, 0.0), (0.0, 30.0), (10.0, 30.0)])
def test_a_batch_that_is_run_again_keeps_its_reorder_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_s: float, then_s: float, crashed: int
) -> None:
    """The sink has it already, so another time may hold back no other fixes in it than were held back."""
    batches = [fixes((k, 7 * k, float(k % 3) - 0.5), (100 + k, 7 * k - 5, 1.0)) for k in range(6)]
    batches.append(fixes((99, 500, -50.0), who="b"))

    def play(name: str, reorder_s: float, count: int) -> pa.Table:
        sink = gs.sinks.Parquet(str(tmp_path / f"{name}-rows"), roll_s=0)
        with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=reorder_s), checkpoint=str(tmp_path / name)) as engine:
            if not engine.status()["subscriptions"]:
                engine.subscribe(0, BOX, on="enter")
                engine.subscribe(1, BOX, on="exit")
            engine.start(events=batches[:count], sink=sink, available_now=True).wait()
        return sink.read()

    play("whole", first_s, crashed + 1)
    if crashed:
        play("killed", first_s, crashed)
    with monkeypatch.context() as patch:
        patch.setattr(KeyedRun, "finish", _dies)
        with pytest.raises(RuntimeError, match="the process ended"):
            play("killed", first_s, crashed + 1)
    want, got = (sorted(pairs_of([play(name, then_s, len(batches))])) for name in ("whole", "killed"))
    assert got == want
    assert len(want) > 2


def test_a_lost_report_of_what_is_held_stops_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        pa.concat_tables([fixes((10 * k + n, 20 * k, 2.0 * (k % 2) - 1.0), who=f"van {n}") for n in range(9)])
        for k in range(4)
    ]
    want, _ = start(tmp_path / "whole", batches)
    assert len(want[3]) == 9
    told, _ = start(tmp_path / "lost", batches[:2])

    def report(self: HeldFixes, attempt: str, stage: str, number: int, counted: Any) -> None:
        if number != 1:
            KeyedState.report(self, attempt, stage, number, counted)

    with monkeypatch.context() as patch:
        patch.setattr(HeldFixes, "report", report)
        with pytest.raises(StreamError, match="batch 2: 3 executors have worked, and 2 have reported"):
            start(tmp_path / "lost", batches[:3])
    assert told + start(tmp_path / "lost", batches)[0] == want


def test_an_engine_that_was_replaced_removes_no_reports(tmp_path: Path) -> None:
    def check() -> None:
        raise FencedOut("another engine has taken over")

    storage = Storage(str(tmp_path))
    held = HeldFixes(storage)
    held.report("of-another", "work", 0, KeyedReport())
    run = HeldRun(storage, gs.Tuning(reorder_s=10.0), check)
    with pytest.raises(FencedOut):
        run.begin(0, 0, None)
    assert held.reports("of-another")["work"]


def test_without_reorder_s_only_the_first_batch_looks_for_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [fixes((k, k, 1.0)) for k in range(5)]
    start(tmp_path, batches[:1])
    start(tmp_path, batches[:2], reorder_s=0.0)
    looked, before = list[int](), HeldFixes.before

    def look(self: HeldFixes, batch: int) -> Any:
        looked.append(batch)
        return before(self, batch)

    monkeypatch.setattr(HeldFixes, "before", look)
    start(tmp_path, batches, reorder_s=0.0)
    assert looked == [2]


WAITS = "some subscriptions wait to be told who is inside"


def test_who_is_inside_already_is_not_told_where_fixes_are_put_in_order(tmp_path: Path) -> None:
    batches = [fixes((k, 60 * k, 1.0), (50 + k, 60 * k + 1, 1.0)) for k in range(5)]
    tuning = gs.Tuning(matches="alerts", reorder_s=10.0)
    later = tuning.model_copy(update={"reorder_s": 0.0})
    storms = [operation_table([registration(7, BOX, on="exit", notify="initial")])] * 3
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine:
        engine.start(events=batches[:1], operations=storms[:1], sink=gs.sinks.Noop(), available_now=True).wait()
        (letter,) = engine.dead_letters().to_pylist()
        engine.subscribe(8, BOX, on="exit", notify="initial")
        with pytest.raises(SettingsError, match=f"{WAITS} .*, and events are put in order"):
            engine.start(events=batches, sink=gs.sinks.Noop(), available_now=True)
    says = "notify of subscription 7 is 'initial', and events are put in order (reorder_s), in which who is inside is "
    says += "known later: leave initial out, or set reorder_s = 0"
    assert (letter["reason"], letter["detail"]) == ("notify", says)
    with gs.LocalEngine(WORLD, later, checkpoint=str(tmp_path)) as engine:
        with pytest.raises(SettingsError, match=f"{WAITS} .* held back .reorder_s. go on first"):
            engine.start(events=batches, sink=gs.sinks.Noop(), available_now=True)
        engine.cancel(8)
        engine.start(events=batches[:3], operations=storms, sink=gs.sinks.Noop(), available_now=True).wait()
        assert len(engine.dead_letters()) == 2, "the first batch hands on what was held, the second one nothing"
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine:
        engine.start(events=batches, operations=storms, sink=sink, available_now=True).wait()
    assert not len(sink.table()), "it was told before, and the object has not left"


def test_many_small_files_become_few(tmp_path: Path) -> None:
    batches = [fixes((k, k, 1.0 - 2.0 * (k // 2 % 2))) for k in range(40)]
    told, status = start(tmp_path, batches, reorder_s=30.0)
    assert [len(pairs) for pairs in told] == [0] * 32 + [1, 0] * 4
    assert status["last_batch"]["held_fixes"] == 32
    with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=30.0), checkpoint=str(tmp_path)) as engine:
        held = HeldFixes(engine._checkpoint.storage)
        files = held.after(held.newest_batch() or 0).files
    assert len(files) < 20
    assert sum(file.rows for file in files) >= 32


def test_columns_may_come_and_go_while_fixes_are_held(tmp_path: Path) -> None:
    batches = [fixes((1, 0, -1.0), (2, 1, 1.0), old=7, wide=1)]
    start(tmp_path, batches)
    later = [*batches, fixes((3, 60, 1.0), new="x", wide=1.5), fixes((4, 61, 1.0), new="x", wide=1.5)]
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=10.0), checkpoint=str(tmp_path)) as engine:
        table = [later[0].drop_columns(["old"]).append_column("new", pa.array(["x", "x"])), *later[1:]]
        table[0] = table[0].set_column(5, "wide", pa.array([1.0, 1.0]))
        engine.start(events=table, sink=sink, available_now=True).wait()
    (row,) = sink.table().to_pylist()
    assert (row["event_id"], row["new"], row["wide"], "old" in row) == (2, None, 1.0, False)


def test_a_column_of_another_type_is_refused_with_what_to_do(tmp_path: Path) -> None:
    start(tmp_path, [fixes((1, 0, -1.0), tag="seven")])
    with pytest.raises(StateError, match=r"held back whose column tag is string, and events have int64 now"):
        start(tmp_path, [fixes((1, 0, -1.0), tag=7), fixes((2, 60, 1.0), tag=7), fixes((3, 90, 1.0), tag=7)])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"reorder_s": -1.0}, "greater than or equal to 0"),
        ({"reorder_s": 86_401.0}, "less than or equal to 86400"),
        ({"reorder_s": float("nan")}, "less than or equal to 86400"),
        ({"reorder_s": float("inf")}, "less than or equal to 86400"),
        ({"reorder_s": "30 s"}, "valid number"),
        ({"reorder_bytes_max": 1000}, "greater than or equal to 1048576"),
    ],
)
def test_settings_that_cannot_be_are_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        gs.Tuning(**said)


def test_fixes_need_objects(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, gs.Tuning(reorder_s=5.0), checkpoint=str(tmp_path)) as engine:
        with pytest.raises(SchemaError, match="reorder_s is set and events have no column object_id"):
            engine.start(events=fixes((1, 0, 1.0)).drop_columns(["object_id"]), sink=gs.sinks.Noop())
        count = type("Own", (), {"name": "held-fixes"})
        with pytest.raises(SettingsError, match="operators named held-fixes are there already"):
            engine.start(
                events=fixes((1, 0, 1.0)),
                sink=gs.sinks.Noop(),
                stages=[gs.Stage(count(), gs.sinks.Noop())],
            )
