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
    return numba.njit(cache=True, nogil=True, fastmath=False)(function)  # type: ignore[no-any-return]


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
