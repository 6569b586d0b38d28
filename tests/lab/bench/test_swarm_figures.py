"""SWARM's figures at a tiny size: every strategy has its figures, a failure ends a line, and the pictures are drawn."""

import math

import pytest

from geoswarm.lab.bench.swarm import fig11 as swarm_fig11
from geoswarm.lab.bench.swarm import fig12_to_16 as timeline
from geoswarm.lab.bench.swarm import fig17 as swarm_fig17
from geoswarm.run.sim.cluster import ClusterSetup
from geoswarm.run.sim.race import STRATEGY_NAMES
from geoswarm.run.sim.service import Service

SIZES = timeline.TimelineSizes(60, 60.0, 6000, 2000, 2000, cells_per_side=50, step_s=7.5)
SETUP = ClusterSetup(executors=4, routers=2, pending_max=500, service=Service(base_us=2000.0, met_us=2.0, index_us=1.0))


def silent(_: str) -> None:
    pass


def test_a_timeline_has_work_latency_moves_and_driver_time_of_every_strategy() -> None:
    shown = timeline.FIGURES["swarm-fig14"]
    result = timeline.measure(shown, SIZES, 1, silent, SETUP)
    assert all(math.isfinite(value) for value in result.summary.values())
    for name in STRATEGY_NAMES:
        key = timeline.key_of(name)
        for figure in ("work", "latency_ms", "moved", "driver_s", "rounds_to_95pct", "lowest"):
            assert result.summary[f"{figure}_{key}"] >= 0
        rows = [row for row in result.rows if row["strategy"] == name]
        assert [row["minute"] for row in rows] == list(range(31))
        assert max(row["hotspot_share"] for row in rows) == pytest.approx(0.4)
    assert result.summary["work_vs_static_history"] == pytest.approx(
        result.summary["work_swarm_measured"] / result.summary["work_static_history"]
    )
    assert result.summary["driver_s_per_batch"] > 0 == result.summary["driver_s_static_history"]
    assert result.summary["moved_per_batch"] > 0 == result.summary["moved_replicated"]
    assert {f"work_paid_{timeline.key_of(name)}" for name in timeline.PAID} < set(result.summary)
    assert {f"work_in_batches_{timeline.key_of(name)}" for name in timeline.IN_BATCHES} < set(result.summary)
    drawn = timeline.plot(shown, result)
    assert len(drawn.axes[0].lines) == len(STRATEGY_NAMES)


def test_more_queries_than_a_machine_can_hold_end_the_line_of_replicated() -> None:
    sizes = swarm_fig11.CapabilitySizes((1_000_000, 2_000_000, 4_000_000), 2000, 60, 7.5, 900.0, 2, cells_per_side=50)
    setup = ClusterSetup(executors=4, routers=2, memory_bytes=600_000_000, query_bytes=200)
    result = swarm_fig11.measure(sizes, 1, silent, setup)
    assert len(result.rows) == len(STRATEGY_NAMES) * 3
    assert result.summary["queries_max_replicated"] == 2_000_000
    assert result.summary["queries_max_static_history"] == 4_000_000
    ended = next(row for row in result.rows if row["strategy"] == "replicated" and row["queries"] == 4_000_000)
    assert (ended["seeds"], ended["units_of_work"], ended["latency_ms"]) == (0, None, None)
    for row in result.rows:
        if row["seeds"]:
            assert row["work_min"] <= row["units_of_work"] <= row["work_max"]
            assert row["latency_min"] <= row["latency_ms"] <= row["latency_max"]
    assert result.summary["work_vs_static_history"] == result.summary["work_vs_static_history_swarm_measured"] > 1
    assert result.summary["latency_vs_static_history"] < 1
    work, latency = swarm_fig11.plot(result).axes
    assert [len(line.get_xdata()) for line in work.lines] == [2] + [3] * 7  # type: ignore[arg-type]
    assert len(latency.lines) == len(STRATEGY_NAMES)


def test_utilisation_lies_between_the_least_and_the_most_utilised_executor() -> None:
    result = swarm_fig17.measure(SIZES, 1, silent, SETUP)
    assert {row["strategy"] for row in result.rows} == {"static-history", "swarm", "swarm-measured"}
    for row in result.rows:
        assert 0 <= row["least"] <= row["mean"] <= row["most"] <= 1 + 1e-6
    assert [row["minute"] for row in result.rows][:3] == [0.0, 5.0, 10.0]
    assert len(swarm_fig17.plot(result).axes) == 3
