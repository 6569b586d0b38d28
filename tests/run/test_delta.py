"""The Delta sink: each batch once, whatever happened before; tables and columns that do not fit; statistics."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from geoswarm.errors import SchemaError, SettingsError, StreamError
from geoswarm.run.delta import DeltaFolder, file_statistics
from geoswarm.run.process_rows import LocalRows
from geoswarm.run.sinks import Delta

FIELDS: list[Any] = [
    pa.field("event_id", pa.int64(), nullable=False),
    pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
    ("x", pa.float64()),
    ("text", pa.string()),
    pa.field("sub_ids", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
]
ROWS = pa.schema(FIELDS)
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)


def batch_table(number: int, rows: int = 3) -> pa.Table:
    made = [
        {"event_id": 10 * number + i, "ts": NOON, "x": i / 2, "text": None if i == 1 else "é" * i, "sub_ids": [i, 7]}
        for i in range(rows)
    ]
    return pa.Table.from_pylist(made, schema=ROWS)


def rows_of(table: pa.Table) -> LocalRows:
    return LocalRows.of_tasks(table.schema, [lambda: iter(table.to_batches())])


def make_sink(path: Path, checkpoint: str = "one") -> Delta:
    sink = Delta(str(path))
    sink.bind(checkpoint)
    return sink


def held(path: Path) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table().sort_by("event_id")


def test_batches_are_in_the_table_once_however_often_they_run(tmp_path: Path) -> None:
    want = pa.concat_tables([batch_table(n) for n in range(3)])
    sink = make_sink(tmp_path)
    for number in (0, 1, 1, 2, 0):
        sink.write(rows_of(batch_table(number)), number)
        sink = make_sink(tmp_path) if number == 1 else sink
    assert held(tmp_path).equals(want)
    assert DeltaTable(tmp_path).version() == 3
    assert {f.name for f in tmp_path.iterdir() if f.suffix == ""} == {"_delta_log"}


@pytest.mark.parametrize("step", ["before the files move", "before the commit", "after the commit"])
def test_a_batch_is_in_the_table_once_wherever_its_engine_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    sink = make_sink(tmp_path)
    sink.write(rows_of(batch_table(0)), 0)
    with monkeypatch.context() as patch:
        if step == "before the files move":
            patch.setattr(DeltaFolder, "_move", die)
        elif step == "before the commit":
            patch.setattr(DeltaTable, "create_write_transaction", die)
        else:
            add = DeltaFolder.add

            def add_and_die(*given: Any) -> None:
                add(*given)
                die()

            patch.setattr(DeltaFolder, "add", add_and_die)
        with pytest.raises(Killed):
            sink.write(rows_of(batch_table(1)), 1)
    again = make_sink(tmp_path)
    for number in (1, 2):
        again.write(rows_of(batch_table(number)), number)
    assert held(tmp_path).equals(pa.concat_tables([batch_table(n) for n in range(3)]))
    assert not list(tmp_path.glob("_staged-*"))


def test_of_two_engines_on_one_checkpoint_one_adds_a_batch(tmp_path: Path) -> None:
    first, second = make_sink(tmp_path), make_sink(tmp_path)
    for sink in (first, second):
        sink.write(rows_of(batch_table(0)), 0)
    assert not first._folder.has(1)  # type: ignore[union-attr]
    second.write(rows_of(batch_table(1)), 1)
    staged = first._folder.stage(1)  # type: ignore[union-attr]
    rows_of(batch_table(1)).write_parquet(str(staged))
    with pytest.raises(StreamError, match="another engine writes"):
        first._folder.add(staged, 1)  # type: ignore[union-attr]
    assert held(tmp_path).equals(pa.concat_tables([batch_table(n) for n in range(2)]))


def test_two_checkpoints_may_share_a_table_that_others_write_and_compact(tmp_path: Path) -> None:
    one, two = make_sink(tmp_path, "one"), make_sink(tmp_path, "two")
    for number in range(3):
        one.write(rows_of(batch_table(number)), number)
        two.write(rows_of(batch_table(number + 3)), number)
    write_deltalake(tmp_path, batch_table(6), mode="append")
    assert DeltaTable(tmp_path).optimize.compact()["numFilesRemoved"] == 7
    DeltaTable(tmp_path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    DeltaTable(tmp_path).create_checkpoint()
    for sink in (one, two, make_sink(tmp_path, "one")):
        sink.write(rows_of(batch_table(2)), 2)
    one.write(rows_of(batch_table(7)), 3)
    assert held(tmp_path).equals(pa.concat_tables([batch_table(n) for n in range(8)]))


def test_a_batch_without_rows_makes_the_table_and_adds_nothing(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write(rows_of(batch_table(0, rows=0)), 0)
    assert held(tmp_path).schema.equals(ROWS)
    assert DeltaTable(tmp_path).version() == 0
    assert not list(tmp_path.glob("*.parquet"))


def test_readers_skip_files_by_their_statistics_and_find_every_row(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    for number in range(4):
        sink.write(rows_of(batch_table(number)), number)
    table = DeltaTable(tmp_path)
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sorted(actions["num_records"].to_pylist()) == [3] * 4
    assert sorted(actions["min.event_id"].to_pylist()) == [0, 10, 20, 30]
    assert set(actions["null_count.text"].to_pylist()) == {1}
    assert set(actions["max.ts"].to_pylist()) == {NOON}
    assert table.to_pyarrow_table(filters=[("event_id", ">=", 31)])["event_id"].to_pylist() == [31, 32]
    assert table.to_pyarrow_table(filters=[("ts", "=", NOON)]).num_rows == 12


def test_statistics_bound_every_value_also_of_long_texts_and_leave_out_what_may_be_nan(tmp_path: Path) -> None:
    long = "z" * 40
    table = pa.table(
        {
            "text": ["a" * 40, long, None],
            "short": ["b", "c", None],
            "speed": [1.0, np.nan, 2.0],
            "none": pa.array([None] * 3, pa.int64()),
            "naive": pa.array([datetime(2026, 1, 1)] * 3, pa.timestamp("us")),
            "day": pa.array([0, 1, 2], pa.date32()),
            "flag": [True, False, None],
        }
    )
    pq.write_table(table, tmp_path / "part", row_group_size=2)
    found = file_statistics(pq.read_metadata(tmp_path / "part"))
    assert json.loads(json.dumps(found)) == {
        "numRecords": 3,
        "minValues": {
            "text": "a" * 32,
            "short": "b",
            "naive": "2026-01-01T00:00:00.000000",
            "day": "1970-01-01",
        },
        "maxValues": {"short": "c", "naive": "2026-01-01T00:00:00.000000", "day": "1970-01-03"},
        "nullCount": {"text": 1, "short": 1, "speed": 0, "none": 3, "naive": 0, "day": 0, "flag": 1},
    }


OTHER = ROWS.set(2, pa.field("x", pa.int64()))
REQUIRED = ROWS.append(pa.field("must", pa.int64(), nullable=False))


@pytest.mark.parametrize(
    ("there", "want"),
    [
        (OTHER, "x is int64 there and double here"),
        (ROWS.remove(3), "text is missing there and string here"),
        (REQUIRED, "must is missing here"),
        (ROWS.set(3, pa.field("text", pa.string(), nullable=False)), "text is string, never null there"),
    ],
)
def test_a_table_with_other_columns_is_refused_by_name(tmp_path: Path, there: pa.Schema, want: str) -> None:
    DeltaTable.create(str(tmp_path), there)
    with pytest.raises(SchemaError, match=want):
        make_sink(tmp_path).write(rows_of(batch_table(0)), 0)
    assert DeltaTable(tmp_path).version() == 0


def test_a_table_with_further_columns_that_may_be_null_is_filled(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), ROWS.append(pa.field("note", pa.string())))
    make_sink(tmp_path).write(rows_of(batch_table(0)), 0)
    assert held(tmp_path)["note"].null_count == 3
    assert held(tmp_path).select(ROWS.names).equals(batch_table(0))


def test_a_table_whose_columns_change_while_the_stream_runs_stops_it_clearly(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write(rows_of(batch_table(0)), 0)
    write_deltalake(tmp_path, OTHER.empty_table(), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SchemaError, match="x is int64 there"):
        sink.write(rows_of(batch_table(1)), 1)
    assert DeltaTable(tmp_path).version() == 2


def test_tables_with_rules_for_their_files_are_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "parts"), ROWS, partition_by="text")
    DeltaTable.create(str(tmp_path / "checks"), ROWS)
    DeltaTable(tmp_path / "checks").alter.add_constraint({"positive": "event_id >= 0"})
    for name, want in (("parts", "partitions by text"), ("checks", "delta.constraints.positive")):
        with pytest.raises(SettingsError, match=want):
            make_sink(tmp_path / name).write(rows_of(batch_table(0)), 0)


def test_columns_of_types_that_delta_lacks_are_refused_and_those_that_only_arrow_tells_apart_are_not(
    tmp_path: Path,
) -> None:
    lacks = {"colour": pa.uint8(), "took": pa.duration("us"), "at": pa.timestamp("ns")}
    table = pa.table({name: pa.array([None], kind) for name, kind in lacks.items()})
    with pytest.raises(SchemaError, match=r"colour \(uint8\), took \(duration\[us\]\), at \(timestamp\[ns\]\)"):
        make_sink(tmp_path / "lacks").write(rows_of(table), 0)
    paris = {
        "event_id": [1],
        "name": pa.array(["a"], pa.large_string()),
        "kind": pa.array(["b"]).dictionary_encode(),
        "at": pa.array([NOON], pa.timestamp("us", "Europe/Paris")),
        "many": pa.array([[{"a": "c"}]], pa.large_list(pa.struct([("a", pa.large_string())]))),
    }
    make_sink(tmp_path / "same").write(rows_of(pa.table(paris)), 0)
    want = {"event_id": 1, "name": "a", "kind": "b", "at": NOON, "many": [{"a": "c"}]}
    assert held(tmp_path / "same").to_pylist() == [want]


def test_a_delta_sink_without_its_package_and_at_an_address_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="use a mounted path"):
        Delta("s3://bucket/matches")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SettingsError, match="geoswarm\\[delta\\]"):
        Delta(str(tmp_path))


def test_a_transaction_of_another_program_under_another_name_does_not_matter(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    sink.write(rows_of(batch_table(0)), 0)
    other = CommitProperties(app_transactions=[Transaction("other", 99)])
    write_deltalake(tmp_path, batch_table(1), mode="append", commit_properties=other)
    sink.write(rows_of(batch_table(2)), 1)
    assert held(tmp_path).equals(pa.concat_tables([batch_table(n) for n in range(3)]))
