"""Fetch jars that Spark does not ship, above all its Kafka connector, into the user's cache folder.

Starts no Spark; hand `kafka_conf()` to `session.py`. Which repositories are asked is the machine's own
business: Maven with the user's settings if there is one, else the Ivy that PySpark carries. Both bring along
what the jars need at run time. No repository is named here.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyspark

from geoswarm.errors import InputError, MachineError
from geoswarm.run.spark.java import find_java

FETCH_S_MAX = 600.0
"""Seconds of a first fetch, of about 50 MB; a tool that takes longer hangs on a dead network."""

SCALA = "2.13"
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}"
TOKENS = f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}"

KAFKA_CONNECTOR = f"{CONNECTOR}:{pyspark.__version__}"
"""The connector uses Spark's internals, so it has Spark's own version."""

KAFKA_STAND_IN = (f"{CONNECTOR}:4.2.0", f"{TOKENS}:4.0.0")
"""For a repository that has no connector of this Spark yet. On Spark 4.3.0 these two read and write batches
and streams (tests/kafka); a connector of 4.0.0 reads no stream there. The second handles client settings and
logins: the pair was tried without TLS or SASL only."""

KAFKA_EXCLUSIONS = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")
"""50 MB that the connector asks for and every Spark has."""

Fetch = Callable[[Sequence["Coordinate"], Sequence["Coordinate"], Path, Path], str | None]
"""(wanted, left out, scratch folder, target folder) -> None, or why it failed."""

_LOG = logging.getLogger(__name__)
_MANIFEST = "manifest.json"


class Coordinate(NamedTuple):
    group: str
    artifact: str
    version: str = ""

    @classmethod
    def of(cls, text: str, parts: int) -> "Coordinate":
        if not re.fullmatch(":".join([r"[A-Za-z0-9_.-]+"] * parts), text):
            form = "group:artifact:version" if parts == 3 else "group:artifact"
            raise InputError(f"{text!r} is no Maven coordinate: write it as {form}")
        return cls(*text.split(":"))


def kafka_conf(*, stand_in: bool = False, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings with which a Spark session can read and write Kafka.

    With `stand_in`, `KAFKA_STAND_IN` is used if a repository has no connector of this Spark.
    """
    try:
        jars = resolve([KAFKA_CONNECTOR], exclusions=KAFKA_EXCLUSIONS, environ=environ)
    except MachineError as error:
        if not stand_in:
            raise MachineError(f"{error}, or try kafka_conf(stand_in=True)") from error
        # TOKENS is asked for by itself, in another version than the connector would.
        jars = resolve(KAFKA_STAND_IN, exclusions=[*KAFKA_EXCLUSIONS, TOKENS], environ=environ)
        _LOG.warning("%s; %s stand in for it", error, " and ".join(KAFKA_STAND_IN))
    return {"spark.jars": ",".join(str(jar) for jar in _not_shipped(jars))}


def resolve(
    coordinates: Sequence[str], *, exclusions: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> list[Path]:
    """The jars of `coordinates` (group:artifact:version) and all they need at run time, sorted by name.

    `exclusions` (group:artifact) are not followed when a jar asks for them.
    """
    environ = os.environ if environ is None else environ
    wanted = [Coordinate.of(text, 3) for text in coordinates]
    without = [Coordinate.of(text, 2) for text in exclusions]
    if not wanted:
        return []
    key = json.dumps([sorted(wanted), sorted(without)])
    target = cache_folder(environ) / hashlib.sha256(key.encode()).hexdigest()[:16]
    jars = _find_cached(target)
    if jars is None:
        _fetch(wanted, without, target, environ)
        jars = _find_cached(target)
    if jars is None:
        raise MachineError(f"the jars in {target} changed while they were checked: remove the folder, try again")
    return jars


def cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "geoswarm" / "jars"


def _find_cached(folder: Path) -> list[Path] | None:
    """The jars of a folder if each has the checksum it was stored with, else None."""
    try:
        sums: dict[str, str] = json.loads((folder / _MANIFEST).read_text())
        if all(_sha256(folder / name) == want for name, want in sums.items()):
            return [folder / name for name in sorted(sums)]
    except (OSError, ValueError):
        pass
    return None


def _fetch(
    wanted: Sequence[Coordinate], without: Sequence[Coordinate], target: Path, environ: Mapping[str, str]
) -> None:
    tried: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for name, fetch in (("Maven", _maven(environ)), ("Spark's Ivy", _ivy(environ))):
            # Each attempt has its own folder: parts of two attempts may be one jar in two versions.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as scratch:
                jars = Path(scratch) / "jars"
                jars.mkdir()
                problem = fetch(wanted, without, Path(scratch), jars) or _missing(wanted, jars)
                if problem is None:
                    _store(jars, target)
                    return
            tried.append(f"{name}: {problem}")
    except MachineError:
        raise
    except OSError as error:
        raise MachineError(
            f"jars cannot be kept in {target.parent} ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    names = ", ".join(":".join(w) for w in wanted)
    raise MachineError(
        f"{len(wanted)} jar(s) could not be fetched, {names} ({'; '.join(tried)}): "
        "check the network (and that this Java trusts it: -Djavax.net.ssl.trustStore in JAVA_TOOL_OPTIONS), "
        "or install Maven and give it a repository that has them, "
        "or pass your own copies to Spark as spark.jars"
    )


def _store(jars: Path, target: Path) -> None:
    """Move a fetched folder into place in one step, so that no process sees half of it."""
    sums = {jar.name: _sha256(jar) for jar in jars.glob("*.jar")}
    (jars / _MANIFEST).write_text(json.dumps(sums, indent=1, sort_keys=True))
    if target.exists() and _find_cached(target) is None:
        target.replace(jars.with_name("broken"))  # goes with the scratch folder
    try:
        jars.replace(target)
    except OSError:
        if _find_cached(target) is None:  # else another process was faster, with the same jars
            raise


def _missing(wanted: Sequence[Coordinate], jars: Path) -> str | None:
    lacking = [w for w in wanted if not (jars / f"{w.artifact}-{w.version}.jar").is_file()]
    return f"it ended well but brought no {', '.join(w.artifact for w in lacking)}" if lacking else None


def _maven(environ: Mapping[str, str]) -> Fetch:
    def fetch(wanted: Sequence[Coordinate], without: Sequence[Coordinate], scratch: Path, jars: Path) -> str | None:
        mvn = shutil.which("mvn", path=environ.get("PATH", ""))
        if mvn is None:
            return "there is no mvn on the PATH"
        left_out = "".join(
            f"<exclusion><groupId>{w.group}</groupId><artifactId>{w.artifact}</artifactId></exclusion>" for w in without
        )
        needs = "".join(
            f"<dependency><groupId>{w.group}</groupId><artifactId>{w.artifact}</artifactId>"
            f"<version>{w.version}</version><exclusions>{left_out}</exclusions></dependency>"
            for w in wanted
        )
        (scratch / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>geoswarm</groupId><artifactId>jars</artifactId>"
            f"<version>1</version><packaging>pom</packaging><dependencies>{needs}</dependencies></project>"
        )
        output = _run(
            [
                mvn,
                "-B",
                "-q",
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={jars}",
            ],
            scratch,
            environ,
        )
        return None if output is None else _first(r"\[ERROR\] (.+)", output=output)

    return fetch


def _ivy(environ: Mapping[str, str]) -> Fetch:
    def fetch(wanted: Sequence[Coordinate], without: Sequence[Coordinate], scratch: Path, jars: Path) -> str | None:
        ivy = next(_spark_jars_folder().glob("ivy-*.jar"), None)
        if ivy is None:
            return f"there is no ivy-*.jar in {_spark_jars_folder()}"
        needs = "".join(
            f'<dependency org="{w.group}" name="{w.artifact}" rev="{w.version}" conf="default->default">'
            + "".join(
                f'<exclude org="{x.group}" module="{x.artifact}"/>'
                for x in without
                if x[:2] != w[:2]  # Ivy would leave out the very jar that is asked for
            )
            + "</dependency>"
            for w in wanted
        )
        (scratch / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="geoswarm" module="jars"/>'
            '<configurations><conf name="default"/></configurations>'
            f"<dependencies>{needs}</dependencies></ivy-module>"
        )
        java = str(find_java(environ).home / "bin" / "java")
        pattern = f"{jars}/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(scratch / "ivy.xml")]
        command += ["-cache", str(scratch / "cache"), "-retrieve", pattern, "-confs", "default"]
        output = _run([*command, "-types", "jar", "bundle"], scratch, environ)
        if output is None:
            return None
        # An untrusted certificate or a dead proxy also ends in "not found"; the access error shows it.
        return _first(r"Server access error at url (.+)", r":: (\S+: .+)", output=output)

    return fetch


def _run(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str | None:
    """None if the command succeeds, else its whole output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environ, "JAVA_HOME": str(find_java(environ).home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_S_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"[ERROR] stopped after {FETCH_S_MAX:.0f} s\n:: fetch: stopped after {FETCH_S_MAX:.0f} s"
    return None if done.returncode == 0 else done.stdout + done.stderr


def _first(*patterns: str, output: str) -> str:
    found = next(filter(None, (re.search(pattern, output) for pattern in patterns)), None)
    text = found.group(1) if found else (output.strip().splitlines() or ["it failed without a message"])[-1]
    return text if len(text) <= 300 else text[:300] + "…"


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _not_shipped(jars: Iterable[Path]) -> list[Path]:
    """The jars without those that Spark ships in its own version, some of which the connector's pom names."""
    shipped = {_artifact(jar) for jar in _spark_jars_folder().glob("*.jar")}
    return [jar for jar in jars if _artifact(jar) not in shipped]


def _artifact(jar: Path) -> str:
    """`zstd-jni-1.5.7-7.jar` -> zstd-jni, `kafka-0-10_2.13-4.3.0.jar` -> kafka-0-10_2.13"""
    return re.split(r"-\d+\.\d", jar.name, maxsplit=1)[0]


def _spark_jars_folder() -> Path:
    return Path(pyspark.__file__).parent / "jars"
