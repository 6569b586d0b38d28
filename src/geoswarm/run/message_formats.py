"""Formats of Kafka's values beside JSON: each turns the bytes of a message into the JSON object that says the same.

    Avro ──┐
    Protobuf ──┤ one message at a time, in the task ──► JSON ──► `message_reading.py`, many at once ──► Arrow
    GeoJSON ──┤
    CSV ──┘

So columns, types, times, `extra` and dead letters have one rule for all formats. A message that is none is malformed,
and says why; it never ends the stream.
"""

import base64
import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Literal, NamedTuple, cast, get_args
from uuid import UUID

import pyarrow as pa

from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import GEOMETRY
from geoswarm.parameters import suggestion
from geoswarm.run.columns import Columns, Path
from geoswarm.run.message_reading import VALUE, read_message_rows
from geoswarm.run.schema_registry import (
    HEAD_BYTES,
    SchemaRegistry,
    UnreadableMessageError,
    check_address,
    read_head,
    shared_registry,
)
from geoswarm.store.region_files import read_feature

FormatName = Literal["json", "avro", "protobuf", "geojson", "csv"]
BY_REGISTRY = ("avro", "protobuf")
SHOWN_BYTES = 1000
"""Of a message that cannot be read, in its dead letter."""
WKB_BEGINS = (b"\x00", b"\x01")
"""The order of bytes, which no text begins with."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
ToJson = Callable[[bytes], str]
"""The JSON object of a message; raises UnreadableMessageError, or a ValueError, if there is none."""


class MessageFormat(NamedTuple):
    name: FormatName = "json"
    registry: str = ""
    """The address of the schema registry, for formats that need one."""
    header: tuple[str, ...] = ()
    """The names of the columns of CSV, in their order."""
    is_of_operations: bool = False

    @classmethod
    def of(
        cls,
        name: str | None,
        registry: str | None = None,
        header: str | None = None,
        *,
        is_of_operations: bool = False,
    ) -> "MessageFormat":
        """Raises SettingsError where the parts do not go together, or the package of a format lacks."""
        name = name or "json"
        if name not in get_args(FormatName):
            raise SettingsError(f"format cannot be {name!r}: {suggestion(name, list(get_args(FormatName)))}")
        if (name in BY_REGISTRY) != bool(registry):
            said = 'write registry = "http://HOST:PORT"' if name in BY_REGISTRY else "leave registry out"
            raise SettingsError(f"messages in {name} are {'not ' if not registry else ''}read with a registry: {said}")
        if (name == "csv") != bool(header):
            said = 'write header = "event_id,ts,x,y"' if name == "csv" else "leave header out"
            raise SettingsError(f"messages in {name} {'have' if name == 'csv' else 'do not have'} a header: {said}")
        if name in BY_REGISTRY:
            check_address(registry or "")
            _PACKAGES[name]()
        names = tuple(part.strip() for part in (header or "").split(",")) if header else ()
        return cls(cast(FormatName, name), registry or "", names, is_of_operations)

    def read(self, messages: pa.RecordBatch, schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
        """One row per message, as `read_message_rows` gives them of JSON."""
        if self.name == "json":
            return read_message_rows(messages, schema, columns)
        columns = columns.flat() if self.name == "csv" else columns  # a name in a header may have dots
        convert = self._converter(schema, columns)
        texts, whys = list[bytes | None](), dict[int, str]()
        values = messages.column(VALUE).to_pylist()
        for row, value in enumerate(values):
            text = None
            try:
                text = None if value is None else convert(value).encode()
            except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, EOFError) as why:
                whys[row] = f"no message in {self.name}: {str(why) or type(why).__name__}: {_shown(value)}"
            texts.append(text)
        at = messages.schema.get_field_index(VALUE)
        read = read_message_rows(messages.set_column(at, VALUE, pa.array(texts, pa.binary())), schema, columns)
        if not whys:
            return read
        said = read.column(MALFORMED).to_pylist()
        said = [whys.get(row, text) for row, text in enumerate(said)]
        return read.set_column(read.schema.get_field_index(MALFORMED), MALFORMED, pa.array(said, pa.string()))

    def declared(self, fields: Sequence[pa.Field]) -> list[pa.Field]:
        """The declared columns, with the one that the format has of its own."""
        has = any(field.name == "geometry" for field in fields)
        own = [pa.field("geometry", pa.string())] if self.name == "geojson" and not has else []
        return [*fields, *own]

    def _converter(self, schema: pa.Schema, columns: Columns) -> ToJson:
        geometry = columns.path(GEOMETRY.name)
        if self.name == "avro":
            return _avro(self.registry, geometry)
        if self.name == "protobuf":
            return _protobuf(self.registry, geometry)
        if self.name == "geojson":
            return operation_to_json if self.is_of_operations else feature_to_json
        kinds = {columns.path(field.name)[0]: field.type for field in columns.raw(schema)}
        return lambda value: line_to_json(value, self.header, kinds)


JSON_MESSAGES = MessageFormat()


def _shown(value: bytes) -> str:
    try:
        return value[:SHOWN_BYTES].decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(value[:SHOWN_BYTES]).decode()}"


def to_json(value: Any) -> str:
    """JSON of what a format has beside the types of JSON: times as ISO 8601, bytes in base 64, others as their text."""
    return json.dumps(_finite(value), default=_plain, ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    """NaN and infinities as the texts that JSON has for them here."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _with_digits(row: Any, geometry: Path) -> Any:
    """The same, with WKB as the hexadecimal digits that geometries are read from; other bytes are text."""
    place = row
    for name in geometry[:-1]:
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, dict) and isinstance(value := place.get(geometry[-1]), bytes):
        place[geometry[-1]] = value.hex() if value[:1] in WKB_BEGINS else value.decode(errors="replace")
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Decimal):
        return str(value)
    raise UnreadableMessageError(f"a value of type {type(value).__name__} has no JSON")


# -- GeoJSON


def feature_to_json(value: bytes) -> str:
    """The properties of a feature, its `id`, and where it is: `x` and `y` of a point, else its `geometry`."""
    feature = _feature_of(value)
    properties, geometry = feature.get("properties") or {}, feature.get("geometry")
    if not isinstance(properties, dict) or not isinstance(geometry, dict):
        raise UnreadableMessageError("its properties or its geometry are no object")
    row = {"id": feature.get("id"), **properties}
    if geometry.get("type") == "Point":
        row["x"], row["y"] = geometry["coordinates"][:2]
    else:
        row["geometry"] = json.dumps(geometry)
    return to_json(row)


def operation_to_json(value: bytes) -> str:
    """The properties of a feature, but for those with the names of a region's columns; its id as `sub_id`, and its
    region, both as a file of regions has them."""
    feature = _feature_of(value)
    properties, region = feature.get("properties") or {}, read_feature(feature)
    if not isinstance(properties, dict):
        raise UnreadableMessageError("its properties are no object")
    beside = {name: value for name, value in properties.items() if name not in (*SIDES, GEOMETRY.name)}
    row = {**beside, "sub_id": region.id}
    if region.sides is not None:
        row |= dict(zip(SIDES, region.sides, strict=True))
    elif region.geometry is not None:
        row[GEOMETRY.name] = region.geometry
    return to_json(row)


def _feature_of(value: bytes) -> dict[str, Any]:
    feature = json.loads(value)
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise UnreadableMessageError("it is no Feature of GeoJSON: send one feature a message")
    return feature


# -- CSV


def line_to_json(value: bytes, header: Sequence[str], kinds: dict[str, pa.DataType]) -> str:
    """One line without a header, as an object of the declared columns; an empty part is null, as in files."""
    lines = [line for line in csv.reader(io.StringIO(value.decode("utf-8-sig"))) if line]
    if len(lines) != 1 or len(lines[0]) != len(header):
        had = len(lines[0]) if len(lines) == 1 else f"{len(lines)} lines"
        raise UnreadableMessageError(f"the header has {len(header)} columns, and it {had}")
    parts = [
        f"{json.dumps(name)}:{_csv_value(text, kinds.get(name, pa.string()))}"
        for name, text in zip(header, lines[0], strict=True)
        if text
    ]
    return "{" + ",".join(parts) + "}"


def _csv_value(text: str, kind: pa.DataType) -> str:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and _NUMBER.fullmatch(text.strip()):
        return text.strip()
    if pa.types.is_boolean(kind) and text.lower() in ("true", "false"):
        return text.lower()
    return json.dumps(text)


# -- Avro


def import_fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as why:
        raise SettingsError("messages in Avro need the package fastavro: pip install 'geoswarm[avro]'") from why
    return fastavro


def _avro(url: str, geometry: Path) -> ToJson:
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
        return to_json(_with_digits(row, geometry))

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


def _import_protobuf() -> Any:
    try:
        from google import protobuf
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as why:
        raise SettingsError("messages in Protobuf need the package protobuf: pip install 'geoswarm[protobuf]'") from why
    return protobuf, descriptor_pb2, descriptor_pool, message_factory


def _protobuf(url: str, geometry: Path) -> ToJson:
    _import_protobuf()
    registry = shared_registry(url)

    def convert(value: bytes) -> str:
        number = read_head(value)
        indexes, at = _read_indexes(value, HEAD_BYTES)
        message = _message_class(registry, number, indexes)()
        try:
            message.ParseFromString(value[at:])
        except Exception as why:  # DecodeError, which is no ValueError in every version
            raise UnreadableMessageError(str(why)) from None
        return to_json(_with_digits(_fields_of(message), geometry))

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
        _, descriptor_pb2, descriptor_pool, message_factory = _import_protobuf()
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


_PACKAGES: dict[str, Callable[[], Any]] = {"avro": import_fastavro, "protobuf": _import_protobuf}
