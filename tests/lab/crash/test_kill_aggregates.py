"""An engine whose subscriptions count is killed: no answer is lost or repeated, and all are those of brute force."""

import time
from pathlib import Path

import numpy as np
import pytest

from geoswarm.lab.crash.counted import AnswerComparison, compare_answers
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import Scenario, compare
from geoswarm.lab.crash.victim import ANSWERS, IN_PROCESS

SCENARIO = Scenario(seed=31, counts=True)
STRATEGIES = ("per-batch", "swarm-measured")


def check(victim: Victim, scenario: Scenario) -> AnswerComparison:
    matches = compare(scenario, victim.checkpoint, victim.output)
    assert matches.is_equal, matches
    found = compare_answers(scenario, victim.checkpoint, victim.home / ANSWERS)
    assert (found.lost, found.repeated, found.wrong) == (0, 0, 0), found
    assert found.answers > 50
    return found


def kill_and_wait(victim: Victim, kind: str, rng: np.random.Generator, within_s: float) -> None:
    """Kill somewhere after the next commit, which there must be."""
    begun = victim.commits()
    assert victim.until(lambda: victim.commits() > begun, "a batch"), "the files have run out"
    time.sleep(rng.uniform(0, within_s))
    assert victim.until(lambda: victim.kill(kind, rng) > 0, f"a {kind} to kill")


def test_an_engine_in_one_process_that_is_killed_gives_each_answer_once(tmp_path: Path) -> None:
    rng, files = np.random.default_rng(5), 24
    SCENARIO.write(tmp_path, range(files))
    with Victim(tmp_path, IN_PROCESS, "--counts", strategies=STRATEGIES) as victim:
        victim.start()
        for _ in range(3):
            kill_and_wait(victim, "driver", rng, 0.3)
            victim.start()
        victim.until_done()
        assert victim.starts > 3
        assert check(victim, SCENARIO).batches == files


@pytest.mark.cluster
def test_a_driver_and_a_worker_of_spark_that_are_killed_lose_and_repeat_no_answer(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    SCENARIO.write(tmp_path, range(12))
    with Victim(tmp_path, "local[2]", "--counts", strategies=STRATEGIES) as victim:
        victim.start()
        kill_and_wait(victim, "driver", rng, 1.0)
        kill_and_wait(victim, "worker", rng, 0.5)
        victim.until_done()
        assert victim.starts >= 2
        check(victim, SCENARIO)
