"""What the harness of the crash tests reads from a checkpoint. No process is started."""

from pathlib import Path

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
