"""Start a Spark session that suits geoswarm: quiet, on loopback, with Java found and workers warm.

Everything here is a default. A session that the user built works as well; what correctness rests on is asked
for by the stages themselves, never by a setting here.

With a key (`store/key_source.py`) Spark's connections are authenticated and encrypted, and so is what it spills and
shuffles. Its secret is made anew for each application and is never on a command line.
"""

import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

from geoswarm.errors import MachineError, SettingsError
from geoswarm.run.spark.class_archive import NO_ARCHIVE, archive_options
from geoswarm.run.spark.java import find_java
from geoswarm.run.spark.query import CANCEL_S_MAX, STOP_TIMEOUT
from geoswarm.run.warm import warm_in_background
from geoswarm.store.key_source import KeySource
from geoswarm.version import SOURCE_FOLDER

TRIAL_S_MAX = 180.0
"""Seconds for a first session, which takes about 8 on two idle cores; a slower one is stuck."""

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

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
    # Over TCP, Nagle's algorithm and delayed acknowledgements hold each task's first messages for 40 ms.
    UNIX_SOCKETS: "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.daemon.module": "geoswarm.run.spark.daemon",
    # Streaming: no state store of Spark's is used, so a batch without data has nothing to do.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # By default Spark starts 29 processes a batch (readlink, chmod) to write its logs to a local folder, 0.1 s of it.
    # This writer renames as atomically, on local disks and on HDFS; where names are not renamed, it is the default.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    STOP_TIMEOUT: f"{CANCEL_S_MAX}s",
    "spark.driver.memory": "2g",
}

ENCRYPTED: Mapping[str, str] = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Spark's default, CTR, hides what is sent but does not notice when it is changed on the way.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    # Shuffle files, spills and broadcasts on local disks; the key is Spark's own, and new for each application.
    "spark.io.encryption.enabled": "true",
    "spark.io.encryption.keySizeBits": "256",
}
"""Settings that encryption adds. `conf` cannot remove them."""

SECRET = "spark.authenticate.secret"

_NO_CONF: Mapping[str, str] = {}


def build_session(
    master: str = "local[2]", app: str = "geoswarm", *, conf: Mapping[str, str] = _NO_CONF
) -> SparkSession:
    """The session of this process; if one is running, it is returned. `conf` overrides the defaults. With a key in the
    environment the session is encrypted, and a running one that is not is refused."""
    encrypts = KeySource.from_environment() is not None
    running = SparkSession.getActiveSession()
    if running is not None:
        if encrypts:
            check_encrypted(running)
        for key, value in conf.items():
            running.conf.set(key, value)
        return running
    if _is_local(master):
        warm_in_background()
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings(master, conf, encrypts=encrypts).items():
        builder = builder.config(key, value)
    with _environment(_variables(master)), _secret(master, conf) if encrypts else nullcontext():
        return builder.getOrCreate()


def check_encrypted(spark: SparkSession) -> None:
    """Refuse a session that would send or spill without encryption what its engine keeps encrypted."""
    held = spark.sparkContext.getConf()
    missing = [key for key, value in ENCRYPTED.items() if (held.get(key) or "").lower() != value.lower()]
    if missing:
        raise MachineError(
            f"a key is given, but the Spark session lacks {', '.join(missing)}: build it with geoswarm.build_session, "
            "or with spark.session.ENCRYPTED among its settings; one that runs without must be stopped first"
        )


def warn_of_slow_sockets(spark: SparkSession) -> None:
    """Say so where Spark talks to its Python workers over TCP: a session of the user's own may lack the setting."""
    if (spark.sparkContext.getConf().get(UNIX_SOCKETS) or "false").lower() != "true":
        warnings.warn(
            f"this Spark session talks to its Python workers over TCP, which adds 40 ms to every task: build it with "
            f"geoswarm.build_session, or set {UNIX_SOCKETS}=true before it starts",
            RuntimeWarning,
            stacklevel=3,
        )


def settings(master: str, conf: Mapping[str, str] = _NO_CONF, *, encrypts: bool = False) -> dict[str, str]:
    """The whole configuration of a session, without its secret."""
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
    if _is_local(master):
        driver = "spark.driver.extraJavaOptions"
        chosen[driver] = " ".join([chosen[driver], *archive_options(find_java(), chosen[driver])])
    return chosen | dict(ENCRYPTED) if encrypts else chosen


def pyspark_version() -> str:
    return version("pyspark")


def pandas_version() -> str | None:
    """The version of pandas; None if it is missing. `mapInArrow` requires pandas, though it never uses it."""
    try:
        return version("pandas")
    except PackageNotFoundError:
        return None


def try_session() -> str:
    """Start Spark in a process of its own, send rows through a Python worker, and return which Java was used."""
    program = (
        "from geoswarm.run.spark.session import build_session\n"
        f"spark = build_session('local[1]', conf={{'spark.driver.extraJavaOptions': '{NO_ARCHIVE}'}})\n"
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
        last = (done.stderr.strip() or "there was no output").splitlines()[-1]
        raise MachineError(f"Spark did not run ({last}): see `geoswarm doctor` for what it needs")
    return done.stdout.strip()


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _variables(master: str) -> dict[str, str]:
    """Environment variables of the JVM, which it passes on to the executors that it starts."""
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
    # Last, not first: the folder may be site-packages, and must not come before what the user put in front.
    return os.pathsep.join([*given, SOURCE_FOLDER] if SOURCE_FOLDER not in given else given)


@contextmanager
def _secret(master: str, conf: Mapping[str, str]) -> Iterator[None]:
    """A secret, where Spark does not make one (it does for `local`, YARN and Kubernetes), in a file that only this user
    can read, until Spark has started. PySpark would put it on the JVM's command line, which every user can read."""
    if SECRET in conf:
        raise SettingsError(f"{SECRET} would be on Spark's command line: put it into spark-defaults.conf instead")
    if not master.startswith("local-cluster"):  # a cluster's own secret is in its spark-defaults.conf
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="geoswarm-", suffix=".conf") as file:  # made with mode 600
        file.write(f"{SECRET} {secrets.token_hex(32)}\n")
        file.flush()
        rest = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        arguments = f"--load-spark-defaults --properties-file {shlex.quote(file.name)} {rest}"
        with _environment({"PYSPARK_SUBMIT_ARGS": arguments}):
            yield


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables until Spark has started."""
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
