"""Real posts, where their files are at hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from geoswarm.errors import InputError, MachineError
from geoswarm.lab.workload.posts import POST
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE, SOURCES, real_posts


@pytest.fixture
def folder(data_folder: Path) -> Path:
    for source in SOURCES.values():
        if not (data_folder / source.file).is_file():
            pytest.skip(f"no {source.file} in {data_folder}")
    return data_folder


@pytest.mark.parametrize(("name", "rows_min", "word"), [("news", 12_000, "trump"), ("crime", 80_000, "burglary")])
def test_real_posts_have_the_columns_of_posts_in_the_order_of_time(
    name: str, rows_min: int, word: str, folder: Path
) -> None:
    posts = real_posts(name, folder)
    posts.validate(full=True)
    assert posts.schema.equals(POST)
    assert posts.num_rows > rows_min
    assert sum(column.null_count for column in posts.columns) == 0
    assert posts["event_id"].to_pylist() == list(range(posts.num_rows))
    assert (np.diff(posts["ts"].cast(pa.int64()).to_numpy()) >= 0).all()
    assert pc.min(pc.utf8_length(posts["text"])).as_py() > 0
    assert pc.sum(pc.match_substring(posts["text"], word)).as_py() > 50


def test_crimes_are_in_houston_and_described_by_offense_location_and_address(folder: Path) -> None:
    posts = real_posts("crime", folder)
    assert pc.mode(pc.round(posts["x"]))[0]["mode"].as_py() == -95
    assert pc.mode(pc.round(posts["y"]))[0]["mode"].as_py() == 30
    assert posts["text"][0].as_py() == "murder apartment parking lot 9650 marlive ln"


def test_a_row_without_a_place_a_time_or_a_word_is_left_out(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([5, 4, None, 3, 2, 1], pa.timestamp("ms")),
            "lat": [1.0, 2.0, 3.0, None, 5.0, 6.0],
            "lon": [1.0, 2.0, 3.0, 4.0, float("nan"), 6.0],
            "text": ["flood at the dam", "river", "x", "y", "z", None],
        }
    )
    pq.write_table(table, tmp_path / SOURCES["news"].file)
    rows = real_posts("news", tmp_path).drop_columns(["ts"]).to_pylist()
    assert rows == [
        {"event_id": 0, "x": 2.0, "y": 2.0, "text": "river"},
        {"event_id": 1, "x": 1.0, "y": 1.0, "text": "flood at the dam"},
    ]


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(MachineError, match=FOLDER_VARIABLE):
        real_posts("news")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(MachineError, match="geotext_gdelt"):
        real_posts("news")
    with pytest.raises(InputError, match="news, crime"):
        real_posts("gossip")
