"""One engine per checkpoint: the second is turned away, the replaced one can no longer commit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import geoswarm
from geoswarm.errors import FencedOut
from geoswarm.lab.crash.scenario import CONTRACT, TUNING, Scenario
from geoswarm.store import manifest
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.fence import newest_term

NOW_US = 1_767_225_600_000_000
HOLDER = """
import sys
from geoswarm.lab.crash.scenario import CONTRACT, TUNING
from geoswarm.store.checkpoint import Checkpoint
held = Checkpoint(sys.argv[1], CONTRACT, TUNING)
print("held", flush=True)
sys.stdin.read()
"""


def open_checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(str(folder), CONTRACT, TUNING)


def test_a_second_engine_learns_which_process_has_the_checkpoint(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)
    with pytest.raises(FencedOut, match=f"in use by process {os.getpid()}: stop that engine"):
        open_checkpoint(tmp_path)
    first.prepare(0, list, NOW_US)  # undisturbed by the attempt
    first.finish(0)
    first.close()
    open_checkpoint(tmp_path).close()


def test_an_engine_in_another_process_keeps_others_out_until_it_is_killed(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(geoswarm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FencedOut, match=f"process {holder.pid}"):
            open_checkpoint(tmp_path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    open_checkpoint(tmp_path).close()


def replace_owner(first: Checkpoint) -> None:
    """As on storage without locks, or after a pause so long that another took over."""
    term = newest_term(first.storage) + 1
    first.storage.write_document(f"terms/{term:08d}.json", {"term": term, "pid": 1, "host": "elsewhere"})


def test_an_engine_that_was_replaced_cannot_begin_a_batch(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)
    replace_owner(first)
    with pytest.raises(FencedOut, match=r"number 1 .* number 2 has started since"):
        first.prepare(0, lambda: [Scenario(1).operations(0)], NOW_US)
    assert manifest.versions(first.storage) == [0]


def test_an_engine_that_is_replaced_within_a_batch_can_neither_commit_nor_clean_up(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)

    def operations() -> list[object]:
        replace_owner(first)  # while it was reading them
        return [Scenario(1).operations(0)]

    with pytest.raises(FencedOut):
        first.prepare(0, operations, NOW_US)
    assert manifest.versions(first.storage) == [0]
    first.close()

    second = open_checkpoint(tmp_path)
    second.prepare(0, lambda: [Scenario(1).operations(0)], NOW_US)
    replace_owner(second)
    with pytest.raises(FencedOut):
        second.finish(0)


def test_an_engine_that_was_replaced_cannot_acknowledge_a_subscription(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)
    replace_owner(first)
    with pytest.raises(FencedOut):
        first.submit(Scenario(1).operations(0))
    assert not (tmp_path / "inbox").exists()


def test_of_two_engines_that_write_one_version_one_wins(tmp_path: Path) -> None:
    """Both passed the check of the term before either wrote: the file itself decides."""
    first = open_checkpoint(tmp_path)
    version = first.manifest.next(batch=0, last_batch=0)
    manifest.write(first.storage, version)
    with pytest.raises(FencedOut, match="another engine"):
        manifest.write(first.storage, version)


def test_a_refused_engine_leaves_no_term_behind(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path)
    with pytest.raises(FencedOut):
        open_checkpoint(tmp_path)
    assert newest_term(first.storage) == first.fence.term
