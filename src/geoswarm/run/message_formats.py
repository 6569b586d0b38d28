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
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import pyarrow as pa

from geoswarm.core.subscriptions.region import SIDES
from geoswarm.errors import SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import GEOMETRY
from geoswarm.parameters import suggestion
from geoswarm.run.columns import Columns
from geoswarm.run.message_json import to_json
from geoswarm.run.message_reading import VALUE, read_message_rows
from geoswarm.run.registry_formats import ToJson, avro_to_json, import_fastavro, import_protobuf, protobuf_to_json
from geoswarm.run.schema_registry import (
    UnreadableMessageError,
    check_address,
)
from geoswarm.store.region_files import read_feature

FormatName = Literal["json", "avro", "protobuf", "geojson", "csv"]
BY_REGISTRY = ("avro", "protobuf")
SHOWN_BYTES = 1000
"""Of a message that cannot be read, in its dead letter."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


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
            return avro_to_json(self.registry, geometry)
        if self.name == "protobuf":
            return protobuf_to_json(self.registry, geometry)
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


_PACKAGES: dict[str, Callable[[], Any]] = {"avro": import_fastavro, "protobuf": import_protobuf}
