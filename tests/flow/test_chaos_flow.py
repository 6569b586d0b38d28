"""Plans redrawn at random between batches, in many small worlds: the matches are the oracle's, also when run again.

The same on Spark, with fewer worlds, is `scenario/test_chaos.py`.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.grid import Grid
from geoswarm.errors import PlanError
from geoswarm.run.oracle.oracle import Oracle
from restless import illegal_change, legal_changes
from stepped import BatchResult, SteppedEngine
from worlds import BOUNDS, events, operations

WORLDS = 40
BATCHES = 6
STEP_US = 10
"""From one batch to the next; a subscription that expires lives for at most 50."""


def tuning_of(rng: np.random.Generator) -> Tuning:
    settings = {
        "exchange": str(rng.choice(["packed", "rows"])),
        "matches": str(rng.choice(["arrays", "pairs"])),
        "deltas_max": int(rng.integers(1, 5)),
        "match_rows_max": int(rng.choice([7, 1000])),
        "match_pairs_max": int(rng.choice([5, 100_000])),
    }
    return Tuning.model_validate(settings)


def check_owners(result: BatchResult) -> None:
    """Only executors that the plan names did any work."""
    assert set(result.report.executors) <= {owner for p in result.plan.partitions for owner in p.owners}
    assert set(result.report.partitions) <= {p.id for p in result.plan.partitions}
    assert sum(load.events for load in result.report.executors.values()) == result.report.events


@pytest.mark.parametrize("seed", range(WORLDS))
def test_however_plans_are_redrawn_the_matches_are_the_oracles(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng((seed, 41))
    columns, rows = (int(side) for side in rng.integers(1, 41, 2))
    executors, snap = int(rng.integers(1, min(8, columns * rows + 1))), rng.choice([0.0, 9.0]) or None
    contract = Contract(columns=columns, rows=rows, executors=executors)
    engine, oracle = SteppedEngine(tmp_path, contract, tuning_of(rng)), Oracle(BOUNDS)
    for b in range(BATCHES):
        now_us = STEP_US * b
        batch = pa.table(events(rng, int(rng.integers(0, 120)), first_id=1000 * b, snap=snap))
        storm = operations(rng, int(rng.integers(0, 70)), ids=50, now_us=now_us)
        oracle.operate(storm, now_us)
        want = sorted(oracle.match(batch, now_us))
        result = engine.batch(b, batch, storm, now_us)
        assert sorted(result.pairs) == want
        check_owners(result)
        plan = engine.checkpoint.plan
        if rng.random() < 0.7:
            changes = legal_changes(plan, rng, int(rng.integers(1, 9)))
            with pytest.raises(PlanError):
                plan.apply([*changes, illegal_change(plan.apply(changes), rng)])
            engine.checkpoint.adopt_plan(plan.apply(changes))
        if rng.random() < 0.3:  # a crash before Spark's commit: by then another plan is in force
            again = engine.batch(b, batch, storm, now_us + 12345)
            assert sorted(again.pairs) == want
            assert again.plan == result.plan
    engine.close()


def test_the_worlds_have_something_of_everything() -> None:
    """A chaos whose plans never split, merge or share would show little."""
    kinds: set[str] = set()
    shared = most = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plan = uniform(Grid(*BOUNDS, columns=30, rows=20), 4)
        for _ in range(BATCHES):
            changes = legal_changes(plan, rng, 6)
            kinds |= {type(change).__name__ for change in changes}
            plan = plan.apply(changes)
        shared += plan.is_spread
        most = max(most, len(plan.partitions))
    assert kinds == {"Move", "Spread", "Split", "Merge"}
    assert shared > 6
    assert most > 8
