"""TPC-H Q5 as a continuous query: the revenue of each nation of a region, from orders and lines that lie in one window.

Two operators in a row; `run/oracle/q5.py` is the obvious version, `lab/workload/tpch.py` makes the stream. Mixed §V,
"Dynamics on TPC-H for Q5".

    orders, lines ──► Q5Join, by order ──► what to add ──► Q5Totals, by nation ──► revenue of the window, at its end
                      customers and suppliers are looked up in arrays

A pair of an order and a line counts in every window that holds both: from the interval in which the later of them came
until the earlier leaves. So when the later one comes all its windows are known, and a turn adds it to all of them:

    interval       3     4     5     6     7          window = 4
    order        came                                 leaves after 6
    line                     came
    counts in               ▒▒▒   ▒▒▒                 windows 5 and 6

An order is there once (it is a primary key), so a line that has met its order is not kept. Revenue is counted in
hundredths of a cent, which is exact: no sum depends on its order.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Array, Bools, Ints
from geoswarm.errors import InputError
from geoswarm.flow.keyed.columns import check_name, check_window, column, sum_groups
from geoswarm.flow.keyed.operator import KEY, Answer, Operator, StateRows, Turn

ORDER_KIND = 0
"""The value of the column `kind` for an order; a line has 1."""
NATIONS_MAX = 1 << 10
"""The limit of nations: rows are merged by one number, window × this + nation."""
NO_NATION = -1
_FED = pa.schema([(KEY, pa.int64()), ("is_order", pa.bool_()), ("nation", pa.int16()), ("revenue", pa.int64())])
_GIVEN = pa.schema([("cell", pa.int64()), ("window", pa.int64()), ("nation", pa.int16()), ("revenue", pa.int64())])
_TOTAL = pa.schema([("window", pa.int64()), ("nation", pa.int16()), ("revenue", pa.int64())])


class Q5Join(Operator):
    """Takes rows of `workload.tpch.ARRIVAL`; gives (cell, window, nation, revenue): what to add to a window's revenue,
    in 1/10000 of the currency. Each nation of the region is named for the present window, if only with 0.

    `customer_nation` and `supplier_nation` are by key; `nations` are those of the region. Rows of other nations are
    dropped before the exchange, or, unless `early`, after all is joined, as in a chain of joins whose last is the
    region's. The answer is the same.
    """

    merge_by, merges_always = "cell", True

    def __init__(
        self,
        customer_nation: Ints,
        supplier_nation: Ints,
        nations: Sequence[int],
        window: int = 30,
        name: str = "q5-join",
        early: bool = True,
    ) -> None:
        self.window = check_window(window)
        self.name = check_name(name)
        self.nations = tuple(sorted(nations))
        if not self.nations or not 0 <= self.nations[0] <= self.nations[-1] < NATIONS_MAX:
            raise InputError(f"{len(self.nations)} nations {self.nations[:5]}: name 1 or more, from 0 to {NATIONS_MAX}")
        self.early = early
        # Small enough to be sent to workers: two bytes a customer.
        self.customer_nation = np.asarray(customer_nation).astype(np.int16)
        self.supplier_nation = np.asarray(supplier_nation).astype(np.int16)

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([_FED.field(name) for name in ("is_order", "nation", "revenue")])

    def given(self, fed: pa.Schema) -> pa.Schema:
        return _GIVEN

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        customers, suppliers, prices, discounts = (
            _ints(column(rows, name, self.name)) for name in ("o_custkey", "l_suppkey", "l_extendedprice", "l_discount")
        )
        is_order = _ints(column(rows, "kind", self.name)) == ORDER_KIND
        nation = np.where(
            is_order, _look_up(self.customer_nation, customers), _look_up(self.supplier_nation, suppliers)
        )
        revenue = np.where(is_order, 0, prices * (100 - discounts))
        chosen = np.isin(nation, self.nations) if self.early else nation != NO_NATION
        if (
            len(rows) and not chosen.any()
        ):  # one row goes on without a nation, so that an empty interval has a result, too
            chosen[0], nation[0] = True, NO_NATION
        columns = [pa.array(is_order), pa.array(nation), pa.array(revenue)]
        return pa.record_batch([column(rows, KEY, self.name).cast(pa.int64()), *columns], schema=_FED).filter(
            pa.array(chosen)
        )

    def update(self, turn: Turn) -> Answer:
        is_order, nation, revenue = _columns(turn.rows)
        was_order, held_nation, held_revenue = _columns(turn.held)
        groups, held_groups, now = turn.row_groups, turn.held_groups, turn.moment.interval
        buyer, since, is_new = (np.full(len(turn.keys), value, np.int64) for value in (NO_NATION, now, 0))
        buyer[held_groups[was_order]] = held_nation[was_order]
        since[held_groups[was_order]] = turn.held_intervals[was_order]
        buyer[groups[is_order]] = nation[is_order]
        is_new[groups[is_order]] = 1

        # A new line meets its order, held or new; a new order meets the lines that waited for it.
        meets = ~is_order & (buyer[groups] == nation) & np.isin(nation, self.nations)
        waited = ~was_order & (is_new[held_groups] == 1) & (buyer[held_groups] == held_nation)
        waited &= np.isin(held_nation, self.nations)
        given = self._additions(
            now,
            np.concatenate([since[groups[meets]], turn.held_intervals[waited]]),
            np.concatenate([nation[meets], held_nation[waited]]),
            np.concatenate([revenue[meets], held_revenue[waited]]),
        )
        stays = (is_order | (buyer[groups] == NO_NATION)) & (nation != NO_NATION)
        kept = turn.rows.select(self.kept.names).filter(pa.array(stays))
        work = turn.row_counts + np.diff(turn.held_starts)
        return Answer(kept, groups[stays], given, work.astype(np.float64))

    def merge(self, given: pa.RecordBatch, starts: Ints) -> pa.RecordBatch:
        revenue = sum_groups(given.column("revenue").to_numpy(), starts)
        firsts = given.take(pa.array(starts[:-1]))
        return pa.record_batch([*firsts.columns[:3], pa.array(revenue)], schema=_GIVEN)

    def _additions(self, now: int, earlier: Ints, nation: Array, revenue: Ints) -> pa.RecordBatch:
        """What pairs add to each window, whose later row came now and whose earlier row came in `earlier`."""
        place = np.searchsorted(self.nations, nation)
        sums = np.zeros((self.window + 1, len(self.nations)), np.int64)
        np.add.at(sums[0], place, revenue)
        np.subtract.at(sums, (earlier + self.window - now, place), revenue)  # from when it no longer counts
        sums = np.cumsum(sums[:-1], axis=0)
        given = sums != 0
        given[0] = True
        ahead, place = np.nonzero(given)
        window, nations = now + ahead, np.array(self.nations, np.int16)[place]
        columns = (window * NATIONS_MAX + nations, window, nations, sums[given])
        return pa.record_batch([pa.array(values) for values in columns], schema=_GIVEN)


class Q5Totals(Operator):
    """Adds up what `Q5Join` gives. At the end of an interval: (window, nation, revenue) of the window that ends with
    it, for each nation that was named in it."""

    def __init__(self, window: int = 30, name: str = "q5-totals") -> None:
        self.window = check_window(window)
        self.name = check_name(name)

    @property
    def kept(self) -> pa.Schema:
        return pa.schema([_GIVEN.field(name) for name in ("window", "revenue")])

    def given(self, fed: pa.Schema) -> pa.Schema:
        return _TOTAL

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = column(rows, "nation", self.name).cast(pa.int64())
        values = [column(rows, name, self.name) for name in self.kept.names]
        return pa.record_batch([keys, *values], names=[KEY, *self.kept.names])

    def update(self, turn: Turn) -> Answer:
        none = pa.RecordBatch.from_pylist([], schema=_TOTAL)
        kept = turn.rows.select(self.kept.names).cast(self.kept)
        return Answer(kept, turn.row_groups, none, turn.row_counts.astype(np.float64))

    def compact(self, held: StateRows) -> StateRows:
        """One row for each key, window and batch."""
        groups = np.repeat(np.arange(len(held.starts) - 1), np.diff(held.starts))
        window, revenue = (held.rows.column(name).to_numpy() for name in self.kept.names)
        order = np.lexsort((window, held.batches, groups))
        codes = np.stack([groups, held.batches, window])[:, order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
        at = np.flatnonzero(first)
        sums = sum_groups(revenue[order], np.append(at, len(order)))
        groups, batches, window = codes[:, at]
        rows = pa.record_batch([pa.array(window), pa.array(sums)], schema=self.kept)
        return StateRows(rows, np.searchsorted(groups, np.arange(len(held.starts))), batches)

    def close(self, turn: Turn) -> pa.RecordBatch | None:
        now = turn.moment.interval
        window, revenue = (turn.held.column(name).to_numpy() for name in self.kept.names)
        sums = sum_groups(np.where(window == now, revenue, 0), turn.held_starts)
        nations = pc.cast(turn.keys, pa.int16())
        return pa.record_batch([pa.array(np.full(len(sums), now)), nations, pa.array(sums)], schema=_TOTAL)


def nations_of(region: str, region_names: Sequence[str], nation_region: Ints) -> list[int]:
    if region not in region_names:
        raise InputError(f"there is no region {region!r}: use one of {', '.join(region_names)}")
    return [int(n) for n in np.flatnonzero(nation_region == region_names.index(region))]


def _look_up(nation_of: Array, keys: Ints) -> Array:
    """The nation of each key; a key that is in no table has none."""
    known = (keys >= 0) & (keys < len(nation_of))
    return np.where(known, nation_of[np.where(known, keys, 0)], NO_NATION).astype(np.int16)


def _ints(values: pa.Array) -> Ints:
    return np.asarray(values.fill_null(0)).astype(np.int64)


def _columns(rows: pa.RecordBatch) -> tuple[Bools, Array, Ints]:
    is_order, nation, revenue = (
        rows.column(name).to_numpy(zero_copy_only=False) for name in ("is_order", "nation", "revenue")
    )
    return is_order.astype(np.bool_), nation, revenue
