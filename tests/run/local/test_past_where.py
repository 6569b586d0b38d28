"""Questions about the past with a condition on columns: what the oracle finds row by row."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import WindowSettings
from geoswarm.errors import InputError
from geoswarm.run.oracle.past import PastOracle

WORLD = gs.Contract(columns=30, rows=20, executors=3)
KEPT = WindowSettings(keep="1 day")
CONDITIONS = [
    "speed > 80 AND status IN ('free', 'idle') AND NOT battery < 20",
    "status LIKE 'f%' OR speed IS NULL",
    "NOT (speed BETWEEN 20 AND 90 OR battery = 7)",
    "electric",
    "NOT electric AND status <> 'busy'",
    "x > y AND ts >= '1970-01-01T00:00:00.001100'",
    "text LIKE '%flood%' AND speed <= battery",
    "speed > 1000",
]


def batch(number: int, rows: int = 200) -> pa.Table:
    rng = np.random.default_rng((31, number))
    events = worlds.with_texts(rng, worlds.events(rng, rows, first_id=1000 * number))
    columns = {
        "speed": pa.array(rng.uniform(0, 120, rows), mask=rng.random(rows) < 0.2),
        "status": pa.array(rng.choice(["free", "idle", "busy"], rows), mask=rng.random(rows) < 0.2),
        "battery": pa.array(rng.integers(0, 101, rows), mask=rng.random(rows) < 0.2),
        "electric": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.2),
    }
    for name, values in columns.items():
        events = events.append_column(name, values)
    return events


def checkpoint_of(folder: Path, tables: list[pa.Table]) -> PastOracle:
    with gs.LocalEngine(WORLD, gs.Tuning(window=KEPT), checkpoint=str(folder)) as engine:
        engine.start(events=tables, sink=gs.sinks.Noop(), available_now=True).wait()
    oracle = PastOracle(worlds.BOUNDS, KEPT)
    for events in tables:
        oracle.take(events, 0)
    return oracle


def registration(sides: tuple[float, float, float, float], keywords: str | None) -> pa.Table:
    given = {"op": "register", "sub_id": 0, "expires": None, "geometry": None, "keywords": keywords}
    return pa.Table.from_pylist([given | dict(zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True))])


def test_the_events_of_a_condition_are_those_of_which_it_is_true(tmp_path: Path) -> None:
    oracle, found = checkpoint_of(tmp_path, [batch(number) for number in range(3)]), []
    past = gs.Past(str(tmp_path))
    for where in CONDITIONS:
        for sides, keywords, until_us in (
            (worlds.BOUNDS, None, None),
            ((-90.0, -60.0, 120.0, 80.0), None, 2_100),
            (worlds.BOUNDS, "flood OR river", None),
        ):
            until = None if until_us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=until_us)
            want = oracle.query(registration(sides, keywords), None, until_us, where)
            answer = past.query(sides, keywords=keywords, until=until, where=where).events
            assert answer["event_id"].to_pylist() == want
            found.append(len(want or []))
    assert sum(found) > 800
    assert found[-3:] == [0, 0, 0]


def test_an_engine_answers_with_a_condition_and_the_newest_first(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, gs.Tuning(window=KEPT), checkpoint=str(tmp_path)) as engine:
        engine.start(events=[batch(0)], sink=gs.sinks.Noop(), available_now=True).wait()
        fast = engine.query(where="speed > 80", columns=["speed"], limit=3)
        assert len(fast) == 3
        assert min(fast["speed"].to_pylist()) > 80
        assert fast == engine.query(where="80 < speed", columns=["speed"]).slice(0, 3)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("speed >", "at character 8 of the condition: the end stands where a number, a 'text' or a column is wanted"),
        ("sped > 80", "at character 1 of the condition: there is no 'sped': did you mean 'speed'?"),
        ("status > 80", "at character 10 of the condition: status has texts, and 80 is none: write a text such as"),
        ("geometry = 'x'", "at character 1 of the condition: there is no 'geometry'"),
    ],
)
def test_a_condition_that_does_not_fit_what_is_kept_is_refused(tmp_path: Path, where: str, said: str) -> None:
    checkpoint_of(tmp_path, [batch(0, rows=20)])
    for read in (999, 1, 0):  # events, at most
        with pytest.raises(InputError) as refused:
            gs.Past(str(tmp_path)).query(
                where=where, until=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=read)
            )
        assert str(refused.value).startswith(said)


def test_a_column_that_older_batches_do_not_have_is_null_there(tmp_path: Path) -> None:
    old = batch(0).drop_columns(["speed"])
    oracle = checkpoint_of(tmp_path, [old])
    checkpoint_of(tmp_path, [batch(0), batch(1)])  # the first of them has been read
    oracle.take(batch(1), 0)
    past = gs.Past(str(tmp_path))
    before = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=500)
    assert len(past.query(where="speed IS NULL", until=before).events) == len(past.query(until=before).events) > 100
    assert past.query(columns=["speed"], until=before).events["speed"].null_count > 100
    assert past.nearest(0.0, 0.0, 7, columns=["speed"], until=before)["speed"].null_count == 7
    assert len(past.query(where="speed IS NULL").events) > 200
    for where in ("speed IS NULL AND battery > 50", "NOT speed > 60"):
        want = oracle.query(registration(worlds.BOUNDS, None), where=where)
        assert past.query(where=where).events["event_id"].to_pylist() == want
