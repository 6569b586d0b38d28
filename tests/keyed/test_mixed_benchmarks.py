"""Every figure of the Mixed paper that plans at all, at a tiny size: it runs, its claims have figures, it is drawn."""

import math
from typing import Any

import pytest

from geoswarm.bench import (
    mixed_fig7,
    mixed_fig8,
    mixed_fig9,
    mixed_fig10,
    mixed_fig11,
    mixed_fig12,
    mixed_fig17,
    mixed_fig18,
    mixed_fig19,
    mixed_fig20,
    mixed_fig21,
)
from geoswarm.bench.harness import Result, bench_names


def silent(_: str) -> None:
    pass


SMALL = {
    mixed_fig7: ((5, 40), (500, 5_000), 5_000, 3),
    mixed_fig8: (3_000, 4),
    mixed_fig9: (3_000, 4),
    mixed_fig10: ((1_000, 4_000), 5),
    mixed_fig11: (20_000, 6),
    mixed_fig12: (1_500, 3, 5_000, 3),
    mixed_fig17: (3_000, (3, 6, 9), 4),
    mixed_fig18: (1_000, 60),
    mixed_fig19: (3_000, 6),
    mixed_fig20: (3_000, 4),
    mixed_fig21: (3_000, 4),
}
CLAIMS = {
    mixed_fig10: {"plan_s_k1e6", "migration_vs_mintable"},
    mixed_fig11: {"estimate_error", "plan_s_compact"},
    mixed_fig12: {"readj_vs_mixed_s"},
}
_results: dict[str, Result] = {}


def result_of(module: Any) -> Result:
    if module.__name__ not in _results:
        _results[module.__name__] = module.measure(*SMALL[module], 0, silent)
    return _results[module.__name__]


@pytest.mark.parametrize("module", SMALL, ids=lambda m: m.__name__.rsplit(".", 1)[1])
def test_every_figure_has_rows_claims_and_a_picture(module: Any) -> None:
    result = result_of(module)
    assert result.rows
    assert CLAIMS.get(module, set()) <= set(result.summary)
    assert all(math.isfinite(value) and value > 0 for value in result.summary.values()), result.summary
    figure = module.plot(result)
    assert sum(len(axes.lines) for axes in figure.axes) > 1
    figure.canvas.draw()


def test_they_are_all_in_the_list() -> None:
    names = {module.__name__.rsplit(".", 1)[1].replace("_", "-") for module in SMALL}
    assert names == {name for name in bench_names() if name.startswith("mixed-fig")} & names
    assert len(names) == 11
    assert "mixed-sweep" not in bench_names()


def test_hash_is_less_even_with_more_executors_and_fewer_keys() -> None:
    summary = result_of(mixed_fig7).summary
    assert summary["max_vs_min_executors_40"] > summary["max_vs_min_executors_5"]
    assert summary["max_vs_min_keys_500"] > summary["max_vs_min_keys_5000"]


def test_mixed_moves_less_than_min_table_and_a_wider_table_less_still() -> None:
    assert result_of(mixed_fig10).summary["migration_vs_mintable"] < 0.5
    assert result_of(mixed_fig17).summary["migration_widest_vs_narrowest"] < 1.0
    assert result_of(mixed_fig20).summary["table_beta2_vs_beta1"] < 1.0


def test_the_loads_estimated_from_vectors_are_close() -> None:
    assert result_of(mixed_fig11).summary["estimate_error"] < 0.01
