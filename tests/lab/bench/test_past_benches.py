"""`bench snapshot`, `nearest` and `window` at a tiny size: everyone finds the same, and the keys are there."""

from typing import Any

import pyarrow.compute as pc
import pytest

from geoswarm.errors import StreamError
from geoswarm.lab.bench.engine import nearest, snapshot, window


def silent(what: str) -> None: ...


def test_snapshot_queries_find_what_their_rivals_find(spark: Any) -> None:
    result = snapshot.measure(snapshot.SnapshotSizes(4, 2_000, 4, 0.5, 3_000, 2), 0, silent, spark)
    assert {"p50_ms_0.1pct", "vs_scan", "touched_share", "p50_ms_large"} <= set(result.summary)
    assert 0 < result.summary["p50_ms_running"] <= result.summary["p99_ms_running"]
    assert result.summary["running_share"] > 0
    assert result.summary["plans"] == 4
    rows = {(row["share"], row["what"]): row["events"] for row in result.rows}
    assert rows[0.01, "geoswarm"] == rows[0.01, "pyarrow scan"] > 40
    assert 0 < result.summary["touched_share"] <= 1
    assert len(snapshot.plot(result).axes) == 1


def test_a_rival_that_finds_something_else_ends_the_race(monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    monkeypatch.setattr(snapshot, "_inside", lambda box: pc.field("x") < -1000.0)
    with pytest.raises(StreamError, match="pyarrow scan found other events"):
        snapshot.measure(snapshot.SnapshotSizes(2, 2_000, 2, 0.5, 2_000, 2), 0, silent, spark)


def test_a_window_is_measured_beside_none(spark: Any) -> None:
    result = window.measure(window.KeepSizes(500, 2_000, 1, 2, 1, 200, 80), 0, silent, spark)
    assert [row["pipeline"] for row in result.rows] == ["without", "an hour kept"]
    assert result.summary["vs_without"] > 0
    assert result.summary["vs_without_cpu"] > 0
    assert result.summary["bytes_per_event"] > 32
    assert 0 < result.summary["expiry_ms_median"] <= result.summary["expiry_ms_p99"]


def test_the_nearest_objects_are_those_of_balltree() -> None:
    result = nearest.measure(nearest.NearestSizes(3_000, 20), 0, silent)
    assert {"p50_us", "vs_balltree", "vs_strtree", "open_s", "build_vs_balltree"} <= set(result.summary)
    assert 0 <= result.summary["strtree_wrong"] < 1
    assert len(result.rows) == 7
    assert len(nearest.plot(result).axes) == 1


def test_a_tree_that_finds_other_objects_ends_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "EARTH_M", 6_000_000.0)
    with pytest.raises(StreamError, match="BallTree found others than geoswarm"):
        nearest.measure(nearest.NearestSizes(1_000, 5), 0, silent)
