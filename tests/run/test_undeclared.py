"""Fields of JSON that are not declared travel with the event where that is asked for, as they were written; elsewhere
they are named once."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import EVENT
from geoswarm.run import undeclared
from geoswarm.run.columns import Columns
from geoswarm.run.message_reading import read_message_rows
from geoswarm.run.undeclared import declared_tree, split_all, undeclared_part, undeclared_texts
from worlds import BOUNDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = Contract(columns=20, rows=15, executors=3)
NAMES = ["a", "b", "trip", "id", "é", 'q"', "c.d", "", "extra", "long name with blanks"]


def draw_value(rng: np.random.Generator, depth: int) -> Any:
    kind = rng.integers(0, 8 if depth < 4 else 6)
    if kind == 6:
        return [draw_value(rng, depth + 1) for _ in range(rng.integers(0, 3))]
    if kind == 7:
        return draw_object(rng, depth + 1)
    return [None, True, int(rng.integers(-99, 99)), float(rng.normal()), 'a, } ] { \\ " \u00e9\n', ""][kind]


def draw_object(rng: np.random.Generator, depth: int = 0) -> dict[str, Any]:
    names = rng.choice(NAMES, rng.integers(0, 6), replace=False).tolist()
    return {name: draw_value(rng, depth) for name in names}


def draw_text(rng: np.random.Generator) -> str:
    drawn = draw_object(rng)
    blanks = rng.choice(["", " ", "\t ", "\r\n"])
    text = json.dumps(drawn, ensure_ascii=bool(rng.integers(0, 2)), indent=1 if rng.integers(0, 2) else None)
    return f"{blanks}{text}{blanks}"


def draw_tree(rng: np.random.Generator, depth: int = 0) -> undeclared.Tree:
    names = rng.choice(NAMES, rng.integers(0, 4), replace=False).tolist()
    return {name: None if depth > 1 or rng.random() < 0.5 else draw_tree(rng, depth + 1) or None for name in names}


def without(parsed: Any, tree: undeclared.Tree) -> dict[str, Any]:
    """The rest of an object, by brute force."""
    rest = {}
    for name, value in parsed.items():
        if name not in tree:
            rest[name] = value
        elif tree[name] is not None and isinstance(value, dict):
            part = without(value, tree[name])
            if part:
                rest[name] = part
    return rest


@pytest.mark.parametrize("seed", range(40))
def test_what_is_left_is_what_brute_force_leaves_as_it_was_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts, tree = [draw_text(rng) for _ in range(60)], draw_tree(rng)
    joined = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in joined])
    found = undeclared_texts(b"".join(joined), np.append(0, ends[:-1]), ends, tree).to_pylist()
    assert found == [undeclared_part(text, tree) for text in texts]
    assert [None if text is None else json.loads(text) for text in found] == [
        without(json.loads(text), tree) or None for text in texts
    ]


def test_numbers_and_keys_that_come_twice_stay_as_they_were_written() -> None:
    text = '{"lng":1, "big": 12345678901234567890.1000, "e": 1E+2, "twice": 1, "twice" : [ 1,2 ] , "u": "\\u00e9"}'
    assert undeclared_part(text, {"lng": None}) == (
        '{"big":12345678901234567890.1000,"e":1E+2,"twice":1,"twice":[ 1,2 ],"u":"\\u00e9"}'
    )
    whole = undeclared_texts(text.encode(), np.array([0]), np.array([len(text)]), {"lng": None})
    assert whole.to_pylist() == [undeclared_part(text, {"lng": None})]


def test_all_may_stand_behind_declared_columns() -> None:
    assert split_all("all") == ("", True)
    assert split_all("speed double, all ") == ("speed double", True)
    assert split_all("overall string") == ("overall string", False)
    assert split_all("all string") == ("all string", False)


ROWS: list[dict[str, Any]] = [
    {"trip": {"id": 1, "fare": 9.5}, "lng": 2.0, "lat": 3.0, "at": 7, "speed": 4.0, "tags": ["a", None], "x": "other"},
    {"trip": {"id": 2}, "lng": 2.0, "lat": 3.0, "at": 7},
    {"at": 7, "lat": 3.0, "lng": 2.0, "note": None, "trip": {"k": {"id": 1}, "id": 3}},
]
EXTRAS = [
    {"trip": {"fare": 9.5}, "tags": ["a", None], "x": "other"},
    None,
    {"note": None, "trip": {"k": {"id": 1}}},
]
GIVEN: dict[str, Any] = {
    "columns": {"event_id": "trip.id", "x": "lng", "y": "lat", "ts": "at"},
    "ts_unit": "s",
    "extra": "speed double, all",
}


def check(table: pa.Table) -> None:
    rows = sorted(table.to_pylist(), key=lambda row: row["event_id"])
    assert [row["event_id"] for row in rows] == [1, 2, 3]
    assert [row["speed"] for row in rows] == [4.0, None, None]
    assert [row["extra"] if row["extra"] is None else json.loads(row["extra"]) for row in rows] == EXTRAS


@pytest.mark.parametrize("bad", [False, True])
def test_they_travel_from_files_to_the_matches(tmp_path: Path, bad: bool) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "in" / "a.json").write_text("\n".join([lines[0], *(["{broken"] if bad else [""]), *lines[1:]]))
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS)
        came = gs.local.events_from_files(str(tmp_path / "in"), **GIVEN)
        engine.start(events=came, sink=sink, available_now=True).wait()
        assert len(engine.dead_letters()) == bad
    check(sink.table())


def test_they_travel_on_spark_and_not_where_spark_reads(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(json.dumps(row) for row in ROWS))
    found: list[pa.Table] = []
    came = gs.sources.events_from_files(spark, str(tmp_path / "in"), **GIVEN)
    with gs.Engine(spark, WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS)
        with pytest.raises(SchemaError, match="extra can be made by the tasks"):
            engine.start(events=came.where("x > 0"), sink=gs.sinks.Noop())
        engine.start(events=came, sink=lambda rows, _: found.append(rows.toArrow()), available_now=True).wait()
    check(pa.concat_tables(found))


def test_they_travel_from_messages() -> None:
    columns = Columns.of(GIVEN["columns"], "s", has_extra=True)
    fields = [*(field.with_nullable(True) for field in EVENT), pa.field("speed", pa.float64())]
    schema = pa.schema([*fields, pa.field("extra", pa.string()), pa.field(MALFORMED, pa.string())])
    values = [None, *(json.dumps(row).encode() for row in ROWS), b"{", b'{"at": "\xff"}', b'{"a": "\xff", "at": 7}']
    batch = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
    for first in (0, 1):
        rows = read_message_rows(batch.slice(first), schema, columns)
        check(pa.Table.from_batches([rows.slice(1 - first, 3)]))
        assert rows.column("extra").to_pylist()[4 - first :] == [None, None, '{"a":"\ufffd"}']


def test_an_event_with_too_much_of_it_is_a_dead_letter_that_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undeclared, "EXTRA_BYTES_MAX", 40)
    (tmp_path / "in").mkdir()
    rows = [ROWS[0] | {"tags": "é" * 9}, *ROWS[1:]]
    (tmp_path / "in" / "a.json").write_text("\n".join(json.dumps(row) for row in rows))
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOUNDS)
        came = gs.local.events_from_files(str(tmp_path / "in"), **GIVEN)
        engine.start(events=came, sink=sink, available_now=True).wait()
        (letter,) = engine.dead_letters().to_pylist()
    assert letter["reason"] == "malformed"
    assert "bytes of fields that are not declared, more than 40: declare some" in letter["row"]
    assert sorted(sink.table()["event_id"].to_pylist()) == [2, 3]


def test_what_is_left_out_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}.json").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n{broken")
    given = GIVEN | {"extra": "speed double"}
    with caplog.at_level(logging.WARNING), gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        came = gs.local.events_from_files(str(tmp_path / "in"), files_per_batch=1, **given)
        engine.start(events=came, sink=gs.sinks.Noop(), available_now=True).wait()
    (said,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert "are left out: trip.fare, tags, x, note, trip.k (of the first 4 rows)" in said
    assert 'extra = "all"' in said


def test_nothing_is_said_where_all_is_declared_or_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps(ROWS[1]))
    (tmp_path / "in" / "b.json").write_text("")
    for number, given in enumerate((GIVEN, GIVEN | {"extra": ""})):
        with caplog.at_level(logging.WARNING), gs.LocalEngine(WORLD, checkpoint=str(tmp_path / str(number))) as engine:
            came = gs.local.events_from_files(str(tmp_path / "in"), **given)
            engine.start(events=came, sink=gs.sinks.Noop(), available_now=True).wait()
    assert not [record for record in caplog.records if "left out" in record.getMessage()]


def test_a_column_extra_of_ones_own_and_csv_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(SettingsError, match="makes a column extra, and one is declared"):
        gs.local.events_from_files(str(tmp_path), extra="extra string, all")
    with pytest.raises(SettingsError, match='extra = "all" is for JSON'):
        gs.local.events_from_files(str(tmp_path), format="csv", extra="all")


def test_the_declared_columns_are_a_tree() -> None:
    columns = Columns.of(GIVEN["columns"], event_id=None, has_extra=True)
    schema = pa.schema([*EVENT, ("extra", pa.string()), (MALFORMED, pa.string())])
    assert declared_tree(columns, schema) == {"trip": {"id": None}, "lng": None, "lat": None, "at": None}
