"""What the machine code of a kernel was made from: its source, that of the kernels that it calls, and its types.

A kernel takes over the code of the kernels that it calls, so a change of theirs is a change of it. The constants that
it names and the classes of its arguments belong to it, too.
"""

import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba.core.types.containers import BaseNamedTuple


def source_digest(function: FunctionType) -> str:
    """A digest of all that a kernel is made from. Asked for at its first call, when the names that it uses have
    values."""
    files: set[str] = set()
    constants: set[str] = set()
    _gather(function, files, constants, set())
    digest = hashlib.sha256()
    for said in (*sorted(_file_digest(file) for file in files), *sorted(constants)):
        digest.update(said.encode())
    return digest.hexdigest()


def name_of_type(kind: Any) -> str:
    """The type of an argument; for a named tuple numba's own name lacks the fields and the module."""
    if isinstance(kind, BaseNamedTuple):
        fields = ", ".join(f"{name}: {name_of_type(each)}" for name, each in zip(kind.fields, kind.types, strict=True))
        return f"{kind.instance_class.__module__}.{kind.instance_class.__qualname__}({fields})"
    return str(kind)


def _gather(function: FunctionType, files: set[str], constants: set[str], seen: set[FunctionType]) -> None:
    if function in seen:
        return
    seen.add(function)
    files.add(function.__code__.co_filename)
    closed = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    for name in _names_in(function.__code__):
        value = closed.get(name, function.__globals__.get(name))
        called = getattr(value, "py_func", None)
        if called is not None:
            _gather(called, files, constants, seen)
        elif isinstance(value, type):
            files.update(_file_of(value))
        elif isinstance(value, np.ndarray):
            constants.add(f"{name}={value.dtype}{value.shape}{value.tobytes().hex()}")
        elif isinstance(value, int | float | str | bytes | tuple | np.generic):
            constants.add(f"{name}={value!r}")
    for annotation in function.__annotations__.values():
        files.update(_file_of(annotation))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _file_of(kind: Any) -> Iterator[str]:
    """The file of a named tuple, and of those in it."""
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        yield inspect.getfile(kind)
        for field in getattr(kind, "__annotations__", {}).values():
            yield from _file_of(field)


@cache
def _file_digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return file  # of a notebook or a prompt
