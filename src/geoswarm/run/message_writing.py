"""What a message says of a row: JSON, a CloudEvent in structured JSON, or Avro with the schema of a registry.

The same row of the same batch has the same message, also when the batch is sent again. CloudEvents 1.0 asks for an id
that is unique for its source: it is the batch and a hash of 128 bits of the row.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

import pyarrow as pa
import pyarrow.types as kinds
import xxhash

from geoswarm.errors import SettingsError
from geoswarm.parameters import suggestion
from geoswarm.run.json_writing import json_rows
from geoswarm.run.registry_formats import import_fastavro
from geoswarm.run.schema_registry import MAGIC, SchemaRegistry, check_address, shared_registry

SentFormat = Literal["json", "cloudevents", "avro"]
FORMAT, REGISTRY = "geoswarm.format", "geoswarm.registry"
"""Options of the sink that say it; clients of Kafka are not told."""
EVENT_TYPE = "io.geoswarm.match"
CLOUDEVENTS_TYPE = "application/cloudevents+json; charset=UTF-8"


class SentAs(NamedTuple):
    name: SentFormat = "json"
    registry: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SentAs":
        """What the options say; raises SettingsError where they do not go together."""
        name, registry = options.get(FORMAT, "json"), options.get(REGISTRY, "")
        if name not in get_args(SentFormat):
            raise SettingsError(f"format cannot be {name!r}: {suggestion(name, list(get_args(SentFormat)))}")
        if (name == "avro") != bool(registry):
            said = 'write registry = "http://HOST:PORT"' if name == "avro" else "leave registry out"
            raise SettingsError(f"messages in {name} are {'not ' if not registry else ''}sent with a registry: {said}")
        if name == "avro":
            check_address(registry)
            import_fastavro()
        return cls(cast(SentFormat, name), registry)

    @property
    def headers(self) -> dict[str, str]:
        return {"content-type": CLOUDEVENTS_TYPE} if self.name == "cloudevents" else {}

    def write(self, rows: pa.RecordBatch, topic: str, checkpoint: str, batch: str) -> list[bytes]:
        """A message for each row."""
        if self.name == "avro":
            return avro_rows(rows, topic, shared_registry(self.registry))
        texts: list[bytes] = json_rows(rows).to_pylist()
        if self.name == "json":
            return texts
        times = _times(rows)
        return [_cloud_event(text, f"/geoswarm/{checkpoint}", batch, at) for text, at in zip(texts, times, strict=True)]


def _times(rows: pa.RecordBatch) -> list[str | None]:
    """The `ts` of each row, in RFC 3339."""
    if "ts" not in rows.schema.names:
        return [None] * len(rows)
    texts = rows.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.string()).to_pylist()
    return [None if text is None else text.replace(" ", "T") for text in texts]


def _cloud_event(data: bytes, source: str, batch: str, at: str | None) -> bytes:
    head = {
        "specversion": "1.0",
        "id": f"{batch}-{xxhash.xxh3_128_hexdigest(data)}",
        "source": source,
        "type": EVENT_TYPE,
        **({} if at is None else {"time": at}),
        "datacontenttype": "application/json",
    }
    return json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"data":' + data + b"}"


# -- Avro

_SIMPLE: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (kinds.is_boolean, "boolean"),
    (kinds.is_integer, "long"),
    (kinds.is_floating, "double"),
    (kinds.is_timestamp, {"type": "long", "logicalType": "timestamp-micros"}),
    (kinds.is_date, {"type": "int", "logicalType": "date"}),
    (kinds.is_binary, "bytes"),
]
"""Types of Arrow, and those of Avro; what is not here is sent as text."""


def avro_schema(columns: pa.Schema) -> dict[str, Any]:
    """The record of a row. Every field but a list may be null, so that a column that is added keeps readers going."""
    fields = [
        {"name": field.name, "type": kind if isinstance(kind, dict) and kind["type"] == "array" else ["null", kind]}
        | ({} if isinstance(kind, dict) and kind["type"] == "array" else {"default": None})
        for field, kind in ((field, _avro_type(field.type)) for field in columns)
    ]
    return {"type": "record", "name": "Match", "namespace": "io.geoswarm", "fields": fields}


def _avro_type(kind: pa.DataType) -> Any:
    if kinds.is_list(kind):
        return {"type": "array", "items": _avro_type(kind.value_type)}
    return next((avro for fits, avro in _SIMPLE if fits(kind)), "string")


def avro_rows(rows: pa.RecordBatch, topic: str, registry: SchemaRegistry) -> list[bytes]:
    fastavro = import_fastavro()
    schema = avro_schema(rows.schema)
    head = struct.pack(">bI", MAGIC, registry.register(f"{topic}-value", json.dumps(schema, sort_keys=True)))
    parsed, found = fastavro.parse_schema(schema), []
    texts = [name for field in rows.schema if _avro_type(field.type) == "string" for name in (field.name,)]
    for row in rows.to_pylist():
        for name in texts:
            if row[name] is not None and not isinstance(row[name], str):
                row[name] = json.dumps(row[name], default=str)
        stream = io.BytesIO()
        stream.write(head)
        fastavro.schemaless_writer(stream, parsed, row)
        found.append(stream.getvalue())
    return found
