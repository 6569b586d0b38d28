"""A process that merges segments, as the engine sees it: started when it is needed, and again after it has died."""

import contextlib
import os
import pickle
import subprocess
import sys
import threading

from geoswarm.errors import MachineError
from geoswarm.store.merging.order import MergeOrder
from geoswarm.store.segments.segment import SegmentEntry
from geoswarm.version import SOURCE_FOLDER

PROGRAM = "geoswarm.store.merging.merger"
HERE_SUBS_MAX = 20_000
"""So few subscriptions are merged in the engine's own process, in the thread that would wait for another one: starting
one takes longer, and more memory."""
END_S_MAX = 5.0
START_S_MAX = 120.0
SUBS_PER_S_MIN = 10_000
"""A merge that takes longer than a start and this speed is stuck; an idle core merges more than a million a second. A
batch may have to wait for it, and a stream must not wait for ever."""


class MergerProcess:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self._starting = threading.Lock()

    @property
    def pid(self) -> int | None:
        """None: there is no process just now."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def carry_out(self, order: MergeOrder) -> SegmentEntry | None:
        """Wait for one merge. Raises MachineError if the process dies meanwhile, reports an error, or is stuck."""
        if order.subs <= HERE_SUBS_MAX:
            return order.carry_out()
        answer = self._ask(order)
        if isinstance(answer, str):
            raise MachineError(f"merging {len(order.sources)} segments failed: {answer}")
        assert answer is None or isinstance(answer, SegmentEntry)
        return answer

    def prepare(self) -> None:
        """Start the process, so that the first merge need not wait for it."""
        with contextlib.suppress(MachineError, OSError):  # the merge will report it
            self._started()

    def end(self) -> None:
        """End the process, now and for good. Called by another thread than the one that waits for it."""
        with self._starting:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()

    def _ask(self, order: MergeOrder) -> object:
        given, limit_s = pickle.dumps(order), START_S_MAX + order.subs / SUBS_PER_S_MIN
        for _ in range(2):  # one that was idle may end just when it is given an order
            process = self._started()
            limit = threading.Timer(limit_s, process.kill)
            limit.daemon = True
            limit.start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(len(given).to_bytes(8, "little") + given)
                process.stdin.flush()
                return pickle.load(process.stdout)
            except (EOFError, OSError, pickle.UnpicklingError):
                if limit.finished.is_set():
                    self._wait()
                    raise MachineError(
                        f"the process that merges {order.subs} subscriptions did not end within {limit_s:.0f} s and "
                        "was killed: see whether the disk of the checkpoint answers, and whether the machine has time"
                    ) from None
                code = self._wait()
                if code != 0 or self._is_ended:
                    break
            finally:
                limit.cancel()
        raise MachineError(
            f"the process that merges {order.subs} subscriptions died with code {code} (-9 is also what a system sends "
            "that is out of memory): see what it wrote, and free memory if it had too little"
        )

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._starting:
            if self._is_ended:
                raise MachineError("the engine is being closed")
            if self._process is None or self._process.poll() is not None:
                self._wait()
                path = os.pathsep.join(filter(None, [SOURCE_FOLDER, os.environ.get("PYTHONPATH")]))
                self._process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM],
                    stdin=subprocess.PIPE,  # closed by the system when this process ends: then that one ends, too
                    stdout=subprocess.PIPE,
                    env=os.environ | {"PYTHONPATH": path},
                )
            return self._process

    def _wait(self) -> int | None:
        """Wait for the end of a process that is ending, and return its code."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # an order that it did not take any more
        return process.wait(END_S_MAX)
