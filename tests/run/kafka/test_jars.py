"""Jars are fetched once, checked at each use, and never doubled on Spark's class path. A script plays Maven."""

import json
import os
from pathlib import Path

import pyspark
import pytest

from geoswarm.errors import InputError, MachineError
from geoswarm.run.spark import jars
from geoswarm.run.spark.java import find_java

MAVEN = """#!/bin/sh
echo run >> {runs}
for word do case "$word" in -DoutputDirectory=*) out="${{word#-DoutputDirectory=}}" ;; esac; done
{body}
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine with Java, a `mvn` and an Ivy that reach no repository, with a cache of its own."""
    return {
        "PATH": f"{tmp_path}{os.pathsep}{os.defpath}",
        "JAVA_HOME": str(find_java().home),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1",
        "HOME": str(tmp_path),
    }


def install_maven(folder: Path, body: str) -> Path:
    """Each run adds a line to the file that is returned."""
    runs, mvn = folder / "runs", folder / "mvn"
    mvn.write_text(MAVEN.format(runs=runs, body=body))
    mvn.chmod(0o755)
    return runs


def copies(*names: str) -> str:
    return "\n".join(f'echo "{name}" > "$out/{name}"' for name in names)


def test_a_second_use_asks_no_repository(tmp_path: Path, machine: dict[str, str]) -> None:
    runs = install_maven(tmp_path, copies("a-1.0.jar", "needed-by-a-2.1.jar"))
    first = jars.resolve(["g:a:1.0"], environ=machine)
    assert [jar.name for jar in first] == ["a-1.0.jar", "needed-by-a-2.1.jar"]
    assert jars.resolve(["g:a:1.0"], environ=machine) == first
    assert runs.read_text() == "run\n"


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_cache_is_fetched_again(tmp_path: Path, machine: dict[str, str], damage: str) -> None:
    runs = install_maven(tmp_path, copies("a-1.0.jar"))
    (jar,) = jars.resolve(["g:a:1.0"], environ=machine)
    if damage == "cut":
        jar.write_bytes(jar.read_bytes()[:3])
    elif damage == "gone":
        jar.unlink()
    else:
        (jar.parent / "manifest.json").write_text("{")
    assert jars.resolve(["g:a:1.0"], environ=machine) == [jar]
    assert jar.read_text() == "a-1.0.jar\n"
    assert runs.read_text() == "run\nrun\n"
    assert [path.name for path in jar.parent.parent.iterdir()] == [jar.parent.name]  # no scratch is left


def test_a_failed_fetch_says_what_was_tried_and_what_to_do(tmp_path: Path, machine: dict[str, str]) -> None:
    install_maven(tmp_path, "echo '[ERROR] no such artifact'; exit 1")
    with pytest.raises(MachineError) as refused:
        jars.resolve(["g:a:1.0"], environ=machine)
    said = str(refused.value)
    assert "g:a:1.0 (Maven: no such artifact; Spark's Ivy: " in said
    assert "install Maven" in said
    assert list(jars.cache_folder(machine).iterdir()) == []


def test_a_fetch_without_the_jar_asked_for_is_a_failure(tmp_path: Path, machine: dict[str, str]) -> None:
    install_maven(tmp_path, copies("another-1.0.jar"))
    with pytest.raises(MachineError, match="Maven: it ended well but brought no a;"):
        jars.resolve(["g:a:1.0"], environ=machine)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, machine: dict[str, str]) -> None:
    install_maven(tmp_path, copies("a-1.0.jar"))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(MachineError, match="set XDG_CACHE_HOME"):
        jars.resolve(["g:a:1.0"], environ=machine)


@pytest.mark.parametrize("text", ["a", "g:a", "g:a:1:jar", "g:a:1</version>", "g: a:1", ""])
def test_what_is_no_coordinate_is_refused(machine: dict[str, str], text: str) -> None:
    with pytest.raises(InputError, match="group:artifact:version"):
        jars.resolve([text], environ=machine)


def test_a_jar_that_spark_has_is_not_given_to_it_again(tmp_path: Path, machine: dict[str, str]) -> None:
    version = pyspark.__version__
    connector = f"spark-sql-kafka-0-10_2.13-{version}.jar"
    install_maven(tmp_path, copies(connector, "kafka-clients-3.9.2.jar", "lz4-java-1.8.0.jar", "zstd-jni-1.5.6-4.jar"))
    given = jars.kafka_conf(environ=machine)["spark.jars"].split(",")
    assert [Path(jar).name for jar in given] == ["kafka-clients-3.9.2.jar", connector]


def test_the_stand_in_is_taken_only_if_asked_for(tmp_path: Path, machine: dict[str, str]) -> None:
    names = ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "spark-token-provider-kafka-0-10_2.13-4.0.0.jar")
    # This repository has the stand-in, and no connector of this Spark.
    install_maven(tmp_path, f"grep -q '<version>4[.]0[.]0</version>' pom.xml || exit 1\n{copies(*names)}")
    with pytest.raises(MachineError, match="stand_in=True"):
        jars.kafka_conf(environ=machine)
    given = jars.kafka_conf(stand_in=True, environ=machine)["spark.jars"].split(",")
    assert [Path(jar).name for jar in given] == list(names)
    manifest = json.loads((Path(given[0]).parent / "manifest.json").read_text())
    assert sorted(manifest) == sorted(names)
