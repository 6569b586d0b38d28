"""A column of categories, as pandas writes them, is a column of its values: in tables and in Parquet files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoswarm as gs
from geoswarm.config import Contract
from geoswarm.model import TIMESTAMP

BOX = (0.0, 0.0, 9.0, 9.0)


def events_with_categories() -> pa.Table:
    kinds, texts = pa.array(["a", "b", None, "a"]), pa.array(["flood", "flood", "flood", "sun"])
    columns = {"event_id": range(4), "ts": pa.array(range(4)).cast(TIMESTAMP), "x": [1.0] * 4, "y": [1.0] * 4}
    return pa.table(columns | {"kind": kinds.dictionary_encode(), "text": texts.dictionary_encode()})


@pytest.mark.parametrize("source", ["table", "files"])
def test_categories_are_matched_and_given_as_their_values(tmp_path: Path, source: str) -> None:
    (tmp_path / "events").mkdir()
    pq.write_table(events_with_categories(), tmp_path / "events" / "0.parquet")
    events = events_with_categories() if source == "table" else gs.local.events_from_files(str(tmp_path / "events"))
    with gs.LocalEngine(Contract(executors=2), checkpoint=str(tmp_path / "state")) as engine:
        engine.subscribe(1, BOX)
        engine.subscribe(2, BOX, keywords="flood", where="kind = 'a'")
        engine.start(events=events, sink=(sink := gs.sinks.Memory()), available_now=True).wait()
    found = {row["event_id"]: (row["kind"], sorted(row["sub_ids"])) for row in sink.table().to_pylist()}
    assert found == {0: ("a", [1, 2]), 1: ("b", [1]), 2: (None, [1]), 3: ("a", [1])}
