"""Messages in Avro and Protobuf, whose schemas are in a registry, as the JSON objects that say the same."""

import base64
import io
import json
from collections.abc import Callable
from typing import Any

from geoswarm.errors import SettingsError
from geoswarm.run.columns import Path
from geoswarm.run.message_json import to_json, with_digits
from geoswarm.run.schema_registry import HEAD_BYTES, SchemaRegistry, UnreadableMessageError, read_head, shared_registry

ToJson = Callable[[bytes], str]
"""The JSON object of a message; raises UnreadableMessageError, or a ValueError, if there is none."""

# -- Avro


def import_fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as why:
        raise SettingsError("messages in Avro need the package fastavro: pip install 'geoswarm[avro]'") from why
    return fastavro


def avro_to_json(url: str, geometry: Path) -> ToJson:
    fastavro, registry = import_fastavro(), shared_registry(url)

    def convert(value: bytes) -> str:
        schema = _avro_schema(registry, read_head(value))
        stream = io.BytesIO(value)
        stream.seek(HEAD_BYTES)
        row = fastavro.schemaless_reader(stream, schema, None)
        if not isinstance(row, dict):
            raise UnreadableMessageError("it is no record")
        if stream.read(1):
            raise UnreadableMessageError("it has bytes behind its record")
        return to_json(with_digits(row, geometry))

    return convert


_avro_schemas: dict[tuple[int, int], Any] = {}
"""Schemas that are ready to read with, by registry and number."""


def _avro_schema(registry: SchemaRegistry, number: int) -> Any:
    key = id(registry), number
    if key not in _avro_schemas:
        named: dict[str, Any] = {}
        found = registry.schema(number)
        if found.get("schemaType", "AVRO") != "AVRO":
            raise UnreadableMessageError(f"schema {number} is {found['schemaType']}, not Avro")
        _avro_schemas[key] = _parse_avro(registry, found, named)
    return _avro_schemas[key]


def _parse_avro(registry: SchemaRegistry, found: Any, named: dict[str, Any]) -> Any:
    """The schema, after those that it refers to, which become known by their names."""
    for other in found.get("references") or ():
        _parse_avro(registry, registry.reference(other["subject"], other["version"]), named)
    fastavro = import_fastavro()
    try:
        return fastavro.schema.parse_schema(json.loads(found["schema"]), named, _force=True)
    except Exception as why:  # of a kind of its own for each mistake
        raise UnreadableMessageError(f"its schema cannot be read: {why}") from None


# -- Protobuf


def import_protobuf() -> Any:
    try:
        from google import protobuf
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as why:
        raise SettingsError("messages in Protobuf need the package protobuf: pip install 'geoswarm[protobuf]'") from why
    return protobuf, descriptor_pb2, descriptor_pool, message_factory


def protobuf_to_json(url: str, geometry: Path) -> ToJson:
    import_protobuf()
    registry = shared_registry(url)

    def convert(value: bytes) -> str:
        number = read_head(value)
        indexes, at = _read_indexes(value, HEAD_BYTES)
        message = _message_class(registry, number, indexes)()
        try:
            message.ParseFromString(value[at:])
        except Exception as why:  # DecodeError, which is no ValueError in every version
            raise UnreadableMessageError(str(why)) from None
        return to_json(with_digits(_fields_of(message), geometry))

    return convert


def _read_indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message of its file it is: how many numbers, then these, in zigzag; a single 0 stands for the first."""

    def number() -> int:
        nonlocal at
        shift = found = 0
        while True:
            byte = value[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (found >> 1) ^ -(found & 1)
            if shift > 63:
                raise UnreadableMessageError("the number of its message is too long")

    count = number()
    if not 0 <= count <= 32:
        raise UnreadableMessageError(f"it says that its message lies {count} deep")
    indexes = tuple(number() for _ in range(count))
    return indexes or (0,), at


_message_classes: dict[tuple[int, int, tuple[int, ...]], Any] = {}


def _message_class(registry: SchemaRegistry, number: int, indexes: tuple[int, ...]) -> Any:
    key = id(registry), number, indexes
    if key not in _message_classes:
        _, descriptor_pb2, descriptor_pool, message_factory = import_protobuf()
        found = registry.schema(number, serialized=True)
        if found.get("schemaType") != "PROTOBUF":
            raise UnreadableMessageError(f"schema {number} is {found.get('schemaType', 'AVRO')}, not Protobuf")
        pool = descriptor_pool.DescriptorPool()
        _add_well_known(pool)
        name = f"schema-{number}.proto"
        _add_file(registry, pool, found, name, descriptor_pb2)
        messages = list(pool.FindFileByName(name).message_types_by_name.values())
        chosen = None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise UnreadableMessageError(f"its schema has no message {list(indexes)}")
            chosen = messages[index]
            messages = list(chosen.nested_types)
        _message_classes[key] = message_factory.GetMessageClass(chosen)
    return _message_classes[key]


def _add_file(registry: SchemaRegistry, pool: Any, found: Any, name: str, descriptor_pb2: Any) -> None:
    for other in found.get("references") or ():
        inner = registry.reference(other["subject"], other["version"], serialized=True)
        _add_file(registry, pool, inner, other["name"], descriptor_pb2)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(found["schema"], validate=True))
        file.name = name
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    except Exception as why:
        raise UnreadableMessageError(f"its schema cannot be read: {why}") from None


def _add_well_known(pool: Any) -> None:
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _fields_of(message: Any) -> Any:
    """The fields of a message under the names that they have in its schema. One that was not set and cannot say so has
    its default, as in every language; of others it is left out."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return message.ToDatetime().isoformat(timespec="microseconds") + "Z"
    if name.startswith("google.protobuf.") and name.endswith("Value") and "value" in message.DESCRIPTOR.fields_by_name:
        return message.value
    found = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        found[field.name] = _value_of(field, value)
    return found


def _value_of(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _one(inner, value[key]) for key in value}
    is_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return [_one(field, each) for each in value] if is_repeated else _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _fields_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
