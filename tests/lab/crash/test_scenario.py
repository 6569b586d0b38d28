"""One scenario, several runners: the oracle, one process, `local[2]` and a cluster of two executor processes agree.

`test_crash.py` has `local[1]`.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import TUNING, BatchFiles, Comparison, Scenario, batches_of, compare, expected_batches
from geoswarm.lab.crash.victim import IN_PROCESS, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO = Scenario(seed=3)
FILES = 4
IN_STEP = [BatchFiles(range(k, k + 1), range(k, k + 1)) for k in range(FILES)]


def judge_run(home: Path) -> Comparison:
    return compare(SCENARIO, home / "checkpoint", home / "output")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    SCENARIO.write(tmp_path, range(FILES))
    return tmp_path


def test_the_scenario_has_something_of_everything() -> None:
    answers = expected_batches(SCENARIO, IN_STEP)
    assert all(len(answer.pairs) > 40 for answer in answers)
    assert all(answer.matched < answer.events_in - answer.dead["event"] for answer in answers), "some meet nothing"
    assert all(answer.dead["event"] == 9 and answer.dead["operation"] > 9 for answer in answers)
    assert max(Counter(event for a in answers for event, _ in a.pairs).values()) > 3, "some events meet many"


def test_the_scenario_can_tell_when_something_is_wrong() -> None:
    """Operations one batch late, or a clock that stands still, would give other matches."""
    right = [answer.pairs for answer in expected_batches(SCENARIO, IN_STEP)]
    late = [BatchFiles(batch.events, range(max(0, k - 1), k)) for k, batch in enumerate(IN_STEP)]
    assert [answer.pairs for answer in expected_batches(SCENARIO, late)] != right
    rows = [row for k in range(FILES) for row in SCENARIO.operations(k).to_pylist()]
    assert sum(row["expires"] is not None for row in rows) > 20
    again, other = (str(Scenario(seed).events(1).to_pylist()) for seed in (3, 4))
    assert str(SCENARIO.events(1).to_pylist()) == again != other


@pytest.mark.parametrize(("exchange", "matches"), [("packed", "alerts"), ("rows", "pairs")])
def test_two_threads_give_what_the_oracle_gives(
    spark: "SparkSession", world: Path, exchange: Any, matches: Any
) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    process(world, "local[2]", TUNING.model_copy(update={"exchange": exchange, "matches": matches}))
    check(world / "run")


@pytest.mark.cluster
def test_an_engine_in_one_process_gives_the_same(world: Path) -> None:
    """A cluster does, too: `test_crash.py`."""
    with Victim(world, IN_PROCESS, "--exchange", "rows") as victim:
        victim.start()
        victim.until_done(starts_max=1)
        check(victim.home)


def check(home: Path) -> None:
    assert batches_of(home / "checkpoint") == IN_STEP
    verdict = judge_run(home)
    assert verdict.is_equal, verdict
    assert verdict.batches == FILES
    assert verdict.pairs == sum(len(answer.pairs) for answer in expected_batches(SCENARIO, IN_STEP)) > 500
