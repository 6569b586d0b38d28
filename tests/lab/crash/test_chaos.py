"""Plans redrawn at random, beside a storm of operations: the engine's matches are those of a run that kept its plan.

`flow/test_chaos_flow.py` has many more worlds, without files. One world runs on Spark, the others in one process.
"""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from geoswarm.control.outcome import RoundEntry
from geoswarm.lab.crash.scenario import STEP_S, TUNING, Scenario, compare
from geoswarm.lab.crash.victim import IN_PROCESS, process
from geoswarm.run.oracle.oracle import Pair, pairs_of
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from restless import restless

FILES, FILES_LONG = 5, 12
ROUNDS_S = (STEP_S / 3, 2 * STEP_S, STEP_S)
"""Shorter than a batch, longer, and as long as one."""


def matches_by_batch(home: Path) -> dict[int, Counter[Pair]]:
    """The matches of each batch."""
    folders = {int(folder.name.removeprefix("batch=")): folder for folder in (home / "output").glob("batch=*")}
    return {
        k: Counter(pairs_of(pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))))
        for k, folder in folders.items()
    }


def on_spark(request: pytest.FixtureRequest) -> str:
    spark = request.getfixturevalue("spark")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    return "local[2]"


@pytest.mark.parametrize(
    ("master", "seed"), [("local[2]", 0), (IN_PROCESS, 1), (IN_PROCESS, 2), (IN_PROCESS, 5), (IN_PROCESS, 6)]
)
def test_a_plan_redrawn_at_random_gives_the_matches_of_one_that_stays(
    request: pytest.FixtureRequest, tmp_path: Path, master: str, seed: int
) -> None:
    if master != IN_PROCESS:
        master = on_spark(request)
    is_long = seed == 5  # every 1 to 10 batches in this world; at every round in the others, whose batches are few
    files, rounds_max = (FILES_LONG, 10) if is_long else (FILES, 1)
    scenario = Scenario(seed=100 + seed, events_per_file=200, operations_per_file=150)
    scenario.write(tmp_path, range(files))
    forms = {"exchange": "rows" if seed % 3 == 2 else "packed", "matches": "pairs" if seed % 2 else "arrays"}
    moving = TUNING.model_copy(update=forms | {"round_s": ROUNDS_S[seed % 3]})
    process(tmp_path, master, moving, name="moving", strategy=restless(seed, rounds_max)())
    still = {"strategy": "static-uniform"}
    process(tmp_path, master, TUNING.model_copy(update=forms | still), name="still")

    homes = {name: tmp_path / name for name in ("moving", "still")}
    readers = {name: JournalReader(Storage(str(home / "checkpoint"))) for name, home in homes.items()}
    for name, home in homes.items():
        verdict = compare(scenario, home / "checkpoint", home / "output")
        assert verdict.is_equal, (name, verdict)
        assert verdict.batches == files
        assert verdict.pairs > 500
    assert matches_by_batch(homes["moving"]) == matches_by_batch(homes["still"])
    epochs = {name: {e.plan_epoch for e in reader.read(BatchEntry)} for name, reader in readers.items()}
    assert len(epochs["still"]) == 1
    rounds = {e.outcome for e in readers["moving"].read(RoundEntry)}
    assert rounds >= {"applied"} | ({"refused"} if ROUNDS_S[seed % 3] <= STEP_S and not is_long else set())
    assert len(epochs["moving"]) >= (2 if is_long or ROUNDS_S[seed % 3] > STEP_S else 3)
