"""Figures 13 to 16 of Mixed on the real engine, at a tiny size: they run, their claims have figures, they are drawn."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from geoswarm.core.keys.hashing import key_ids
from geoswarm.core.keys.plan import KeyPlan
from geoswarm.flow.keyed.operator import Moment
from geoswarm.flow.keyed.turn import group, turn_of
from geoswarm.lab.bench.kit.catalogue import bench_names
from geoswarm.lab.bench.kit.harness import Result
from geoswarm.lab.bench.mixed import fig13 as mixed_fig13
from geoswarm.lab.bench.mixed import fig14 as mixed_fig14
from geoswarm.lab.bench.mixed import fig15 as mixed_fig15
from geoswarm.lab.bench.mixed import fig16 as mixed_fig16
from geoswarm.lab.bench.mixed import keyed_race
from geoswarm.lab.bench.mixed.keyed_race import (
    KeyedContestant,
    KeyedRace,
    KeyedRound,
    KeyedRounds,
    least_of,
    rounds_row,
    run_keyed_race,
    time_rounds,
)
from geoswarm.lab.bench.mixed.keyed_streams import stock
from geoswarm.lab.bench.mixed.pkg_count import PkgCount, PkgTotals
from geoswarm.lab.bench.mixed.task_costs import StageTasks, fit_costs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: dict[Any, Any] = {
    mixed_fig13: mixed_fig13.WordCountSizes(600, (1.0,), 1, executors=3),
    mixed_fig14: mixed_fig14.ToleranceSizes(150, 1_500, (0.02,), 2, 2, 1, executors=3),
    mixed_fig15: mixed_fig15.JoiningSizes(150, 1_500, 2, 4, executors=3),
    mixed_fig16: mixed_fig16.Q5Sizes(0.005, 2, (0.02,), 3, executors=3),
}
CLAIMS = {
    mixed_fig13: {"vs_ideal", "vs_ideal_theta_008", "vs_hash", "vs_pkg"},
    mixed_fig14: {"vs_hash", "vs_ideal", "vs_pkg_social", "vs_ideal_stock", "vs_ideal_raw", "bound_whole_keys"},
    mixed_fig15: {"vs_ideal_social", "gain_stock"},
    mixed_fig16: {"vs_hash_q5", "vs_ideal_q5"},
}


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("module", SMALL, ids=lambda m: m.__name__.rsplit(".", 1)[1])
def test_every_figure_on_the_engine_has_rows_claims_and_a_picture(
    module: Any, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_race, "TRIAL_SHARES", (1.0, 0.5))
    result: Result = module.measure(SMALL[module], 0, silent)  # in the session that all tests share
    assert CLAIMS[module] <= set(result.summary)
    assert all(math.isfinite(value) and value >= 0 for value in result.summary.values()), result.summary
    assert all(row["rows_per_s"] > 0 for row in result.rows)
    figure = module.plot(result)
    assert sum(len(axes.lines) for axes in figure.axes) > 1
    figure.canvas.draw()


def test_they_are_all_in_the_list_and_what_they_share_is_not() -> None:
    names = set(bench_names())
    assert {f"mixed-fig{n}" for n in range(7, 22)} <= names
    assert not {"keyed-race", "keyed-streams", "pkg-count", "task-costs"} & names


def test_mixed_balances_what_hash_does_not_and_all_count_the_same_rows(spark: "SparkSession") -> None:
    stream = stock(4_000, seed=1)
    race = KeyedRace(stream.operator, (KeyedContestant("mixed", 0.05), KeyedContestant("hash")), executors=4)
    (told,), _ = time_rounds([run_keyed_race(race, stream.batches, 3, 0, silent, "stock")])
    mixed, plain = (rounds_row(told[name][1:]) for name in ("mixed 0.05", "hash"))
    assert [lap.rows for lap in told["hash"]] == [4_000] * 3
    assert told["mixed 0.05"][0].makespan_s == pytest.approx(told["hash"][0].makespan_s)  # before the first plan
    assert mixed["table"] > 0 == plain["table"]
    assert 1.0 <= mixed["max_over_mean"] < plain["max_over_mean"]


def tasks(rows: list[int], keys: list[int], cpu_us: list[float]) -> StageTasks:
    return StageTasks(np.array(rows), np.array(keys), np.zeros(len(rows)), np.array(cpu_us))


def test_the_fit_finds_what_a_row_and_a_key_take_and_overlooks_who_was_disturbed() -> None:
    rng = np.random.default_rng(0)
    rows, keys = rng.integers(100, 9000, 200), rng.integers(10, 900, 200)
    cpu_us = 500 + 0.2 * rows + 1.5 * keys + rng.normal(0, 5, 200)
    cpu_us[::20] *= 3
    costs, error = fit_costs([tasks(rows.tolist(), keys.tolist(), cpu_us.tolist())])
    assert error < 0.01
    assert costs.tolist() == pytest.approx([500, 0.2, 1.5, 0], rel=0.05)


def test_a_cost_is_never_negative() -> None:
    costs, _ = fit_costs([tasks([100, 200, 300, 400], [40, 30, 20, 10], [10, 20, 30, 40])])
    assert costs.min() >= 0


def test_a_round_ends_with_its_last_executor_and_ideal_shares_the_work_evenly() -> None:
    rng = np.random.default_rng(1)

    def lap(shares: list[int], number: int) -> KeyedRound:
        rows = [*shares, *(int(n) for n in rng.integers(100, 2000, 3))]
        told = tasks(rows, [1] * len(rows), [50 + 2.0 * n for n in rows])
        return KeyedRound(number, sum(rows), (told,), 0.01, 0)

    laps = KeyedRounds({"hash": [lap([3000, 9000, 3000], n) for n in range(5)]}, [])
    (told,), costs = time_rounds([laps])
    assert costs.first[1] == pytest.approx(2.0, rel=0.01)
    assert costs.second is None
    for some in told["hash"]:
        assert some.makespan_s == pytest.approx(9000 * 2.0 / 1e6, rel=0.01)
        assert some.ideal_s == pytest.approx(some.rows / 6 * 2.0 / 1e6, rel=0.01)
    assert rounds_row(told["hash"])["latency_ms"] == pytest.approx(18, rel=0.01)


def test_what_single_turns_took_stands_beside_the_least_of_them() -> None:
    turns = [
        KeyedRound(0, 20, (tasks([10, 10], [1, 1], cpu_us),), 0.01, 0) for cpu_us in ([100.0, 300.0], [200.0, 100.0])
    ]
    (told,), _ = time_rounds([KeyedRounds({"hash": [least_of(turns)] * 2}, [])])
    row = rounds_row(told["hash"])
    assert row["max_over_mean_raw"] == pytest.approx(1.0)
    assert row["max_over_mean_once"] == pytest.approx((300 / 200 + 200 / 150) / 2)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_partial_key_grouping_counts_as_plain_counting_does(kind: pa.DataType) -> None:
    keys = pa.array(np.random.default_rng(3).zipf(1.5, 900) % 40).cast(kind)
    first, second, now = PkgCount(4, window=2), PkgTotals(), Moment(0, 0, 0)
    parts = group(first.feed(pa.record_batch([keys], names=["key"])))
    partial = first.update(turn_of(parts, [], first, now)).given
    assert len(pc.unique(keys)) < len(partial)  # some keys have two places
    totals = second.update(turn_of(group(second.feed(partial)), [], second, now)).given
    want = {row["values"]: row["counts"] for row in keys.value_counts().to_pylist()}
    for column in ("count", "added"):
        assert dict(zip(totals["key"].to_pylist(), totals[column].to_pylist(), strict=True)) == want


def test_partial_key_grouping_levels_what_one_heavy_key_tilts() -> None:
    plan, rng = KeyPlan.first(range(4)), np.random.default_rng(4)
    heavy = next(k for k in range(100) if len(set(plan.homes(np.array([2 * k, 2 * k + 1])))) == 2)
    keys = pa.array(np.where(rng.random(8_000) < 0.4, heavy, rng.integers(0, 500, 8_000)))
    fed = PkgCount(4).feed(pa.record_batch([keys], names=["key"]))
    loads = np.bincount(plan.route(key_ids(fed.column("key"))), minlength=4)
    assert np.bincount(plan.route(key_ids(keys)), minlength=4).max() > 4_000
    assert loads.max() < 2_500
