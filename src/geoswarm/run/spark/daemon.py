"""The process that Spark forks its Python workers from, with the slow imports already done.

Spark's own daemon imports almost nothing, so each new worker spends its first task on importing pyspark's
worker (from a zip file, compiled anew each time), numpy, pyarrow and numba. Idle workers die after 60 s, so that cost
comes back in any quiet stream. Here it is paid once, before the fork: a job on two new workers takes 0.3 to 0.7 s
instead of 1.2 to 1.4 s (two cores, more or less busy).

A worker of Spark's own whose JVM has hung up, since it was idle or its query was stopped, wants to report an error
to it, fails, and prints a traceback, unless it is killed before that, as on an idle machine. Here it just ends. What
plans and offers a source in Python is started by Spark without this daemon; `generator.py` has ours end so, too.

Chosen by `session.py` through `spark.python.daemon.module`; a session built by the user does without it and
works the same. No thread is started here: only a single-threaded process can fork safely.
"""

import gc
import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader, BufferedWriter

Serve = Callable[[BufferedReader, BufferedWriter], None]
WORKER = "pyspark.worker"

PRELOADED = (
    WORKER,
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "numba",
    "geoswarm.core.arrays.jit",
    "geoswarm.run.spark.rows",
    "geoswarm.run.spark.task_rows",
    "geoswarm.flow.stages.route",
    "geoswarm.flow.stages.match",
    "geoswarm.flow.stages.merge",
    "geoswarm.store.batch_state",
)


def preload(names: tuple[str, ...] = PRELOADED) -> list[str]:
    """Import modules, and return the names of those that fail: a worker that needs one reports why."""
    # OpenBLAS would start its threads as numpy is imported. The kernels use none of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def warm() -> None:
    """Run the kernels once, which makes numba load them, its typing rules and LLVM; workers inherit all of it. At the
    first start of an installation those of points are compiled here, and others where they are needed."""
    import pyarrow as pa

    from geoswarm.run.load_kernels import load_kernels

    load_kernels()
    pa.array([0])  # from a list: here pyarrow looks for pandas, and imports it if it is installed


def until_hung_up(serve: Serve) -> Serve:
    """The same main function of a worker, which ends its process where the JVM has closed the connection."""

    def serve_or_end(infile: BufferedReader, outfile: BufferedWriter) -> None:
        if not infile.peek(1):  # no further task, and nobody who waits for an answer
            os._exit(0)
        try:
            serve(infile, outfile)
        except (SystemExit, ConnectionError):
            try:
                outfile.flush()
            except ConnectionError:  # the task was cancelled: its error has no reader
                os._exit(1)
            raise

    return serve_or_end


if __name__ == "__main__":
    preload()
    with suppress(Exception):  # without this a worker is slower; without a daemon there is none
        warm()
    worker = importlib.import_module(WORKER)
    worker.main = until_hung_up(worker.main)  # type: ignore[attr-defined]
    from pyspark.daemon import manager

    # A reused worker collects garbage after every task: 80 ms over the 140,000 objects
    # of these modules. Frozen, they are passed over, and their pages stay shared with the daemon.
    gc.collect()
    gc.freeze()
    manager()
