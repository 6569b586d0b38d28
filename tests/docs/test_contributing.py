"""The walk-throughs of CONTRIBUTING.md work as written."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.control.strategy import RoundReport
from geoswarm.core.space.change import Move
from geoswarm.core.space.grid import Grid
from geoswarm.flow.keyed.operator import Moment, Turn
from geoswarm.flow.observe import Load, LoadReport

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def classes_of(section: str) -> dict[str, Any]:
    """What the Python of a section defines."""
    text = PAGE.read_text().partition(f"### {section}")[2].partition("\n### ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_there_are_six_walk_throughs() -> None:
    assert len(re.findall(r"^### Add an? \w+", PAGE.read_text(), re.MULTILINE)) == 6


def test_the_strategy_moves_work_from_the_busiest_executor() -> None:
    strategy = classes_of("Add a strategy")["OneMove"](gap_min=0.1)
    plan = strategy.first_plan(Grid(0.0, 0.0, 1.0, 1.0, columns=10, rows=10), 3)
    plan = plan.apply([Move(p.id, 0) for p in plan.partitions if p.executor == 1])
    load = LoadReport()
    for p in plan.partitions:
        load.add(p.id, p.executor, Load(10, 1, 1, 100))
    report = RoundReport(0, 0.0, load, {})
    (change,) = strategy.rebalance(plan, report).changes
    assert change.executor == 1
    assert strategy.estimate(plan.apply([change]), report) < strategy.estimate(plan, report)


def test_the_operator_gives_the_newest_value_of_each_key() -> None:
    latest = classes_of("Add an operator")["Latest"](key="who", value="when")
    rows = latest.feed(pa.RecordBatch.from_pydict({"who": [7, 7, 9], "when": [1, 5, 3]}))
    nothing, none = pa.RecordBatch.from_arrays([], schema=latest.kept), np.zeros(3, np.int64)
    turn = Turn(pa.array([7, 9]), rows, np.array([0, 2, 3]), nothing, none, none[:0], none[:0], Moment(0, 0, 0))
    assert latest.update(turn).given.to_pydict() == {"key": [7, 9], "value": [5, 3]}


def test_the_sink_leaves_one_file_for_a_batch_that_is_written_twice(tmp_path: Path) -> None:
    if importlib.util.find_spec("geoswarm.run.sinks") is None:
        pytest.skip("the sinks are not in geoswarm.run.sinks yet")

    class Two:
        def to_arrow(self) -> pa.Table:
            return pa.table({"event_id": [1, 2]})

    sink = classes_of("Add a sink")["JsonLines"](str(tmp_path))
    for _ in range(2):
        sink.write(Two(), 4)
    assert [file.name for file in tmp_path.iterdir()] == ["4.jsonl"]
    assert (tmp_path / "4.jsonl").read_text().splitlines() == ['{"event_id": 1}', '{"event_id": 2}']
