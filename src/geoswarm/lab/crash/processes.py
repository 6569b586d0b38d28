"""The processes of one session: find them, kill them, and end them together with the process that started them.

Linux only: processes are found in /proc. `kill.py` decides which of them are killed, `victim.py` ends with its parent.

    harness ── write end of a pipe ──► standard input of the victim, which leads a session: driver, JVMs, workers
       ╳ the harness is gone, however it ended: the pipe is closed ──► the victim kills its session, itself last
"""

import os
import signal
import sys
import threading
from pathlib import Path


def processes_of(session: int) -> dict[int, str]:
    """The command lines of a session's processes, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if int(_stat(int(entry.name))[3]) == session:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, IndexError):
                continue  # it has ended meanwhile
    return found


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


def end_with_parent() -> None:
    """Start a thread that kills this process and its whole session when standard input is closed.

    The parent holds the other end of the pipe. The operating system closes it when the parent ends, even by SIGKILL.
    Only a process that leads its own session may call this: it would take its parent along otherwise.
    """
    if os.getsid(0) != os.getpid():
        raise OSError(f"process {os.getpid()} leads no session: start it with start_new_session=True")
    threading.Thread(target=_watch_standard_input, name="end-with-parent", daemon=True).start()


def _watch_standard_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    kill_session(os.getpid(), last=os.getpid())


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ...: the fields after the name, which is in brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
