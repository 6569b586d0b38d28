"""The tweets as a Spark stream: admission, end, replay, and time that is UTC."""

import contextlib
import importlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import TimestampType

from geoswarm.errors import SettingsError
from geoswarm.lab.workload.posts import POST, Posts
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import EVENT
from geoswarm.run.generated import Pace
from geoswarm.run.spark.generator import (
    PLANNERS,
    WorkloadReader,
    from_options,
    posts_stream,
    source_of,
    to_options,
    tweets_stream,
)

WORKLOAD = Tweets(seed=11, country="US", events_per_s=1000.0)
SPOKEN = Posts(seed=5, country="DE", words=500, shift=3.0)


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, far from UTC, so that a timestamp read in the wrong zone shows."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def run(stream: DataFrame, folder: Path) -> list[int]:
    """Read to the end into Parquet; the rows of each batch."""
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def rows_of(spark: SparkSession, folder: Path) -> pa.Table:
    return spark.read.parquet(str(folder / "rows")).orderBy("event_id").toArrow().cast(EVENT)


def test_a_stream_ends_at_its_total_in_batches_no_larger_than_admitted(spark: SparkSession, tmp_path: Path) -> None:
    stream = tweets_stream(spark, WORKLOAD, rows_per_batch=400, rows_total=1000, partitions=3)
    assert stream.schema["ts"].dataType == TimestampType()
    assert run(stream, tmp_path) == [400, 400, 200]
    assert rows_of(spark, tmp_path).equals(pa.Table.from_batches([WORKLOAD.events(0, 1000)]))


def test_posts_arrive_with_what_they_say_and_go_on_where_they_were(spark: SparkSession, tmp_path: Path) -> None:
    assert run(posts_stream(spark, SPOKEN, rows_per_batch=300, rows_total=500), tmp_path) == [300, 200]
    assert run(posts_stream(spark, SPOKEN, rows_per_batch=300, rows_total=700, partitions=1), tmp_path) == [200]
    written = spark.read.parquet(str(tmp_path / "rows")).orderBy("event_id").toArrow().cast(POST)
    assert written.equals(pa.Table.from_batches([SPOKEN.events(0, 700)]))


def test_a_stream_that_was_stopped_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    run(tweets_stream(spark, WORKLOAD, rows_per_batch=300, rows_total=500), tmp_path)
    again = tweets_stream(spark, WORKLOAD, rows_per_batch=1000, rows_total=1200, partitions=1)
    assert run(again, tmp_path) == [700]
    assert rows_of(spark, tmp_path).equals(pa.Table.from_batches([WORKLOAD.events(0, 1200)]))


def test_a_batch_that_crashed_is_replayed_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The second batch fails once its offsets are written; the restart admits more, but not to that batch."""
    seen: list[tuple[int, pa.Table]] = []

    def start(rows_per_batch: int, partitions: int, fail_at: int | None) -> None:
        def take(batch: DataFrame, batch_id: int) -> None:
            seen.append((batch_id, batch.orderBy("event_id").toArrow().cast(EVENT)))
            if batch_id == fail_at:
                raise RuntimeError("pulled the plug")

        stream = tweets_stream(spark, WORKLOAD, rows_per_batch=rows_per_batch, rows_total=1000, partitions=partitions)
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="pulled the plug"):
        start(250, partitions=2, fail_at=1)
    start(600, partitions=5, fail_at=None)
    assert [(batch_id, rows.num_rows) for batch_id, rows in seen] == [(0, 250), (1, 250), (1, 250), (2, 500)]
    assert seen[1][1].equals(seen[2][1])
    assert seen[3][1].equals(pa.Table.from_batches([WORKLOAD.events(500, 500)]))


def test_reading_what_is_available_needs_an_end(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="set that option"):
        run(tweets_stream(spark, WORKLOAD, rows_per_batch=10), tmp_path)


def test_a_paced_stream_offers_what_the_clock_allows_from_where_it_restarts() -> None:
    clock_s = itertools.chain([50.0, 50.5, 53.0], itertools.repeat(99.0))
    reader = WorkloadReader(WORKLOAD, Pace(rows_per_batch=2000, rows_total=9000, paced=True), lambda: next(clock_s))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2000)
    ends = [7000]
    for _ in range(4):
        ends.append(reader.latestOffset({"next_id": ends[-1]}, limit)["next_id"])
    assert ends == [7000, 7000, 7500, 9000, 9000]


def test_a_restart_with_a_smaller_total_never_goes_back() -> None:
    reader = WorkloadReader(WORKLOAD, Pace(rows_total=100))
    assert reader.latestOffset({"next_id": 500}, ReadMaxRows(50)) == {"next_id": 500}


@pytest.mark.slow
@pytest.mark.parametrize(("error", "code"), [(EOFError, 0), (ValueError, 9)])
def test_a_source_ends_quietly_only_where_the_jvm_has_hung_up(error: type[Exception], code: int) -> None:
    child = os.fork()
    if not child:
        with contextlib.suppress(error):
            try:
                raise error
            finally:
                WorkloadReader(WORKLOAD, Pace()).stop()
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code


def test_a_process_that_plans_a_source_gets_the_quiet_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = importlib.import_module(PLANNERS[0])
    mains = [planner.main]
    monkeypatch.setattr(planner, "main", planner.main)  # which puts it back afterwards
    for _ in range(2):
        source_of(Tweets)({}).schema()
        mains.append(planner.main)
    assert mains[0] is not mains[1] is mains[2]


def test_reading_all_at_once_takes_the_whole_and_refuses_an_endless_one() -> None:
    whole = WorkloadReader(WORKLOAD, Pace(rows_per_batch=10, rows_total=70))
    assert whole.latestOffset({"next_id": 20}, ReadAllAvailable()) == {"next_id": 70}
    with pytest.raises(SettingsError, match="never ends"):
        WorkloadReader(WORKLOAD, Pace()).latestOffset({"next_id": 0}, ReadAllAvailable())


@pytest.mark.parametrize("count", [0, 1, 4, 1001])
def test_partitions_cut_a_batch_into_pieces_that_are_never_empty(count: int) -> None:
    pieces = WorkloadReader(WORKLOAD, Pace(partitions=4)).partitions({"next_id": 7}, {"next_id": 7 + count})
    ids = [i for piece in pieces for i in range(piece.first_id, piece.first_id + piece.count)]
    assert ids == list(range(7, 7 + count))
    assert len(pieces) == min(4, count)


def test_options_carry_a_workload_there_and_back() -> None:
    pace = Pace(rows_per_batch=7, rows_total=None, partitions=3, paced=True)
    assert from_options(to_options(WORKLOAD, pace), Tweets) == (WORKLOAD, pace)
    assert from_options(to_options(SPOKEN, pace), Posts) == (SPOKEN, pace)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows_per_bach": "5"}, "no option rows_per_bach"),
        ({"seed": "x"}, "option seed .* 'x'"),
        ({"bounds": "1,2"}, "xmin,ymin,xmax,ymax"),
        ({"paced": "perhaps"}, "paced"),
        ({"rows_per_batch": "0"}, "1 or more"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, str], said: str) -> None:
    for kind in (Tweets, Posts):
        with pytest.raises(SettingsError, match=said):
            from_options(options, kind)


def test_an_option_of_another_workload_is_refused() -> None:
    with pytest.raises(SettingsError, match="geoswarm-tweets has no option words"):
        from_options({"words": "500"}, Tweets)
    with pytest.raises(SettingsError, match="geoswarm-posts has no option side_share"):
        from_options({"side_share": "0.1"}, Posts)
