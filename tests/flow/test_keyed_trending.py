"""Trending terms equal a brute-force ranking, whatever plan, slices, replays, compactions and mergers do."""

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import InputError, SchemaError
from geoswarm.flow.keyed.trending import TRENDING_GIVEN, Trending
from geoswarm.run.oracle.keyed import trends
from keyed_harness import Batch, KeyedWorld, Row, have_same_rows, moments

SCHEMA = pa.schema([("event_id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("text", pa.string())])
WORDS = ["flood", "Dam", "café", "Straße", "STRASSE", "rain", "rain-bow", "七夕", "x1", "and"]


def _stream(rng: np.random.Generator) -> list[Batch]:
    stream = []
    for interval in moments(rng, 12):
        rows = []
        for i in range(int(rng.integers(0, 25))):
            said = rng.choice(WORDS, int(rng.integers(0, 6))).tolist()
            x, y = rng.choice([-0.3, 0.0, 0.3, 0.1, 100.0]), rng.choice([-20.0, 0.0, 0.6])
            rows.append({"event_id": i, "x": x, "y": y, "text": " ".join(said) if said else None})
        stream.append(Batch(interval, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    return stream


def _without_region(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "region"} for row in rows]


@pytest.mark.parametrize("seed", range(30))
def test_the_terms_that_rise_most_go_out_per_region(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream, window, top = _stream(rng), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    region_deg, count_min = float(rng.choice([0.1, 0.3, 10.0])), int(rng.integers(1, 3))
    got = KeyedWorld(Trending(region_deg, window, top, count_min), SCHEMA, rng).run(stream)
    assert not any(got.updates)
    plain = [(interval, rows.to_pylist()) for interval, rows in stream]
    assert len(got.closes) > 2
    for ended, given in got.closes.items():
        assert have_same_rows(_without_region(given), trends(plain, ended, window, region_deg, top, count_min)), ended


def test_the_worlds_above_have_ties_and_rises_in_several_regions() -> None:
    stream = [(b.interval, b.rows.to_pylist()) for b in _stream(np.random.default_rng(0))]
    told = [row for ended in {i for i, _ in stream} for row in trends(stream, ended, 3, 10.0, 100, 1)]
    assert len({(row["region_x"], row["region_y"]) for row in told}) > 3
    assert len({row["rise"] for row in told}) < len(told) / 2
    assert any(row["mean"] > 0 and row["rise"] > 1 for row in told)


def test_an_event_without_a_place_has_no_key() -> None:
    places = [1.0, None, float("nan"), float("inf"), 1e300]
    rows = pa.RecordBatch.from_pydict({"x": places, "y": [1.0] * 5, "text": ["a b", "c", "d", "e", "f"]})
    keys = Trending(region_deg=1.0).feed(rows).column("key").to_pylist()
    assert sorted(keys[:2]) == ["1|1|a", "1|1|b"]
    assert keys[2:] == [None] * 4


@pytest.mark.parametrize(
    ("x", "region"), [(0.0, 0), (-1e-300, -1), (9.99, 9), (10.0, 10), (-10.0, -10), (2.0**53 - 1, 2**53 - 1)]
)
def test_a_region_is_named_by_its_number(x: float, region: int) -> None:
    rows = pa.RecordBatch.from_pydict({"x": [x, -1.0], "y": [7.5, -x], "text": ["term", None]})
    assert Trending(region_deg=1.0).feed(rows).column("key").to_pylist() == [f"{region}|7|term"]


def test_tops_of_tops_are_tops() -> None:
    operator = Trending(top=2)

    def top(*terms: tuple[str, float]) -> pa.RecordBatch:
        row = {"region": "0|0", "region_x": 0.0, "region_y": 0.0, "count": 9, "mean": 0.0, "rank": 7}
        rows = [row | {"term": term, "rise": rise} for term, rise in terms]
        return pa.RecordBatch.from_pylist(rows, schema=TRENDING_GIVEN)

    first = operator.merge(top(("a", 1.0), ("b", 3.0), ("c", 2.0)), np.array([0, 3]))
    both = operator.merge(pa.concat_batches([first, top(("d", 3.0))]), np.array([0, 3]))
    assert [(row["term"], row["rank"]) for row in both.to_pylist()] == [("b", 1), ("d", 2)]
    alone = operator.merge(both, np.array([0, 2]))
    assert alone.equals(both)


def test_an_interval_without_frequent_terms_has_no_trends() -> None:
    rng = np.random.default_rng(5)
    got = KeyedWorld(Trending(count_min=1000), SCHEMA, rng).run(_stream(rng))
    assert len(got.closes) > 2
    assert not any(got.closes.values())


@pytest.mark.parametrize("settings", [{"region_deg": 0.0}, {"region_deg": -1.0}, {"top": 0}, {"count_min": 0}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="use "):
        Trending(**settings)  # type: ignore[arg-type]


def test_events_without_texts_are_refused() -> None:
    with pytest.raises(SchemaError, match="operator trending needs a column text, but the rows have x, y"):
        Trending().feed(pa.RecordBatch.from_pydict({"x": [1.0], "y": [1.0]}))
