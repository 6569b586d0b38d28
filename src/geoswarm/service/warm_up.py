"""`geoswarm warm`: all that a first start would do beside its work, done now and waited for.

Kernels are compiled by `run/warm.py`; the classes of Spark are written by the JVM of a small stream
(`run/spark/class_archive.py`).
"""

import time

from rich.console import Console

from geoswarm.core.arrays.kernel_folder import folder_to_write
from geoswarm.errors import MachineError
from geoswarm.run.spark.class_archive import make_archive
from geoswarm.run.warm import are_compiled, warm_in_background

LOOK_S = 0.2
OTHER_S_MAX = 600.0
"""Seconds that the command waits for another process that compiles at the same time."""


def warm_up(out: Console, *, spark: bool) -> None:
    folder = folder_to_write()
    if folder is None and not are_compiled():
        raise MachineError("no folder can be written that keeps compiled kernels: set NUMBA_CACHE_DIR to one")
    _compile(out)
    out.print(f"kernels are compiled, in {folder}", soft_wrap=True, highlight=False, markup=False)
    if spark:
        with out.status("starting Spark, to keep its classes in an archive"):
            said = make_archive()
        out.print(said, soft_wrap=True, highlight=False, markup=False)


def _compile(out: Console) -> None:
    gives_up_s = time.monotonic() + OTHER_S_MAX
    with out.status("compiling kernels, once for this installation") as status:
        while not are_compiled():
            warming = warm_in_background(lambda sentence: None)
            while warming is not None and not warming.wait(LOOK_S):
                status.update(warming.said)
            if warming is not None and warming.failed:
                part, why = next(iter(warming.failed.items()))
                raise MachineError(f"kernels of {', '.join(warming.failed)} cannot be compiled ({part}: {why})")
            if time.monotonic() > gives_up_s:
                raise MachineError(f"another process has been compiling kernels for {OTHER_S_MAX:.0f} s: end it")
            time.sleep(LOOK_S)
