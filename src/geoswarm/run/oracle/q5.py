"""TPC-H Q5 over one window, as in the SQL: joins of whole tables, and a sum by nation.

`flow/keyed/q5.py` must give this result at the end of each interval. Slow and obvious, with Arrow's own joins.
"""

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints


def q5(
    arrivals: pa.Table, customer_nation: Ints, supplier_nation: Ints, nation_region: Ints, region: int
) -> dict[int, int]:
    """The revenue of each nation that has any, in 1/10000, from the orders and lines of one window.

    `arrivals` has the columns of `workload.tpch.ARRIVAL`.

        select n_nationkey, sum(l_extendedprice * (1 - l_discount))
        from customer, orders, lineitem, supplier, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = :region
        group by n_nationkey
    """
    orders = arrivals.filter(pc.field("kind") == 0).select(["key", "o_custkey"])
    lines = arrivals.filter(pc.field("kind") == 1).select(["key", "l_suppkey", "l_extendedprice", "l_discount"])
    customer, supplier, nation = (
        pa.table({key: pa.array(range(len(values)), pa.int64()), value: pa.array(values, pa.int64())})
        for key, value, values in (
            ("o_custkey", "c_nationkey", customer_nation),
            ("l_suppkey", "s_nationkey", supplier_nation),
            ("s_nationkey", "n_regionkey", nation_region),
        )
    )
    joined = (
        orders.join(lines, "key", join_type="inner")
        .join(customer, "o_custkey", join_type="inner")
        .join(supplier, "l_suppkey", join_type="inner")
        .join(nation, "s_nationkey", join_type="inner")
        .filter((pc.field("c_nationkey") == pc.field("s_nationkey")) & (pc.field("n_regionkey") == region))
    )
    revenue = pc.multiply(joined["l_extendedprice"], pc.subtract(100, joined["l_discount"]))
    sums = joined.append_column("revenue", revenue).group_by("s_nationkey").aggregate([("revenue", "sum")])
    return dict(zip(sums["s_nationkey"].to_pylist(), sums["revenue_sum"].to_pylist(), strict=True))
