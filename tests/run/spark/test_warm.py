"""After the warm-up of an installation, a run on Spark compiles nothing more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geoswarm.run import warm
from geoswarm.run.warm_parts import PARTS
from geoswarm.version import SOURCE_FOLDER

RUN = """
import sys
from pathlib import Path

import geoswarm as gs
from geoswarm.lab.crash.scenario import TUNING, Scenario
from geoswarm.lab.crash.victim import process

world = Path(sys.argv[1])
Scenario(seed=1).write(world, range(3))
process(world, "local[2]", TUNING.model_copy(update={"strategy": "auto", "round_s": 1.0}))  # areas, words, transitions

spark = gs.build_session()
tweets = gs.Tweets(seed=1)
with gs.Engine(spark, gs.Contract(executors=4), gs.Tuning(strategy="auto-places", round_s=0.01),
               checkpoint=str(world / "demo")) as engine:
    engine.submit(__import__("pyarrow").Table.from_batches([tweets.operations(0, 500, 500)]))
    events = gs.tweets_stream(spark, tweets, rows_per_batch=2_000, rows_total=8_000)
    engine.start(events=events, sink=gs.sinks.Memory(), available_now=True).wait()

regions = __import__("pyarrow").table({"name": ["a"], "geometry": ["POLYGON((0 0, 9 0, 0 9, 0 0))"]})
points = spark.range(1000).selectExpr("id", "id % 10 + 0.5D AS x", "id % 7 + 0.5D AS y")
assert gs.join(points, regions).count() > 0
"""


def test_the_parts_of_the_warm_up_are_named_once() -> None:
    assert tuple(PARTS) == warm.PARTS


@pytest.mark.cluster
def test_after_the_warm_up_streams_and_joins_on_spark_compile_nothing(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """The folder is kept between runs, so that only what has changed since is compiled."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("kernels"))
    environ = os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": SOURCE_FOLDER}
    command = [sys.executable, "-m", "geoswarm.service.cli", "warm", "--no-spark"]
    subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    before = set(folder.rglob("*.nbc"))
    assert len(before) > 50
    ran = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], env=environ, capture_output=True, text=True)
    more = set(folder.rglob("*.nbc")) - before
    for file in more:
        file.unlink()  # else the next run of this test would find them
    assert ran.returncode == 0, ran.stderr
    assert sorted(file.name.split("-")[0] for file in more) == []


def test_a_warm_up_that_ends_with_its_process_reports_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # for its processes
    monkeypatch.setattr(warm, "folder_to_write", lambda: tmp_path)
    monkeypatch.setattr(warm, "folders_to_read", lambda: [tmp_path])
    said = list[str]()
    warming = warm.warm_in_background(said.append)
    assert warming is not None
    warming.stop()
    assert warming.wait(60)
    assert warming.failed == {}
    assert said == ["compiling kernels, once for this installation in the background"]
