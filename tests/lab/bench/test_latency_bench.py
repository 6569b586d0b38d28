"""The producer at a steady rate, and the benchmark of delays at a tiny size."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import StreamError
from geoswarm.lab.bench.engine import latency
from geoswarm.lab.bench.engine.latency import FILES, LOCAL, SPARK, Cell, Delays, LatencySizes
from geoswarm.lab.bench.kit.paced import Pacing, messages, produce


class SlowClock:
    """A clock that only sleeping and sending move on."""

    def __init__(self, send_s: float) -> None:
        self.now_s, self._send_s = 1000.0, send_s
        self.sent: list[pa.Table] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def send(self, rows: pa.Table, step: int) -> None:
        self.sent.append(rows)
        self.now_s += self._send_s


@pytest.mark.parametrize(("send_s", "late_s"), [(0.001, 0.001), (0.05, 1.49)])
def test_an_event_has_the_time_at_which_it_was_due_however_late_it_was_sent(send_s: float, late_s: float) -> None:
    clock = SlowClock(send_s)
    pacing = Pacing(rate=1000, seconds=1.0, seed=0)
    paced = produce(pacing, clock.send, lambda: clock.now_s, clock.sleep)
    sent = pa.concat_tables(clock.sent)
    assert len(sent) == pacing.events == 1000
    assert sent["event_id"].to_pylist() == list(range(1000))
    made_s = sent["ts"].cast(pa.int64()).to_numpy() / 1e6 - paced.began_s
    np.testing.assert_allclose(made_s, np.arange(1000) / 1000, atol=2e-6)
    assert paced.late_s == pytest.approx(late_s, abs=0.05)


def test_messages_are_the_events_as_json() -> None:
    clock = SlowClock(0.0)
    produce(Pacing(rate=150, seconds=0.02, seed=1), clock.send, lambda: clock.now_s, clock.sleep)
    rows = clock.sent[0].to_pylist()
    parsed = [json.loads(text) for text in messages(clock.sent[0])]
    assert len(parsed) == 3
    for row, message in zip(rows, parsed, strict=True):
        assert message == row | {"ts": row["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def test_a_delay_that_grows_as_long_as_events_come_is_noticed() -> None:
    made_s = np.linspace(0, 9, 1000)
    assert Delays(made_s, np.full(1000, 0.2)).growth() == pytest.approx(0.0)
    assert Delays(made_s, 0.2 + 0.5 * made_s).growth() == pytest.approx(0.5, rel=0.01)
    kept = Delays(made_s, made_s).between(3, 6)
    assert kept.made_s.min() >= 3
    assert kept.made_s.max() < 6


def test_the_latency_benchmark_gives_the_delay_of_both_engines(spark: Any) -> None:
    cells = (Cell(SPARK, FILES, 2_000), Cell(LOCAL, FILES, 2_000))
    sizes = LatencySizes(500, cells, warm_s=1.0, measured_s=1.0, claim_rate=2_000, growth_max=20.0, catch_up_s=90.0)
    result = latency.measure(sizes, 0, lambda _: None)
    assert set(result.summary) == {"p50_s_2k", "p99_s_2k", "local_p50_s_2k", "local_p99_s_2k", "kept_up_share"}
    assert result.summary["kept_up_share"] == 1.0
    for row in result.rows:
        assert 0.0 < row["p50_s"] <= row["p99_s"] < 60.0
        assert row["matches"] > 300
    assert len(latency.plot(result).axes[0].lines) == 4


def test_a_claim_about_an_engine_that_falls_behind_is_refused() -> None:
    row = {"runner": SPARK, "source": FILES, "events_per_s": 1000, "p50_s": None, "p99_s": None, "growth_s_per_s": 0.4}
    with pytest.raises(StreamError, match=r"spark does not keep up with 1,000 .* grows by 0\.4 s in a second"):
        latency._check_claim(row)


def test_the_rate_of_an_engine_is_what_it_did_between_batches() -> None:
    def entry(batch: int, events: int) -> Any:
        return SimpleNamespace(batch=batch, events_in=events)

    sink: Any = SimpleNamespace(placed_s={0: 9.0, 1: 10.0, 2: 12.0, 3: 14.0, 4: 31.0})
    taken = [entry(0, 1), entry(1, 50), entry(2, 300), entry(3, 500), entry(4, 7), entry(5, 9)]
    assert latency._done_per_s(taken, sink, 9.5, 30.0) == pytest.approx(800 / 4)
    assert latency._done_per_s(taken, sink, 13.0, 30.0) is None
