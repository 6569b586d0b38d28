"""An archive of the classes that Spark loads: a JVM that maps it starts in half the time.

The first session on this machine alone (`local[2]`) writes it when its JVM ends, after the program itself has, or
`geoswarm warm` has it written; later ones map it. It lies beside the compiled kernels, under a name that has the
version of Java and of Spark. A JVM that cannot use it goes without and says nothing (`-Xshare:auto`); a file that was
cut off is written again.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from geoswarm.core.arrays.kernel_folder import folder_to_write, folders_to_read
from geoswarm.run.spark.java import JavaRuntime, find_java, java_major
from geoswarm.version import SOURCE_FOLDER

OPTIONS_OF_OTHERS = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare:")
"""Whoever sets one of these chooses an archive, or none."""
NO_ARCHIVE = "-Xshare:auto"
"""Java's own default: given as an option of a session, it means that the session writes no archive."""
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Java would name every class that it leaves out, on stdout."""
WRITE_S_MAX = 300.0
"""Seconds for a small stream and the archive of its classes: 30 on two idle cores."""
STREAM = "geoswarm.run.spark.archive_stream"
BEGINS_WITH = bytes.fromhex("f00baba8")
"""The mark of a complete archive, in either order of bytes: Java writes it last."""


def archive_options(java: JavaRuntime, given: str) -> list[str]:
    """Options of the JVM that map the archive, or write it if there is none. None where `given`, or the environment,
    has such options."""
    submitted = f"{given} {os.environ.get('SPARK_SUBMIT_OPTS', '')} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"
    if any(option in submitted for option in OPTIONS_OF_OTHERS) or java_major(java.version) < 17:
        return []
    name, written = archive_name(java), folder_to_write()
    for folder in folders_to_read():
        if is_complete(folder / name):
            return [*QUIET, f"-XX:SharedArchiveFile={folder / name}"]
    return [*QUIET, f"-XX:ArchiveClassesAtExit={written / name}"] if written is not None else []


def archive_name(java: JavaRuntime) -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    changed = jars.stat().st_mtime_ns if jars.is_dir() else 0
    said = f"{java.version} {java.home} {pyspark.__version__} {jars} {changed}"
    return f"spark-{hashlib.sha256(said.encode()).hexdigest()[:12]}.jsa"


def is_complete(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            mark = file.read(len(BEGINS_WITH))
    except OSError:
        return False
    return mark in (BEGINS_WITH, BEGINS_WITH[::-1])


def make_archive() -> str:
    """Have a small stream write the archive, in a process of its own, unless there is one. Returns what to tell."""
    java = find_java()
    folder, name = folder_to_write(), archive_name(java)
    held = [each / name for each in folders_to_read() if is_complete(each / name)]
    if held or folder is None:
        return f"Spark's classes are in {held[0]}" if held else "no folder can be written for Spark's classes"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), SOURCE_FOLDER]))}
    done = subprocess.run(
        [sys.executable, "-m", STREAM], capture_output=True, text=True, timeout=WRITE_S_MAX, env=environ
    )
    if not is_complete(folder / name):
        last = (done.stderr.strip() or "there was no output").splitlines()[-1]
        return f"this Java wrote no archive of Spark's classes ({last}): Spark starts as before"
    return f"Spark's classes are in {folder / name}"
