"""Matches go out as JSON, as CloudEvents and as Avro, and say the same."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.errors import SettingsError, StreamError
from geoswarm.model import SUB_IDS, TIMESTAMP
from geoswarm.run.json_writing import json_rows
from geoswarm.run.message_writing import FORMAT, REGISTRY, SentAs, avro_schema
from registry_server import Registry, running_registry

AT = datetime(2024, 5, 1, 8, 0, 0, 123456, tzinfo=UTC)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"event_id": "é7", "ts": AT, "x": 2.5, "raw": b"\x01", "sub_ids": [1, 2], "trip": {"fare": 9.5}, "fast": True},
        {"event_id": None, "ts": None, "x": None, "raw": None, "sub_ids": [], "trip": None, "fast": None},
    ],
    schema=pa.schema(
        [
            pa.field("event_id", pa.string()),
            pa.field("ts", TIMESTAMP),
            pa.field("x", pa.float64()),
            pa.field("raw", pa.binary()),
            SUB_IDS,
            pa.field("trip", pa.struct([pa.field("fare", pa.float64())])),
            pa.field("fast", pa.bool_()),
        ]
    ),
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    yield from running_registry()


def test_a_cloud_event_has_the_row_as_its_data_and_the_same_id_when_it_is_sent_again() -> None:
    form = SentAs.of({FORMAT: "cloudevents"})
    sent = form.write(ROWS, "alerts", "c0ffee", "12")
    first, second = (json.loads(text) for text in sent)
    assert [first["data"], second["data"]] == [json.loads(text) for text in json_rows(ROWS).to_pylist()]
    assert {name: first[name] for name in ("specversion", "source", "type", "time", "datacontenttype")} == {
        "specversion": "1.0",
        "source": "/geoswarm/c0ffee",
        "type": "io.geoswarm.match",
        "time": "2024-05-01T08:00:00.123456Z",
        "datacontenttype": "application/json",
    }
    assert "time" not in second
    assert first["id"].startswith("12-")
    assert form.write(ROWS, "alerts", "c0ffee", "12") == sent
    ids = {json.loads(text)["id"] for batch in "12" for text in form.write(ROWS, "alerts", "c0ffee", batch)}
    assert len(ids) == 4
    assert form.headers == {"content-type": "application/cloudevents+json; charset=UTF-8"}
    assert not SentAs().headers


def test_a_row_in_avro_is_read_back_by_the_schema_of_the_registry(registry: Registry) -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    import io

    registry.answers["/schemas/ids/1"] = {"schema": "of somebody else"}
    form = SentAs.of({FORMAT: "avro", REGISTRY: registry.url})
    sent = [*form.write(ROWS, "alerts", "c0ffee", "12"), *form.write(ROWS, "alerts", "c0ffee", "13")]
    assert [text[:5] for text in sent] == [b"\x00\x00\x00\x00\x02"] * 4
    assert registry.asked == ["/subjects/alerts-value/versions"]
    schema = json.loads(registry.answers["/schemas/ids/2"]["schema"])
    assert schema == avro_schema(ROWS.schema)
    first, second = (fastavro.schemaless_reader(io.BytesIO(text[5:]), schema, None) for text in sent[:2])
    want: list[dict[str, Any]] = ROWS.to_pylist()
    assert first == want[0] | {"trip": '{"fare": 9.5}'}
    assert second == want[1]


def test_a_registry_that_refuses_a_schema_is_said_at_once(registry: Registry) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    registry.answers["/subjects/alerts-value/versions"] = 409
    form = SentAs.of({FORMAT: "avro", REGISTRY: registry.url})
    with pytest.raises(StreamError, match=r"refuses a number for the schema of alerts-value .HTTP 409."):
        form.write(ROWS, "alerts", "c0ffee", "12")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"format": "xml"}, "format is 'xml': give 'json', 'cloudevents' or 'avro'"),
        ({"format": "avro"}, "messages in avro are not sent with a registry"),
        ({"format": "cloudevents", "registry": "http://x"}, "leave registry out"),
        ({"registry": "http://x"}, "leave registry out"),
        ({"format": "avro", "registry": "x:1"}, "is no address"),
    ],
)
def test_a_sink_in_a_format_that_cannot_be_sent_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        gs.sinks.Kafka("localhost:1", "alerts", **given)


def test_a_sink_in_json_has_no_further_options() -> None:
    assert gs.sinks.Kafka("localhost:1", "alerts").options == {
        "kafka.bootstrap.servers": "localhost:1",
        "topic": "alerts",
    }
