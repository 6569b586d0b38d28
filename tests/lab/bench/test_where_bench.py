"""`bench where` at a tiny size: whatever is asked is found, and filtered afterwards it is the same."""

from geoswarm.lab.bench.engine import where


def silent(what: str) -> None: ...


def test_all_ways_are_measured_where_few_and_where_many_watch_a_place() -> None:
    result = where.measure(where.WhereSizes(3_000, 4_000, 3.0, 40.0, 1_000, 10, 1), 0, silent)
    assert {"objects_vs_plain", "where_vs_plain", "vs_post_filter"} <= set(result.summary)
    rows = {(row["at_a_place"], row["way"]): row for row in result.rows}
    assert len(rows) == 4 + 7
    assert rows["few", "objects"]["matches_per_event"] == rows["many", "objects"]["matches_per_event"] == 1.0
    assert rows["many", "plain"]["matches_per_event"] > 10
    for way in ("values", "ranges"):
        assert 0 < rows["many", way]["matches_per_event"] < rows["many", "plain"]["matches_per_event"] / 50
    assert len(where.plot(result).axes) == 2
