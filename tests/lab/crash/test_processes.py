"""A harness that is stopped leaves no process behind, however it was stopped. No Spark: a stand-in is the victim."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.processes import parent_of, processes_of

STAND_IN = """
import subprocess
import time

from geoswarm.lab.crash.processes import end_with_parent

end_with_parent()
subprocess.Popen(["sleep", "300"], process_group=0)  # as Spark's daemon: the same session, another group
time.sleep(300)
"""
HARNESS = """
import sys
import time
from pathlib import Path

from geoswarm.lab.crash.kill import Victim

victim = Victim(Path(sys.argv[1]), "local[1]", program="stand_in")
victim.start()
print(victim.pid, flush=True)
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_harness_leaves_no_process_of_its_victim(folder: Path, how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", HARNESS, str(folder)], stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        session = int(harness.stdout.readline())
        assert wait_for(lambda: len(processes_of(session)) == 2), (folder / "run" / "log-0.txt").read_text()
        harness.send_signal(how)
    assert wait_for(lambda: not processes_of(session))


def test_leaving_the_block_kills_the_whole_session(folder: Path) -> None:
    with Victim(folder, "local[1]", program="stand_in") as victim:
        victim.start()
        session = victim.pid
        assert wait_for(lambda: len(processes_of(session)) == 2), victim.last_words()
        assert parent_of(session) == os.getpid()
    assert wait_for(lambda: not processes_of(session))


def test_a_process_without_a_session_of_its_own_is_refused() -> None:
    code = "from geoswarm.lab.crash.processes import end_with_parent as end; end()"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "leads no session" in done.stderr
