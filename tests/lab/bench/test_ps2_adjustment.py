"""PS2Stream's figures of adjustment at a tiny size: every way has its figures, and the pictures are drawn."""

import math
from dataclasses import replace

import numpy as np
import pytest

from geoswarm.lab.bench.ps2 import fig16 as ps2_fig16
from geoswarm.lab.bench.ps2 import migration
from geoswarm.lab.bench.ps2.worlds import AdjustmentSizes
from geoswarm.lab.workload.queries import SWITCH_TURNS
from geoswarm.run.sim.words_spans import MachinesSpan

HOURS = AdjustmentSizes(2000, 400, 3, 8, 0.05, 3600.0, cells_per_side=12)
DAYS = AdjustmentSizes(2000, 400, 4, 8, 0.25, 86_400.0, cells_per_side=12)


def silent(_: str) -> None:
    pass


def test_each_way_to_choose_cells_has_its_time_bytes_and_delays() -> None:
    shown = replace(migration.FIGURES["ps2-fig12"], queries=(100_000,))
    result = migration.measure(shown, HOURS, 1, silent)
    rows = {row["way"]: row for row in result.rows}
    assert set(rows) == {"dp", "gr", "si", "ra"}
    assert rows["dp"]["same_cells_mb"] <= 1.01 * rows["gr"]["same_cells_mb"]  # sizes in KiB
    assert rows["gr"]["same_cells_mb"] <= rows["si"]["same_cells_mb"]
    for row in rows.values():
        assert sum(row[key] for key in ("below_100ms_pct", "to_1s_pct", "above_1s_pct")) == pytest.approx(100)
        assert row["choose_ms"] > 0
    assert {"gr_bytes_vs_si", "gr_bytes_vs_ra", "gr_time_vs_dp"} < set(result.summary)
    assert all(math.isfinite(value) for value in result.summary.values())
    assert len(migration.plot(shown, result).axes) == 6


@pytest.mark.parametrize("name", ["ps2-fig13", "ps2-fig14", "ps2-fig15"])
def test_larger_numbers_of_queries_have_a_row_for_each_way(name: str) -> None:
    shown = replace(migration.FIGURES[name], queries=(100_000, 200_000))
    result = migration.measure(shown, HOURS, 1, silent)
    assert [row["queries"] for row in result.rows] == sorted(row["queries"] for row in result.rows)
    assert {row["way"] for row in result.rows} >= {"gr", "si", "ra"}
    assert all(math.isfinite(value) for value in result.summary.values())
    assert migration.plot(shown, result).axes


def test_throughput_is_reported_with_and_without_adjustment_by_interval() -> None:
    sizes = DAYS._replace(cells_per_side=64, lists_drawn=2_000)
    result = ps2_fig16.measure(sizes, 1, silent, queries=50_000, seeds=2, processes=1)
    first = [row for row in result.rows if row["seed"] == 1]
    assert {row["strategy"] for row in result.rows if row["seed"] == 2} == {"not", "adjusted"}
    assert {row["strategy"] for row in first} == {"not", "settled", "adjusted", "phase 2", "global"}
    assert [row["interval"] for row in first if row["strategy"] == "not"] == [1, 2]
    assert sum(row["migrations"] for row in result.rows if row["strategy"] in ("not", "settled")) == 0
    assert result.summary["adjusted_vs_not"] == pytest.approx(
        result.summary["adjusted_tuples_per_s"] / result.summary["not_tuples_per_s"]
    )
    assert result.summary["level_vs_not"] >= 1
    assert result.summary["adjusted_vs_not_least"] <= result.summary["adjusted_vs_not_most"]
    assert len(ps2_fig16.plot(result).axes[0].lines) == 5


def test_each_region_switches_in_each_of_the_cycles_that_are_counted() -> None:
    for sizes in ps2_fig16.SIZES.values():
        assert sizes.cells_per_side == 64
        assert sizes.steps * sizes.change_share == ps2_fig16.CYCLES * SWITCH_TURNS == 20
        assert sizes.settle_steps * sizes.change_share == 1


def test_what_level_workers_would_take_depends_on_the_run_without_adjustment_alone() -> None:
    spans = [_span([3.0, 1.0]), _span([2.0, 2.0])]
    assert ps2_fig16.level_throughput(spans) == pytest.approx(2 * 100 / (2.0 + 2.0))


def _span(busy_s: list[float]) -> MachinesSpan:
    return MachinesSpan(100.0, np.array(busy_s), 0.0, 0.0, 0.0, np.zeros(3), 0.0, 0.0, 0.0, 0, 0.0)
