"""Events without an id get one from where they are in their source: the same for the same event, whoever reads it and
however often, and never the same for two events."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import SchemaError, SettingsError, StreamError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import EVENT, TIMESTAMP
from geoswarm.run import made_ids
from geoswarm.run.columns import Columns
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.made_ids import FILE_BITS, OFFSET_BITS, PLACE_BITS, FileNumbers, check_room, place_ids
from geoswarm.run.message_reading import read_message_rows
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.pieces import share_out
from geoswarm.run.stream_log import StreamLog, TakenFile
from geoswarm.service.cli.settings_file import read_settings
from worlds import BOUNDS, events, rectangles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = Contract(columns=20, rows=15, executors=3)
MADE = Columns.of(event_id="made")
SCHEMA = pa.schema([*(field.with_nullable(True) for field in EVENT), pa.field(MALFORMED, pa.string())])
KINDS = ["parquet", "json", "csv"]


def nameless(files: int = 4, rows: int = 90) -> list[pa.Table]:
    whole = pa.table(events(np.random.default_rng(8), files * rows)).drop_columns(["event_id"])
    ts = pa.array(1_700_000_000_000_000 + np.arange(files * rows)).cast(pa.timestamp("us")).cast(TIMESTAMP)
    whole = whole.set_column(whole.schema.get_field_index("ts"), "ts", ts)
    return [whole.slice(n * rows, rows) for n in range(files)]


def write(folder: Path, kind: str, tables: list[pa.Table], first: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables, first):
        path = folder / f"{number:03d}.{kind}"
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=20)
        elif kind == "json":
            lines = (json.dumps(row | {"ts": row["ts"].isoformat()}) for row in table.to_pylist())
            path.write_text("\n\n \t\r\n".join(lines))
        else:
            pacsv.write_csv(table, path)


def operations() -> pa.Table:
    rects = rectangles(np.random.default_rng(3), 60).tolist()
    return operation_table([registration(i, tuple(rect), replace=True) for i, rect in enumerate(rects)])


def run_through(engine: Any, source: Any) -> pa.Table:
    found: list[pa.Table] = []

    def take(matches: Any, batch_id: int) -> None:
        found.append(matches if isinstance(matches, pa.Table) else matches.toArrow())

    with engine:
        engine.submit(operations())
        engine.start(events=source, sink=take, available_now=True).wait()
        assert engine.dead_letters().num_rows == 0, engine.dead_letters().to_pylist()[:3]
    return pa.concat_tables(found)


def local_engine(folder: Path) -> gs.LocalEngine:
    return gs.LocalEngine(CONTRACT, Tuning(matches="pairs"), checkpoint=str(folder / "state"), clock=lambda: 0.0)


def pairs_of(table: pa.Table) -> set[tuple[int, int]]:
    return set(zip(table["event_id"].to_pylist(), table["sub_id"].to_pylist(), strict=True))


def with_ids(folder: Path, kind: str) -> pa.Table:
    """All events of a folder, each read in one piece, with the ids by the rule."""
    paths = sorted(folder.iterdir())
    batches = [
        batch for n, path in enumerate(paths) for batch in read_piece(Piece(str(path), number=n), kind, SCHEMA, MADE)
    ]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("kind", KINDS)
def test_events_without_ids_match_what_the_oracle_finds(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "in", kind, nameless())
    found = run_through(local_engine(tmp_path), gs.local.events_from_files(str(tmp_path / "in"), event_id="made"))
    known = with_ids(tmp_path / "in", kind)
    assert len(set(known["event_id"].to_pylist())) == len(known) == 360
    oracle = Oracle(BOUNDS)
    oracle.operate(operations(), 0)
    want = set(oracle.match(known.drop_columns([MALFORMED]), 0))
    assert pairs_of(found) == want
    assert want


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_does_not_depend_on_who_reads_the_file_nor_on_when(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    tables = nameless()
    write(tmp_path / "in", kind, tables[:2])

    def local() -> pa.Table:
        return run_through(local_engine(tmp_path), gs.local.events_from_files(str(tmp_path / "in"), event_id="made"))

    def on_spark() -> pa.Table:
        source = gs.sources.events_from_files(spark, str(tmp_path / "in"), event_id="made", files_per_batch=1)
        engine = gs.Engine(
            spark, CONTRACT, Tuning(matches="pairs"), checkpoint=str(tmp_path / "state"), clock=lambda: 0.0
        )
        return run_through(engine, source)

    roads, found = [local, on_spark, local], []
    for turn, road in enumerate(roads):  # the same stream goes on, by another engine
        found.append(road())
        write(tmp_path / "in", kind, tables[turn + 2 : turn + 3], first=turn + 2)
    other = tmp_path / "other"
    other.mkdir()
    at_once = run_through(local_engine(other), gs.local.events_from_files(str(tmp_path / "in"), event_id="made"))
    assert pairs_of(pa.concat_tables(found)) == pairs_of(at_once)
    assert len(at_once)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_an_id_does_not_depend_on_where_a_file_is_cut(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoswarm.run.pieces.TASK_BYTES_MIN", 500)
    write(tmp_path / "in", kind, nameless(1, 300))
    (path,) = (tmp_path / "in").iterdir()
    pieces = [piece for task in share_out([str(path)], kind, 9) for piece in task]
    batches = [b for piece in pieces for b in read_piece(piece._replace(number=0), kind, SCHEMA, MADE)]
    assert len(pieces) > 3
    assert pa.Table.from_batches(batches).equals(with_ids(tmp_path / "in", kind).combine_chunks())


def test_lines_of_json_have_the_same_ids_beside_a_line_that_is_no_row(tmp_path: Path) -> None:
    good = '{"ts": "2026-01-01T00:00:00Z", "x": 1.0, "y": 2.0}'
    for mark in ("", "\ufeff"):
        path = tmp_path / "a.json"
        path.write_text(mark + good + "\n\n" + good + "\r\n" + good)
        (quick,) = read_piece(Piece(str(path), number=3), "json", SCHEMA, MADE)
        path.write_text(mark + good + "\n\n" + good + "\r\n" + good + "\n{")
        (slow,) = read_piece(Piece(str(path), number=3), "json", SCHEMA, MADE)
        assert slow.slice(0, 3).column("event_id").equals(quick.column("event_id"))
        first = 3 << PLACE_BITS
        begins = [0, len((mark + good).encode()) + 2, len((mark + 2 * good).encode()) + 4]
        assert quick.column("event_id").to_pylist() == [first + begin for begin in begins]


def test_two_rows_in_one_line_are_refused_rather_than_given_one_id(tmp_path: Path) -> None:
    row = '{"ts": "2026-01-01T00:00:00Z", "x": 1.0, "y": 2.0}'
    (tmp_path / "a.json").write_text(f"{row}{row}\n{row}\r{row}\n{row}")
    (batch,) = read_piece(Piece(str(tmp_path / "a.json"), number=0), "json", SCHEMA, MADE)
    assert batch.column(MALFORMED).to_pylist() == [row + row, None, None, None]
    assert len(set(batch.column("event_id").to_pylist())) == 4


def test_tables_in_memory_have_ids_by_table_and_row(tmp_path: Path) -> None:
    tables = nameless(2, 50)
    found = run_through(local_engine(tmp_path), gs.local.from_tables(*tables, event_id="made"))
    known = pa.concat_tables(tables)
    ids = [(n << PLACE_BITS) + row for n in range(2) for row in range(50)]
    ts_of = dict(zip(ids, known["ts"].to_pylist(), strict=True))
    assert len(found)
    assert [ts_of[i] for i in found["event_id"].to_pylist()] == found["ts"].to_pylist()


def messages(*places: tuple[int, int]) -> pa.RecordBatch:
    value = b'{"ts": "2026-01-01T00:00:00Z", "x": 1.0, "y": 2.0}'
    partitions, offsets = zip(*places, strict=True)
    columns = [pa.array([value] * len(places)), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.record_batch(columns, names=["value", "partition", "offset"])


def test_messages_have_ids_by_partition_and_offset() -> None:
    last = (1 << OFFSET_BITS) - 1
    rows = read_message_rows(messages((0, 0), (0, last), (1, 0), (65_535, last)), SCHEMA, MADE)
    assert rows.column("event_id").to_pylist() == [0, last, last + 1, (1 << 63) - 1]
    assert rows.column(MALFORMED).null_count == 4


def test_what_has_no_room_in_an_id_is_refused_and_never_wraps_around() -> None:
    rows = read_message_rows(messages((65_536, 0), (0, 1 << OFFSET_BITS), (7, 7)), SCHEMA, MADE)
    assert rows.column("event_id").to_pylist() == [None, None, (7 << OFFSET_BITS) + 7]
    assert [text is None for text in rows.column(MALFORMED).to_pylist()] == [False, False, True]
    rows = read_message_rows(messages((0, 0), (0, 1), (0, 2)), SCHEMA, MADE)
    batch = place_ids(rows, (1 << FILE_BITS) - 1, np.array([(1 << PLACE_BITS) - 1, 1 << PLACE_BITS, 0]))
    assert batch.column("event_id").to_pylist() == [(1 << 63) - 1, None, (1 << 63) - (1 << PLACE_BITS)]
    assert "cut such files" in batch.column(MALFORMED).to_pylist()[1]
    with pytest.raises(StreamError, match="268,435,456: begin a new checkpoint"):
        check_room([TakenFile(Path("a"), 0, 0, 1 << FILE_BITS)])
    check_room([TakenFile(Path("a"), 0, 0, (1 << FILE_BITS) - 1)])


def test_files_are_numbered_by_the_log_from_any_step(tmp_path: Path) -> None:
    log = StreamLog(str(tmp_path))
    taken = [[TakenFile(Path(f"/data/{step}-{n}.json"), n, step) for n in range(step % 3)] for step in range(25)]
    for step, files in enumerate(taken):
        log.take(0, step, files)
    want = dict(zip((file.path for files in taken for file in files), range(99), strict=False))
    forward = FileNumbers()
    for step in [*range(25), 3, 4, 24]:
        for numbers in (forward, FileNumbers()):
            found = numbers.number(log, 0, step - 1, log.files(0, step - 1, step))
            assert [(file.path, file.number) for file in found] == [(f.path, want[f.path]) for f in taken[step]]


def test_a_settings_file_may_ask_for_ids_and_is_refused_with_the_line_if_it_names_them_too(tmp_path: Path) -> None:
    write(tmp_path / "in", "json", nameless())
    text = f"""
[checkpoint]
path = "state"
[sink]
kind = "noop"
[events]
kind = "files"
path = "{tmp_path / "in"}"
event_id = "made"
"""
    (tmp_path / "a.toml").write_text(text)
    assert getattr(read_settings(tmp_path / "a.toml").events, "event_id") == "made"  # noqa: B009
    (tmp_path / "b.toml").write_text(text + '[events.columns]\nevent_id = "trip"\n')
    with pytest.raises(SettingsError, match=r"b\.toml, line 9: .*taken from column trip, too: keep one of them"):
        read_settings(tmp_path / "b.toml")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"columns": {"event_id": "trip"}}, "event_id is made, and taken from column trip, too"),
        ({"event_id": "mad"}, "event_id cannot be 'mad': did you mean 'made'"),
    ],
)
def test_ids_that_are_made_and_named_are_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        gs.local.from_tables(nameless()[0], **({"event_id": "made"} | given))


def test_a_source_that_has_ids_is_refused() -> None:
    table = nameless()[0]
    held = table.append_column("event_id", pa.array(range(len(table))))
    with pytest.raises(SchemaError, match="has a column event_id itself"):
        gs.local.from_tables(held, event_id="made")
    kept = gs.local.from_tables(held, event_id="made", columns={"event_id_before": "event_id"})
    assert kept.schema.names[:2] == ["event_id", "event_id_before"]


def test_ids_are_not_made_where_spark_must_read(spark: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path / "in", "parquet", nameless())
    source = gs.sources.events_from_files(spark, str(tmp_path / "in"), event_id="made")
    engine = gs.Engine(spark, CONTRACT, checkpoint=str(tmp_path / "state"))
    with engine, pytest.raises(SchemaError, match="here Spark must read"):
        engine.start(events=source.where("x > 0"), sink=gs.sinks.Memory())


def test_ids_are_made_of_one_topic_only(spark: "SparkSession") -> None:
    for topic, options in (("a,b", {}), ("a", {"subscribePattern": "a.*"})):
        with pytest.raises(SettingsError, match="one topic"):
            gs.sources.events_from_kafka(spark, "localhost:1", topic, event_id="made", options=options)


def test_the_bits_of_an_id_are_all_used() -> None:
    assert made_ids.FILE_BITS + made_ids.PLACE_BITS == made_ids.PARTITION_BITS + made_ids.OFFSET_BITS == 63
