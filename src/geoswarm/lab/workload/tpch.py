"""Orders and their lines in the order of their arrival, with a few orders that take most lines: TPC-H as a stream.

Tables come from `tpchgen-cli` (pip install geoswarm[bench]), a port of TPC-H's own dbgen; what is done here is to
redraw the foreign keys and to let time pass. The query is `flow/keyed/q5.py`. Mixed §V, "Dynamics on TPC-H for Q5":
foreign keys by Zipf with z = 0.8, one hour, another distribution every 15 minutes.

    o_orderdate ──► an order arrives      7 days ──► an interval of 10 s, so 6.9 years ──► an hour
    l_shipdate  ──► a line arrives        1 to 121 days, so up to 3 minutes, after its order

    o_custkey, l_suppkey     Zipf over all customers, all suppliers
    l_orderkey               Zipf over the orders of the last 121 days: who bought much goes on until it is old

The paper does not say which orders a Zipf key may name. Over all seven years, one order of the hottest would get a
quarter of all lines while it lives, and no plan could balance it; so ranks are dealt among as many orders as live at
once, and dealt anew every `shift_every` intervals. Ship dates are kept, and with them how many lines come when.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import InputError, MachineError, SettingsError
from geoswarm.lab.workload.tweets import START_S
from geoswarm.model import TIMESTAMP

GENERATOR = "tpchgen-cli"
COLUMNS = {
    "region": ("r_regionkey", "r_name"),
    "nation": ("n_nationkey", "n_name", "n_regionkey"),
    "supplier": ("s_suppkey", "s_nationkey"),
    "customer": ("c_custkey", "c_nationkey"),
    "orders": ("o_orderkey", "o_orderdate"),
    "lineitem": ("l_shipdate", "l_extendedprice", "l_discount"),
}
"""The columns that Q5 needs, without the foreign keys that are drawn here."""
SHIP_DAYS_MAX = 121
FIRST_DAY = 8035
"""1992-01-01, TPC-H's STARTDATE, in days since 1970."""
DAYS = 2406 + SHIP_DAYS_MAX
"""The number of days up to the last ship date."""

ORDER, LINE = 0, 1
ARRIVAL = pa.schema(
    [
        pa.field("row_id", pa.int64(), nullable=False),
        pa.field("ts", TIMESTAMP, nullable=False),
        pa.field("key", pa.int64(), nullable=False),  # o_orderkey, l_orderkey
        pa.field("kind", pa.int8(), nullable=False),  # ORDER | LINE
        pa.field("o_custkey", pa.int64()),  # of an order
        pa.field("l_suppkey", pa.int64()),  # of a line, as the following
        pa.field("l_extendedprice", pa.int64()),  # in cents
        pa.field("l_discount", pa.int64()),  # in hundredths
    ]
)


class FixedTables(NamedTuple):
    """The tables that do not change, by key. Customers and suppliers count from 1: position 0 has -1."""

    customer_nation: Ints
    supplier_nation: Ints
    nation_names: tuple[str, ...]
    nation_region: Ints
    region_names: tuple[str, ...]


class _Lines(NamedTuple):
    """All arrivals, sorted by day: orders first, lines after them, in the order of the tables."""

    day: Ints
    key: Ints
    kind: Ints
    partner: Ints
    price_cents: Ints
    discount_pct: Ints


@dataclass(frozen=True)
class Tpch:
    scale: float = 0.01
    """TPC-H's scale factor: 1 has 1 500 000 orders and 6 000 000 lines."""
    skew: float = 0.8
    """z of Zipf's law, for the foreign keys."""
    seed: int = 0
    days_per_interval: int = 7
    shift_every: int = 90
    """Intervals after which other orders take most lines; 0 for never."""
    interval_s: float = 10.0
    start_s: float = START_S

    def __post_init__(self) -> None:
        _expect("scale", self.scale, 0.001, 100.0)
        _expect("skew", self.skew, 0.0, 10.0)
        _expect("days_per_interval", self.days_per_interval, 1, DAYS)
        _expect("shift_every", self.shift_every, 0, DAYS)
        _expect("interval_s", self.interval_s, 1e-3, 1e6)
        _expect("start_s", self.start_s, 0.0, 1e11)

    @property
    def intervals(self) -> int:
        """The number of intervals of the stream."""
        return -(-DAYS // self.days_per_interval)

    def static(self) -> FixedTables:
        tables = _tables(self.scale)

        def places(table: str, key: str, value: str) -> Ints:
            rows = tables[table]
            found = np.full(pc.max(rows[key]).as_py() + 1, -1, np.int64)
            found[np.asarray(rows[key])] = np.asarray(rows[value])
            return found

        return FixedTables(
            places("customer", "c_custkey", "c_nationkey"),
            places("supplier", "s_suppkey", "s_nationkey"),
            tuple(tables["nation"]["n_name"].to_pylist()),  # dbgen gives both by key, from 0
            places("nation", "n_nationkey", "n_regionkey"),
            tuple(tables["region"]["r_name"].to_pylist()),
        )

    def rows(self, interval: int) -> pa.RecordBatch:
        """The orders and lines that arrive in an interval, as `ARRIVAL`."""
        if not 0 <= interval < self.intervals:
            raise InputError(f"there is no interval {interval}: the stream has {self.intervals}, from 0")
        lines = _arrivals(self)
        first, end = np.searchsorted(
            lines.day, [interval * self.days_per_interval, (interval + 1) * self.days_per_interval]
        )
        day, key, kind, partner, price, discount = (column[first:end] for column in lines)
        day_s = self.interval_s / self.days_per_interval
        starts = np.searchsorted(day, day)
        nth = (np.arange(len(day)) - starts) / np.maximum(1, np.searchsorted(day, day, "right") - starts)
        ts = ((self.start_s + (day + nth) * day_s) * 1e6).astype(np.int64)
        is_line = kind == LINE
        columns = [
            pa.array(np.arange(first, end)),
            pa.array(ts).cast(TIMESTAMP),
            pa.array(key),
            pa.array(kind.astype(np.int8)),
            pa.array(partner, mask=is_line),
            *(pa.array(column, mask=~is_line) for column in (partner, price, discount)),
        ]
        return pa.record_batch(columns, schema=ARRIVAL)


@lru_cache(maxsize=2)
def _arrivals(stream: Tpch) -> _Lines:
    tables, rng = _tables(stream.scale), np.random.default_rng([stream.seed, 5])
    ordered, shipped = (
        np.asarray(tables[table][column].cast(pa.int32())).astype(np.int64) - FIRST_DAY
        for table, column in (("orders", "o_orderdate"), ("lineitem", "l_shipdate"))
    )
    by_day = np.argsort(ordered, kind="stable")
    ordered, order_keys = ordered[by_day], np.asarray(tables["orders"]["o_orderkey"])[by_day]
    price, discount = (
        np.rint(np.asarray(tables["lineitem"][name].cast(pa.float64())) * 100.0).astype(np.int64)  # exact below 2^53
        for name in ("l_extendedprice", "l_discount")
    )
    customers = 1 + _zipf(rng, tables["customer"].num_rows, stream.skew, len(ordered))
    suppliers = 1 + _zipf(rng, tables["supplier"].num_rows, stream.skew, len(shipped))
    bought = order_keys[_orders_of(stream, ordered, shipped, rng)]
    none, lines = np.zeros(len(ordered), np.int64), np.full(len(shipped), LINE)
    pairs = (
        (ordered, shipped),
        (order_keys, bought),
        (np.full(len(ordered), ORDER), lines),
        (customers, suppliers),
        (none, price),
        (none, discount),
    )
    columns = [np.concatenate(pair) for pair in pairs]
    order = np.argsort(columns[0], kind="stable")
    return _Lines(*(column[order] for column in columns))


def _orders_of(stream: Tpch, ordered: Ints, shipped: Ints, rng: np.random.Generator) -> Ints:
    """The position of each line's order among all orders, which are sorted by day."""
    alive = max(1, len(ordered) * SHIP_DAYS_MAX // max(1, int(ordered[-1] - ordered[0])))
    first = np.searchsorted(ordered, shipped - SHIP_DAYS_MAX)
    end = np.searchsorted(ordered, shipped)  # the day before, at the latest
    eras = shipped // stream.days_per_interval // stream.shift_every if stream.shift_every else np.zeros_like(shipped)
    drawn, found = rng.random(len(shipped)), np.empty(len(shipped), np.int64)
    for era in np.unique(eras):
        here = eras == era
        weights = np.concatenate(
            [_ranks(rng, min(alive, len(ordered) - at), stream.skew) for at in range(0, len(ordered), alive)]
        )
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        low, high = sums[first[here]], sums[end[here]]
        found[here] = np.searchsorted(sums, low + drawn[here] * (high - low), "right") - 1
    return np.clip(found, first, np.maximum(first, end - 1))


def _ranks(rng: np.random.Generator, count: int, skew: float) -> Floats:
    return rng.permutation(np.arange(1, count + 1, dtype=np.float64) ** -skew)


def _zipf(rng: np.random.Generator, keys: int, skew: float, count: int) -> Ints:
    """Keys from 0, each in proportion to a power of its rank; ranks are random."""
    sums = np.cumsum(_ranks(rng, keys, skew))
    drawn: Ints = np.searchsorted(sums, rng.random(count) * sums[-1], "right")
    return drawn


@lru_cache(maxsize=2)
def _tables(scale: float) -> dict[str, pa.Table]:
    with tempfile.TemporaryDirectory() as folder:
        command = [_generator(), "parquet", "-s", f"{scale:g}", "--tables", ",".join(COLUMNS), "-o", folder, "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(f"{GENERATOR} ended with {done.returncode}: {done.stderr.strip()[-500:] or 'no word'}")
        files = {table: Path(folder) / f"{table}.parquet" for table in COLUMNS}
        return {table: pq.read_table(path, columns=list(COLUMNS[table])) for table, path in files.items()}


def _generator() -> str:
    """The generator's path: beside this Python, where pip puts it, or anywhere on the PATH."""
    found = shutil.which(GENERATOR, path=str(Path(sys.executable).parent)) or shutil.which(GENERATOR)
    if found is None:
        raise MachineError(f"TPC-H tables need the program {GENERATOR}: pip install geoswarm[bench]")
    return found


def _expect(key: str, value: Any, low: float, high: float) -> None:
    if not low <= value <= high:  # also true for NaN
        raise SettingsError(f"{key} of TPC-H is {value}: give a value from {low:g} to {high:g}")
