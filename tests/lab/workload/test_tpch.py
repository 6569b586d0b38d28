"""TPC-H as a stream: its own tables and ratios, lines after their orders, and foreign keys as skewed as asked for."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import InputError, MachineError, SettingsError
from geoswarm.lab.workload import tpch
from geoswarm.lab.workload.tpch import ARRIVAL, LINE, ORDER, SHIP_DAYS_MAX, Tpch

STREAM = Tpch(scale=0.01, seed=4, days_per_interval=30, shift_every=20)


def whole(stream: Tpch = STREAM) -> pa.Table:
    parts = [
        stream.rows(i).append_column("interval", pa.array([i] * len(stream.rows(i)))) for i in range(stream.intervals)
    ]
    return pa.Table.from_batches(parts)


def column(rows: pa.Table, name: str, kind: int) -> np.ndarray:
    here = rows.column("kind").to_numpy() == kind
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False)[here])


def test_the_tables_are_as_large_as_tpc_h_says() -> None:
    rows, static = whole(), STREAM.static()
    assert rows.schema.remove(len(ARRIVAL)) == ARRIVAL
    orders = column(rows, "key", ORDER)
    assert len(orders) == len(np.unique(orders)) == 15_000
    assert len(column(rows, "key", LINE)) == pytest.approx(60_000, rel=0.02)
    assert (len(static.customer_nation) - 1, len(static.supplier_nation) - 1) == (1500, 100)
    assert len(static.nation_names) == 25
    assert static.region_names[static.nation_region[static.nation_names.index("JAPAN")]] == "ASIA"
    assert static.customer_nation[0] == -1
    assert set(static.customer_nation[1:]) == set(range(25))


def test_rows_come_in_order_within_their_interval_and_have_the_columns_of_their_kind() -> None:
    rows = STREAM.rows(7)
    seconds = rows.column("ts").cast(pa.int64()).to_numpy() / 1e6 - STREAM.start_s
    assert (np.diff(seconds) >= 0).all()
    assert 70 <= seconds[0] < seconds[-1] < 80
    for name, kind in (("o_custkey", ORDER), ("l_suppkey", LINE), ("l_extendedprice", LINE), ("l_discount", LINE)):
        null = rows.column(name).is_null().to_numpy(zero_copy_only=False)
        assert (null == (rows.column("kind").to_numpy() != kind)).all()
    discounts = column(pa.table(rows), "l_discount", LINE)
    assert set(discounts.astype(int)) == set(range(11))  # hundredths, none lost to rounding
    assert STREAM.rows(7).equals(rows)


def test_a_line_comes_after_its_order_and_not_too_late() -> None:
    rows = whole()
    ordered = dict(zip(column(rows, "key", ORDER), column(rows, "interval", ORDER), strict=True))
    came, lines = column(rows, "interval", LINE), column(rows, "key", LINE)
    late = came - np.array([ordered[key] for key in lines])
    assert late.min() == 0
    assert late.max() == SHIP_DAYS_MAX // STREAM.days_per_interval + 1


def test_foreign_keys_are_zipf_and_hot_orders_stay_hot_until_the_shift() -> None:
    rows = whole()
    customers = np.sort(np.bincount(column(rows, "o_custkey", ORDER).astype(int)))[::-1]
    assert customers[0] / customers[31] == pytest.approx(32**0.8, rel=0.35)
    even = np.bincount(column(whole(dataclasses.replace(STREAM, skew=0.0)), "o_custkey", ORDER).astype(int))
    assert customers[0] > 4 * even.max()

    def hottest(interval: int) -> set[int]:
        keys, counts = np.unique(column(pa.table(STREAM.rows(interval)), "key", LINE), return_counts=True)
        return set(keys[np.argsort(-counts)[:5]])

    assert len(hottest(30) & hottest(31)) >= 2
    assert len(hottest(19) & hottest(20)) <= 1  # dealt anew in interval 20


def test_another_seed_is_another_stream_over_the_same_tables() -> None:
    other = dataclasses.replace(STREAM, seed=5)
    assert len(other.rows(9)) == len(STREAM.rows(9))
    assert not other.rows(9).column("key").equals(STREAM.rows(9).column("key"))


def test_what_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no interval 85: the stream has 85"):
        STREAM.rows(85)
    with pytest.raises(SettingsError, match="scale"):
        Tpch(scale=0.0)
    monkeypatch.setattr(tpch, "GENERATOR", "no-such-program")
    with pytest.raises(MachineError, match="pip install"):
        Tpch(scale=0.0123).rows(0)
