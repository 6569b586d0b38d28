"""What the harness of the crash tests reads from a checkpoint. No process is started."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from geoswarm.lab.crash import kill
from geoswarm.lab.crash.kill import Victim


def test_batches_are_counted_though_spark_has_deleted_the_entries_of_old_ones(tmp_path: Path) -> None:
    victim = Victim(tmp_path, "local[1]")
    assert victim.commits() == 0
    folder = victim.checkpoint / "spark" / "commits"
    folder.mkdir(parents=True)
    retained = 20
    for batch in range(3 * retained):
        (folder / str(batch)).touch()
        (folder / f".{batch}.crc").touch()
        (folder / str(batch - retained)).unlink(missing_ok=True)
        assert victim.commits() == batch + 1, "a wait for the next batch ends with it, however many there were"


def test_the_rest_of_a_stream_may_take_as_long_as_batches_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, batches = Victim(tmp_path, "local[1]"), 5
    folder = victim.checkpoint / "spark" / "commits"
    folder.mkdir(parents=True)
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += 0.9 * kill.WAIT_S_MAX
        (folder / str(victim.commits())).touch()

    monkeypatch.setattr(kill, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    process = SimpleNamespace(poll=lambda: 0 if victim.commits() == batches else None)
    monkeypatch.setattr(victim, "_process", process)
    victim.until_done()
    assert now_s > 4 * kill.WAIT_S_MAX
