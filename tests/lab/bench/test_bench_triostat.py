"""What TrioStat and AQWA keep and send: the thesis' formulas, and the same by making and writing."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.stats.triostat import Box
from geoswarm.errors import GeoswarmError, InputError
from geoswarm.lab.bench.kit.catalogue import bench_names, describe
from geoswarm.lab.bench.kit.harness import Result
from geoswarm.lab.bench.triostat import fig6_2 as triostat_fig62
from geoswarm.lab.bench.triostat import stored
from geoswarm.lab.bench.triostat.size import (
    StoredSize,
    blocks,
    check_formula,
    expected_size,
    make_and_count,
    make_aqwa,
    numbers_aqwa,
    numbers_best,
    numbers_worst,
    stored_numbers,
    strips,
)


def silent(_: str) -> None:
    pass


def curves(drawn: Any) -> int:
    return len(drawn.axes[0].lines)


def column(result: Result, key: str) -> list[float]:
    return [row[key] for row in result.rows]


def test_a_benchmark_may_have_a_name_that_no_file_can_have() -> None:
    assert {"triostat-fig6.2", "triostat-fig6.3", "triostat-fig6.4"} <= set(bench_names())
    assert not {name for name in bench_names() if name.startswith("triostat-fig6") and "." not in name}
    assert describe("triostat-fig6.3").startswith("Thesis Fig. 6.3")


@given(st.integers(1, 30), st.data())
def test_formulas_say_what_is_made_and_written(side: int, data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, side * side))
    worst = list(strips(side, partitions))
    assert len(worst) == partitions
    assert covers_once(worst, side)
    assert make_and_count(worst) == expected_size(numbers_worst(side, partitions), partitions)
    down = data.draw(st.integers(1, side))
    best = list(blocks(side, down * down))
    assert len(best) == down * down
    assert covers_once(best, side)
    assert make_and_count(best) == expected_size(numbers_best(side, down * down), down * down)
    assert numbers_best(side, down * down) <= numbers_worst(side, down * down)
    assert make_aqwa(side) == expected_size(numbers_aqwa(side))


def covers_once(boxes: list[Box], side: int) -> bool:
    cells = np.zeros((side, side), np.int64)
    for box in boxes:
        cells[box.row0 : box.row1 + 1, box.col0 : box.col1 + 1] += 1
    return bool((cells == 1).all())


def test_a_formula_that_does_not_hold_is_not_reported() -> None:
    check_formula("squares", expected_size(numbers_best(10, 4), 4), make_and_count(blocks(10, 4)))
    with pytest.raises(GeoswarmError, match="one of them is wrong"):
        check_formula("squares", expected_size(numbers_best(10, 4) + 1, 4), make_and_count(blocks(10, 4)))
    with pytest.raises(GeoswarmError, match="one of them is wrong"):
        check_formula("AQWA", expected_size(numbers_aqwa(10)), StoredSize(numbers_aqwa(10), 8 * numbers_aqwa(10) - 1))
    with pytest.raises(InputError, match="do not fit"):
        list(blocks(10, 13))


def test_the_coordinator_gets_two_numbers_an_executor_or_a_line_a_side_or_five_a_cell() -> None:
    sizes = triostat_fig62.CoordinatorBytesSizes((50, 100, 200), (4, 16), 200, (100, 4))
    result = triostat_fig62.measure(sizes, 0, silent)
    assert set(column(result, "triostat_bytes")) == {22 * 2 * 8}
    for row in result.rows:
        assert row["aqwa_bytes"] == 5 * 8 * row["side"] ** 2
        ends = 2 * row["side"] * round(row["partitions"] ** 0.5)
        assert row["engine_bytes"] == 8 * ends + 40 * row["partitions"]
        assert row["engine_bytes"] < row["engine_file_bytes"] < row["aqwa_bytes"]
    assert result.summary["bytes_vs_aqwa"] == 352 / 400_000
    # 4 statistics of 2 x 50 numbers in base64, and the JSON of 22 reports around them
    assert 352 / 400_000 < 4 * 840 / 400_000 < result.summary["engine_bytes_vs_aqwa"] < 0.025
    assert curves(triostat_fig62.plot(result)) == 3


def test_twice_the_side_is_twice_the_triostat_and_four_times_the_aqwa() -> None:
    shown = stored.FIGURES["triostat-fig6.4"]
    result = stored.measure(shown, stored.StoredSizes((50, 100, 200), (36,), 100, 100), 0, silent)
    for key, factor in (("triostat_best", 2), ("aqwa", 4)):
        values = column(result, key)
        assert [b / a for a, b in pairwise(values)] == [factor, factor]
    assert column(result, "is_made") == [True, True, False]
    assert result.summary["bytes_vs_aqwa"] == (8 * 8 * 100 * 12 + 40 * 36) / (8 * 10 * 100 * 100)
    assert curves(stored.plot(shown, result)) == 3


def test_triostat_stores_less_until_partitions_are_a_few_cells_each() -> None:
    side = 40
    shown = stored.FIGURES["triostat-fig6.3"]
    result = stored.measure(shown, stored.StoredSizes((side,), (1, 4, 16, 100, 400, 1600), 16, 400), 0, silent)
    assert column(result, "aqwa") == [10 * side * side] * 6
    assert result.rows[0]["triostat_best"] == result.rows[0]["triostat_worst"] == 8 * 2 * side
    assert result.rows[-1]["triostat_best"] == result.rows[-1]["triostat_worst"] == 16 * side * side  # single cells
    for case, at in (("best", 625), ("worst", 400)):
        assert result.summary[f"breakeven_partitions_{case}"] == at
    assert (
        stored_numbers(side, 625, False)["triostat_best"]
        == stored_numbers(side, 400, False)["triostat_worst"]
        == 10 * side * side
    )
    assert 0 < result.summary["bytes_vs_aqwa"] < result.summary["bytes_vs_aqwa_worst"] < 1
    assert curves(stored.plot(shown, result)) == 3
