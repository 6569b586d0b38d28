"""Keys of a running operator, balanced by time or by work, with long reports or short: counts are exact, and the same
clock leads to the same plans."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import KeyTuning
from geoswarm.control.outcome import KeyRoundEntry
from geoswarm.flow.keyed.count import Count
from geoswarm.flow.keyed.own import Own, PerKey
from geoswarm.run.keyed import KeyedRun
from geoswarm.store.journal import Journal, JournalReader
from geoswarm.store.storage import Storage
from stepped import rows_of

BATCHES, PER_ROUND, WINDOW = 24, 3, 4


class Ran:
    """An operator's run over words that are more and more skewed."""

    def __init__(self, folder: Path, operator: Any, tuning: KeyTuning, cpu_s: Callable[[], float]) -> None:
        storage = Storage(str(folder))
        run = KeyedRun(storage, Journal(storage), operator, tuning, lambda: None, cpu_s=cpu_s)
        self.words: list[list[str]] = []
        self.given: list[list[dict[str, Any]]] = []
        for b in range(BATCHES):
            keys = np.minimum(np.random.default_rng(b).zipf(1.3 + b / 40, 400), 90)
            self.words.append([f"word {key}" for key in keys])
            given = run.apply(rows_of(pa.table({"word": pa.array(self.words[-1])})), b, b * 1_000_000)
            self.given.append(given.to_arrow().to_pylist())
            run.finish()
        self.rounds = list(JournalReader(storage).read(KeyRoundEntry))
        self.plan = run.plan


def tuning(planner: str, load_by: str) -> KeyTuning:
    options = {"heavy_keys": 5} if planner == "mixed-compact" else {}
    fields = {"executors": 4, "interval_s": float(PER_ROUND), "planner": planner, "load_by": load_by}
    return KeyTuning.model_validate(fields | {"options": options})


def ticking() -> Callable[[], float]:
    """Each look at the clock is later than the one before, by more or less."""
    rng, now_s = np.random.default_rng(7), [0.0]

    def look() -> float:
        now_s[0] += rng.exponential(0.01)
        return now_s[0]

    return look


@pytest.mark.slow
@pytest.mark.parametrize("load_by", ["time", "work"])
@pytest.mark.parametrize("planner", ["mixed", "mixed-compact"])
def test_counts_are_exact_and_the_same_clock_leads_to_the_same_plans(
    tmp_path: Path, planner: str, load_by: str
) -> None:
    runs = [
        Ran(tmp_path / str(n), Count(key="word", window=WINDOW), tuning(planner, load_by), ticking()) for n in (0, 1)
    ]
    for b, given in enumerate(runs[0].given):
        first = max(0, b // PER_ROUND - WINDOW + 1) * PER_ROUND
        want = Counter(word for words in runs[0].words[first : b + 1] for word in words)
        assert {row["key"]: row["count"] for row in given} == {word: want[word] for word in set(runs[0].words[b])}
    assert any(entry.decision == "rebalanced" for entry in runs[0].rounds)
    assert [(e.decision, e.splits, e.figures) for e in runs[0].rounds] == [
        (e.decision, e.splits, e.figures) for e in runs[1].rounds
    ]
    assert runs[0].plan == runs[1].plan


class Sleepy(PerKey):
    """Takes a millisecond of the clock for each letter `7` of a key, however many rows it has."""

    given = pa.schema([("n", pa.int64())])

    def __init__(self) -> None:
        self.now_s = 0.0

    def init(self, key: Any) -> int:
        return 0

    def update(self, state: int, rows: list[dict[str, Any]], window: Any) -> tuple[int, list[dict[str, Any]]]:
        self.now_s += 0.001 * rows[0]["key"].count("7")
        return state + len(rows), [{"n": state + len(rows)}]

    def merge(self, a: int, b: int) -> int:
        return a + b


def test_a_users_stage_is_balanced_by_what_its_calls_take_and_not_by_its_rows(tmp_path: Path) -> None:
    stage = Sleepy()
    ran = Ran(tmp_path, Own(stage, "word", WINDOW), tuning("mixed", "time"), lambda: stage.now_s)
    costs = {f"word {key}": str(key).count("7") for key in range(1, 91)}
    slow = [word for word, n in costs.items() if n]
    last = ran.rounds[-1].figures
    assert last is not None
    assert last.skew <= 1.08 + 1e-6
    moved = [entry.figures.moved_keys for entry in ran.rounds if entry.figures and entry.decision == "rebalanced"]
    assert moved
    assert max(moved) <= len(slow), "a key whose calls take nothing is worth no move"
