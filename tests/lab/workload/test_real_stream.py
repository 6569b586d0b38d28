"""Queries made from real posts, and real keys by interval, where their files are at hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from geoswarm.core.text.expression import compile_expressions
from geoswarm.errors import InputError
from geoswarm.lab.bench.mixed.fig7 import real_profiles
from geoswarm.lab.bench.ps2 import fig11
from geoswarm.lab.bench.ps2.layouts import LayoutSizes
from geoswarm.lab.workload.posts import POST
from geoswarm.lab.workload.real_keys import SOURCES, real_counts, sources_at_hand
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE
from geoswarm.lab.workload.real_posts import SOURCES as POST_SOURCES
from geoswarm.lab.workload.real_stream import OPERATORS, RealStream

BOUNDS = (0.0, 0.0, 10.0, 10.0)
TEXTS = ["flood at the dam and river", "the river", "the dam or not the dam", "the wolf"]


@pytest.fixture
def stream() -> RealStream:
    ids, ts = pa.array(np.arange(4)), pa.array([1, 2, 3, 4], pa.int64()).cast(POST.field("ts").type)
    places = pa.array([1.0, 2.0, 3.0, 4.0])
    return RealStream(pa.RecordBatch.from_arrays([ids, ts, places, places, pa.array(TEXTS)], schema=POST), BOUNDS)


def test_posts_come_again_once_they_are_used_up(stream: RealStream) -> None:
    rows = stream.events(3, 3)
    assert rows.schema.equals(POST)
    assert rows.column("event_id").to_pylist() == [3, 4, 5]
    assert rows.column("text").to_pylist() == [TEXTS[3], TEXTS[0], TEXTS[1]]


def test_a_query_is_round_the_place_of_a_post_and_asks_for_words_of_posts(stream: RealStream) -> None:
    asked = stream.subscriptions(0, 500)
    middles = (asked.column("xmin").to_numpy() + asked.column("xmax").to_numpy()) / 2
    assert set(np.round(middles).astype(int)) == {1, 2, 3, 4}
    found, bad = compile_expressions(asked.column("keywords"))
    said = {word for text in TEXTS for word in text.split()}
    assert not bad
    assert set(found.vocabulary.to_pylist()) == said - set(OPERATORS)


def test_any_ids_give_the_queries_that_their_range_gives(stream: RealStream) -> None:
    ids = np.array([7, 3, 90])
    assert stream.subscriptions_of(ids, "Q3", 10).equals(stream.subscriptions(0, 100, "Q3", 10).take(pa.array(ids)))


def test_queries_of_q2_ask_for_a_seldom_word_first(stream: RealStream) -> None:
    firsts = pc.list_element(pc.split_pattern(stream.subscriptions(0, 300, "Q2").column("keywords"), " "), 0)
    assert "the" not in firsts.to_pylist()
    assert "the" in stream.subscriptions(0, 300, "Q1").column("keywords").to_pylist()


def test_bounds_without_any_post_are_refused(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([5], pa.timestamp("ms")), "lat": [1.0], "lon": [1.0], "text": ["dam"]})
    pq.write_table(table, tmp_path / POST_SOURCES["news"].file)
    with pytest.raises(InputError, match="none of the 1 posts"):
        RealStream.of("news", (5.0, 5.0, 6.0, 6.0), folder=tmp_path)


def test_counts_are_by_interval_and_key(tmp_path: Path) -> None:
    day_ms = 86_400_000
    stamps = pa.array([5, 6, day_ms, 2 * day_ms + 1], pa.timestamp("ms"))
    path = tmp_path / SOURCES["flights"].file
    pq.write_table(pa.table({"ts": stamps, "origin": ["LAS", "ATL", "ATL", "LAS"]}), path)
    assert real_counts("flights", path).tolist() == [[1, 1], [1, 0], [0, 1]]
    assert sources_at_hand(tmp_path) == {"flights": path}
    with pytest.raises(InputError, match="flights, edits"):
        real_counts("trades", path)


def test_nothing_is_at_hand_where_no_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert sources_at_hand() == {}


def test_mixed_levels_the_flights_of_airports_better_than_hash(data_folder: Path) -> None:
    found = sources_at_hand(data_folder)
    if "flights" not in found:
        pytest.skip(f"no {SOURCES['flights'].file} in {data_folder}")
    counts = real_counts("flights", found["flights"])
    assert counts.sum() > 200_000
    by_hash, by_mixed = real_profiles(counts, 15)
    assert by_mixed[-1] < 1.2 < by_hash[-1]


def test_layouts_are_measured_on_real_news(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_folder / POST_SOURCES["news"].file).is_file():
        pytest.skip(f"no {POST_SOURCES['news'].file} in {data_folder}")
    monkeypatch.setenv(FOLDER_VARIABLE, str(data_folder))
    world = fig11.news_worlds(LayoutSizes(1_000, 500, 1), 0)[0]
    row = world.measure_plan("kd-tree", world.plan("kd-tree"))
    assert row["case"] == "news-Q1"
    assert 0 < row["tuples_per_s"] <= row["if_level_tuples_per_s"] * (1 + 1e-9)
