"""Machine code on disk: it outlives a process, and a change of the source behind it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geoswarm.version import SOURCE_FOLDER

MODULE = """
from typing import NamedTuple
from geoswarm.core.arrays.jit import kernel


class {name}(NamedTuple):
    size: int


@kernel
def double(given):
    return 2 * given.size
"""


def run(folder: Path, name: str) -> str:
    (folder / "made.py").write_text(MODULE.format(name=name))
    program = f"from made import {name}, double; print(double({name}(21)), sum(double.stats.cache_hits.values()))"
    path = os.pathsep.join([str(folder), SOURCE_FOLDER])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.slow
def test_a_type_that_was_renamed_is_compiled_anew_and_not_an_error(tmp_path: Path) -> None:
    assert run(tmp_path, "Box") == "42 0"
    assert run(tmp_path, "Rag") == "42 0"


@pytest.mark.slow
def test_what_was_compiled_is_found_again(tmp_path: Path) -> None:
    run(tmp_path, "Box")
    os.utime(tmp_path / "made.py", (1, 1))
    program = "from made import Box, double; print(double(Box(21)), sum(double.stats.cache_hits.values()))"
    path = os.pathsep.join([str(tmp_path), SOURCE_FOLDER])
    for hits in ("0", "1"):  # of the source as it is now
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.stdout.strip() == f"42 {hits}", done.stderr[-2000:]
