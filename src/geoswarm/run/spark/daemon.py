"""The process that Spark forks its Python workers from, with the slow imports already done.

Spark's own daemon imports almost nothing, so each new worker spends its first task on importing pyspark's
worker (from a zip file, compiled anew each time), numpy, pyarrow and numba. Idle workers die after 60 s, so that cost
comes back in any quiet stream. Here it is paid once, before the fork: a job on two new workers takes 0.3 to 0.7 s
instead of 1.2 to 1.4 s (two cores, more or less busy).

Chosen by `session.py` through `spark.python.daemon.module`; a session built by the user does without it and
works the same. No thread is started here: only a single-threaded process can fork safely.
"""

import gc
import importlib
import os
from contextlib import suppress

PRELOADED = (
    "pyspark.worker",
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "numba",
    "geoswarm.core.arrays.jit",
    "geoswarm.run.spark.rows",
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


if __name__ == "__main__":
    preload()
    with suppress(Exception):  # without this a worker is slower; without a daemon there is none
        warm()
    from pyspark.daemon import manager

    # A reused worker collects garbage after every task: 80 ms over the 140,000 objects
    # of these modules. Frozen, they are passed over, and their pages stay shared with the daemon.
    gc.collect()
    gc.freeze()
    manager()
