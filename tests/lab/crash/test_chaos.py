"""Plans redrawn at random, beside a storm of operations: the engine's matches are those of a run that kept its plan.

Two worlds on Spark, one of each form of exchange and matches; `flow/test_chaos_flow.py` has many more, without it.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from geoswarm.control import registry
from geoswarm.lab.crash.scenario import STEP_S, TUNING, Scenario, compare
from geoswarm.lab.crash.victim import process
from geoswarm.run.oracle.oracle import Pair, pairs_of
from geoswarm.store import journal
from geoswarm.store.storage import Storage
from restless import restless

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, FILES_LONG = 5, 12
ROUNDS_S = (STEP_S / 3, 2 * STEP_S, STEP_S)
"""Shorter than a batch, longer, and as long as one."""


def delivered(home: Path) -> dict[int, Counter[Pair]]:
    """The matches of each batch."""
    folders = {int(folder.name.removeprefix("batch=")): folder for folder in (home / "output").glob("batch=*")}
    return {
        k: Counter(pairs_of(pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))))
        for k, folder in folders.items()
    }


@pytest.mark.parametrize("seed", [0, 5])
def test_a_plan_redrawn_at_random_gives_the_matches_of_one_that_stays(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    known = registry.strategies()
    is_long = seed == 5  # every 1 to 10 batches in this world; at every round in the others, whose batches are few
    files, rounds_max = (FILES_LONG, 10) if is_long else (FILES, 1)
    monkeypatch.setattr(registry, "strategies", lambda: known | {"restless": restless(seed, rounds_max)})
    scenario = Scenario(seed=100 + seed, events_per_file=200, operations_per_file=150)
    scenario.write(tmp_path, range(files))
    forms = {"exchange": "rows" if seed % 3 == 2 else "packed", "matches": "pairs" if seed % 2 else "arrays"}
    moving = {"strategy": "restless", "round_s": ROUNDS_S[seed % 3]}
    process(tmp_path, "local[2]", TUNING.model_copy(update=forms | moving), name="moving")
    still = {"strategy": "static-uniform"}
    process(tmp_path, "local[2]", TUNING.model_copy(update=forms | still), name="still")

    homes = {name: tmp_path / name for name in ("moving", "still")}
    entries = {name: list(journal.read(Storage(str(home / "checkpoint")))) for name, home in homes.items()}
    for name, home in homes.items():
        verdict = compare(scenario, home / "checkpoint", home / "output", entries[name])
        assert verdict.is_equal, (name, verdict)
        assert verdict.batches == files
        assert verdict.pairs > 500
    assert delivered(homes["moving"]) == delivered(homes["still"])
    epochs = {name: {e["plan_epoch"] for e in told if e["kind"] == "batch"} for name, told in entries.items()}
    assert len(epochs["still"]) == 1
    rounds = {e["outcome"] for e in entries["moving"] if e["kind"] == "round"}
    assert rounds >= {"applied"} | ({"refused"} if ROUNDS_S[seed % 3] <= STEP_S and not is_long else set())
    assert len(epochs["moving"]) >= (2 if is_long or ROUNDS_S[seed % 3] > STEP_S else 3), entries["moving"]
