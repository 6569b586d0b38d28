"""Each rule of docs/aggregates.md by hand: what the oracle answers, to which everything else is compared."""

from typing import Any

import pyarrow as pa
import pytest

from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.aggregates import AggregateOracle
from geoswarm.run.oracle.oracle import Oracle

NOON_S = 1_800_000_000  # a multiple of a minute
LATENESS_S, AHEAD_S = 10, 60


class Stream:
    """Batches by hand: operations as rows, events as (second after noon, value, kind)."""

    def __init__(self) -> None:
        self.oracle = Oracle((-180.0, -90.0, 180.0, 90.0))
        self.counted = AggregateOracle(self.oracle, LATENESS_S * 1_000_000, AHEAD_S * 1_000_000)
        self.clock_s, self._events = NOON_S + 1000.0, 0

    def batch(self, *events: tuple[float, Any, str | None], ops: list[dict[str, Any]] | None = None) -> list[Any]:
        now_us = int(self.clock_s * 1e6)
        assert self.oracle.operate(operation_table(ops or []), now_us) == 0
        ids = range(self._events, self._events + len(events))
        self._events += len(events)
        ts = pa.array([int((NOON_S + at) * 1e6) for at, _, _ in events], pa.int64()).cast(TIMESTAMP)
        values, kinds = [value for _, value, _ in events], [kind for _, _, kind in events]
        table = pa.table({"event_id": list(ids), "ts": ts, "v": values, "kind": pa.array(kinds, pa.string())})
        for axis in ("x", "y"):
            table = table.append_column(axis, pa.array([0.5] * len(events), pa.float64()))
        rows = self.counted.run(table, now_us)
        return sorted((self._shown(row) for row in rows), key=str)

    def _shown(self, row: dict[str, Any]) -> tuple[Any, ...]:
        start, end = (row[name] / 1e6 - NOON_S for name in ("window_start", "window_end"))
        return row["sub_id"], row["group"], start, end, row["count"], row["top"] or row["value"]


def put(sub_id: int = 1, *, replace: bool = False, **said: Any) -> dict[str, Any]:
    return registration(sub_id, (0.0, 0.0, 1.0, 1.0), replace=replace, **said)


def at(*seconds: float) -> list[tuple[float, Any, str | None]]:
    return [(second, 1.0, "a") for second in seconds]


def tumbling(aggregate: str = "count", **said: Any) -> dict[str, Any]:
    return put(aggregate=aggregate, window="tumbling(60 s)", **said)


def test_a_window_is_given_once_when_the_watermark_of_a_later_batch_has_passed_it() -> None:
    stream = Stream()
    assert stream.batch(*at(1, 59.999, 60, 69), ops=[tumbling()]) == []  # its own events move nothing yet
    assert stream.batch(*at(70)) == []  # the watermark is 69 - 10
    assert stream.batch(*at(5)) == [(1, None, 0, 60, 2, 2.0)]  # and now 60: the event at 5 is late
    assert stream.counted.late == 1
    assert stream.batch(*at(200)) == []
    assert stream.batch() == [(1, None, 60, 120, 3, 3.0)]


def test_an_event_counts_in_every_sliding_window_that_is_still_open() -> None:
    stream = Stream()
    ops = [put(aggregate="count", window="sliding(60 s, 20 s)")]
    assert stream.batch(*at(65), ops=ops) == []
    assert stream.batch(*at(99)) == []  # watermark 55
    assert stream.batch(*at(61, 100)) == [(1, None, 20, 80, 1, 1.0)]  # watermark 89: 61 is late for it
    assert stream.counted.late == 1
    stream.batch(*at(500))
    assert [row[2:5] for row in stream.batch()] == [(100, 160, 1), (40, 100, 3), (60, 120, 4), (80, 140, 2)]


def test_the_watermark_never_goes_back_and_no_event_from_afar_moves_it() -> None:
    stream = Stream()
    stream.clock_s = NOON_S + 100.0
    stream.batch(*at(30, 160.5), ops=[tumbling()])  # 100 + 60 is as far ahead as is believed
    assert stream.counted.watermark_us == int((NOON_S + 20) * 1e6)
    assert stream.counted.ahead == 1
    stream.batch(*at(10))
    assert stream.counted.watermark_us == int((NOON_S + 20) * 1e6)
    stream.batch(*at(160))
    assert stream.batch() == [(1, None, 0, 60, 2, 2.0)]


def test_a_window_of_count_is_full_after_so_many_events_in_the_order_of_batch_time_and_id() -> None:
    stream = Stream()
    ops = [put(aggregate="sum(v)", window="count(3)")]
    first = [(50.0, 1.0, None), (40.0, 2.0, None)]
    assert stream.batch(*first, ops=ops) == []
    second = [(9.0, 8.0, None), (3.0, 4.0, None), (9.0, 16.0, None)]
    assert stream.batch(*second) == [(1, None, 3, 50, 3, 7.0)]  # never late, in whichever order they come
    assert stream.batch((0.0, 32.0, None)) == [(1, None, 0, 9, 3, 56.0)]
    assert stream.counted.late == 0


def test_a_session_ends_where_no_event_follows_within_the_gap() -> None:
    stream = Stream()
    ops = [put(aggregate="count", window="session(30 s)")]
    stream.batch(*at(0, 60, 29.999), ops=ops)  # 60 is 30.001 after 29.999: another session
    assert stream.batch(*at(45)) == []  # watermark 50; less than the gap after 29.999 and before 60: one session
    stream.batch(*at(100))
    assert stream.batch(*at(60, 60.5)) == [(1, None, 0, 90, 4, 4.0)]  # watermark 90: the one at 60 is late
    assert stream.counted.late == 1
    stream.batch(*at(400))
    assert stream.batch() == [(1, None, 100, 130, 1, 1.0), (1, None, 60.5, 90.5, 1, 1.0)]


def test_a_gap_of_exactly_the_gap_divides_sessions() -> None:
    stream = Stream()
    stream.batch(*at(0, 30), ops=[put(aggregate="count", window="session(30 s)")])
    stream.batch(*at(500))
    assert [row[2:5] for row in stream.batch()] == [(0, 30, 1), (30, 60, 1)]


def test_null_is_a_group_of_its_own_and_null_values_are_skipped() -> None:
    stream = Stream()
    ops = [tumbling("avg(v)", group_by="kind")]
    stream.batch((1.0, 2.0, "a"), (2.0, None, "a"), (3.0, 5.0, None), (4.0, None, "b"), ops=ops)
    stream.batch(*at(500))
    want = [(1, "a", 0, 60, 2, 2.0), (1, "b", 0, 60, 1, None), (1, None, 0, 60, 1, 5.0)]
    assert stream.batch() == sorted(want, key=str)


def test_cancel_and_expiry_drop_open_windows_without_a_row() -> None:
    stream = Stream()
    stream.batch(*at(1), ops=[tumbling(), put(2, aggregate="count", window="tumbling(60 s)")])
    stream.batch(*at(500), ops=[{"op": "cancel", "sub_id": 1}])
    assert [row[0] for row in stream.batch()] == [2]


@pytest.mark.parametrize(
    ("ops", "counted"),
    [
        ([tumbling(replace=True)], 2),
        ([tumbling(replace=True, keywords=None, user="ana", when="count < 9")], 2),
        ([tumbling(replace=True, group_by="kind")], 1),
        ([tumbling("sum(v)", replace=True)], 1),
        ([tumbling("sum(v)", replace=True), tumbling(replace=True)], 1),
        ([{"op": "cancel", "sub_id": 1}, tumbling()], 1),
        ([put(replace=True), tumbling(replace=True)], 1),
    ],
)
def test_a_replace_goes_on_counting_only_what_it_counted_before(ops: list[dict[str, Any]], counted: int) -> None:
    stream = Stream()
    stream.batch(*at(1), ops=[tumbling()])
    stream.batch(*at(2), ops=ops)
    stream.batch(*at(500))
    assert [row[4] for row in stream.batch()] == [counted]


def test_the_condition_in_force_at_the_close_decides() -> None:
    stream = Stream()
    stream.batch(*at(1, 2), ops=[tumbling(when="count > 5")])
    stream.batch(*at(500))
    assert [row[4] for row in stream.batch(ops=[tumbling(replace=True, when="count > 1")])] == [2]
    stream.batch(*at(900))
    assert stream.batch() == []  # one event only


def test_only_events_that_meet_the_live_subscription_count() -> None:
    stream = Stream()
    stream.batch(*at(1))
    stream.batch(*at(2), ops=[tumbling()])
    counts = {"aggregate": "count", "window": "tumbling(60 s)"}
    stream.batch(*at(500), ops=[registration(1, (5.0, 5.0, 6.0, 6.0), replace=True, **counts)])
    assert [row[4] for row in stream.batch()] == [1]
    assert stream.counted.windows_open() == 0


def test_a_top_is_a_list_and_a_column_that_does_not_fit_is_null() -> None:
    stream = Stream()
    others = [
        put(2, aggregate="sum(kind)", window="tumbling(60 s)"),
        put(3, aggregate="max(missing)", window="tumbling(60 s)", group_by="missing"),
    ]
    stream.batch((1.0, 1.0, "a"), (2.0, 1.0, "b"), (3.0, 1.0, "b"), ops=[tumbling("top(kind, 1)"), *others])
    stream.batch(*at(500))
    assert [row[4:] for row in stream.batch()] == [(3, [("b", 2)]), (3, None), (3, None)]
