"""Convert declared values to JSON and back, by their declaration alone: no kind of entry is named here.

    field of a dataclass     a key of the same name; a field whose default is None is left out while it is None
    field marked FLAT        its own keys, beside those of the entry; a mapping so marked takes every key that is left
    NamedTuple               a list in the order of its fields, so that a load is four numbers
    mapping, tuple           an object (numbers that are keys become text), a list
    one of several changes   an object with the name of the change (`core/space/change.py`)

What another version wrote is read as far as possible: a key that is not declared is skipped, and so is an item of a
list or a mapping that is not of the declared type. A field that is missing, or not of its type, gets its default. If it
has none, the whole value cannot be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from geoswarm.core.space.change import CHANGE_NAMES, ChangeNote, name_of

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
T = TypeVar("T")
CHANGE = "change"
"""The key that holds the name of a change."""


class UnreadableError(ValueError):
    """The JSON is not a value of the declared type."""


class _Codec(NamedTuple):
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    """Raises UnreadableError."""


def to_json(value: object) -> dict[str, Json]:
    """The JSON of a dataclass instance."""
    declared: Any = type(value)
    return cast(dict[str, Json], _codec(declared).write(value))


def from_json(kind: type[T], written: object) -> T:
    """The dataclass instance that was written as this JSON. Raises UnreadableError."""
    declared: Any = kind
    return cast(T, _codec(declared).read(written))


@cache
def _codec(hint: Any) -> _Codec:
    origin, args = get_origin(hint), get_args(hint)
    if hint == ChangeNote:
        return _Codec(lambda change: {CHANGE: name_of(change), **to_json(change)}, _read_change)
    if origin in (Union, UnionType):
        return _union(args)
    if origin is Literal:
        return _scalar(args[0].__class__, lambda value: value in args)
    if origin is tuple:
        return _list(_codec(args[0])) if args[1:] == (...,) else _row(tuple, tuple(map(_codec, args)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(args[0], _codec(args[1]))
    if is_dataclass(hint):
        return _object(cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, tuple):
        hints = get_type_hints(hint)
        return _row(lambda items: hint(*items), tuple(_codec(each) for each in hints.values()))
    if hint is float:
        return _scalar((int, float))
    if hint in (int, str, bool):
        return _scalar(hint)
    raise TypeError(f"an entry cannot have a field of type {hint}: use one that `mapping.py` lists")


def _same(value: Any) -> Any:
    return value


def _scalar(kinds: type | tuple[type, ...], fits: Callable[[Any], bool] = lambda value: True) -> _Codec:
    def read(written: Any) -> Any:
        if isinstance(written, kinds) and fits(written):
            return written
        raise UnreadableError

    return _Codec(_same, read)


def _union(args: tuple[Any, ...]) -> _Codec:
    """A value of one of several types, or None."""
    kinds = tuple(each for each in args if each is not NoneType)
    codec = _codec(kinds[0]) if len(kinds) == 1 else _scalar(kinds)
    if len(kinds) == len(args):
        return codec
    return _Codec(
        lambda value: None if value is None else codec.write(value),
        lambda written: None if written is None else codec.read(written),
    )


def _row(make: Callable[[list[Any]], Any], codecs: tuple[_Codec, ...]) -> _Codec:
    """A list of fixed length whose items have a meaning by position; a list of another length cannot be read."""

    def read(written: Any) -> Any:
        if not isinstance(written, list) or len(written) != len(codecs):
            raise UnreadableError
        return make([codec.read(item) for codec, item in zip(codecs, written, strict=True)])

    return _Codec(lambda row: [codec.write(item) for codec, item in zip(codecs, row, strict=True)], read)


def _list(codec: _Codec) -> _Codec:
    def read(written: Any) -> tuple[Any, ...]:
        if not isinstance(written, list):
            raise UnreadableError
        return tuple(_readable(codec, enumerate(written)).values())

    return _Codec(lambda items: [codec.write(item) for item in items], read)


def _mapping(key: type, codec: _Codec) -> _Codec:
    def read(written: Any) -> dict[Any, Any]:
        if not isinstance(written, dict):
            raise UnreadableError
        found = _readable(codec, written.items())
        return found if key is str else {int(name): value for name, value in found.items() if _is_number(name)}

    return _Codec(lambda held: {str(name): codec.write(value) for name, value in held.items()}, read)


def _readable(codec: _Codec, items: Any) -> dict[Any, Any]:
    found = {}
    for name, item in items:
        try:
            found[name] = codec.read(item)
        except UnreadableError:
            continue
    return found


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _read_change(written: Any) -> Any:
    name = written.get(CHANGE) if isinstance(written, dict) else None
    if name not in CHANGE_NAMES:
        raise UnreadableError
    return from_json(CHANGE_NAMES[name], written)


def _object(kind: type) -> _Codec:
    hints, declared = get_type_hints(kind), fields(kind)
    codecs = {each.name: _codec(hints[each.name]) for each in declared}
    flat = [each.name for each in declared if "flat" in each.metadata]
    names = [each.name for each in declared if each.name not in flat]
    optional = {each.name for each in declared if each.default is None}
    required = [name for name in names if _has_no_default(kind, name)]

    def write(value: Any) -> dict[str, Json]:
        held = {name: getattr(value, name) for name in names}
        written = {name: codecs[name].write(v) for name, v in held.items() if v is not None or name not in optional}
        for name in flat:
            written |= codecs[name].write(getattr(value, name)) or {}
        return written

    def read(written: Any) -> Any:
        if not isinstance(written, dict):
            raise UnreadableError
        found = {}
        for name in (*names, *flat):
            try:
                if name in flat:
                    found[name] = codecs[name].read({k: v for k, v in written.items() if k not in names})
                elif name in written:
                    found[name] = codecs[name].read(written[name])
            except UnreadableError:
                continue  # it gets its default, or else the whole value cannot be read
        if any(name not in found for name in required):
            raise UnreadableError
        return kind(**found)

    return _Codec(write, read)


def _has_no_default(kind: Any, name: str) -> bool:
    each = next(each for each in fields(kind) if each.name == name)
    return each.default is MISSING and each.default_factory is MISSING
