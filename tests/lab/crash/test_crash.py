"""Processes are killed with SIGKILL, the commit log is cut back, the engine starts again: the output is the oracle's.

A few kills only; `geoswarm bench recovery` does many. `test_kill_moving_plan.py` has those of a driver and a worker of
one process, `test_damage.py` the files of the checkpoint itself.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from geoswarm.errors import StateError
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import CONTRACT, TUNING, Scenario, compare, now_s
from geoswarm.lab.crash.victim import process
from geoswarm.run.spark.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO = Scenario(seed=8)
YEAR_S = 365 * 86400.0


def check(home: Path, batches_min: int) -> None:
    checkpoint = home / "checkpoint"
    verdict = compare(SCENARIO, checkpoint, home / "output")
    assert verdict.is_equal, verdict
    assert verdict.batches >= batches_min
    assert verdict.pairs > 500


def kill_one(victim: Victim, kind: str, rng: np.random.Generator) -> None:
    assert victim.until(lambda: victim.kill(kind, rng) > 0, f"a {kind} to kill")


@pytest.mark.cluster
def test_a_cluster_replaces_a_killed_worker_and_a_killed_executor_by_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    SCENARIO.write(tmp_path, range(4))
    with Victim(tmp_path, "local-cluster[2,1,1024]", "--matches", "alerts") as victim:
        victim.start()
        assert victim.until(lambda: victim.commits() >= 1, "the first batch")
        kill_one(victim, "worker", rng)
        assert victim.until(lambda: victim.commits() >= 2, "a batch after the worker was killed")
        kill_one(victim, "executor", rng)
        victim.until_done(starts_max=1)
        check(victim.home, 4)


@pytest.fixture
def finished_run(spark: "SparkSession", tmp_path: Path) -> Path:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    SCENARIO.write(tmp_path, range(4))
    process(tmp_path, "local[2]", TUNING)
    check(tmp_path / "run", 4)
    return tmp_path


def forget_commit(home: Path) -> int:
    commits = home / "checkpoint" / "spark" / "commits"
    newest = max(int(file.name) for file in commits.glob("*") if file.name.isdecimal())
    for file in commits.iterdir():
        if file.name.strip(".").split(".")[0] == str(newest):  # with its checksum
            file.unlink()
    return newest


def test_a_batch_whose_commit_was_lost_is_run_again_and_progress_that_was_removed_is_refused(
    spark: "SparkSession", finished_run: Path
) -> None:
    home = finished_run / "run"
    newest = forget_commit(home)
    process(finished_run, "local[2]", TUNING, later_s=YEAR_S)  # delivered already: left as it is
    check(home, 4)
    forget_commit(home)
    shutil.rmtree(home / "output" / f"batch={newest}")  # killed before the sink was done
    half = home / "checkpoint" / "reports" / f"{newest:012d}" / ".half"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"what a killed worker was writing")
    process(finished_run, "local[2]", TUNING, later_s=YEAR_S)  # by this clock all that expires has expired
    check(home, 4)
    checkpoint = home / "checkpoint"
    with Engine(spark, CONTRACT, checkpoint=str(checkpoint), clock=lambda: now_s(checkpoint)) as engine:
        status = engine.status()
    assert status["batches"] == 4, "a batch that ran three times is counted once"
    assert status["events"] == 4 * SCENARIO.events_per_file

    shutil.rmtree(checkpoint / "spark")
    with pytest.raises(StateError, match="restore both together"):
        process(finished_run, "local[2]", TUNING)
