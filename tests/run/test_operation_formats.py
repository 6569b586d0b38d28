"""Operations in Avro, Protobuf, GeoJSON and CSV do what the same operations in JSON do."""

import base64
import io
import json
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import shapely

import geoswarm as gs
from geoswarm.core.subscriptions.attributes import OPERATION, registration
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import Columns
from geoswarm.run.message_formats import MessageFormat, operation_to_json
from geoswarm.run.spark.schemas import BY_TASKS
from geoswarm.run.spark.task_messages import MessagesOf
from registry_server import Registry, running_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = [pa.field(f.name, pa.string() if f.name == "geometry" else f.type) for f in OPERATION]
TEXTS = gs.Contract(columns=60, rows=30, executors=2, subscription_ids="text")
BOX = (0.0, 0.0, 2.0, 2.0)
REGION = shapely.Polygon([(0, 0), (2, 0), (2, 2), (0, 0)])
SAID: dict[str, Any] = {
    "user": "ana",
    "objects": '["van-7", 12]',
    "on": "enter",
    "exit_buffer_m": 2.5,
    "payload": '{"a": [1]}',
}
EXPIRES = "2100-01-02T03:04:05Z"
HEADER = "op,id,xmin,ymin,xmax,ymax,geometry,user,objects,on,exit_buffer_m,payload,expires"
SUB_ID = Columns.of(sub_id="text")


@pytest.fixture
def registry() -> Iterator[Registry]:
    yield from running_registry()


def table_of(form: MessageFormat, values: list[bytes | None], names: Columns = SUB_ID) -> pa.Table:
    """As a batch of the stream on Spark reads its operations."""
    schema = pa.schema([*names.declare(FIELDS), pa.field(MALFORMED, pa.string())])
    messages = MessagesOf(None, {}, schema, [], names, form)  # type: ignore[arg-type]
    return messages.table(pa.chunked_array([pa.array(values, pa.binary())]))


def live(folder: Path, operations: pa.Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The subscriptions that they leave, and the dead letters."""
    empty = pa.table({"event_id": [1], "ts": pa.array([0], pa.timestamp("us", "UTC")), "x": [1.0], "y": [1.0]})
    with gs.LocalEngine(TEXTS, checkpoint=str(folder)) as engine:
        engine.start(events=empty, operations=operations, sink=gs.sinks.Noop(), available_now=True).wait()
        return engine.subscriptions().to_pylist(), engine.dead_letters().to_pylist()


def rows() -> list[dict[str, Any]]:
    """What is asked, as JSON has it."""
    return [
        registration("box", BOX, **SAID, expires=EXPIRES),
        registration("area", geometry=REGION.wkb_hex),
        registration("round", geometry="CIRCLE(1.0 1.0, 500.0)"),
        registration("gone", BOX),
        {"op": "cancel", "sub_id": "gone"},
        registration("12", BOX, replace=True),
    ]


def in_json(tmp_path: Path) -> list[dict[str, Any]]:
    shown, letters = live(tmp_path / "json", table_of(MessageFormat.of(None), [json.dumps(r).encode() for r in rows()]))
    assert not letters
    assert len(shown) == 4
    return shown


# -- Avro

_KINDS = {"exit_buffer_m": "double", **dict.fromkeys(("xmin", "ymin", "xmax", "ymax"), "double"), "geometry": "bytes"}
_MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
AVRO = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": f.name, "type": ["null", _MOMENT if f.name == "expires" else _KINDS.get(f.name, "string")]}
        for f in OPERATION
    ],
}


def avro_message(number: int, value: dict[str, Any]) -> bytes:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    value = {f.name: value.get(f.name) for f in OPERATION}
    if value["geometry"] is not None:
        value["geometry"] = REGION.wkb if value["sub_id"] == "area" else value["geometry"].encode()
    if value["expires"] is not None:
        value["expires"] = datetime.fromisoformat(value["expires"])
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return struct.pack(">bI", 0, number) + stream.getvalue()


def test_operations_in_avro_are_those_in_json(registry: Registry, tmp_path: Path) -> None:
    """WKB is bytes, and so is a circle as text."""
    registry.answers["/schemas/ids/3"] = {"schema": json.dumps(AVRO)}
    form = MessageFormat.of("avro", registry.url, is_of_operations=True)
    values: list[bytes | None] = [avro_message(3, row) for row in rows()]
    shown, letters = live(tmp_path / "avro", table_of(form, [*values, b"{}", None, values[0][:-1]]))  # type: ignore[index]
    assert shown == in_json(tmp_path)
    assert [letter["reason"] for letter in letters] == ["malformed"] * 3
    assert "does not begin with a zero byte" in letters[0]["row"]


# -- Protobuf


def test_operations_in_protobuf_are_those_in_json(registry: Registry, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds, file = descriptor_pb2.FieldDescriptorProto, descriptor_pb2.FileDescriptorProto(name="change.proto")
    change = file.message_type.add(name="Change")  # of proto2, where a field that was not set is absent
    of = {"double": kinds.TYPE_DOUBLE, "bytes": kinds.TYPE_BYTES}
    for number, name in enumerate(OPERATION.names, 1):
        kind = of.get(_KINDS.get(name, ""), kinds.TYPE_STRING)
        change.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.answers["/schemas/ids/4?format=serialized"] = {"schemaType": "PROTOBUF", "schema": text}
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("Change"))
    values: list[bytes | None] = []
    for row in rows():
        row = {name: value for name, value in row.items() if value is not None}
        if "geometry" in row:
            row["geometry"] = REGION.wkb if row["sub_id"] == "area" else row["geometry"].encode()
        values.append(b"\x00\x00\x00\x00\x04\x00" + made(**row).SerializeToString())
    form = MessageFormat.of("protobuf", registry.url, is_of_operations=True)
    shown, letters = live(tmp_path / "protobuf", table_of(form, [*values, b"\x00\x00\x00\x00\x04\x02\x08"]))
    assert shown == in_json(tmp_path)
    assert [letter["reason"] for letter in letters] == ["malformed"]


# -- GeoJSON


def feature(sub_id: Any, place: Any, op: str = "register", **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": sub_id, "geometry": place, "properties": {"op": op, **properties}}


def test_operations_in_geojson_are_those_in_json(tmp_path: Path) -> None:
    """A feature's `id` is the subscription's, an integer too; of a point with a radius a circle is made, of the polygon
    of a rectangle the rectangle; what is cancelled needs no place."""
    box = shapely.geometry.mapping(shapely.box(*BOX))
    said = SAID | {"objects": ["van-7", 12], "payload": SAID["payload"]}
    features = [
        feature("box", box, rectangle=list(BOX), expires=EXPIRES, **said),
        feature("area", shapely.geometry.mapping(REGION)),
        feature("round", {"type": "Point", "coordinates": [1.0, 1.0]}, radius_m=500.0),
        {"type": "Feature", "geometry": box, "properties": {"op": "register", "sub_id": "gone"}},
        feature("gone", None, "cancel"),
        feature(12, box, "replace", rectangle=list(BOX)),
    ]
    bad: list[Any] = [
        {"type": "FeatureCollection", "features": features},
        7,
        {"type": "Feature", "id": "x", "geometry": box, "properties": [1]},
        feature("x", {"type": "Point", "coordinates": [1.0, 1.0]}),
        {"type": "Feature", "id": "x", "geometry": box, "properties": {}},
        feature("x", box, expires=7.5),
    ]
    form = MessageFormat.of("geojson", is_of_operations=True)
    shown, letters = live(
        tmp_path / "geojson", table_of(form, [json.dumps(each).encode() for each in [*features, *bad]])
    )
    assert shown == in_json(tmp_path)
    assert sorted(letter["reason"] for letter in letters) == ["malformed"] * 4 + ["no-area", "null"]


def test_properties_with_names_of_a_region_are_no_part_of_an_operation_in_geojson() -> None:
    """The `id` wins over a property `sub_id`, as in a file of regions."""
    inner = shapely.geometry.mapping(REGION)
    strange = {"sub_id": None, "xmin": 7.0, "ymax": None, "geometry": "POINT(1 1)", "op": "register", "user": "ana"}
    one, other = (
        json.loads(operation_to_json(json.dumps(each).encode()))
        for each in (
            {"type": "Feature", "id": "area", "geometry": inner, "properties": strange},
            {"type": "Feature", "geometry": inner, "properties": strange | {"sub_id": "b"}},
        )
    )
    assert (one["sub_id"], one["user"], sorted(one)) == ("area", "ana", ["geometry", "op", "sub_id", "user"])
    assert shapely.from_geojson(one["geometry"]).equals(REGION)
    assert other["sub_id"] == "b"


# -- CSV


def test_operations_in_csv_are_those_in_json(tmp_path: Path) -> None:
    columns = Columns.of({"sub_id": "id"}, sub_id="text")

    def line(row: dict[str, Any]) -> bytes:
        values = [row.get("sub_id" if name == "id" else name) for name in HEADER.split(",")]
        return ",".join("" if v is None else '"' + str(v).replace('"', '""') + '"' for v in values).encode()

    form = MessageFormat.of("csv", header=HEADER, is_of_operations=True)
    good = [line(row) for row in rows()]
    bad = [
        b"",
        good[0] + b"\n" + good[1],
        b"register,x",
        line(registration("x", BOX) | {"xmin": "one"}),
        b"\xff" + b"," * 12,
    ]
    shown, letters = live(tmp_path / "csv", table_of(form, [*good, *bad], columns))
    assert shown == in_json(tmp_path)
    assert [letter["reason"] for letter in letters] == ["malformed"] * 5
    assert "the header has 13 columns" in letters[2]["row"]


def test_a_geometry_of_bytes_that_is_text_or_nothing(registry: Registry, tmp_path: Path) -> None:
    """Bytes that begin as WKB and are none are refused as WKB, others as text."""
    registry.answers["/schemas/ids/6"] = {"schema": json.dumps(AVRO)}
    form = MessageFormat.of("avro", registry.url, is_of_operations=True)
    texts = [avro_message(6, registration(name, geometry=name)) for name in ("CIRCLE(1 1, 500)", "\x01\x02", "nothing")]
    shown, letters = live(tmp_path, table_of(form, [*texts]))
    assert [row["sub_id"] for row in shown] == ["CIRCLE(1 1, 500)"]
    assert [letter["reason"] for letter in letters] == ["malformed"] * 2


def test_operations_that_tasks_alone_can_read_are_refused_where_spark_must(
    spark: "SparkSession", tmp_path: Path
) -> None:
    for name in ("events", "operations"):
        (tmp_path / name).mkdir()
    (tmp_path / "events/0.json").write_text('{"event_id": 1, "ts": 0, "x": 1.0, "y": 1.0}')
    events = gs.sources.events_from_files(spark, str(tmp_path / "events"), format="json")
    operations = gs.sources.operations_from_files(spark, str(tmp_path / "operations"), format="json")
    marked = operations.withMetadata("op", {BY_TASKS: "operations of messages in avro"})
    texts = operations.withColumn("sub_id", operations["sub_id"].cast("string"))
    with gs.Engine(spark, gs.Contract(executors=2), checkpoint=str(tmp_path / "state")) as engine:
        with pytest.raises(SchemaError, match="operations of messages in avro are not read by Spark"):
            engine.start(events=events, operations=marked, sink=gs.sinks.Noop(), available_now=True)
        with pytest.raises(SchemaError, match="column sub_id of operations is string, and ids are integers"):
            engine.start(events=events, operations=texts, sink=gs.sinks.Noop(), available_now=True)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"format": "xml"}, "format cannot be 'xml'"),
        ({"format": "avro"}, "write registry"),
        ({"format": "csv"}, "write header"),
        ({"registry": "http://x"}, "leave registry out"),
        ({"sub_id": "uuid"}, "sub_id cannot be 'uuid'"),
    ],
)
def test_formats_that_cannot_be_read_are_refused_before_the_start(said: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        gs.sources.operations_from_kafka(None, "localhost:9", "changes", **said)  # type: ignore[arg-type]
