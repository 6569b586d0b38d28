"""A kernel that counts no references must not hand an array out, nor drop one that it was given."""

import importlib
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import geoswarm.core
import geoswarm.flow
from geoswarm.core.arrays.kernel_cache import KERNELS, Kernel

for package in (geoswarm.core, geoswarm.flow):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)

INNER = {kernel.name: kernel for kernel in KERNELS if not kernel.targetoptions["_nrt"]}


@pytest.mark.parametrize("name", sorted(INNER))
def test_an_inner_kernel_returns_no_array_and_calls_none_that_returns_one(name: str) -> None:
    kernel = INNER[name]
    for called in (kernel, *_called_by(kernel)):
        assert not _has_arrays(typing.get_type_hints(called.py_func)["return"]), f"{called.name} returns an array"


def test_kernels_that_are_called_for_each_event_are_among_them() -> None:
    assert len(INNER) > 50


def _called_by(kernel: Any) -> Iterator[Any]:
    function = kernel.py_func
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return (value for value in named if isinstance(value, Kernel))


def _has_arrays(kind: Any) -> bool:
    if kind is np.ndarray or typing.get_origin(kind) is np.ndarray:
        return True
    parts = typing.get_type_hints(kind).values() if hasattr(kind, "_fields") else typing.get_args(kind)
    return any(_has_arrays(part) for part in parts)
