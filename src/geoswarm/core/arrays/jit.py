"""The one numba decorator of the project, and the names of its arrays.

Kernels release the GIL, keep their machine code on disk between processes (`kernel_cache.py`), and take arrays and
scalars only.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.kernel_cache import Kernel

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=np.generic)


def kernel(function: F) -> F:
    """numba compiles a kernel anew for each combination of types, and a read-only array is a type of its own: pass one
    kind (`read_only`).

    Kernels are called from Python and from each other, never by C: an entry for C would only cost compile time."""
    return _compiled(function, counts_references=True)


def inner(function: F) -> F:
    """A kernel for others to call, often. It makes no array, returns none, and calls none that returns one: numba then
    does not count references to its arguments, which is two atomic additions for each array of each call, and up to
    half the time of a short loop."""
    return _compiled(function, counts_references=False)


def _compiled(function: F, counts_references: bool) -> F:
    if numba.config.DISABLE_JIT:
        return function
    options = {"nopython": True, "nogil": True, "fastmath": False, "no_cfunc_wrapper": True, "boundscheck": None}
    return Kernel(function, targetoptions=options | {"_nrt": counts_references})  # type: ignore[arg-type]


def read_only(array: npt.NDArray[T]) -> npt.NDArray[T]:
    """A view that cannot be written to, as arrays of Arrow and of mapped files: a kernel is then compiled once."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
CellIds = npt.NDArray[np.int32]  # row-major cell numbers: row * columns + column, row 0 at the top
ZCodes = npt.NDArray[np.uint32]  # the same cells along the Z-order curve
PartitionIds = npt.NDArray[np.int32]
SubIds = npt.NDArray[np.int64]
Ordinals = npt.NDArray[np.uint32]  # positions of subscriptions within one segment
Packed = npt.NDArray[np.uint64]  # several numbers in one
