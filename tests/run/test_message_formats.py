"""Messages in Avro, Protobuf, GeoJSON and CSV give the events that the same messages in JSON give."""

import base64
import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import EVENT
from geoswarm.run.columns import Columns
from geoswarm.run.message_formats import MessageFormat
from geoswarm.run.schema_registry import SchemaRegistry, UnreadableMessageError
from registry_server import Registry, running_registry

FIELDS = [
    *(field.with_nullable(True) for field in EVENT),
    pa.field("object_id", pa.string()),
    pa.field("speed", pa.float64()),
    pa.field("fast", pa.bool_()),
]
SCHEMA = pa.schema([*FIELDS, pa.field(MALFORMED, pa.string())])
NAMES = Columns.of({"event_id": "trip.id", "x": "lng", "y": "lat", "object_id": "vehicle"})
AT = datetime(2024, 5, 1, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    yield from running_registry()


def read(form: MessageFormat, *values: bytes | None, names: Columns = NAMES, schema: pa.Schema = SCHEMA) -> Any:
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    return form.read(batch, schema, names).to_pylist()


def row(number: int, **other: Any) -> dict[str, Any]:
    known = {"event_id": number, "ts": AT, "x": 2.5, "y": 48.5, "object_id": "bus", "speed": 0.1, "fast": True}
    return known | {MALFORMED: None} | other


# -- Avro

TRIP = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}]}
RIDE = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "trip", "type": "Trip"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lng", "type": "double"},
        {"name": "lat", "type": "double"},
        {"name": "vehicle", "type": ["null", "string"]},
        {"name": "tour", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "speed", "type": "double"},
        {"name": "fast", "type": "boolean"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}


def avro_message(number: int, schema: Any, value: Any) -> bytes:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + stream.getvalue()


def ride(number: int, **other: Any) -> dict[str, Any]:
    known = {"trip": {"id": number}, "ts": AT, "lng": 2.5, "lat": 48.5, "vehicle": "bus", "speed": 0.1, "fast": True}
    return known | {"price": Decimal("9.50"), "tour": UUID(int=7)} | other


def whole_schema() -> Any:
    return {**RIDE, "fields": [{"name": "trip", "type": TRIP}, *RIDE["fields"][1:]]}


def test_messages_in_avro_are_read_with_the_schemas_of_the_registry(registry: Registry) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    registry.answers["/schemas/ids/7"] = {
        "schema": json.dumps(RIDE),
        "references": [{"name": "Trip", "subject": "trips/all", "version": 3}],
    }
    registry.answers["/subjects/trips%2Fall/versions/3"] = {"schema": json.dumps(TRIP)}
    registry.answers["/schemas/ids/8"] = {"schema": json.dumps(whole_schema()), "schemaType": "AVRO"}
    registry.failures = 1
    good = [avro_message(n, whole_schema(), ride(n)) for n in (7, 8)]
    odd = avro_message(8, whole_schema(), ride(9, speed=float("nan"), vehicle=None))
    form = MessageFormat.of("avro", registry.url)
    first, second, third, none = read(form, *good, odd, None)
    assert [first, second] == [row(7), row(8)]
    assert third["speed"] != third["speed"]
    assert third["object_id"] is None
    assert none[MALFORMED] == "(no value)"
    asked = len(registry.asked)
    assert read(form, *good) == [row(7), row(8)]
    assert len(registry.asked) == asked == 4


def test_what_is_no_message_in_avro_is_a_dead_letter_and_its_neighbours_are_read(registry: Registry) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    registry.answers["/schemas/ids/1"] = {"schema": json.dumps(whole_schema())}
    registry.answers["/schemas/ids/2"] = {"schema": "{}", "schemaType": "JSON"}
    registry.answers["/schemas/ids/3"] = {"schema": '{"type": "nonsense"}'}
    registry.answers["/schemas/ids/4"] = {"schema": '"long"'}
    good = avro_message(1, whole_schema(), ride(5))
    bad = {
        b"": "does not begin with a zero byte",
        b"{}": "does not begin with a zero byte",
        b"\x01" + good[1:]: "does not begin with a zero byte",
        good[:20]: "no message in avro",
        good + b"x": "bytes behind its record",
        b"\x00\x00\x00\x00\x63" + good[5:]: "has no schema 99",
        b"\x00\x00\x00\x00\x02": "schema 2 is JSON, not Avro",
        b"\x00\x00\x00\x00\x03": "its schema cannot be read",
        b"\x00\x00\x00\x00\x04\x02": "it is no record",
        avro_message(1, whole_schema(), ride(5, ts=AT.replace(year=1)))[:-1]: "no message in avro",
    }
    rows = read(MessageFormat.of("avro", registry.url), *bad, good)
    assert rows[-1] == row(5)
    for found, said in zip(rows, bad.values(), strict=False):
        assert said in found[MALFORMED]
        assert found["event_id"] is None


def test_a_registry_that_is_down_is_asked_again_and_then_said() -> None:
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    down = SchemaRegistry("http://127.0.0.1:1/", lambda: now[0], sleep)
    with pytest.raises(
        StreamError, match=r"http://127.0.0.1:1 did not give schema 3 within 30 s .*see whether it runs"
    ):
        down.schema(3)
    assert 50 < len(pauses) < 70


def test_a_registry_that_fails_for_a_while_is_no_matter(registry: Registry) -> None:
    registry.answers["/schemas/ids/3"] = {"schema": "{}"}
    registry.failures = 2
    asking = SchemaRegistry(registry.url, sleep=lambda seconds: None)
    assert asking.schema(3) == {"schema": "{}"}
    assert len(registry.asked) == 3
    for _ in range(2):  # a schema may be registered later
        with pytest.raises(UnreadableMessageError, match="has no schema 4"):
            asking.schema(4)
    assert len(registry.asked) == 5


# -- Protobuf


def proto_file() -> Any:
    """What a registry gives for a .proto with these messages, of which the second is used."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="rides.proto", package="rides", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.dependency.append("trips.proto")
    file.message_type.add(name="Other")
    ride_type = file.message_type.add(name="Ride")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, other) in enumerate(
        [
            ("trip", kinds.TYPE_MESSAGE, ".trips.Trip"),
            ("ts", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            ("lng", kinds.TYPE_DOUBLE, None),
            ("lat", kinds.TYPE_DOUBLE, None),
            ("vehicle", kinds.TYPE_STRING, None),
            ("speed", kinds.TYPE_DOUBLE, None),
            ("fast", kinds.TYPE_BOOL, None),
        ],
        1,
    ):
        ride_type.field.add(name=name, number=number, type=kind, type_name=other, label=kinds.LABEL_OPTIONAL)
    trips = descriptor_pb2.FileDescriptorProto(name="x", package="trips", syntax="proto3")
    trip = trips.message_type.add(name="Trip")
    trip.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    return file, trips


def proto_answers(registry: Registry) -> None:
    file, trips = proto_file()
    registry.answers["/schemas/ids/5?format=serialized"] = {
        "schemaType": "PROTOBUF",
        "schema": base64.b64encode(file.SerializeToString()).decode(),
        "references": [{"name": "trips.proto", "subject": "trips", "version": 1}],
    }
    registry.answers["/subjects/trips/versions/1?format=serialized"] = {
        "schemaType": "PROTOBUF",
        "schema": base64.b64encode(trips.SerializeToString()).decode(),
    }


def proto_message(number: int, indexes: bytes = b"\x02\x02") -> bytes:
    """The second message of its file, so the indexes are one number, 1, in zigzag."""
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

    file, trips = proto_file()
    trips.name = "trips.proto"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(trips.SerializeToString())
    pool.AddSerializedFile(file.SerializeToString())
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("rides.Ride"))
    message = kind(lng=2.5, lat=48.5, vehicle="bus", speed=0.1, fast=True)
    message.trip.id = number
    message.ts.FromDatetime(AT)
    payload: bytes = message.SerializeToString()
    return b"\x00\x00\x00\x00\x05" + indexes + payload


def test_messages_in_protobuf_are_read_with_the_schemas_of_the_registry(registry: Registry) -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    proto_answers(registry)
    form = MessageFormat.of("protobuf", registry.url)
    big = (1 << 62) + 1  # which a double has not
    assert read(form, proto_message(7), None, proto_message(big)) == [
        row(7),
        dict.fromkeys(SCHEMA.names) | {MALFORMED: "(no value)"},
        row(big),
    ]
    bad = [
        proto_message(7)[:-1],
        proto_message(7, b"\x02\x08"),
        b"\x00\x00\x00\x00\x05\x80",
        b"\x00\x00\x00\x00\x06\x00",
    ]
    said = [found[MALFORMED] for found in read(form, *bad)]
    assert all("no message in protobuf" in text for text in said)
    assert "has no message [4]" in said[1]
    assert "has no schema 6" in said[3]


# -- GeoJSON and CSV


def test_features_are_events_of_their_properties_and_their_place() -> None:
    form = MessageFormat.of("geojson")
    columns = Columns.of({"event_id": "id", "object_id": "vehicle"})
    schema = pa.schema([*form.declared(FIELDS), pa.field(MALFORMED, pa.string())])
    feature: dict[str, Any] = {
        "type": "Feature",
        "id": 7,
        "geometry": {"type": "Point", "coordinates": [2.5, 48.5, 3.0]},
        "properties": {"ts": AT.isoformat(), "vehicle": "bus", "speed": 0.1, "fast": True},
    }
    area = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    bad: list[Any] = [{"type": "FeatureCollection", "features": []}, 7, feature | {"geometry": None}]
    values = [json.dumps(each).encode() for each in (feature, feature | {"geometry": area}, *bad)]
    point, polygon, *refused = read(form, *values, b"{", names=columns, schema=schema)
    assert point == row(7, geometry=None)
    assert polygon == row(7, x=None, y=None, geometry=json.dumps(area))
    assert ["no message in geojson" in found[MALFORMED] for found in refused] == [True] * 4


def test_lines_of_csv_are_events_by_their_header() -> None:
    form = MessageFormat.of("csv", header="trip.id, ts,lng,lat,vehicle,speed,fast,other")
    line = f'7,{AT.isoformat()},2.5,48.5,"bus",0.1,True,x'.encode()
    bad = [b"", b"1,2", line + b"\n" + line, line.replace(b"7,", b"seven,"), line.replace(b"2.5", b"NaN?"), b"\xff,"]
    good, empty, *refused = read(form, line, b"8,,,,,,,\r\n", *bad, names=NAMES)
    assert good == row(7)
    assert empty == dict.fromkeys(SCHEMA.names) | {"event_id": 8}
    assert all(found[MALFORMED] for found in refused)
    assert "the header has 8 columns" in refused[1][MALFORMED]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("avrö", None, None), "format cannot be 'avrö': did you mean 'avro'"),
        (("avro", None, None), "messages in avro are not read with a registry: write registry"),
        (("json", "http://x", None), "leave registry out"),
        (("csv", None, None), "messages in csv have a header: write header"),
        (("geojson", None, "a,b"), "leave header out"),
        (("avro", "localhost:8081", None), "is no address: write registry"),
    ],
)
def test_formats_that_cannot_be_read_are_refused_before_the_start(given: Any, error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        MessageFormat.of(*given)
