"""Every figure of the Mixed paper that plans at all, at a tiny size: it runs, its claims have figures, it is drawn."""

import math
from typing import Any

import pytest

from geoswarm.lab.bench.kit.harness import Result, bench_names
from geoswarm.lab.bench.mixed import (
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    fig17,
    fig18,
    fig19,
    fig20,
    fig21,
)


def silent(_: str) -> None:
    pass


SMALL = {
    fig7: ((5, 40), (500, 5_000), 5_000, 3),
    fig8: (3_000, 4),
    fig9: (3_000, 4),
    fig10: ((1_000, 4_000), 5),
    fig11: (20_000, 6),
    fig12: (1_500, 3, 5_000, 3),
    fig17: (3_000, (3, 6, 9), 4),
    fig18: (1_000, 60),
    fig19: (3_000, 6),
    fig20: (3_000, 4),
    fig21: (3_000, 4),
}
CLAIMS = {
    fig10: {"plan_s_k1e6", "migration_vs_mintable"},
    fig11: {"estimate_error", "plan_s_compact"},
    fig12: {"readj_vs_mixed_s"},
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
    names = {f"mixed-{module.__name__.rsplit('.', 1)[1]}" for module in SMALL}
    assert names == {name for name in bench_names() if name.startswith("mixed-fig")} & names
    assert len(names) == 11
    assert "mixed-sweep" not in bench_names()


def test_hash_is_less_even_with_more_executors_and_fewer_keys() -> None:
    summary = result_of(fig7).summary
    assert summary["max_vs_min_executors_40"] > summary["max_vs_min_executors_5"]
    assert summary["max_vs_min_keys_500"] > summary["max_vs_min_keys_5000"]


def test_mixed_moves_less_than_min_table_and_a_wider_table_less_still() -> None:
    assert result_of(fig10).summary["migration_vs_mintable"] < 0.5
    assert result_of(fig17).summary["migration_widest_vs_narrowest"] < 1.0
    assert result_of(fig20).summary["table_beta2_vs_beta1"] < 1.0


def test_the_loads_estimated_from_vectors_are_close() -> None:
    assert result_of(fig11).summary["estimate_error"] < 0.01
