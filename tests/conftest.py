"""What tests share: one Spark session for the whole run, the folder of real data sets, and three rules.

1. A test is `quick` (`make quick`) if it starts no process (Spark, a broker, a server), is not marked `slow`, and is of
   the first world of its kind. A quick test that starts a process fails, in every run.
2. The seeds of random worlds: `seeds.py`.
3. Folders whose files take long come last, the longest first.
"""

import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import is_hypothesis_test, settings

import seeds
from class_archive import ARCHIVE, QUIET, SHORT_LIFE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Every run draws the same examples, and none is timed: what fails, fails for everybody, on busy machines and idle ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Where tests run side by side, they are told a width, and consoles that are made at import would keep it.
os.environ.pop("COLUMNS", None)

# For the S3 server of test_remote_storage.py: Spark's workers get the environment that the session started with.
os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


# Tests start many JVMs that live for seconds: classes from an archive, and no time spent on compiling well.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUIET} -XX:SharedArchiveFile={ARCHIVE} {SHORT_LIFE}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIFE)


KEPT = seeds.kept_seeds(seeds.FILE.read_text())
LONG = ("lab/crash", "run/kafka", "run/spark", "lab/bench", "store", "service")
"""Folders whose files take long, the longest first: where two processes share the files (`make test`), both should end
together. All others come before them, and leave compiled kernels on the disk for everybody."""
PROCESSES = {"spark", "broker", "kafka_jars", "connector_conf", "bucket"}
"""Fixtures that start a process, or need one."""
WHOLE = ("lab/", "run/kafka/", "run/sim/", "run/spark/")
"""Folders of which no test is quick."""
QUICK_WORLDS = 1
"""Of the worlds of one test, as many are quick: the others show more of the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fresh", type=int, help="play fresh seeds, drawn from this number; keep those that fail")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that hold no quick test are not even imported where only those are asked for."""
    is_whole = f"{_place_of(collection_path)}/".startswith(WHOLE)
    return True if is_whole and config.getoption("markexpr") == "quick" else None


@pytest.hookimpl(tryfirst=True)  # before the marks are read
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test whose `seed` is of a range also gets the seeds that once failed, or fresh ones."""
    name, fresh = seeds.name_of(metafunc.definition.nodeid), metafunc.config.getoption("fresh")
    kept = KEPT.get(name, [])
    if is_hypothesis_test(metafunc.function) and kept and fresh is None:
        metafunc.fixturenames.append("hypothesis_seed")
        metafunc.parametrize("hypothesis_seed", [None, *kept], indirect=True)
    for i, mark in enumerate(metafunc.definition.own_markers):
        if _is_of_range(mark):
            worlds = seeds.fresh_seeds(fresh, name, len(mark.args[1])) if fresh is not None else [*mark.args[1], *kept]
            metafunc.definition.own_markers[i] = pytest.mark.parametrize("seed", worlds, **mark.kwargs).mark


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        return next((i for i, folder in enumerate(LONG) if _place_of(item.path).startswith(f"{folder}/")), -1)

    fresh = config.getoption("fresh")
    for item in items:
        marked = any(item.get_closest_marker(name) for name in ("cluster", "slow"))
        starts = PROCESSES.intersection(getattr(item, "fixturenames", ()))
        is_first = fresh is not None or _parameters(item).get("seed", 0) < QUICK_WORLDS
        if not marked and not starts and is_first and not _place_of(item.path).startswith(WHOLE):
            item.add_marker("quick")
    items.sort(key=turn)
    if fresh is not None:
        takes_seeds = [item for item in items if _seed_of(item, fresh) is not None]
        random.Random(fresh).shuffle(takes_seeds)  # a short soak looks somewhere else each time
        items[:] = takes_seeds


def pytest_collection_finish() -> None:
    """Pass over what is there from now on: some libraries make a million objects, and benchmarks collect garbage at
    every turn."""
    gc.collect()
    gc.freeze()


def _place_of(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).as_posix()


def _is_of_range(mark: pytest.Mark) -> bool:
    return mark.name == "parametrize" and mark.args[0] == "seed" and isinstance(mark.args[1], range)


def _seed_of(item: pytest.Item, fresh: int) -> int | None:
    """The seed to keep if the test fails; None: it takes none."""
    if is_hypothesis_test(item.function):  # type: ignore[attr-defined]
        return fresh
    return int(_parameters(item)["seed"]) if any(map(_is_of_range, item.iter_markers())) else None


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec: Any = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


@pytest.fixture
def hypothesis_seed(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Hypothesis draws from; None: from the name of the test."""
    hypothesis.seed(request.param)(request.function)
    yield
    hypothesis.seed(None)(request.function)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    fresh = item.config.getoption("fresh")
    if fresh is not None:
        item.user_properties.append(("seed", _seed_of(item, fresh)))
        if is_hypothesis_test(item.function):  # type: ignore[attr-defined]
            hypothesis.seed(fresh)(item.function)  # type: ignore[attr-defined]
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seed = dict(report.user_properties).get("seed")
    if report.failed and seed is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        assert isinstance(seed, int)
        seeds.keep(seeds.name_of(report.nodeid), seed)


_running: list[pytest.Item] = []
ENGINES = ("java", "python", "spark")
"""How the programs are called that a quick test must not start. Libraries ask small ones about the machine."""


def _refuse_processes(event: str, args: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running and _running[-1].get_closest_marker("quick"):
        program = Path(str(args[0])).name
        if program.startswith(ENGINES):
            raise AssertionError(f"{_running[-1].nodeid} starts {program}: mark it slow, so that `make quick` is quick")


sys.addaudithook(_refuse_processes)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from geoswarm.run.spark.session import build_session  # here: most tests never start Java

    session = build_session("local[2]", "geoswarm-tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """GEOSWARM_DATA, else shared/data beside the repository."""
    folder = Path(os.environ.get("GEOSWARM_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}: set GEOSWARM_DATA to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def peers_folder() -> Path:
    """GEOSWARM_PEERS, else shared/peers beside the repository: servers to compare with."""
    folder = Path(os.environ.get("GEOSWARM_PEERS") or Path(__file__).parents[2] / "shared" / "peers")
    if not any((folder / name).is_file() for name in ("tile38-server", "tile38-server.xz")):
        pytest.skip(f"no tile38-server in {folder}: set GEOSWARM_PEERS to the folder that holds it")
    return folder
