"""A harness that is stopped leaves no process behind, however it is stopped. No Spark: a stand-in is the victim."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from geoswarm.errors import StreamError
from geoswarm.lab.crash import kill
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.processes import MARK, marked_processes, parent_of

STAND_IN = """
import subprocess
import sys
import time

from geoswarm.lab.crash.processes import show_stacks_when_asked

show_stacks_when_asked()
subprocess.Popen(["sleep", "300"], process_group=0)  # as Spark's daemon: the same session, another group
subprocess.Popen(["sleep", "300"], start_new_session=True)  # as what compiles kernels
if "--dies" not in sys.argv:
    time.sleep(300)
"""
HARNESS = """
import signal
import sys
import time
from pathlib import Path

from geoswarm.lab.crash.kill import Victim

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and those under nohup this
victim = Victim(Path(sys.argv[1]), "local[1]", *sys.argv[2:], program="stand_in")
victim.start()
print(*victim._watchdog.environment.values(), flush=True)
time.sleep(300)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)]))
    return tmp_path


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline_s = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("victim", ["lives", "dies"])
def test_a_stopped_harness_leaves_no_process_of_its_victim(folder: Path, how: signal.Signals, victim: str) -> None:
    command = [sys.executable, "-c", HARNESS, str(folder), *(["--dies"] if victim == "dies" else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as harness:
        assert harness.stdout is not None
        mark = harness.stdout.readline().strip()
        count = 2 if victim == "dies" else 3
        assert wait_for(lambda: len(marked_processes(mark)) == count and victim_is(victim, mark)), said(folder)
        harness.send_signal(how)
    assert wait_for(lambda: not marked_processes(mark))


def victim_is(wanted: str, mark: str) -> bool:
    return any("stand_in" in line for line in marked_processes(mark).values()) == (wanted == "lives")


def said(folder: Path) -> str:
    return (folder / "run" / "log-0.txt").read_text()


def test_leaving_the_block_kills_all_that_was_started(folder: Path) -> None:
    with Victim(folder, "local[1]", program="stand_in") as victim:
        victim.start()
        assert victim._watchdog is not None
        mark = victim._watchdog.environment[MARK]
        assert wait_for(lambda: len(marked_processes(mark)) == 3), victim.last_words()
        assert len(victim._watchdog.processes(victim.pid)) == 2, "the third has a session of its own"
        assert parent_of(victim.pid) == os.getpid()
    assert not marked_processes(mark)


def test_an_engine_that_does_nothing_for_too_long_is_asked_what_it_waits_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Victim(folder, "local[1]", program="stand_in") as victim:
        victim.start()
        assert victim._watchdog is not None
        mark = victim._watchdog.environment[MARK]
        assert wait_for(lambda: len(marked_processes(mark)) == 3), victim.last_words()
        monkeypatch.setattr(kill, "WAIT_S_MAX", 0.0)
        with pytest.raises(StreamError, match=r"waited 0 s for a batch, in vain: 0 batches are committed, .* CPU time"):
            victim.until(lambda: False, "a batch")
        assert victim.is_alive
    (kept,) = folder.glob("geoswarm-waits-*/log-0.txt")
    assert 'stand_in.py", line' in kept.read_text()


def test_a_process_without_a_session_of_its_own_is_refused() -> None:
    code = "from geoswarm.lab.crash.processes import end_with_parent as end; end()"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "leads no session" in done.stderr
