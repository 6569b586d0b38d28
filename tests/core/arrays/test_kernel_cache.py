"""Machine code of kernels on disk is used while it is right, and by one process at a time."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from geoswarm.core.arrays import kernel_cache, kernel_source
from geoswarm.version import SOURCE_FOLDER

INNER = "from geoswarm.core.arrays.jit import kernel\n@kernel\ndef inner(x: int) -> int:\n    return x + {step}\n"
OUTER = (
    "from geoswarm.core.arrays.jit import kernel\nfrom {inner} import inner\n"
    "@kernel\ndef outer(x: int) -> int:\n    return inner(x) * inner(0) * inner(1)\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "kernels"
    made.mkdir()
    _use(made, [made], monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    return made


def _use(written: Path | None, read: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "folder_to_write", lambda: written)
    monkeypatch.setattr(kernel_cache, "folders_to_read", lambda: read)
    monkeypatch.setattr(kernel_cache, "_lock_file", lambda: None)
    kernel_source._file_digest.cache_clear()


def _load(path: Path, name: str, text: str) -> ModuleType:
    file = path / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel_source._file_digest.cache_clear()
    return module


def _outer(path: Path, step: int = 1) -> Any:
    """A fresh pair of kernels, as a new process would have them."""
    _load(path, "inner_kernel", INNER.format(step=step))
    return _load(path, "outer_kernel", OUTER.format(inner="inner_kernel")).outer


def _misses(kernel: Any) -> int:
    return sum(kernel.stats.cache_misses.values())


def test_a_kernel_is_compiled_once_and_loaded_later(folder: Path) -> None:
    first = _outer(folder.parent)
    assert (first(2), _misses(first)) == (6, 1)
    later = _outer(folder.parent)
    assert (later(2), _misses(later)) == (6, 0)


def test_a_change_of_a_kernel_that_is_called_is_a_change_of_its_caller_and_old_code_is_removed(folder: Path) -> None:
    assert _outer(folder.parent)(2) == 6
    before = {file.name for file in folder.glob("*.nbc")}
    changed = _outer(folder.parent, step=2)
    assert (changed(2), _misses(changed)) == (24, 1)
    after = {file.name for file in folder.glob("*.nbc")}
    assert len(after) == len(before)
    assert not before & after


def test_literal_arguments_are_not_types_of_their_own(folder: Path) -> None:
    assert _outer(folder.parent)(2) == 6
    assert len(list(folder.glob("inner_kernel.*.nbc"))) == 1


def test_a_damaged_file_is_reported_and_compiled_anew(folder: Path) -> None:
    _outer(folder.parent)(2)
    for file in folder.glob("*.nbc"):
        file.write_bytes(file.read_bytes()[:100])
    again = _outer(folder.parent)
    with pytest.warns(RuntimeWarning, match=r"is damaged .* compiled anew") as told:
        assert again(2) == 6
    assert {"outer_kernel", "inner_kernel"} <= {Path(str(each.message)).name.split(".")[0] for each in told}
    later = _outer(folder.parent)
    assert (later(2), _misses(later)) == (6, 0)


def test_code_that_came_with_a_read_only_installation_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _outer(folder.parent)(2)
    _use(None, [folder], monkeypatch)
    kernel = _outer(folder.parent)
    assert (kernel(2), _misses(kernel)) == (6, 0)


def test_without_a_folder_to_write_kernels_work_and_one_warning_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(None, [folder], monkeypatch)
    kernel_cache._warn_of_no_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="no folder can be written") as told:
        assert _outer(folder.parent)(2) == 6
    assert len(told) == 1
    assert not list(folder.iterdir())


def test_nothing_is_compiled_where_kernels_are_only_to_be_loaded(folder: Path) -> None:
    kernel, reached = _outer(folder.parent), False
    with kernel_cache.only_compiled():
        kernel(2)
        reached = True
    assert not reached
    assert kernel(2) == 6


@pytest.mark.slow
def test_two_processes_that_start_together_compile_each_kernel_once(tmp_path: Path) -> None:
    program = (
        "import sys, outer_kernel, inner_kernel\n"
        "assert outer_kernel.outer(2) == 6\n"
        "print(sum(sum(k.stats.cache_misses.values()) for k in (outer_kernel.outer, inner_kernel.inner)))\n"
    )
    (tmp_path / "inner_kernel.py").write_text(INNER.format(step=1))
    (tmp_path / "outer_kernel.py").write_text(OUTER.format(inner="inner_kernel"))
    path = os.pathsep.join([str(tmp_path), SOURCE_FOLDER])
    environ = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "PYTHONPATH": path}
    both = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environ)
        for _ in range(2)
    ]
    misses = [int(process.communicate()[0]) for process in both]
    assert sorted(misses) == [0, 2] or misses == [1, 1]
    assert len(list((tmp_path / "kernels").rglob("*.nbc"))) == 2
