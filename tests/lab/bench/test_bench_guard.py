"""What Guard's operations take: measured for every kind, at every size."""

import numpy as np
import pyarrow as pa

from geoswarm.guard.rules import GuardRules
from geoswarm.lab.bench.guard import fig6_23 as guard_fig6_23
from geoswarm.lab.bench.kit.catalogue import bench_names


def test_every_operation_of_guard_is_measured_and_drawn() -> None:
    assert "guard-fig6.23" in bench_names()
    result = guard_fig6_23.measure(guard_fig6_23.GuardCostSizes((110, 500), 2), 0, lambda _: None)
    assert [row["users"] for row in result.rows] == [110, 500]
    assert set(guard_fig6_23.THESIS_US) <= {key.removesuffix("_us") for key in result.summary}
    assert all(value > 0 for value in result.summary.values())
    assert result.summary["query_update_us"] < result.summary["feature_update_us"]
    (axes,) = guard_fig6_23.plot(result).axes
    assert len(axes.lines) == len(result.rows[0]) - 1


def test_the_attack_that_is_measured_is_one_that_guard_finds() -> None:
    rng = np.random.default_rng(0)
    names = pa.array([f"user{i}" for i in range(110)])
    guard = guard_fig6_23._fill_guard(GuardRules(), names, rng)
    found = []
    for turn in range(2):
        guard.add_hotspot(guard_fig6_23._attack(guard, names, 60.0 * turn + 70, turn))
        found.append(guard.close_round(60.0 * turn + 120))
    assert found[0].entry.suspicious_users >= guard_fig6_23.GANG - 1
    assert len(found[1].blocked) >= guard_fig6_23.GANG - 2
