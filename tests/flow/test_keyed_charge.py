"""What a key is charged: all of the time that its executor took, by what its keys did, or by what each call took."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.keyed.costs import TASKS_MIN, CostFit
from geoswarm.core.keys.hashing import key_ids
from geoswarm.flow.keyed.charge import FIRST_COSTS, KeyCosts, WorkedKeys, add_runner_time, charge_keys
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.key_report import KeyedReport
from geoswarm.flow.keyed.operator import KEY
from geoswarm.flow.keyed.own import Own, PerKey
from geoswarm.flow.observe import TaskName
from stepped_keyed import SteppedKeyed

WORDS = pa.array([f"word {i}" for i in range(30)])


def worked_keys(rng: np.random.Generator, keys: int, measured: bool) -> WorkedKeys:
    took_us = rng.exponential(50.0, keys) if measured else np.zeros(keys)
    return WorkedKeys(np.arange(keys), rng.integers(0, 9, keys).astype(float), np.zeros(keys), took_us, np.ones(keys))


@settings(deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.booleans(),
    st.floats(0, 1e7),
    st.tuples(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9)),
)
def test_the_keys_of_an_executor_are_charged_all_that_it_took(
    seed: int, keys: int, measured: bool, cpu_us: float, costs: tuple[float, float, float]
) -> None:
    charged = charge_keys(worked_keys(np.random.default_rng(seed), keys, measured), cpu_us, KeyCosts(*costs))
    assert (charged >= 0.0).all()
    assert charged.sum() == pytest.approx(cpu_us)


def test_a_key_with_more_work_more_rows_or_a_longer_call_is_charged_more() -> None:
    plain = WorkedKeys(np.arange(4), np.array([1.0, 5, 1, 1]), np.array([0.0, 0, 4, 0]), np.zeros(4), np.zeros(4))
    charged = charge_keys(plain, 1000.0, KeyCosts(1.0, 2.0, 3.0))
    assert charged.tolist() == pytest.approx([1000 * weight / 32 for weight in (3, 11, 15, 3)])
    called = plain._replace(took_us=np.array([0.0, 0, 0, 968.0]))
    assert charge_keys(called, 1000.0, KeyCosts(1.0, 2.0, 3.0)).tolist() == pytest.approx([3, 11, 15, 971])


class Slow(PerKey):
    """Takes as many milliseconds as a row says."""

    given = pa.schema([("took", pa.int64())])

    def __init__(self) -> None:
        self.now_s = 0.0

    def init(self, key: Any) -> int:
        return 0

    def update(self, state: int, rows: list[dict[str, Any]], window: Any) -> tuple[int, list[dict[str, Any]]]:
        took = sum(row["ms"] for row in rows)
        self.now_s += took / 1e3
        return state + took, [{"took": took}]

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_each_key_of_a_users_stage_is_charged_what_its_call_took(tmp_path: Path) -> None:
    stage = Slow()
    engine = SteppedKeyed(tmp_path, Own(stage), 3, cpu_s=lambda: stage.now_s, costs=FIRST_COSTS)
    for batch in range(3):
        rng = np.random.default_rng(batch)
        words, ms = rng.choice(30, 80), rng.integers(0, 50, 80)
        engine.batch(batch, 0, pa.record_batch({KEY: WORDS.take(pa.array(words)), "ms": pa.array(ms)}))
        want = dict(zip(key_ids(WORDS).tolist(), np.bincount(words, ms, 30), strict=True))
        for executor, loads in engine.loads.items():
            for key, load in zip(loads.ids.tolist(), loads.load.tolist(), strict=True):
                assert load == pytest.approx(1e3 * want.pop(key), rel=1e-4)
            assert loads.load.sum() == pytest.approx(engine.worked[executor].cpu_us, abs=1.0)
            assert engine.worked[executor].measured_us == pytest.approx(engine.worked[executor].cpu_us, abs=1.0)
        assert not any(want.values())


def ticking() -> Callable[[], float]:
    """A millisecond passes each time the clock is read."""
    moments = iter(range(1_000_000))
    return lambda: next(moments) / 1e3


@pytest.mark.parametrize("operator", [Count(window=3), Own(Slow(), window=3)], ids=["count", "own"])
def test_under_the_same_clock_keys_are_charged_the_same_and_their_sum_is_what_the_executor_took(
    tmp_path: Path, operator: Any
) -> None:
    def run(folder: Path) -> list[list[float]]:
        engine = SteppedKeyed(folder, operator, cpu_s=ticking(), costs=KeyCosts(2.0, 1.0, 0.5))
        charged = []
        for batch in range(4):
            rng = np.random.default_rng(batch)
            words, ms = rng.choice(30, 80), rng.integers(0, 50, 80)
            engine.batch(batch, batch, pa.record_batch({KEY: WORDS.take(pa.array(words)), "ms": pa.array(ms)}))
            for executor, loads in sorted(engine.loads.items()):
                assert loads.load.sum() == pytest.approx(engine.worked[executor].cpu_us, rel=1e-6)
                assert engine.worked[executor].cpu_us > 0
                charged.append(loads.load.tolist())
        return charged

    assert run(tmp_path / "once") == run(tmp_path / "again")


def test_without_costs_a_key_is_charged_the_work_that_its_operator_counts(tmp_path: Path) -> None:
    engine = SteppedKeyed(tmp_path, Count(), cpu_s=ticking())
    words = np.random.default_rng(0).choice(30, 200)
    engine.batch(0, 0, pa.record_batch({KEY: WORDS.take(pa.array(words))}))
    got = {k: v for loads in engine.loads.values() for k, v in zip(loads.ids.tolist(), loads.load, strict=True)}
    counts = np.bincount(words, minlength=30)
    assert got == {int(key): n for key, n in zip(key_ids(WORDS), counts, strict=True) if n}


def test_costs_are_found_again_among_noise_and_the_noise_is_known() -> None:
    rng, fit = np.random.default_rng(0), CostFit()
    for n in range(400):
        if n < TASKS_MIN:
            assert fit.read() == FIRST_COSTS
            assert fit.noise(1) == 0.0
        keys, work, given_rows = int(rng.integers(1, 900)), float(rng.integers(0, 20_000)), int(rng.integers(0, 5000))
        cpu_us = (2000 + 3.0 * keys + 0.5 * work + 1.5 * given_rows) * rng.normal(1.0, 0.1)
        fit.add(keys, work, given_rows, cpu_us + 700.0, measured_us=700.0)
    assert fit.read() == pytest.approx((3.0, 0.5, 1.5), rel=0.15)
    assert fit.noise(1) == pytest.approx(2 * 0.0674, rel=0.3)  # the median of |normal| is 0.674 of its deviation
    assert fit.noise(4) == pytest.approx(fit.noise(1) / 2)


def test_times_that_grow_with_nothing_leave_the_first_costs() -> None:
    fit = CostFit()
    for n in range(100):
        fit.add(n + 1, float(n), n, 5000.0 - 10 * n)
    assert fit.read() == FIRST_COSTS


def test_what_the_runner_spent_on_a_task_is_divided_by_the_rows_of_its_executors() -> None:
    one, other = TaskName(4, 10), TaskName(4, 11)
    worked = {
        0: KeyedReport(rows=30, cpu_us=100, task=one),
        1: KeyedReport(rows=0, cpu_us=5, task=other),
        2: KeyedReport(rows=10, cpu_us=50, task=one),
    }
    whole = add_runner_time(worked, {one: 80, other: 7})
    assert {executor: report.cpu_us for executor, report in whole.items()} == {0: 160, 1: 12, 2: 70}
    assert add_runner_time(worked, {one: 80}) == worked, "executors of a batch are measured alike, or not at all"
    assert KeyedReport.from_json(json.loads(json.dumps(worked[0].to_json()))) == worked[0]
