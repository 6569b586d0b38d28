"""Put the classes that Spark loads into an archive that later JVMs map: each starts in half the time.

`make test` runs this once for an environment, since starting Spark, also for processes that are killed, is most of
what the tests take. `conftest.py` names the archive to every JVM; one that cannot use it, because it is of another
version, goes without.
"""

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
QUIET = "-Xlog:disable"  # an archive that does not fit is no news
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUIET} -XX:ArchiveClassesAtExit={ARCHIVE}"

    from pyspark import SparkContext

    from geoswarm.lab.crash.scenario import TUNING, Scenario
    from geoswarm.lab.crash.victim import process

    with tempfile.TemporaryDirectory(prefix="geoswarm-") as folder:
        world = Path(folder)
        Scenario(seed=1).write(world, range(2))
        process(world, "local[2]", TUNING)
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    assert context is not None
    assert gateway is not None
    context.stop()
    gateway.shutdown()
    jvm = gateway.proc
    jvm.stdin.close()  # it ends, and writes the archive
    jvm.wait()


if __name__ == "__main__":
    main()
