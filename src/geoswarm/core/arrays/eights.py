"""Eight bytes at once, from any place of an array of bytes: numba reads and writes elements only.

The first byte is the lowest of the number, as on every machine that numba compiles for. For kernels only, and without
checks: all eight bytes must be within the array.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from geoswarm.core.arrays.jit import inner

UNALIGNED = 1
# The machine code of a kernel is known by the files of the kernels that it calls (`kernel_source.py`), which no
# intrinsic is: those that call one here are compiled anew after a change of it only because they call `count_bits`.


def _pointer(context: Any, builder: Any, array: Any, held: Any, at: Any) -> Any:
    data = context.make_array(array)(context, builder, held).data
    eight = context.get_value_type(types.uint64).as_pointer()
    return builder.bitcast(builder.gep(data, [at]), eight)


@intrinsic  # type: ignore[untyped-decorator]
def eight_at(_: Any, array: Any, at: Any) -> Any:
    """The eight bytes from `at` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args), align=UNALIGNED)

    return types.uint64(array, at), generate


@intrinsic  # type: ignore[untyped-decorator]
def put_eight(_: Any, array: Any, at: Any, value: Any) -> Any:
    """Write the eight bytes from `at` on; `value` is an unsigned number of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held, where, value_given = args
        builder.store(value_given, _pointer(context, builder, signature.args[0], held, where), align=UNALIGNED)
        return context.get_dummy_value()

    return types.void(array, at, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def swap_bytes(_: Any, value: Any) -> Any:
    """The same eight bytes, the last one first."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint64(types.uint64), generate


@inner
def count_bits(v: Any) -> int:
    """How many bits are set, in a form that the compiler knows as one instruction."""
    v = v - ((v >> np.uint64(1)) & np.uint64(0x5555555555555555))
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((v * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]
