"""Examine this machine for what would keep geoswarm from running well, with a remedy for each finding.

Findings are data: `cli/commands.py` prints them. What concerns Spark and Java comes through `geoswarm.run.spark`.
"""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.table import Table

from geoswarm.errors import MachineError, SettingsError
from geoswarm.run.spark.java import find_java
from geoswarm.run.spark.session import UNIX_SOCKETS, pandas_version, pyspark_version, try_session
from geoswarm.store.key_source import KEY_FILE, KeySource

PYTHON_MIN = (3, 11)
CORES_MIN = 2
"""One for the JVM and one for a Python worker; with one core they take turns."""
MEMORY_GB_MIN = 4.0
"""2 GB for the driver's JVM, and about 0.5 GB for each Python worker with a million subscriptions mapped."""
DISK_GB_MIN = 2.0
"""Shuffle files of one batch, and the segments of about ten million subscriptions."""

Health = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    name: str
    ok: Health
    what: str
    remedy: str = ""
    """What to do about it; empty if nothing is wrong."""


def examine(folder: Path | None = None, *, start_spark: bool = False) -> list[Finding]:
    """All findings. `folder` is where the checkpoint goes; `start_spark` adds a trial of about 10 s."""
    looks: list[Callable[[], Finding]] = [
        look_at_python,
        look_at_java,
        look_at_pyspark,
        look_at_sockets,
        look_at_kernels,
        look_at_cores,
        look_at_memory,
        lambda: look_at_disk(folder),
        look_at_encryption,
    ]
    if start_spark:
        looks.append(look_at_session)
    return [look() for look in looks]


def render(findings: list[Finding]) -> Table:
    marks: dict[Health, str] = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[red]fail[/]"}
    table = Table("", "check", "found", "what to do", title="geoswarm doctor")
    for finding in findings:
        table.add_row(marks[finding.ok], finding.name, _plain(finding.what), _plain(finding.remedy))
    return table


def look_at_python(version: tuple[int, int] | None = None) -> Finding:
    major, minor = version or (sys.version_info.major, sys.version_info.minor)
    what = f"Python {major}.{minor} at {sys.executable}"
    if (major, minor) < PYTHON_MIN:
        return Finding("Python", "fail", what, "use Python {}.{} or newer".format(*PYTHON_MIN))
    return Finding("Python", "ok", what)


def look_at_java() -> Finding:
    try:
        java = find_java()
    except MachineError as error:
        what, _, remedy = str(error).rpartition(": ")
        return Finding("Java", "fail", what, remedy)
    what = f"Java {java.version} from {java.origin} ({java.home})"
    passed_over = [reason for reason in java.skipped if not reason.endswith(("is not set", "on the PATH"))]
    if passed_over:
        return Finding("Java", "warn", f"{what}; {'; '.join(passed_over)}", "point JAVA_HOME at a JDK 17+")
    return Finding("Java", "ok", what)


def look_at_pyspark() -> Finding:
    pandas = pandas_version()
    what = f"PySpark {pyspark_version()}, pandas {pandas or 'missing'}"
    if pandas is None:
        remedy = "PySpark asks for pandas before it maps Arrow batches: pip install 'pandas>=2.2,<3'"
        return Finding("PySpark", "fail", what, remedy)
    if not pyspark_version().startswith("4.3."):
        remedy = "geoswarm is tested with PySpark 4.3: pip install 'pyspark>=4.3,<4.4'"
        return Finding("PySpark", "warn", what, remedy)
    return Finding("PySpark", "ok", what)


def look_at_sockets() -> Finding:
    if not hasattr(socket, "AF_UNIX"):
        return Finding(
            "sockets", "warn", "no Unix sockets here", "use Linux or macOS: over TCP every task takes 40 ms more"
        )
    return Finding("sockets", "ok", f"Unix sockets to workers; a session of your own needs {UNIX_SOCKETS}=true")


def look_at_kernels() -> Finding:
    remedy = "reinstall numba and llvmlite"
    try:
        from geoswarm.core.space.grid import Grid  # here, because a broken numba fails as it is imported

        cell = int(Grid(0.0, 0.0, 1.0, 1.0, 2, 2).locate(np.array([0.75]), np.array([0.25]))[0])
    except Exception as error:  # whatever numba or LLVM raises, it is the finding
        return Finding("kernels", "fail", f"numba cannot compile ({error})", remedy)
    if cell != 3:
        return Finding("kernels", "fail", f"a kernel returned cell {cell} instead of 3", remedy)
    from geoswarm.core.arrays.kernel_folder import folder_to_write
    from geoswarm.run.warm import are_compiled

    if are_compiled():
        return Finding("kernels", "ok", "compiled for this installation")
    if folder_to_write() is None:
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written"
        return Finding("kernels", "warn", "no folder keeps them: every process compiles its own", remedy)
    remedy = "geoswarm warm compiles them now; else the first start does, beside its work"
    return Finding("kernels", "warn", "numba compiles, but not all kernels are compiled yet", remedy)


def look_at_cores(cores: int | None = None) -> Finding:
    cores = cores if cores is not None else len(os.sched_getaffinity(0))
    if cores < CORES_MIN:
        return Finding("cores", "warn", f"{cores} core", f"give it {CORES_MIN} or more; one works, slowly")
    return Finding("cores", "ok", f"{cores} cores")


def look_at_memory(free_gb: float | None = None) -> Finding:
    free_gb = _memory_free_gb() if free_gb is None else free_gb
    what = f"{free_gb:.1f} GB free"
    if free_gb < MEMORY_GB_MIN:
        remedy = f"free {MEMORY_GB_MIN - free_gb:.1f} GB, or lower spark.driver.memory from 2g"
        return Finding("memory", "warn", what, remedy)
    return Finding("memory", "ok", what)


def look_at_disk(folder: Path | None = None) -> Finding:
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    there = folder.absolute()
    while not there.exists():  # the checkpoint does not exist yet: look at the disk that it will be on
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK):
        remedy = "choose another folder, or change its owner"
        return Finding("disk", "fail", f"{there} cannot be written", remedy)
    free_gb = shutil.disk_usage(there).free / 1e9
    what = f"{free_gb:.1f} GB free for {folder}"
    if free_gb < DISK_GB_MIN:
        return Finding("disk", "warn", what, f"free {DISK_GB_MIN - free_gb:.1f} GB, or choose another folder")
    return Finding("disk", "ok", what)


def look_at_encryption() -> Finding:
    """Whether encryption is on, and the id of the key; never the key itself."""
    try:
        source = KeySource.from_environment()
        if source is None:
            return Finding("encryption", "ok", f"off ({KEY_FILE} is not set): files and traffic are in clear")
        return Finding("encryption", "ok", f"on, with key {source.cipher().id} from {source}")
    except (MachineError, SettingsError) as error:
        what, _, remedy = str(error).rpartition(": ")
        return Finding("encryption", "fail", what, remedy)


def look_at_session() -> Finding:
    try:
        java = try_session()
    except MachineError as error:
        what, _, remedy = str(error).rpartition(": ")
        return Finding("Spark session", "fail", what, remedy)
    return Finding("Spark session", "ok", f"Spark starts on Java {java} and runs Python workers")


def _memory_free_gb() -> float:
    """The memory that this process may still take: the machine's, or less if a container limits it."""
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = float(facts["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, float(limit.read_text()) - float(used.read_text()))
    return free / 1e9


def _plain(text: str) -> str:
    return text.replace("[", r"\[")  # rich would read local[2] as markup
