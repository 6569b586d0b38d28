"""The processes that a harness starts: find them, kill them, and leave none behind, however the harness ends.

Linux only: processes are found in /proc. `kill.py` decides which of them are killed, and when.

    harness ── write end of a pipe ──► watchdog, which knows the mark of the harness
       │                                   │
       └─ starts ──► driver ──► JVM ──► workers      all inherit the mark in their environment
       ╳ the harness is gone, however it ended: the pipe is closed ──► the watchdog kills who has the mark

A process that dies takes nobody along: a JVM that outlives its driver has the mark, too. A session's number does not do
for that, since numbers are given again: it may be that of somebody else's session by then.

This file is also the watchdog's program. It imports nothing of ours, so that the watchdog is small and there at once.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARK = "GEOSWARM_CRASH_MARK"
KILL_S_MAX = 10.0
"""Seconds in which all marked processes must be gone after SIGKILL: some may start others meanwhile."""
LOOK_S = 0.02
ASK_PYTHON, ASK_JAVA = signal.SIGUSR1, signal.SIGQUIT
"""The signals that ask for stacks."""
STACKS_S = 2.0
"""Seconds in which they are written."""


class Watchdog:
    """Kills all marked processes when it is closed, and when this process ends, also by SIGKILL."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            # -I and -S: nothing is searched for or imported that its program does not name.
            [sys.executable, "-I", "-S", __file__, self._mark],
            stdin=subprocess.PIPE,  # never written to; the system closes it when this process ends
            start_new_session=True,  # Ctrl-C is for the harness
        )

    @property
    def environment(self) -> dict[str, str]:
        """Variables of each process that is to be watched."""
        return {MARK: self._mark}

    def processes(self, session: int) -> dict[int, str]:
        """The command lines of a session's processes, as far as they have the mark, by process id."""
        marked = marked_processes(self._mark)
        return {pid: line for pid, line in processes_of(session).items() if pid in marked}

    def stacks(self) -> float:
        """Make the marked processes write what each of their threads does to their logs, as far as they can: a JVM can,
        and a Python that has called `show_stacks_when_asked`. Returns the seconds of CPU time that all have used."""
        used_s = 0.0
        for pid, line in marked_processes(self._mark).items():
            with suppress(OSError, IndexError):
                used_s += sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")
                is_java = line.partition(" ")[0].endswith("java")
                if is_java or _catches(pid, ASK_PYTHON):
                    os.kill(pid, ASK_JAVA if is_java else ASK_PYTHON)
        time.sleep(STACKS_S)
        return used_s

    def close(self) -> None:
        """Kill the marked processes, and wait until they are gone."""
        self._process.communicate()


def processes_of(session: int) -> dict[int, str]:
    """The command lines of a session's processes, by process id."""
    return _processes(lambda pid: int(_stat(pid)[3]) == session)


def marked_processes(mark: str) -> dict[int, str]:
    """The command lines of the processes that run with this mark in their environment, by process id."""
    variable = f"{MARK}={mark}".encode()
    return _processes(lambda pid: variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))


def parent_of(pid: int) -> int:
    """The parent's process id; 0 if the process has ended."""
    try:
        return int(_stat(pid)[1])
    except (OSError, IndexError):
        return 0


def kill_process(pid: int) -> None:
    """Kill a process with SIGKILL; one that has ended already is no error."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_session(session: int, *, last: int | None = None) -> None:
    """Kill every process of a session; `last` is killed when all others are."""
    for pid in processes_of(session):
        if pid != last:
            kill_process(pid)
    if last is not None:
        kill_process(last)


def kill_marked(mark: str) -> None:
    """Kill every process with this mark, and wait until they are gone."""
    deadline_s = time.monotonic() + KILL_S_MAX
    while (found := marked_processes(mark)) and time.monotonic() < deadline_s:
        for pid in found:
            kill_process(pid)
        time.sleep(LOOK_S)
    if found:
        print(f"processes {sorted(found)} are there {KILL_S_MAX:.0f} s after SIGKILL: see ps", file=sys.stderr)


def show_stacks_when_asked() -> None:
    """Let this process write the stacks of all its threads to stderr when its harness asks for them."""
    faulthandler.register(ASK_PYTHON, all_threads=True)


def end_with_parent() -> None:
    """Start a thread that kills this process and its whole session when standard input is closed.

    The parent holds the other end of the pipe. The operating system closes it when the parent ends, even by SIGKILL.
    Only a process that leads its own session may call this: it would take its parent along otherwise.
    """
    if os.getsid(0) != os.getpid():
        raise OSError(f"process {os.getpid()} leads no session: start it with start_new_session=True")
    threading.Thread(target=_watch_standard_input, name="end-with-parent", daemon=True).start()


def _watch_standard_input() -> None:
    _wait_for_end_of_input()
    kill_session(os.getpid(), last=os.getpid())


def _wait_for_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass


def _processes(is_wanted: Callable[[int], bool]) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if is_wanted(int(entry.name)):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, IndexError):
                continue  # it has ended meanwhile, or is somebody else's
    return found


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ...: the fields after the name, which is in brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    _wait_for_end_of_input()
    kill_marked(sys.argv[1])
