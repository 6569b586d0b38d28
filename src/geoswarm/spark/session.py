"""Start a Spark session that suits geoswarm: quiet, on loopback, with Java found and workers warm.

Everything here is a default. A session that the user built works as well; what correctness rests on is asked
for by the stages themselves, never by a setting here.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

import geoswarm
from geoswarm.errors import MachineError
from geoswarm.spark.java import find_java

TRIAL_S_MAX = 180.0
"""A first session takes about 8 s on two idle cores; past this, something is stuck."""

DEFAULTS: Mapping[str, str] = {
    # nothing listens, nothing is drawn
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The driver runs for months: keep the last few of everything (the listeners fill up without a UI too).
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "2000",
    "spark.ui.retainedDeadExecutors": "5",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedProgressUpdates": "20",
    "spark.sql.streaming.ui.retainedQueries": "5",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.cleaner.periodicGC.interval": "10min",
    # Adaptive execution leaves the partitions of repartitionById alone, but it may merge those of any other
    # exchange, and planning in steps makes a small batch about a fifth slower.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Python workers
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "geoswarm.spark.daemon",
    # Streaming: no state store of Spark's is used, so a batch without data has nothing to do.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.driver.memory": "2g",
}

_NO_CONF: Mapping[str, str] = {}


def build_session(
    master: str = "local[2]", app: str = "geoswarm", *, conf: Mapping[str, str] = _NO_CONF
) -> SparkSession:
    """The session of this process. `conf` wins over the defaults; if one runs already, it is that one."""
    running = SparkSession.getActiveSession()
    if running is not None:
        for key, value in conf.items():
            running.conf.set(key, value)
        return running
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings(master, conf).items():
        builder = builder.config(key, value)
    with _environment(_variables(master)):
        return builder.getOrCreate()


def settings(master: str, conf: Mapping[str, str] = _NO_CONF) -> dict[str, str]:
    """The whole configuration of a session, as Spark is told it."""
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    chosen = dict(DEFAULTS)
    if _is_local(master):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        chosen |= {"spark.shuffle.compress": "false"}  # parcels do not shrink, and nothing crosses a network
    chosen |= conf
    # Options of a user's own are kept beside ours. Executors elsewhere have no such file.
    sides = ("driver", "executor") if _is_local(master) else ("driver",)
    for side in sides:
        key = f"spark.{side}.extraJavaOptions"
        chosen[key] = f"{quiet} {conf.get(key, '')}".strip()
    return chosen


def pyspark_version() -> str:
    return version("pyspark")


def pandas_version() -> str | None:
    """None if it is missing: `mapInArrow` insists on pandas, though the Arrow path never uses it."""
    try:
        return version("pandas")
    except PackageNotFoundError:
        return None


def try_session() -> str:
    """Start Spark in a process of its own, carry rows through a Python worker, and say which Java it was."""
    program = (
        "from geoswarm.spark.session import build_session\n"
        "spark = build_session('local[1]')\n"
        "rows = spark.range(1000).mapInArrow(lambda batches: batches, 'id long').count()\n"
        "assert rows == 1000, rows\n"
        "print(spark._jvm.System.getProperty('java.version'))\n"
        "spark.stop()\n"
    )
    environ = os.environ | {"PYTHONPATH": _python_path()}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=TRIAL_S_MAX, env=environ
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"Spark did not start within {TRIAL_S_MAX:.0f} s: free some memory and cores, then try again"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise MachineError(f"Spark did not run ({last}): see `geoswarm doctor` for what it needs")
    return done.stdout.strip()


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _variables(master: str) -> dict[str, str]:
    """What the JVM reads from its environment, and hands on to the executors that it starts."""
    variables = {"JAVA_HOME": str(find_java().home)}
    if _is_local(master):
        # Elsewhere Python, the package and the address are those of the other machines.
        variables |= {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": _python_path(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    return variables


def _python_path() -> str:
    """PYTHONPATH with geoswarm on it, for workers that must import it though it may not be installed."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    ours = str(Path(geoswarm.__file__).resolve().parents[1])
    # Last, not first: the folder may be site-packages, and must not come before what the user put in front.
    return os.pathsep.join([*given, ours] if ours not in given else given)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set for as long as Spark starts; the rest of the program keeps the environment it had."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
