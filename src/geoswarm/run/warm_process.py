"""The process that compiles kernels ahead: reads names of parts on stdin, runs them, says on stdout what it compiled.

`warm.py` starts some of these. Where stdin ends, the one who asked is gone, and so is this process.
"""

import os
import queue
import sys
import threading
from pathlib import Path

from geoswarm.core.arrays.kernel_cache import KERNELS, watchers
from geoswarm.run.warm_parts import PARTS
from geoswarm.version import SOURCE_FOLDER

LATER = "later"
NICENESS = 10


def main() -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    watchers.append(lambda name: print("compiled", name, flush=True))
    while True:
        part, when = asked.get().split()
        if when == LATER and os.nice(0) < NICENESS:
            os.nice(NICENESS - os.nice(0))
        try:
            PARTS[part]()
        except Exception as error:  # the engine works without: who needs the kernels compiles them
            print("failed", f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
            continue
        for file in sorted({kernel.py_func.__code__.co_filename for kernel in KERNELS}):
            print("file", Path(file).relative_to(SOURCE_FOLDER), flush=True)
        print("done", part, flush=True)


def _read(asked: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
