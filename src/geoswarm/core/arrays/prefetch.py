"""Ask the processor to fetch an element of an array into its caches. It goes on without waiting for it.

A loop that will need many scattered elements asks for all of them first: memory then looks for several at once.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

READ, KEEP_IN_ALL_CACHES, DATA = 0, 3, 1


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """For kernels only. The index, or the tuple of indices, must not be negative; one beyond the end is harmless."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        layout = signature.args[0]
        held = context.make_array(layout)(context, builder, args[0])
        one = not isinstance(index, types.BaseTuple)  # type: ignore[attr-defined]
        at = [args[1]] if one else cgutils.unpack_tuple(builder, args[1])
        address = cgutils.get_item_pointer(context, builder, layout, held, at, wraparound=False)
        address = builder.bitcast(address, cgutils.voidptr_t)
        kinds = [cgutils.int32_t(kind) for kind in (READ, KEEP_IN_ALL_CACHES, DATA)]
        asked = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [address.type, *(kind.type for kind in kinds)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [address.type], asked), [address, *kinds])
        return context.get_dummy_value()

    return types.void(array, index), generate
