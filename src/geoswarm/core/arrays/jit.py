"""The one numba decorator of the project, and the names of its arrays.

Kernels release the GIL, keep their machine code on disk between processes, and take arrays and scalars only.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=np.generic)


def kernel(function: F) -> F:
    """numba compiles a kernel anew for each combination of types, and a read-only array and a literal 0 are types of
    their own: pass one kind (`read_only`), and begin with `int(np.int64(0))` what is given to other kernels.

    Kernels are called from Python and from each other, never by C: an entry for C would only cost compile time."""
    compiled = numba.njit(cache=True, nogil=True, fastmath=False, no_cfunc_wrapper=True)(function)
    _pass_over_stale_index(compiled)
    return compiled  # type: ignore[no-any-return]


def _pass_over_stale_index(compiled: Any) -> None:
    """numba reads the types in its index of machine code before it asks whether the index is of this source. A type
    that was renamed since, by an upgrade or a `git pull`, would be an AttributeError at the first call."""
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    load = getattr(index, "_load_index", None)
    if index is None or load is None:
        return  # another numba keeps its index in another way

    def load_or_nothing() -> dict[Any, Any]:
        try:
            found: dict[Any, Any] = load()
        except (AttributeError, ImportError):
            return {}
        return found

    index._load_index = load_or_nothing


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
