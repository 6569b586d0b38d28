"""A program and all that it starts, watched while it runs: its memory and its CPU time, from /proc. Linux only.

Memory is the proportional share (PSS): a page that several processes map counts once in all, so workers that share an
index are not charged for it each. To count it the kernel walks every page, so it is asked for only when the plain sum
of resident pages is at a new height.
"""

import os
import threading
from pathlib import Path
from types import TracebackType

PERIOD_S = 0.2
HIGHER = 1.02
"""The growth over the greatest height so far that makes a new height."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TICK_S = 1 / _TICKS_PER_S
"""The least CPU time that the system counts."""


class Watch:
    """Looks every PERIOD_S at the tree below a process, between `with` and its end."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._peak_bytes = self._height_bytes = 0
        self._cpu_s: dict[int, float] = {}
        self._since_s = 0.0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def restart(self) -> None:
        """Forget what was before."""
        self._look()
        with self._lock:
            self._peak_bytes, self._height_bytes, self._since_s = 0, 0, sum(self._cpu_s.values())

    def read(self) -> tuple[float, int]:
        """CPU seconds since the last restart, of processes that are gone, too; and the most memory at one look."""
        self._look()
        with self._lock:
            return sum(self._cpu_s.values()) - self._since_s, self._peak_bytes

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._look()

    def _look(self) -> None:
        used = {pid: held for pid in process_tree(self._root) if (held := _usage(pid)) is not None}
        height_bytes = sum(size for _, size in used.values())
        with self._lock:
            self._cpu_s.update({pid: cpu_s for pid, (cpu_s, _) in used.items()})
            if height_bytes > HIGHER * self._height_bytes:
                self._height_bytes = height_bytes
                self._peak_bytes = max(self._peak_bytes, sum(map(_share_bytes, used)))


def split_cpu_s(root: int, name: str) -> tuple[float, float]:
    """CPU seconds of a process and all below it: of those with this name, and of all others."""
    named = others = 0.0
    for pid in process_tree(root):
        try:
            command, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        fields = rest.split()
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        if f"({name}" in command:
            named += cpu_s
        else:
            others += cpu_s
    return named, others


def process_tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = list[int](), [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def _usage(pid: int) -> tuple[float, int] | None:
    """CPU seconds so far, and resident bytes; None: it has ended."""
    fields = _stat(pid)
    if fields is None:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, int(fields[21]) * _PAGE_BYTES


def _share_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _stat(pid: int) -> list[str] | None:
    """The fields from the state on: the name before it may hold anything, brackets included."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
