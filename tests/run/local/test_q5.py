"""TPC-H Q5: two keyed operators, one behind the other, end each window with what the SQL says of it."""

from pathlib import Path

import pyarrow as pa

from geoswarm.config import KeyTuning
from geoswarm.flow.keyed.q5 import Q5Join, Q5Totals, nations_of
from geoswarm.lab.workload.tpch import Tpch
from geoswarm.run.keyed import KeyedRun
from geoswarm.run.oracle.q5 import q5
from geoswarm.run.rows import Rows
from geoswarm.store.journal import Journal
from geoswarm.store.storage import Storage
from stepped import rows_of

WINDOW, ROUNDS, PER_INTERVAL = 2, 7, 2
STREAM = Tpch(scale=0.005, seed=3, days_per_interval=60)


def test_q5_is_what_the_sql_says_while_keys_move(tmp_path: Path) -> None:
    static = STREAM.static()
    asia = nations_of("ASIA", static.region_names, static.nation_region)
    join = Q5Join(static.customer_nation, static.supplier_nation, asia, WINDOW)
    storage = Storage(str(tmp_path / "state"))
    tuning = KeyTuning(executors=3, interval_s=10.0 * PER_INTERVAL, round_s=10.0, theta_max=0.0)
    runs = [KeyedRun(storage, Journal(storage), o, tuning, lambda: None) for o in (join, Q5Totals(WINDOW))]
    told: dict[int, dict[int, int]] = {}
    epochs = set()
    for number in range(ROUNDS):
        rows: Rows = rows_of(pa.table(STREAM.rows(3 + number)))
        for run in runs:
            rows = run.apply(rows, number, number * 10_000_000)
        for row in rows.to_arrow().to_pylist():
            told.setdefault(row["window"], {})[row["nation"]] = row["revenue"]
        epochs |= {run.finish().plan_epoch for run in runs}
    assert len(epochs) > 2  # keys did move
    assert sorted(told) == list(range(ROUNDS // PER_INTERVAL))
    for window, totals in told.items():
        held = [STREAM.rows(3 + n) for n in range(ROUNDS) if window - WINDOW < n // PER_INTERVAL <= window]
        table = pa.Table.from_batches(held)
        want = q5(table, static.customer_nation, static.supplier_nation, static.nation_region, 2)
        assert {nation: revenue for nation, revenue in totals.items() if revenue} == want
        assert set(totals) == set(asia)
