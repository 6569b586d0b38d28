"""How many distinct values, which quantiles, which values most often: answers of a stated error from little memory.

A sketch of a few values is exact. The sketches are those of Apache DataSketches, whose library is an extra
(`geoswarm[sketches]`). Nulls count for nothing in any of them.

| | sketch | exact up to | beyond that, `error` |
|---|---|---|---|
| `DistinctSketch` | theta, the smallest hashes | 4,096 distinct values | of the answer, in 99 of 100 cases |
| `QuantileSketch` | KLL | 400 values | of the rank, in 99 of 100 cases |
| `TopSketch` | frequent items | 768 distinct values | of the number of all values, always |

Why theta for distinct values: of 300,000 it makes 25 KB, with an error of 4.0 %. HyperLogLog makes 4 KB with 4.2 % and
is exact up to 350, CPC makes 2.5 KB with 2.8 % and is exact up to some tens. But theta is exact up to thousands, and
its answer is the same to the bit whatever was merged in which order: another plan, or a batch that is run again,
changes nothing. Two large sketches are merged in 0.2 ms, two small ones in 1.4 µs.
KLL draws lots, from a seed that its library does not let us choose: its answers differ from run to run within `error`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.hashing import key_ids
from geoswarm.errors import InputError, MachineError, SchemaError

DISTINCT_LOG2 = 12
"""Hashes that a `DistinctSketch` keeps, as a power of two: up to 32 KB."""
QUANTILE_K = 400
"""The size of a `QuantileSketch`: some 10 KB for millions of values."""
TOP_LOG2 = 10
"""Counters of a `TopSketch`, as a power of two, of which three quarters are used."""
TOP_CHARS_MAX = 128
"""Characters of a value in a `TopSketch`, so that a sketch has at most some 100 KB of ASCII: longer ones are cut, and
those that begin alike are counted as one."""


class Frequent(NamedTuple):
    """A value that occurs often."""

    value: str
    times: int
    excess_max: int
    """So much too high `times` may be; it is never too low."""


class _Sketch(ABC):
    """What the three have in common: bytes, and groups of values of which each has a sketch of its own."""

    error: ClassVar[float]
    _of_library: ClassVar[str]

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @classmethod
    def add_groups(cls, values: pa.Array, starts: Ints) -> list[bytes]:
        """A sketch, as bytes, for each group: group i is `values[starts[i]:starts[i + 1]]`, and may be empty."""
        items, starts = cls._items(values), _without_nulls(values, starts)
        return [cls._written(cls._fed(cls._new(), items[first:end])) for first, end in pairwise(starts.tolist())]

    @classmethod
    def merge_groups(cls, blobs: list[bytes], starts: Ints) -> list[bytes]:
        """One sketch for each group of sketches, all as bytes; that of no sketches is empty."""
        return [cls._merged(blobs[first:end]) for first, end in pairwise(starts.tolist())]

    @classmethod
    def _merged(cls, blobs: list[bytes]) -> bytes:
        if len(blobs) == 1:
            return blobs[0]
        return cls._written(cls._union(map(cls._read, blobs)))

    @classmethod
    def empty(cls) -> Self:
        return cls(cls._new())

    @property
    def error_now(self) -> float:
        """The error of what it answers now; 0: the answer is exact."""
        return self.error if self._inner.is_estimation_mode() else 0.0

    def to_bytes(self) -> bytes:
        return self._written(self._inner)

    @classmethod
    def from_bytes(cls, written: bytes) -> Self:
        return cls(cls._read(written))

    @classmethod
    def _read(cls, written: bytes) -> Any:
        try:
            return getattr(_library(), cls._of_library).deserialize(written)
        except (IndexError, RuntimeError, ValueError) as error:
            remedy = "read it with the class that wrote it"
            raise InputError(f"{len(written)} bytes are no {cls.__name__} ({error}): {remedy}") from None

    @classmethod
    @abstractmethod
    def _new(cls) -> Any: ...

    @classmethod
    @abstractmethod
    def _items(cls, values: pa.Array) -> Any:
        """The values that are not null, as the library takes them."""

    @classmethod
    def _fed(cls, inner: Any, items: Any) -> Any:
        for item in items:
            inner.update(item)
        return inner

    @classmethod
    def _union(cls, inners: Iterator[Any]) -> Any:
        whole = cls._new()
        for inner in inners:
            whole.merge(inner)
        return whole

    @classmethod
    def _written(cls, inner: Any) -> bytes:
        written: bytes = inner.serialize()
        return written


class DistinctSketch(_Sketch):
    """How many distinct values there are.

    Integers, booleans and times are told apart by their 64 bits, numbers with a fraction by theirs as float64 (all NaN
    are one, and so are 0 and -0), texts, bytes and UUIDs by a 64-bit hash (`core/keys/hashing.py`). So 1 and 1.0 are
    two values: give one sketch the values of one column.
    """

    error = 2.576 / 2 ** (DISTINCT_LOG2 / 2)
    _of_library = "compact_theta_sketch"

    def add(self, values: pa.Array) -> None:
        self._inner = self._union(iter([self._inner, self._fed(self._new(), self._items(values))]))

    def __add__(self, other: "DistinctSketch") -> "DistinctSketch":
        return DistinctSketch(self._union(iter([self._inner, other._inner])))

    def read(self) -> int:
        estimate: float = self._inner.get_estimate()
        return round(estimate)

    @classmethod
    def _new(cls) -> Any:
        return _library().update_theta_sketch(DISTINCT_LOG2)

    @classmethod
    def _items(cls, values: pa.Array) -> list[int]:
        found: list[int] = _distinguished(values.drop_null()).tolist()
        return found

    @classmethod
    def _union(cls, inners: Iterator[Any]) -> Any:
        union = _library().theta_union(DISTINCT_LOG2)
        for inner in inners:
            union.update(inner)
        return union.get_result()

    @classmethod
    def _written(cls, inner: Any) -> bytes:
        """Only the smallest hashes, in order: what is left does not depend on who came first."""
        if isinstance(inner, _library().update_theta_sketch):
            inner.trim()
            inner = inner.compact()
        written: bytes = inner.serialize(True)
        return written


class QuantileSketch(_Sketch):
    """Which number has a given share of the numbers at or below it. NaN counts for nothing."""

    error = 0.0068
    _of_library = "kll_doubles_sketch"

    def add(self, values: pa.Array) -> None:
        self._inner.update(self._items(values))

    def __add__(self, other: "QuantileSketch") -> "QuantileSketch":
        return QuantileSketch(self._union(iter([self._inner, other._inner])))

    def read(self, rank: float) -> float | None:
        """The smallest number that has at least a share `rank`, 0 to 1, of all at or below it: at 0 the smallest of
        all and at 1 the largest, both exact. None if there is no number."""
        if not 0 <= rank <= 1:
            raise InputError(f"a quantile of {rank} is not between 0 and 1: 0.5 is the median")
        if self._inner.is_empty():
            return None
        found: float
        if rank in (0, 1):
            found = self._inner.get_max_value() if rank else self._inner.get_min_value()
        else:
            found = self._inner.get_quantile(rank, True)
        return found

    @classmethod
    def _new(cls) -> Any:
        return _library().kll_doubles_sketch(QUANTILE_K)

    @classmethod
    def _items(cls, values: pa.Array) -> Floats:
        kind = values.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise SchemaError(f"quantiles of {kind} are not defined: give numbers")
        return np.array(values.drop_null().cast(pa.float64(), safe=False))  # the library takes no read-only array

    @classmethod
    def _fed(cls, inner: Any, items: Floats) -> Any:
        inner.update(items)
        return inner


class TopSketch(_Sketch):
    """Which values occur most often, as text. Numbers, booleans and times are written as text."""

    error = 3.5 / 2**TOP_LOG2
    _of_library = "frequent_strings_sketch"

    def add(self, values: pa.Array) -> None:
        for item in self._items(values).value_counts().to_pylist():
            self._inner.update(item["values"], item["counts"])

    def __add__(self, other: "TopSketch") -> "TopSketch":
        return TopSketch(self._union(iter([self._inner, other._inner])))

    def read(self, most: int) -> list[Frequent]:
        """At most so many, the most frequent first, and of equal ones the first by the alphabet."""
        kind = _library().frequent_items_error_type.NO_FALSE_NEGATIVES
        found = [Frequent(text, high, high - low) for text, _, low, high in self._inner.get_frequent_items(kind)]
        return sorted(found, key=lambda one: (-one.times, one.value))[:most]

    @property
    def error_now(self) -> float:
        total: float = self._inner.total_weight
        excess = max((one.excess_max for one in self.read(1)), default=total)  # it is the same for all values
        return excess / total if total else 0.0

    @classmethod
    def _new(cls) -> Any:
        return _library().frequent_strings_sketch(TOP_LOG2)

    @classmethod
    def _items(cls, values: pa.Array) -> Any:
        plain = _plain(values.drop_null())
        kind = plain.type
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        if is_bytes or pa.types.is_nested(kind):
            raise SchemaError(f"the most frequent values of type {kind} are not defined: give texts, numbers or times")
        return pc.utf8_slice_codeunits(plain.cast(pa.large_string()), 0, TOP_CHARS_MAX)

    @classmethod
    def _fed(cls, inner: Any, items: Any) -> Any:
        for item in items.to_pylist():
            inner.update(item)
        return inner


def check_library() -> None:
    """An error that names the package, if it is not installed."""
    _library()


@cache
def _library() -> Any:
    try:
        import datasketches
    except ImportError:
        raise MachineError(
            "distinct values, quantiles and the most frequent values need the package datasketches: "
            "pip install 'geoswarm[sketches]'"
        ) from None
    return datasketches


def _without_nulls(values: pa.Array, starts: Ints) -> Ints:
    """Where groups begin once nulls are dropped."""
    if not values.null_count:
        return starts
    present = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64)])
    found: Ints = present[starts]
    return found


def _plain(values: pa.Array) -> pa.Array:
    """Without the types that wrap others: dictionaries and extensions such as UUIDs."""
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _distinguished(values: pa.Array) -> Ints:
    """64 bits for each value, equal for equal values."""
    values = _plain(values)
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = np.asarray(values.cast(pa.float64())) + 0.0  # -0 becomes 0
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_temporal(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = values.cast(pa.large_binary()).view(pa.large_string())
    elif not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SchemaError(f"distinct values of type {kind} cannot be told apart: give numbers, texts, times or UUIDs")
    return key_ids(values)
