"""Machine code of kernels on disk: each kernel is compiled once for an installation, whoever needs it first.

A file for each kernel and combination of types. Its name has a digest of all source that went into it
(`kernel_source.py`), so after an upgrade or an edit nothing old is found, and the old files are removed. While a
process compiles a kernel, others that need the same wait for it.

numba's own cache looks at one source file only, so that a kernel would go on with what it took over from another file
before; and two processes that write to it at once may exchange the code of two types.
"""

import fcntl
import hashlib
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.types.misc import unliteral

from geoswarm.core.arrays.kernel_folder import folder_to_write, folders_to_read
from geoswarm.core.arrays.kernel_source import name_of_type, source_digest

WAIT_S_MAX = 120.0
"""Seconds that a process waits for another one that compiles the same kernel; the longest takes 10 on an idle core."""
LOOK_S = 0.01
LOCK_FILE = "lock"
LOCK_PLACES = 1 << 40
"""Each kernel is one byte of the file of locks; two that shared one would only wait for each other."""

KERNELS: "list[Kernel]" = []
"""All kernels of the modules that are imported."""
watchers: list[Callable[[str], None]] = []
"""Each is called with the name of a kernel that was compiled rather than loaded."""


class NotCompiledError(Exception):
    """A kernel is not on disk, and was only to be loaded."""


@contextmanager
def only_compiled() -> Iterator[None]:
    """Leave the block at the first call of a kernel that is not on disk, instead of compiling it."""
    _loading.only = True
    try:
        with suppress(NotCompiledError):
            yield
    finally:
        _loading.only = False


_loading = threading.local()
"""Whether this thread only loads kernels; others go on as ever."""


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A function that numba compiles, for each combination of types of its arguments. A literal number is no type of
    its own here: numba would compile what is called with 0 and with 1 twice."""

    def __init__(self, py_func: FunctionType, locals: Any = None, targetoptions: Any = None) -> None:
        super().__init__(py_func, locals or {}, targetoptions or {})
        self._cache = KernelCache(py_func)
        self._compiles = 0
        KERNELS.append(self)

    @property
    def name(self) -> str:
        return f"{self.py_func.__module__}.{self.py_func.__qualname__}"

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock:
            missed, self._compiles = sum(self._cache_misses.values()), self._compiles + 1
            try:
                found = super().compile(sig)
            finally:
                self._compiles -= 1
                if not self._compiles:
                    self._cache.unlock()
            if sum(self._cache_misses.values()) > missed:
                for watch in watchers:
                    watch(self.name)
            return found

    def get_call_template(self, args: Any, kws: Any) -> Any:
        plain = {name: unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(unliteral(kind) for kind in args), plain)


class KernelCache(NullCache):  # type: ignore[misc]
    """The files of one kernel."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._is_locked = False

    @property
    def cache_path(self) -> str:
        return str(folder_to_write())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file_name(sig, target_context.codegen())
        found = self._load(name, target_context)
        if found is None and getattr(_loading, "only", False):
            raise NotCompiledError(name)
        if found is None and not self._is_locked:
            self._lock()
            found = self._load(name, target_context)  # by the process that had the lock
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        folder = folder_to_write()
        if folder is None:
            _warn_of_no_folder()
            return
        name = self._file_name(sig, data.codegen)
        if data.library.has_dynamic_globals:
            warnings.warn(f"{name} refers to addresses of this process: it cannot be kept", stacklevel=2)
            return
        aside = folder / f"{name}.{os.getpid()}"
        try:
            aside.write_bytes(dumps(data._reduce()))
            aside.replace(folder / name)
            for other in folder.glob(f"{self._base}.*.nbc"):
                if not other.name.startswith(f"{self._base}.{self._stamp}."):
                    other.unlink(missing_ok=True)
        except OSError as error:  # a full disk, say
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            warnings.warn(
                f"a compiled kernel cannot be kept in {folder} ({error.strerror}), so the next process compiles it "
                "again: free some space there, or set NUMBA_CACHE_DIR to another folder",
                RuntimeWarning,
                stacklevel=2,
            )

    def _load(self, name: str, target_context: Any) -> Any:
        for folder in folders_to_read():
            try:
                parts = pickle.loads((folder / name).read_bytes())
                return CompileResult._rebuild(target_context, *parts)
            except FileNotFoundError:
                continue
            except Exception as error:  # a damaged file may fail in any way
                warnings.warn(
                    f"{folder / name} is damaged ({type(error).__name__}): its kernel is compiled anew",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return None

    def _file_name(self, sig: Any, codegen: Any) -> str:
        arguments, _ = normalize_signature(sig)
        kinds = ", ".join(map(name_of_type, arguments))
        said = f"{kinds}; {codegen.magic_tuple()}; {numba.__version__}; {np.__version__}"
        return f"{self._base}.{self._stamp}.{hashlib.sha256(said.encode()).hexdigest()[:20]}.nbc"

    @cached_property
    def _base(self) -> str:
        name = f"{self._function.__module__}.{self._function.__qualname__}-{sys.implementation.cache_tag}"
        return name.replace("<", "").replace(">", "")

    @cached_property
    def _stamp(self) -> str:
        return source_digest(self._function)[:16]

    def _lock(self) -> None:
        """Wait until no other process compiles this kernel."""
        file, gives_up_s = _lock_file(), time.monotonic() + WAIT_S_MAX
        while file is not None and time.monotonic() < gives_up_s:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._lock_place)
                self._is_locked = True
                return
            except BlockingIOError:
                time.sleep(LOOK_S)
            except OSError:  # a file system without locks: two may do the same work
                return

    def unlock(self) -> None:
        file = _lock_file()
        if self._is_locked and file is not None:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, self._lock_place)
        self._is_locked = False

    @cached_property
    def _lock_place(self) -> int:
        return int.from_bytes(hashlib.sha256(self._base.encode()).digest()[:8]) % LOCK_PLACES


@lru_cache(1)
def _lock_file() -> int | None:
    """Open as long as the process lives: closing any handle of the file would give up all locks of the process."""
    folder = folder_to_write()
    with suppress(OSError):
        return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666) if folder else None
    return None


@lru_cache(1)
def _warn_of_no_folder() -> None:
    warnings.warn(
        "no folder can be written that keeps compiled kernels, so every process compiles them again: "
        "set NUMBA_CACHE_DIR to one",
        RuntimeWarning,
        stacklevel=2,
    )
