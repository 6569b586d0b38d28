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
    """What a process prints that calls the kernel: its answer, and how often machine code was found on disk."""
    program = f"from made import {name}, double; print(double({name}(21)), sum(double.stats.cache_hits.values()))"
    path = os.pathsep.join([str(folder), SOURCE_FOLDER])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.slow
def test_what_was_compiled_is_found_again_and_a_renamed_type_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE.format(name="Box"))
    assert [run(tmp_path, "Box") for _ in range(2)] == ["42 0", "42 1"]
    (tmp_path / "made.py").write_text(MODULE.format(name="Crate"))
    assert [run(tmp_path, "Crate") for _ in range(2)] == ["42 0", "42 1"]
