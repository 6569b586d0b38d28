"""Plans redrawn at random, beside a storm of operations: the engine's matches are the oracle's.

`flow/test_chaos_flow.py` has many more worlds, without files. One world runs on Spark, the others in one process.
"""

from pathlib import Path

import pytest

from geoswarm.control.outcome import RoundEntry
from geoswarm.lab.crash.scenario import STEP_S, TUNING, Scenario, compare
from geoswarm.lab.crash.victim import IN_PROCESS, process
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage
from restless import restless

FILES, FILES_LONG = 5, 10
ROUNDS_S = (STEP_S / 3, 2 * STEP_S, STEP_S)
"""Shorter than a batch, longer, and as long as one."""


def on_spark(request: pytest.FixtureRequest) -> str:
    spark = request.getfixturevalue("spark")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    return "local[2]"


@pytest.mark.parametrize(
    ("master", "seed"), [("local[2]", 0), (IN_PROCESS, 1), (IN_PROCESS, 2), (IN_PROCESS, 5), (IN_PROCESS, 6)]
)
def test_a_plan_redrawn_at_random_gives_the_oracles_matches(
    request: pytest.FixtureRequest, tmp_path: Path, master: str, seed: int
) -> None:
    if master != IN_PROCESS:
        master = on_spark(request)
    is_long = seed == 5  # every 1 to 10 batches in this world; at every round in the others, whose batches are few
    files, rounds_max = (FILES_LONG, 10) if is_long else (FILES, 1)
    scenario = Scenario(seed=100 + seed, events_per_file=200, operations_per_file=150)
    scenario.write(tmp_path, range(files))
    forms = {"exchange": "rows" if seed % 3 == 2 else "packed", "matches": ("arrays", "pairs", "alerts")[seed % 3]}
    moving = TUNING.model_copy(update=forms | {"round_s": ROUNDS_S[seed % 3]})
    process(tmp_path, master, moving, strategy=restless(seed, rounds_max)())

    checkpoint, output = (tmp_path / "run" / name for name in ("checkpoint", "output"))
    reader, verdict = JournalReader(Storage(str(checkpoint))), compare(scenario, checkpoint, output)
    assert verdict.is_equal, verdict
    assert verdict.batches == files
    assert verdict.pairs > 500
    rounds = {e.outcome for e in reader.read(RoundEntry)}
    assert rounds >= {"applied"} | ({"refused"} if ROUNDS_S[seed % 3] <= STEP_S and not is_long else set())
    epochs = {e.plan_epoch for e in reader.read(BatchEntry)}
    assert len(epochs) >= (2 if is_long or ROUNDS_S[seed % 3] > STEP_S else 3)
