"""Start the engine on a scenario's files, kill one of its processes with SIGKILL, start it again.

`lab/bench/engine/recovery.py` and the tests decide what is killed and when. Only processes that the victim has started
are ever touched, and they end when this process ends, however it ends (`processes.py`).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from geoswarm.errors import StateError, StreamError
from geoswarm.lab.crash.processes import Watchdog, kill_process, parent_of
from geoswarm.store import manifest, plans
from geoswarm.store.storage import Storage
from geoswarm.version import SOURCE_FOLDER

POLL_S = 0.02
WAIT_S_MAX = 240.0
"""Seconds to wait. A start takes about 8 s on two idle cores; after this, something hangs."""

PROGRAM, KAFKA_PROGRAM = "geoswarm.lab.crash.victim", "geoswarm.lab.crash.kafka_victim"
MARKS = {
    "driver": (PROGRAM, KAFKA_PROGRAM, "org.apache.spark.deploy.SparkSubmit"),
    "executor": ("CoarseGrainedExecutorBackend",),
    "worker": ("geoswarm.run.spark.daemon",),
}
"""Text in the command line of each kind of process. A driver is two processes: Python and its JVM."""


class Victim:
    """One engine at a time, on one world; started again as often as needed."""

    def __init__(
        self,
        world: Path,
        master: str,
        *options: str,
        name: str = "run",
        strategies: Sequence[str] = ("static-uniform",),
        program: str = PROGRAM,
    ) -> None:
        """Each start takes the next of the `strategies`, and after the last the first again. `program` is the module
        that is started."""
        self.world, self.home = world, world / name
        self.checkpoint, self.output = self.home / "checkpoint", self.home / "output"
        self._strategies = strategies
        self._command = [sys.executable, "-m", program, str(world), "--master", master, "--name", name, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None
        self.starts = 0

    def __enter__(self) -> "Victim":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
        if self._process is not None:
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def is_alive(self) -> bool:
        return self._started.poll() is None

    @property
    def strategy(self) -> str:
        """The strategy of the newest start."""
        return self._strategies[(self.starts - 1) % len(self._strategies)]

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        strategy = self._strategies[self.starts % len(self._strategies)]
        path = os.pathsep.join(filter(None, [SOURCE_FOLDER, os.environ.get("PYTHONPATH")]))
        self._watchdog = self._watchdog or Watchdog()
        with self._log(self.starts).open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "--strategy", strategy],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": path} | self._watchdog.environment,
            )
        self.starts += 1

    def kill(self, kind: str, rng: np.random.Generator) -> int:
        """SIGKILL a driver (Python and JVM at once), or one worker or executor. Returns how many processes died: 0 if
        there is none of the kind just now."""
        assert self._watchdog is not None
        running = self._watchdog.processes(self.pid)
        found = {pid: line for pid, line in running.items() if any(text in line for text in MARKS[kind])}
        if kind == "worker":  # forked from a daemon of the same name, which has a JVM for its parent
            found = {pid: line for pid, line in found.items() if parent_of(pid) in found}
        chosen = sorted(found) if kind == "driver" else [int(rng.choice(sorted(found)))] if found else []
        for pid in chosen:
            kill_process(pid)
        if kind == "driver" and chosen:
            self._started.wait()
        return len(chosen)

    def commits(self) -> int:
        """How many batches are committed. Spark keeps the entries of the last ones only (minBatchesToRetain), so that
        the newest one's number says it, and not how many entries there are."""
        entries = (self.checkpoint / "spark" / "commits").glob("*")
        return 1 + max((int(entry.name) for entry in entries if entry.name.isdecimal()), default=-1)

    def has_unused_plan(self) -> bool:
        """Whether a plan is on disk that no batch has been given yet."""
        storage = Storage(str(self.checkpoint))
        try:
            return plans.newest(storage)[0].epoch > manifest.newest(storage).plan_epoch
        except StateError:
            return False  # a first start that is not complete, or a version that was replaced meanwhile

    def until(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait for `condition`, and start the engine again whenever it has died. False if all files are done before."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while not condition():
            if time.monotonic() > deadline_s:
                raise self._vain_wait(what)
            code = self._started.poll()
            if code == 0:
                return condition()
            if code is not None:
                self.start()
            time.sleep(POLL_S)
        return True

    def until_done(self, starts_max: int = 3) -> None:
        """Wait until all files are done, and start the engine again after each failure. It may take long, as long as
        batches are committed."""
        for attempt in range(starts_max):
            if self._end() == 0:
                return
            if attempt < starts_max - 1:
                self.start()
        raise StreamError(f"the engine failed {starts_max} times in a row: {self.last_words()}")

    def _end(self) -> int:
        """Wait for the end of the process, and return its code."""
        commits, deadline_s = -1, 0.0
        while (code := self._started.poll()) is None:
            if self.commits() != commits:
                commits, deadline_s = self.commits(), time.monotonic() + WAIT_S_MAX
            if time.monotonic() > deadline_s:
                raise self._vain_wait("the next batch or the end")
            time.sleep(POLL_S)
        return code

    def _vain_wait(self, what: str) -> StreamError:
        """The error has what tells an engine that hangs from a machine that is busy. The stacks are kept where they
        outlive the folder of the world."""
        assert self._watchdog is not None
        used_s = self._watchdog.stacks()
        kept = Path(tempfile.mkdtemp(prefix="geoswarm-waits-"))
        shutil.copy(self._log(self.starts - 1), kept)
        return StreamError(
            f"waited {WAIT_S_MAX:.0f} s for {what}, in vain: {self.commits()} batches are committed, its "
            f"processes have used {used_s:.0f} s of CPU time, the load is "
            f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores; what its threads do is in {kept}; {self.last_words()}"
        )

    def _log(self, start: int) -> Path:
        return self.home / f"log-{start}.txt"

    def last_words(self) -> str:
        return self._log(self.starts - 1).read_text(errors="replace")[-3000:]

    @property
    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise StreamError("the engine has not been started")
        return self._process
