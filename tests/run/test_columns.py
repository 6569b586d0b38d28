"""Events whose columns have the user's own names, nested ones among them, and times in any form, by every road: the
matches are those of the same events as the engine names them, and those are the oracle's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.model import TIMESTAMP
from geoswarm.run.columns import Columns, read_path, show_path
from geoswarm.run.oracle.oracle import Oracle
from worlds import BOUNDS, events, rectangles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=3)
NAMES = {"x": "lng", "y": "lat", "event_id": "trip.id", "ts": '"at.ms"', "object_id": "vehicle.id", "text": "note"}
CARRIED = ["event_id", "ts", "x", "y", "object_id", "text"]
EXTRA = "text string, object_id bigint"


def our_events() -> pa.Table:
    rng = np.random.default_rng(4)
    made = pa.table(events(rng, 600))
    ts = pa.array(1_700_000_000_000 + 1000 * np.arange(600) + 7).cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP)
    made = made.set_column(1, "ts", ts).append_column("object_id", pa.array(rng.integers(0, 30, 600)))
    words = ["flood at the river", "sun", None]
    return made.append_column("text", pa.array([words[i] for i in rng.integers(0, 3, 600)], pa.string()))


def as_theirs(ours: pa.Table) -> pa.Table:
    """The same events in a topic of taxis, where `trip` has more than the id, and `at.ms` is a name with a dot."""
    trip = pc.make_struct(ours["event_id"], pc.multiply(ours["x"], 2.0), field_names=["id", "fare"])
    vehicle = pc.make_struct(ours["object_id"], field_names=["id"])
    at = pc.divide(ours["ts"].cast(pa.int64()), 1000)
    columns = {"lng": ours["x"], "trip": trip, "lat": ours["y"], "at.ms": at, "vehicle": vehicle, "note": ours["text"]}
    return pa.table(columns)


def operations() -> pa.Table:
    rects = rectangles(np.random.default_rng(3), 90).tolist()
    attributes: list[dict[str, Any]] = [{}, {"keywords": "flood AND river"}, {"on": "enter"}, {"on": "exit"}]
    return operation_table([registration(i, tuple(rect), **attributes[i % 4]) for i, rect in enumerate(rects)])


def run_through(engine: Any, came: Any) -> pa.Table:
    found: list[pa.Table] = []

    def take(matches: Any, batch_id: int) -> None:
        found.append(matches if isinstance(matches, pa.Table) else matches.toArrow())

    with engine:
        engine.submit(operations())
        engine.start(events=came, sink=take, available_now=True).wait()
        assert engine.dead_letters().num_rows == 0, engine.dead_letters().to_pylist()[:3]
    table = pa.concat_tables(found)
    return table.set_column(
        table.schema.get_field_index("object_id"), "object_id", table["object_id"].cast(pa.string())
    )


def rows_of(table: pa.Table) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in table.select([*CARRIED, "sub_id"]).to_pylist()}


def local_engine(folder: Path) -> gs.LocalEngine:
    return gs.LocalEngine(CONTRACT, Tuning(matches="pairs"), checkpoint=str(folder / "state"), clock=lambda: 0.0)


@pytest.fixture(scope="module")
def want(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[Any, ...]]:
    """What the events give as the engine names them, which is what the oracle says."""
    oracle, ours = Oracle(BOUNDS), our_events()
    oracle.operate(operations(), 0)
    found = rows_of(run_through(local_engine(tmp_path_factory.mktemp("want")), ours))
    assert {(row[0], row[-1]) for row in found} == oracle.deliver(ours, 0)
    assert {row[-1] % 4 for row in found} == {0, 1, 2, 3}
    return found


def write_parquet(folder: Path, theirs: pa.Table) -> None:
    pq.write_table(theirs, folder / "0.parquet", row_group_size=100)


def write_json(folder: Path, theirs: pa.Table) -> None:
    (folder / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in theirs.to_pylist()))


def write_csv(folder: Path, theirs: pa.Table) -> None:
    pacsv.write_csv(theirs.flatten().drop_columns(["trip.fare"]), folder / "0.csv")


ROADS: list[Any] = [write_parquet, write_json, write_csv]
Road = Callable[[Path, pa.Table], None]


@pytest.mark.parametrize("write", ROADS)
def test_a_users_own_names_and_milliseconds_give_the_same_from_files(
    tmp_path: Path, want: set[tuple[Any, ...]], write: Road
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", as_theirs(our_events()))
    extra = "" if write is write_parquet else EXTRA
    came = gs.local.events_from_files(str(tmp_path / "in"), columns=NAMES, ts_unit="ms", extra=extra)
    found = run_through(local_engine(tmp_path), came)
    assert rows_of(found) == want
    left = [name for name in found.schema.names if name not in (*CARRIED, "sub_id", "version")]
    assert left == (["trip"] if write is write_parquet else [])
    if left:
        assert found.schema.field("trip").type == pa.struct([pa.field("fare", pa.float64())])
        assert found["trip"].combine_chunks().field("fare").to_pylist() == pc.multiply(found["x"], 2.0).to_pylist()


def test_a_users_own_names_give_the_same_from_tables(tmp_path: Path, want: set[tuple[Any, ...]]) -> None:
    came = gs.local.from_tables(as_theirs(our_events()), columns=NAMES, ts_unit="ms")
    assert rows_of(run_through(local_engine(tmp_path), came)) == want


def as_is(frame: "DataFrame") -> "DataFrame":
    return frame


def changed(frame: "DataFrame") -> "DataFrame":
    """Spark reads its rows."""
    return frame.select("*")


@pytest.mark.parametrize("write", ROADS)
@pytest.mark.parametrize("change", [as_is, changed])
def test_a_users_own_names_give_the_same_on_spark(
    spark: "SparkSession", tmp_path: Path, want: set[tuple[Any, ...]], write: Road, change: Any
) -> None:
    from geoswarm.run.spark.task_files import files_of

    (tmp_path / "in").mkdir()
    write(tmp_path / "in", as_theirs(our_events()))
    extra = "" if write is write_parquet else EXTRA
    came = change(gs.sources.events_from_files(spark, str(tmp_path / "in"), columns=NAMES, ts_unit="ms", extra=extra))
    assert (files_of(came) is not None) == (change is as_is)
    state = str(tmp_path / "state")
    engine = gs.Engine(spark, CONTRACT, Tuning(matches="pairs"), checkpoint=state, clock=lambda: 0.0)
    found = run_through(engine, came)
    assert rows_of(found) == want
    assert ("trip" in found.schema.names) == (write is write_parquet)


def test_a_dataframe_of_the_users_own_is_renamed_before_the_start(
    spark: "SparkSession", tmp_path: Path, want: set[tuple[Any, ...]]
) -> None:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in", as_theirs(our_events()))
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    own = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    came = gs.sources.rename_columns(own, NAMES, ts_unit="ms")
    state = str(tmp_path / "state")
    engine = gs.Engine(spark, CONTRACT, Tuning(matches="pairs"), checkpoint=state, clock=lambda: 0.0)
    assert rows_of(run_through(engine, came)) == want


TEXT = pa.string()


@pytest.mark.parametrize(
    ("unit", "made"),
    [
        (None, lambda ts: ts),
        (None, lambda ts: ts.cast(pa.timestamp("ns", "Europe/Berlin"))),
        (None, lambda ts: ts.cast(pa.timestamp("us"))),
        (None, lambda ts: pc.strftime(ts.cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ")),
        ("text", lambda ts: pc.strftime(ts.cast(pa.timestamp("ms")), "%Y-%m-%d %H:%M:%S")),
        ("s", lambda ts: pc.divide(ts.cast(pa.int64()).cast(pa.float64()), 1e6)),
        ("us", lambda ts: ts.cast(pa.int64())),
        ("ns", lambda ts: pc.multiply(ts.cast(pa.int64()), 1000)),
        ("ms", lambda ts: pc.divide(ts.cast(pa.int64()), 1000).cast(TEXT)),
    ],
)
def test_times_of_every_form_are_the_same_times(tmp_path: Path, unit: str | None, made: Any) -> None:
    ours = our_events()
    for folder, write in (("parquet", write_parquet), ("json", write_json)):
        theirs = ours.set_column(1, "ts", made(ours["ts"]))
        is_time = pa.types.is_timestamp(theirs.schema.field("ts").type)
        if write is write_json and (is_time or unit == "ms"):
            continue
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, theirs)
        source = gs.local.events_from_files(str(tmp_path / folder), ts_unit=unit)
        (task,) = source_rows(source, tmp_path / f"log-{folder}")
        got = pa.Table.from_batches(list(task()))
        assert got["ts"].null_count == 0
        assert got["ts"].cast(TIMESTAMP).combine_chunks() == ours["ts"].combine_chunks()


def source_rows(source: Any, log: Path) -> list[Any]:
    from geoswarm.run.stream_log import StreamLog

    source.open(StreamLog(str(log)), 0, available_now=True)
    return list(source.read(None, source.latest(None)))


@pytest.mark.parametrize(
    ("columns", "unit", "message"),
    [
        ({"x": "lgn"}, "ms", "the table has no column 'lgn': did you mean 'lng'"),
        ({"x": "lng", "event_id": "trip.uid"}, "ms", "column trip of the table has no column 'uid': did you mean 'id'"),
        ({"x": "lng", "event_id": "note.id"}, "ms", "column note of the table is string and has no columns in it"),
        ({"x": "lng", "note": "lat"}, "ms", "column note is taken from lat, and the table has a column note itself"),
        ({"x": "lng", "y": "lng"}, "ms", "columns x and y are both taken from lng"),
        ({"x": "trip", "y": "trip.id"}, "ms", "columns x and y are both taken from trip"),
        ({"x": "trip..id"}, "ms", "the column 'trip..id' cannot be read"),
        (NAMES, None, "column ts of events is int64, and its unit is not known: say ts_unit"),
        (NAMES, "min", "ts_unit cannot be 'min'"),
        ({**NAMES, "ts": "vehicle"} | {"object_id": "note", "text": '"at.ms"'}, None, "wanted is a timestamp, a text"),
        ({"x": "lng"}, "ms", "ts_unit is given, and there is no column ts"),
    ],
)
def test_a_column_that_cannot_be_had_is_an_error_before_the_start(
    columns: dict[str, str], unit: str | None, message: str
) -> None:
    with pytest.raises((SchemaError, SettingsError), match=message.replace(".", r"\.")):
        gs.local.from_tables(as_theirs(our_events()), columns=columns, ts_unit=unit)


def test_a_unit_for_what_is_a_timestamp_is_an_error() -> None:
    with pytest.raises(SchemaError, match="has its unit: leave ts_unit out"):
        gs.local.from_tables(our_events(), ts_unit="s")


def test_a_named_column_of_json_needs_a_type_unless_it_has_a_meaning(tmp_path: Path) -> None:
    write_json(tmp_path, as_theirs(our_events()))
    came = gs.local.events_from_files(str(tmp_path), columns={"text": "note"})
    assert came.schema.field("text").type == TEXT
    with pytest.raises(SchemaError, match='declare it, extra = "speed double"'):
        gs.local.events_from_files(str(tmp_path), columns={"speed": "trip.fare"})
    with pytest.raises(SchemaError, match="which another column is taken from, too"):
        gs.local.events_from_files(str(tmp_path), columns={"event_id": "trip.id"}, extra="trip string")


def test_naming_a_column_as_it_is_declares_one_that_has_a_meaning(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_text('{"event_id": 1, "ts": 9, "x": 1, "y": 2, "object_id": 17, "text": "sun"}\n')
    came = gs.local.events_from_files(str(tmp_path), columns={"text": "text", "object_id": "object_id"})
    (task,) = source_rows(came, tmp_path / "log")
    (row,) = pa.Table.from_batches(list(task())).to_pylist()
    assert (row["text"], row["object_id"], row["_malformed"]) == ("sun", "17", None)


def test_a_text_that_is_no_time_is_a_dead_letter_with_what_was_read(tmp_path: Path) -> None:
    rows = [{"id": i, "at": at, "x": 1.0, "y": 2.0} for i, at in enumerate(["2024-05-01T08:00:00Z", "noon", "2024-13"])]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {"event_id": "id", "ts": "at"}
    sources = [
        gs.local.events_from_files(str(tmp_path / "in"), columns=names, ts_unit="text"),
        gs.local.from_tables(pa.Table.from_pylist(rows), columns=names),
    ]
    for number, source in enumerate(sources):
        with local_engine(tmp_path / str(number)) as engine:
            engine.start(events=source, sink=gs.sinks.Noop(), available_now=True).wait()
            letters = engine.dead_letters().to_pylist()
        assert [letter["reason"] for letter in letters] == ["malformed", "malformed"]
        assert all(text in letters[0]["row"] for text in ("noon", "no time by ISO 8601"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.uint64(), pa.int32(), pa.string(), pa.decimal128(38, 0)])
def test_numbers_that_are_no_time_are_malformed_and_their_neighbours_are_read(unit: str, kind: pa.DataType) -> None:
    from geoswarm.flow.dead_letters import MALFORMED
    from geoswarm.run.source_times import read_times

    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [2 * second, 9 * 10**18 if kind != pa.int32() else None, None]
    batch = pa.record_batch({"ts": pa.array(values).cast(kind, safe=False), "event_id": [1, 2, 3]})
    got = read_times(batch, unit)  # type: ignore[arg-type]
    is_time = kind == pa.int32() or unit == "ns"  # 9e18 ns are the year 2255
    assert got["ts"].cast(pa.int64()).to_pylist()[0] == 2_000_000
    assert got["ts"].null_count == (2 if kind == pa.int32() or not is_time else 1)
    said = got[MALFORMED].to_pylist() if MALFORMED in got.schema.names else [None] * 3
    assert [text is not None for text in said] == [False, not is_time, False]


def test_a_number_in_text_without_bounds_is_malformed_and_its_neighbours_are_read() -> None:
    from geoswarm.flow.dead_letters import MALFORMED
    from geoswarm.run.source_times import read_times

    texts = ["2000", "1e999999", "1e99999999999", "-1e31", "1e-999999"]
    got = read_times(pa.record_batch({"ts": pa.array(texts)}), "ms")
    assert got["ts"].cast(pa.int64()).to_pylist() == [2_000_000, None, None, None, 0]
    assert [text is not None for text in got[MALFORMED].to_pylist()] == [False, True, True, True, False]


@pytest.mark.parametrize("unit", [None, "text", "ms"])
def test_texts_that_are_no_utf8_are_malformed_and_their_neighbours_are_read(unit: Any) -> None:
    from geoswarm.flow.dead_letters import MALFORMED
    from geoswarm.run.source_times import read_times

    raw = pa.array([b"\xff\xfe", b"2000" if unit == "ms" else b"1970-01-01T00:00:02Z"])
    spoilt = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    got = read_times(pa.record_batch({"ts": spoilt, "note": spoilt}), unit)
    assert got["ts"].cast(pa.int64()).to_pylist() == [None, 2_000_000]
    said = got[MALFORMED].to_pylist()
    assert "no UTF-8" in said[0]
    assert said[1] is None


def test_a_time_that_is_none_takes_no_other_column_along_wherever_malformed_stands() -> None:
    from geoswarm.flow.dead_letters import MALFORMED
    from geoswarm.run.source_times import read_times

    batch = pa.record_batch({MALFORMED: pa.nulls(2, pa.string()), "ts": ["noon", "7"], "event_id": [1, 2]})
    got = read_times(batch, "s")
    assert got["event_id"].to_pylist() == [1, 2]
    assert got["ts"].cast(pa.int64()).to_pylist() == [None, 7_000_000]


def test_a_table_in_several_pieces_is_read_whole_and_only_its_bad_times_are_malformed() -> None:
    from geoswarm.flow.dead_letters import MALFORMED

    table = pa.concat_tables([pa.table({"at": ["7"], "n": [1]}), pa.table({"at": ["x"], "n": [2]})])
    schema = pa.schema([("ts", TIMESTAMP), ("n", pa.int64())])
    got = Columns.of({"ts": "at"}, "s").ours(table, schema)
    assert got["n"].to_pylist() == [1, 2]
    assert got["ts"].cast(pa.int64()).to_pylist() == [7_000_000, None]
    assert [text is not None for text in got[MALFORMED].to_pylist()] == [False, True]


@pytest.mark.parametrize("path", [("a",), ("a", "b"), ("a.b", "c"), ("lat lon", "x y"), ("ä",)])
def test_a_path_is_read_as_it_is_shown(path: tuple[str, ...]) -> None:
    assert read_path(show_path(path)) == path


def test_only_the_named_part_of_a_struct_is_read_from_parquet() -> None:
    names = Columns.of({"event_id": "trip.id"})
    trip = pa.struct([pa.field("id", pa.int64()), pa.field("fare", pa.float64())])
    assert names.leaves(pa.schema([("event_id", pa.int64()), ("x", pa.float64())])) == ["trip.id", "x"]
    assert names.leaves(names.bind(pa.schema([("trip", trip)]))) == ["trip.id", "trip.fare"]


def test_milliseconds_that_are_read_as_seconds_are_dead_letters_that_name_the_unit(tmp_path: Path) -> None:
    rows = [{"event_id": 1, "ts": 1_714_550_400_000, "x": 2.0, "y": 3.0}, {"event_id": 2, "ts": 9, "x": 2.0, "y": 3.0}]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with local_engine(tmp_path) as engine:
        engine.start(
            events=gs.local.events_from_files(str(tmp_path / "in")), sink=gs.sinks.Noop(), available_now=True
        ).wait()
        (letter,) = engine.dead_letters().to_pylist()
    assert letter["reason"] == "malformed"
    assert "ts_unit" in letter["detail"]
    assert '"event_id": 1' in letter["row"]


def test_a_later_file_whose_times_are_numbers_is_not_guessed_at(tmp_path: Path) -> None:
    ours = our_events().slice(0, 3)
    for number, table in enumerate([ours, ours.set_column(1, "ts", ours["ts"].cast(pa.int64()))]):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    (task,) = source_rows(gs.local.events_from_files(str(tmp_path)), tmp_path / "log")
    first, second = list(task())
    assert first["ts"].null_count == 0
    assert all("a number without a unit: say ts_unit" in text for text in second["_malformed"].to_pylist())


def test_a_users_own_names_give_the_same_from_messages() -> None:
    from geoswarm.flow.dead_letters import MALFORMED
    from geoswarm.run.message_reading import read_messages

    names, ours = Columns.of(NAMES, "ms"), our_events()
    schema = ours.schema.append(pa.field(MALFORMED, pa.string()))
    schema = schema.set(schema.get_field_index("object_id"), pa.field("object_id", pa.string()))
    texts: list[str | None] = [json.dumps(row) for row in as_theirs(ours).to_pylist()]
    want = ours.set_column(4, "object_id", ours["object_id"].cast(pa.string())).to_pylist()
    bad = [None, "{broken", '{"trip": 5}', '{"at.ms": "1"}', '{"trip": {"id": "7"}}', '{"at.ms": 1e300}']
    fine = '{"trip": {"id": 1, "id": 2}, "vehicle": {"id": "bus"}, "at.ms": 1.5, "lng": 1, "trips": [{}]}'
    for batch, extra in ((texts, []), ([*bad, *texts, fine], [fine])):
        values = pa.array([None if text is None else text.encode() for text in batch], pa.binary())
        rows = pa.Table.from_batches([read_messages(values, schema, names)]).to_pylist()
        good = [row for row in rows if row.pop(MALFORMED) is None]
        assert len(rows) - len(good) == len(batch) - len(texts) - len(extra)
        assert good[: len(want)] == want
        if extra:
            assert [good[-1][name] for name in ("event_id", "x", "object_id", "text")] == [2, 1.0, "bus", None]
            assert good[-1]["ts"].microsecond == 1500


def test_a_path_into_what_is_no_object_in_json_is_malformed(tmp_path: Path) -> None:
    rows = [{"trip": trip, "ts": 5, "x": 1.5, "y": 2.5} for trip in ({"id": 7}, 7, "seven", [1])]
    (tmp_path / "0.json").write_text("\n".join(map(json.dumps, rows)))
    source = gs.local.events_from_files(str(tmp_path), columns={"event_id": "trip.id"})
    (task,) = source_rows(source, tmp_path / "log")
    got = [row for batch in task() for row in batch.to_pylist()]
    assert [row["event_id"] for row in got] == [7, None, None, None]
    assert [json.loads(row["_malformed"])["trip"] for row in got[1:]] == [7, "seven", [1]]


def test_a_dot_in_the_name_of_a_column_that_spark_reads_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"event_id": 1, "ts": 0, "x": 1.0, "y": 1.0}')
    came = gs.sources.events_from_files(spark, str(tmp_path / "in")).selectExpr("*", "1 `a.b`")
    message = r"column 'a.b' has a dot in its name"
    with (
        gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "s")) as engine,
        pytest.raises(SchemaError, match=message),
    ):
        engine.start(events=came, sink=gs.sinks.Noop(), available_now=True)
