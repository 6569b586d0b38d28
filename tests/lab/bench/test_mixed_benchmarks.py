"""Every figure of the Mixed paper that plans at all, at a tiny size: it runs, its claims have figures, it is drawn."""

import math
from typing import Any

import pytest

from geoswarm.lab.bench.kit.catalogue import bench_names, find
from geoswarm.lab.bench.kit.harness import Result, load
from geoswarm.lab.bench.mixed.fig7 import HashSizes
from geoswarm.lab.bench.mixed.fig11 import CompactSizes
from geoswarm.lab.bench.mixed.fig12 import ReadjSizes
from geoswarm.lab.bench.mixed.fig18 import TableGrowthSizes
from geoswarm.lab.bench.mixed.planners import SweepSizes


def silent(_: str) -> None:
    pass


SMALL: dict[str, Any] = {
    "mixed-fig7": HashSizes(5_000, 3, (5, 40), (500, 5_000)),
    "mixed-fig8": SweepSizes((3_000,), 4),
    "mixed-fig9": SweepSizes((3_000,), 4),
    "mixed-fig10": SweepSizes((1_000, 4_000), 5),
    "mixed-fig11": CompactSizes(20_000, 6),
    "mixed-fig12": ReadjSizes(1_500, 3, 3, 5_000),
    "mixed-fig17": SweepSizes((3_000,), 4, (3, 6, 9)),
    "mixed-fig18": TableGrowthSizes(60, 1_000),
    "mixed-fig19": SweepSizes((3_000,), 6),
    "mixed-fig20": SweepSizes((3_000,), 5),
    "mixed-fig21": SweepSizes((3_000,), 5),
}
CLAIMS = {
    "mixed-fig10": {"plan_s_k1e6", "migration_vs_mintable"},
    "mixed-fig11": {"estimate_error", "plan_s_compact"},
    "mixed-fig12": {"readj_vs_mixed_s"},
}
_results: dict[str, Result] = {}


def result_of(name: str) -> Result:
    if name not in _results:
        module, row = load(find(name))
        _results[name] = module.measure(*row, SMALL[name], 0, silent)
    return _results[name]


@pytest.mark.parametrize("name", SMALL)
def test_every_figure_has_rows_claims_and_a_picture(name: str) -> None:
    result = result_of(name)
    assert result.rows
    assert CLAIMS.get(name, set()) <= set(result.summary)
    assert all(math.isfinite(value) and value > 0 for value in result.summary.values()), result.summary
    module, row = load(find(name))
    figure = module.plot(*row, result)
    assert sum(len(axes.lines) for axes in figure.axes) > 1
    figure.canvas.draw()


def test_they_are_all_in_the_list() -> None:
    assert set(SMALL) <= set(bench_names())
    assert len(SMALL) == 11
    assert "mixed-sweep" not in bench_names()


def test_hash_is_less_even_with_more_executors_and_fewer_keys() -> None:
    summary = result_of("mixed-fig7").summary
    assert summary["max_vs_min_executors_40"] > summary["max_vs_min_executors_5"]
    assert summary["max_vs_min_keys_500"] > summary["max_vs_min_keys_5000"]


def test_mixed_moves_less_than_min_table_and_a_wider_table_less_still() -> None:
    assert result_of("mixed-fig10").summary["migration_vs_mintable"] < 0.5
    assert result_of("mixed-fig17").summary["migration_widest_vs_narrowest"] < 1.0
    assert result_of("mixed-fig20").summary["table_beta2_vs_beta1"] < 1.0


def test_the_loads_estimated_from_vectors_are_close() -> None:
    assert result_of("mixed-fig11").summary["estimate_error"] < 0.01
