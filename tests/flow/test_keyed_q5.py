"""TPC-H Q5 as a continuous query: at the end of each interval, what the SQL says of the window, whatever happens."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.q5 import Q5Join, Q5Totals, nations_of
from geoswarm.lab.workload.tpch import ARRIVAL, FixedTables, Tpch
from geoswarm.run.oracle.q5 import q5
from keyed_harness import Batch, KeyedWorld, moments

ASIA = 2
STATIC = FixedTables(
    np.array([-1, 0, 1, 2, 3, 0, 1, 2, 3]),
    np.array([-1, 0, 1, 2, 3, 1]),
    ("A", "B", "C", "D"),
    np.array([2, 2, 1, 2]),
    (),
)


def join(window: int, static: FixedTables = STATIC, early: bool = True) -> Q5Join:
    nations = np.flatnonzero(static.nation_region == ASIA).tolist()
    return Q5Join(static.customer_nation, static.supplier_nation, nations, window, early=early)


def random_rows(rng: np.random.Generator, orders: list[int], n: int) -> pa.RecordBatch:
    """Lines before, with and after their order, or without any; customers and suppliers that no table knows."""
    lines = [
        {
            "kind": 1,
            "key": int(rng.integers(0, 30)),
            "l_suppkey": int(rng.integers(0, 8)),
            "l_extendedprice": int(rng.integers(1, 10**9)),
            "l_discount": int(rng.integers(0, 11)),
        }
        for _ in range(n)
    ]
    new = [{"kind": 0, "key": key, "o_custkey": int(rng.integers(0, 11))} for key in orders]
    rows = [{"row_id": i, "ts": 0, **row} for i, row in enumerate(lines + new)]
    return pa.RecordBatch.from_pylist(rows, schema=ARRIVAL)


def totals_of(
    stream: list[Batch], window: int, rng: np.random.Generator, static: FixedTables = STATIC, early: bool = True
) -> dict[int, dict[int, int]]:
    """Both operators, one behind the other, in worlds of chance: {interval: {nation: revenue}} at its end."""
    first, second = join(window, static, early), Q5Totals(window)
    updates = KeyedWorld(first, ARRIVAL, rng).run(stream).updates
    end = Batch(stream[-1].interval + 1, pa.RecordBatch.from_pylist([], schema=first.given(ARRIVAL)))
    behind = [
        Batch(batch.interval, pa.RecordBatch.from_pylist(rows, schema=first.given(ARRIVAL)))
        for batch, rows in zip(stream, updates, strict=True)
    ]
    closes = KeyedWorld(second, first.given(ARRIVAL), rng).run([*behind, end]).closes
    assert all(row["window"] == interval for interval, rows in closes.items() for row in rows)
    return {interval: {row["nation"]: row["revenue"] for row in rows} for interval, rows in closes.items()}


def expected_totals(stream: list[Batch], window: int, interval: int, static: FixedTables = STATIC) -> dict[int, int]:
    held = [batch.rows for batch in stream if interval - window < batch.interval <= interval]
    table = pa.Table.from_batches(held, ARRIVAL)
    return q5(table, static.customer_nation, static.supplier_nation, static.nation_region, ASIA)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), window=st.integers(1, 6), early=st.booleans())
def test_each_window_ends_with_what_the_sql_says_of_it(seed: int, window: int, early: bool) -> None:
    rng = np.random.default_rng(seed)
    intervals = moments(rng, 12)
    keys = rng.permutation(30).tolist()
    stream = [
        Batch(i, random_rows(rng, keys[2 * n : 2 * n + 2], int(rng.integers(0, 25)))) for n, i in enumerate(intervals)
    ]
    got = totals_of(stream, window, rng, early=early)
    assert sorted(got) == sorted({i for n, i in enumerate(intervals) if len(stream[n].rows)})
    for interval, totals in got.items():
        want = expected_totals(stream, window, interval)
        assert {nation: revenue for nation, revenue in totals.items() if revenue} == want


def test_the_oracle_is_right_about_a_window_that_can_be_checked_by_hand() -> None:
    rows = pa.RecordBatch.from_pylist(
        [
            {"row_id": 0, "ts": 0, "kind": 0, "key": 5, "o_custkey": 1},  # nation 0
            {"row_id": 1, "ts": 0, "kind": 1, "key": 5, "l_suppkey": 1, "l_extendedprice": 1000, "l_discount": 10},
            {"row_id": 2, "ts": 0, "kind": 1, "key": 5, "l_suppkey": 1, "l_extendedprice": 500, "l_discount": 0},
            {
                "row_id": 3,
                "ts": 0,
                "kind": 1,
                "key": 5,
                "l_suppkey": 2,
                "l_extendedprice": 9,
                "l_discount": 0,
            },  # nation 1
            {"row_id": 4, "ts": 0, "kind": 0, "key": 6, "o_custkey": 3},  # nation 2, of another region
            {"row_id": 5, "ts": 0, "kind": 1, "key": 6, "l_suppkey": 3, "l_extendedprice": 7, "l_discount": 0},
            {
                "row_id": 6,
                "ts": 0,
                "kind": 1,
                "key": 7,
                "l_suppkey": 1,
                "l_extendedprice": 3,
                "l_discount": 0,
            },  # no order
        ],
        schema=ARRIVAL,
    )
    assert expected_totals([Batch(0, rows)], 1, 0) == {0: 1000 * 90 + 500 * 100}


def test_a_stream_of_real_tables_ends_each_window_as_the_sql_says() -> None:
    stream = Tpch(scale=0.002, seed=1, days_per_interval=80)
    static, window = stream.static(), 3
    batches = [Batch(i, stream.rows(i)) for i in range(12)]
    got = totals_of(batches, window, np.random.default_rng(0), static)
    assert sorted(got) == list(range(12))
    for interval, totals in got.items():
        want = expected_totals(batches, window, interval, static)
        assert {nation: revenue for nation, revenue in totals.items() if revenue} == want
    assert min(len(totals) for totals in got.values()) == 5  # each nation is named, also with nothing
    assert sum(sum(totals.values()) for totals in got.values()) > 0


def test_rows_of_other_regions_are_dropped_before_the_exchange() -> None:
    stream = Tpch(scale=0.002, seed=1, days_per_interval=80)
    static = stream.static()
    asia = nations_of("ASIA", static.region_names, static.nation_region)
    operator = Q5Join(static.customer_nation, static.supplier_nation, asia, 3)
    rows = stream.rows(5)
    fed = operator.feed(rows)
    assert 0.05 * len(rows) < len(fed) < 0.5 * len(rows)
    assert set(fed.column("nation").to_pylist()) <= set(asia)
    late = Q5Join(static.customer_nation, static.supplier_nation, asia, 3, early=False)
    assert len(late.feed(rows)) == len(rows)


def test_an_order_that_has_left_the_window_joins_with_nothing() -> None:
    order = pa.RecordBatch.from_pylist([{"row_id": 0, "ts": 0, "kind": 0, "key": 5, "o_custkey": 1}], schema=ARRIVAL)
    line = {"row_id": 1, "ts": 0, "kind": 1, "key": 5, "l_suppkey": 1, "l_extendedprice": 100, "l_discount": 0}
    lines = pa.RecordBatch.from_pylist([line], schema=ARRIVAL)
    for late, last in ((1, {0: 10_000, 1: 0, 3: 0}), (2, {0: 0, 1: 0, 3: 0})):
        stream = [Batch(0, order), Batch(late, lines)]
        assert totals_of(stream, 2, np.random.default_rng(0))[late] == last


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: join(0), "window of 0"),
        (lambda: Q5Join(np.zeros(2, np.int64), np.zeros(2, np.int64), []), "0 nations"),
        (lambda: nations_of("ATLANTIS", ("ASIA", "EUROPE"), np.zeros(3, np.int64)), "ASIA, EUROPE"),
    ],
)
def test_a_query_without_a_meaning_is_refused(wrong: Operator, said: str) -> None:
    with pytest.raises(InputError, match=said):
        wrong()  # type: ignore[operator]


def test_a_missing_column_is_named() -> None:
    rows = pa.RecordBatch.from_pylist([], schema=ARRIVAL).drop_columns(["l_discount"])
    with pytest.raises(SchemaError, match="l_discount"):
        join(2).feed(rows)
