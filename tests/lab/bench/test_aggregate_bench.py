"""`bench aggregate` at a tiny size: windows end while it measures, and the keys are there."""

from typing import Any

from geoswarm.lab.bench.engine import aggregate

BUSIEST = (
    "busiest", "busiest_state", "busiest_count_n", "busiest_none", "busiest_once", "busiest_none_once",
)  # fmt: skip


def silent(what: str) -> None: ...


def test_counts_are_measured_beside_matches_and_with_one_that_is_heavy(spark: Any) -> None:
    sizes = aggregate.AggregateSizes(300, 20.0, 5.0, 500, 1, 5, 1, 1, 2)
    result = aggregate.measure(sizes, 0, silent, spark)
    assert [row["pipeline"] for row in result.rows[:3]] == ["matches", "sliding counts", "sliding counts, replay"]
    assert 0 < result.summary["answers_per_event"] < result.summary["answers_per_event_replay"]
    assert result.summary["answering_batches"] > 0
    for name in ("vs_matching", "vs_matching_cpu", "vs_matching_replay", "vs_matching_replay_cpu", "state_bytes"):
        assert result.summary[name] > 0
    assert all(1 <= result.summary[name] <= 8 for name in BUSIEST)
