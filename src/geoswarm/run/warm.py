"""Compile the kernels once for an installation: in processes of their own, beside whoever needs them first.

    warm_in_background()        # nothing, if they are compiled, or another process is at it
    ...
    print(progress())           # compiling kernels, once for this installation: 57 so far, 3 of 7 parts done

Nobody waits here. A process that calls a kernel which is just being compiled waits for that kernel only, and compiles
others itself (`core/arrays/kernel_cache.py`). What is compiled is in `warm_parts.py`, which runs in `warm_process.py`;
both are started by name, since they need more than this file may import. `geoswarm warm` waits for the end.
"""

import atexit
import fcntl
import hashlib
import json
import os
import platform
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

import llvmlite.binding
import numba
import numpy as np

from geoswarm.core.arrays.kernel_folder import folder_to_write, folders_to_read
from geoswarm.version import SOURCE_FOLDER, __version__

PARTS = ("places", "workloads", "regions", "join", "words", "demands", "transitions", "digests", "aggregates")
"""Those of `warm_parts.py`, in their order; a test compares them."""
PROCESSES_MAX = 4
"""Most of the parts share kernels: more processes would wait for each other."""
COMPLETE = "complete.json"
"""Names the files with kernels, and has a digest of them: as long as it is the same, everything is compiled."""
LOCK = "warming.lock"
FIRST = 2
"""As many parts are compiled at full speed, the others only with what other processes leave of the cores."""


def are_compiled() -> bool:
    """Whether a warm-up has run to its end with this source, this Python and this processor."""
    for folder in folders_to_read():
        with suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads((folder / COMPLETE).read_text())
            if said["digest"] == _digest(said["files"]):
                return True
    return False


def warm_in_background(say: Callable[[str], None] | None = None) -> "Warming | None":
    """Begin, unless that is done or another process is at it. `say` gets a sentence at the beginning and at the end;
    stderr, if it is not given."""
    global _running
    folder = folder_to_write()
    if folder is None or (_running is not None and _running.is_running) or are_compiled():
        return None
    lock = (folder / LOCK).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    _running = Warming(folder, lock, say or _say)
    return _running


def progress() -> str:
    """A sentence while this process has kernels compiled, else nothing."""
    return _running.said if _running is not None and _running.is_running else ""


class Warming:
    """A warm-up that runs. It ends with this process, and the next one goes on with what is left."""

    def __init__(self, folder: Path, lock: IO[bytes], say: Callable[[str], None]) -> None:
        self.compiled: set[str] = set()
        self.done: list[str] = []
        self.failed: dict[str, str] = {}
        """Why, for each part that failed: it is compiled by who needs it."""
        self._folder, self._lock, self._say = folder, lock, say
        self._is_stopped = False
        self._files: set[str] = set()
        self._began_s = time.monotonic()
        self._parts: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for part in enumerate(PARTS):
            self._parts.put(part)
        count = min(len(os.sched_getaffinity(0)), PROCESSES_MAX)
        self._processes = [_start() for _ in range(count)]
        atexit.register(self.stop)
        self._threads = [threading.Thread(target=self._feed, args=(each,), daemon=True) for each in self._processes]
        for thread in self._threads:
            thread.start()
        self._last = threading.Thread(target=self._finish, name="geoswarm-warm", daemon=True)
        self._last.start()
        say(f"{self.said} in the background")

    @property
    def said(self) -> str:
        text = "compiling kernels, once for this installation"
        if not self.compiled:
            return text
        return f"{text}: {len(self.compiled)} so far, {len(self.done)} of {len(PARTS)} parts done"

    @property
    def is_running(self) -> bool:
        return self._last.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        self._last.join(timeout_s)
        return not self.is_running

    def stop(self) -> None:
        self._is_stopped = True  # what ends now has not failed
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _feed(self, process: "subprocess.Popen[str]") -> None:
        """Give a process one part after the other, and read what it says."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(queue.Empty, OSError, ValueError):
            while True:
                number, part = self._parts.get_nowait()
                process.stdin.write(f"{part} {'later' if number >= FIRST else 'now'}\n")
                process.stdin.flush()
                if not self._read(part, process.stdout):
                    if not self._is_stopped:
                        self.failed[part] = f"its process ended with {process.wait()}"
                    return
        with suppress(OSError):
            process.stdin.close()

    def _read(self, part: str, lines: Iterable[str]) -> bool:
        """Until the part is done; False if its process ended before."""
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "compiled":
                self.compiled.add(rest)
            elif word == "file":
                self._files.add(rest)
            elif word == "failed":
                self.failed[part] = rest
                return True
            elif word == "done":
                self.done.append(part)
                return True
        return False

    def _finish(self) -> None:
        for thread in self._threads:
            thread.join()
        took_s = time.monotonic() - self._began_s
        if len(self.done) == len(PARTS):
            text = json.dumps({"digest": _digest(self._files), "files": sorted(self._files)})
            aside = self._folder / f"{COMPLETE}.{os.getpid()}"
            with suppress(OSError):  # a full disk: a process that compiles has said so
                aside.write_text(text)
                aside.replace(self._folder / COMPLETE)
            if self.compiled:
                self._say(f"{len(self.compiled)} kernels compiled in {took_s:.0f} s, for all later starts")
        elif self.failed:
            part, why = next(iter(self.failed.items()))
            self._say(f"kernels of {', '.join(self.failed)} could not be compiled ahead ({part}: {why}): see doctor")
        self._lock.close()


_running: Warming | None = None


def _start() -> "subprocess.Popen[str]":
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), SOURCE_FOLDER])
    environ = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "geoswarm.run.warm_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ,
        start_new_session=True,  # Ctrl-C is for the stream; these end with this process
    )


def _digest(files: Iterable[str]) -> str:
    """Of all that machine code depends on. `files` are relative to the folder of the source."""
    chip = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    said = [__version__, numba.__version__, np.__version__, platform.python_version(), *chip, PARTS]
    digest = hashlib.sha256(json.dumps(said).encode())
    for file in sorted(files):
        digest.update((Path(SOURCE_FOLDER) / file).read_bytes())
    return digest.hexdigest()


def _say(sentence: str) -> None:
    print(f"geoswarm: {sentence}", file=sys.stderr, flush=True)
