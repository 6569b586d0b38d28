"""Files of events as tasks read them: what is good, what is malformed, what cannot be read at all."""

import errno
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import TIMESTAMP
from geoswarm.run import file_reading
from geoswarm.run.file_reading import Piece, read_piece
from geoswarm.run.local import events_from_files, operations_from_files
from geoswarm.run.local.ddl import parse_columns
from geoswarm.run.stream_log import StreamLog, TakenFile

SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("ts", TIMESTAMP),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("fast", pa.bool_()),
        (MALFORMED, pa.string()),
    ]
)
GOOD = {"event_id": 1, "ts": "2026-01-01T00:00:00Z", "x": 2, "text": 'a, "b"', "fast": True, "other": [1]}


def rows_of(path: Path, kind: str) -> list[dict[str, object]]:
    return [row for batch in read_piece(Piece(str(path)), kind, SCHEMA) for row in batch.to_pylist()]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def test_a_line_that_is_no_row_travels_as_text_and_the_others_are_read(tmp_path: Path) -> None:
    bad = [
        '{"event_id": 1',  # cut off
        '{"event_id": "one"}',  # a type that would be guessed
        '{"event_id": 1.5}',
        '{"event_id": 99999999999999999999}',
        '{"ts": "yesterday"}',
        '{"fast": 1}',
        "[1, 2]",
        "text",
    ]
    rows = rows_of(write(tmp_path / "a.json", json.dumps(GOOD), *bad, "", json.dumps(GOOD | {"ts": None})), "json")
    assert [row[MALFORMED] for row in rows] == [None, *bad, None]
    assert [row["event_id"] for row in rows] == [1, *[None] * len(bad), 1]
    assert rows[-1]["ts"] is None


def test_the_quick_way_and_the_slow_way_agree(tmp_path: Path) -> None:
    lines = [
        json.dumps(GOOD | {"ts": ts, "x": x})
        for ts, x in (("2026-01-01T00:00:00Z", 1), ("2026-01-01 00:00:00.25", 1.5), ("2026-01-01T02:00:00+02:00", None))
    ]
    quick = rows_of(write(tmp_path / "a.json", *lines), "json")
    slow = rows_of(write(tmp_path / "b.json", *lines, "nonsense"), "json")
    assert quick == slow[:-1]
    assert quick[0]["ts"] == quick[2]["ts"]


def test_csv_goes_by_its_header_and_keeps_what_it_cannot_read(tmp_path: Path) -> None:
    lines = ["x,event_id,ts,text", '1.5,1,2026-01-01T00:00:00Z,"a, b"', "1,2,2026-01-01 00:00:00,", "2,three,,c", "1,2"]
    rows = rows_of(write(tmp_path / "a.csv", *lines), "csv")
    assert [row["event_id"] for row in rows] == [1, 2, None, None]
    assert [row[MALFORMED] for row in rows] == [None, None, "2,three,,c", "1,2"]
    assert rows[0]["text"] == "a, b"
    assert rows_of(write(tmp_path / "b.csv", *lines[:3]), "csv") == rows[:2], "the quick way"


def test_compressed_and_empty_files_are_read(tmp_path: Path) -> None:
    for ending in ("gz", "bz2", "zst"):
        for kind, text in (("json", json.dumps(GOOD)), ("csv", "event_id,x\n1,2")):
            path = tmp_path / f"a.{kind}.{ending}"
            with pa.output_stream(str(path), compression="detect") as file:
                file.write(text.encode())
            assert [row["event_id"] for row in rows_of(path, kind)] == [1]
    assert "write .gz" in str(rows_of(write(tmp_path / "a.json.snappy", "?"), "json")[0][MALFORMED])
    for name, kind in (("e.json", "json"), ("e.csv", "csv")):
        assert rows_of(write(tmp_path / name, ""), kind) == []


def test_a_file_that_is_gone_or_damaged_is_a_malformed_row_that_names_it(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"event_id": range(300_000)}), whole, row_group_size=100_000, use_dictionary=False)
    torn = bytearray(whole.read_bytes())
    torn[len(torn) // 2 : len(torn) // 2 + 400] = bytes(400)
    (tmp_path / "torn.parquet").write_bytes(torn)
    write(tmp_path / "bad.parquet", "no parquet")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps(GOOD).encode() * 100)[:-20])
    for name in ("gone.parquet", "bad.parquet", "torn.parquet", "gone.csv", "cut.json.gz"):
        kind = Path(name.removesuffix(".gz")).suffix[1:]
        *before, last = read_piece(Piece(str(tmp_path / name)), kind, SCHEMA)
        assert name in last.column(MALFORMED).to_pylist()[0]
        assert len(last) == 1
        assert bool(before) == (name == "torn.parquet"), "what comes before the damage is read"


@pytest.mark.parametrize("why", [OSError(errno.EIO, "input/output error"), pa.ArrowMemoryError("out of memory")])
def test_what_fails_by_the_machine_is_tried_again_and_not_taken_for_a_bad_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: Exception
) -> None:
    def fail(path: str) -> bytes:
        raise why

    monkeypatch.setattr(file_reading, "_read_whole", fail)
    with pytest.raises(type(why)):
        rows_of(tmp_path / "a.json", "json")


def test_lines_end_where_spark_ends_them_and_marks_of_order_are_passed_over(tmp_path: Path) -> None:
    odd = json.dumps(GOOD | {"text": "a\u2028b\x0bc"}, ensure_ascii=False)
    (tmp_path / "a.json").write_bytes("\ufeff".encode() + f"{odd}\r\nbroken\r{odd}\n".encode())
    rows = rows_of(tmp_path / "a.json", "json")
    assert [row[MALFORMED] for row in rows] == [None, "broken", None]
    (tmp_path / "b.csv").write_bytes('\ufeffevent_id,text\n1,"say \\"hi, you\\""\n2,"twice "" too"\n'.encode())
    assert [(row["event_id"], row["text"]) for row in rows_of(tmp_path / "b.csv", "csv")] == [
        (1, 'say "hi, you"'),
        (2, 'twice " too'),
    ]
    with (tmp_path / "b.csv").open("ab") as file:
        file.write(b"three,x\n")
    slow = rows_of(tmp_path / "b.csv", "csv")
    assert [row["text"] for row in slow] == ['say "hi, you"', 'twice " too', None]
    deep = '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert rows_of(write(tmp_path / "d.json", deep, "broken"), "json")[1][MALFORMED] == "broken"


def test_large_texts_are_parsed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "CHUNK_BYTES", 300)
    lines = [json.dumps(GOOD | {"event_id": i}) for i in range(40)]
    assert [row["event_id"] for row in rows_of(write(tmp_path / "a.json", *lines), "json")] == [*range(40)]


def test_values_of_another_type_are_converted_or_malformed(tmp_path: Path) -> None:
    drifted = {"event_id": pa.array([1, 2, 3], pa.int16()), "x": ["1.5", "east", None], "fast": [True, False, True]}
    pq.write_table(pa.table(drifted), tmp_path / "a.parquet")
    first, second, third = rows_of(tmp_path / "a.parquet", "parquet")
    assert (first["event_id"], first["x"], first["fast"]) == (1, 1.5, True)
    assert "east" in str(second[MALFORMED])
    assert "x cannot be converted" in str(second[MALFORMED])
    assert (third["event_id"], third["x"], third[MALFORMED]) == (3, None, None)


def test_a_file_without_any_of_the_columns_is_malformed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": [1]}), tmp_path / "a.parquet")
    (row,) = rows_of(tmp_path / "a.parquet", "parquet")
    assert "none of the columns" in str(row[MALFORMED])


def test_a_parquet_file_with_other_columns_is_conformed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"event_id": pa.array([1], pa.int32()), "more": ["x"]}), tmp_path / "a.parquet")
    (row,) = rows_of(tmp_path / "a.parquet", "parquet")
    assert (row["event_id"], row["x"], row["text"]) == (1, None, None)


def test_further_columns_are_declared_as_in_sql() -> None:
    assert parse_columns("text string, `my speed` double") == [
        pa.field("text", pa.string()),
        pa.field("my speed", pa.float64()),
    ]
    with pytest.raises(SettingsError, match="'speed dubble' cannot be read"):
        parse_columns("speed dubble")


def test_a_folder_without_a_format_is_refused_and_operations_have_all_columns(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot tell the format"):
        events_from_files(str(tmp_path))
    source = operations_from_files(str(tmp_path), format="json")
    assert source.schema.field("geometry").type == pa.string()


def test_the_log_of_files_is_compacted_and_names_every_file_once(tmp_path: Path) -> None:
    log = StreamLog(str(tmp_path))
    files = [TakenFile(Path(f"/data/é {n} #%.json"), n, n) for n in range(23)]
    for step, file in enumerate(files):
        log.take(0, step, [file])
    assert log.all_files(0) == files
    assert log.last_step(0) == 22
    assert log.files(0, 8, 12) == files[9:13]
    assert log.files(0, 18, 19) == files[19:20]
    assert (tmp_path / "sources" / "0" / "9.compact").exists()
    (tmp_path / "sources" / "0" / "19.compact").write_bytes(b"not read, since all that is wanted comes later")
    assert log.files(0, 19, 21) == files[20:22]
    (tmp_path / "sources" / "0" / "21").unlink()
    with pytest.raises(StreamError, match="lacks its step 21"):
        log.files(0, 20, 22)
