"""What all runners share: tasks that serve several executors, and the files that tasks write."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoswarm.run import rows as run_rows
from geoswarm.run.parquet_parts import WRITTEN, keep_only, write_parts
from geoswarm.run.process_rows import LocalRows
from geoswarm.run.rows import by_executor, for_each_executor
from geoswarm.run.to_matches import exchange

ROWS = pa.schema([("executor", pa.int32()), ("value", pa.int64())])


def rows(*executors: int) -> pa.RecordBatch:
    columns = [pa.array(executors, pa.int32()), pa.array(np.arange(len(executors)))]
    return pa.record_batch(columns, schema=ROWS)


@pytest.mark.parametrize("runs_max", [0, 1000])
def test_rows_of_an_executor_stay_in_order(monkeypatch: pytest.MonkeyPatch, runs_max: int) -> None:
    monkeypatch.setattr(run_rows, "RUNS_MAX", runs_max)
    parts: dict[int, list[int]] = {}
    for executor, part in by_executor(rows(2, 0, 2, 2, 5, 0)):
        parts.setdefault(executor, []).extend(part.column("value").to_pylist())
    assert parts == {0: [1, 5], 2: [0, 2, 3], 5: [4]}
    assert list(by_executor(rows())) == []


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_each_executor_has_its_turn_whatever_the_number_of_tasks(tasks: int) -> None:
    seen: list[tuple[int, list[int]]] = []
    charged_s: dict[int, float] = {}
    moments = count()  # a second passes each time the clock is read

    def body(executor: int, batches: Iterator[pa.RecordBatch], received_s: float) -> Iterator[pa.RecordBatch]:
        taken = list(batches)
        charged_s[executor] = received_s
        assert all(set(batch.column("executor").to_pylist()) == {executor} for batch in taken)
        seen.append((executor, [value for batch in taken for value in batch.column("value").to_pylist()]))
        yield from taken

    given = LocalRows.of_tasks(ROWS, [lambda: iter([rows(4, 0, 1)]), lambda: iter([rows(1, 4, 3)])])
    served = for_each_executor(body, 5, tasks, lambda: float(next(moments)))
    out = given.exchange(tasks).map(served, ROWS).to_arrow()
    assert sorted(seen) == [(0, [1]), (1, [2, 0]), (2, []), (3, [2]), (4, [0, 1])]
    assert len(out) == 6
    if tasks < 5:  # what a task took to receive its rows is charged by bytes: the rows of this test are of one size
        for task in range(tasks):
            of_task = {executor: len(values) for executor, values in seen if executor % tasks == task}
            in_all = max(1, sum(of_task.values()))
            for executor, rows_here in of_task.items():
                assert charged_s[executor] == pytest.approx(rows_here / in_all)


def test_with_every_turn_another_executor_comes_first() -> None:
    def body(executor: int, batches: Iterator[pa.RecordBatch], received_s: float) -> Iterator[pa.RecordBatch]:
        order.append(executor)
        return batches

    orders = []
    for turn in range(4):
        order: list[int] = []
        list(for_each_executor(body, 6, 2, lambda: 0.0, turn)(1, iter(())))
        orders.append(order)
    assert orders == [[1, 3, 5], [3, 5, 1], [5, 1, 3], [1, 3, 5]]


def test_slots_that_came_after_tasks_were_shared_out_are_given_no_task() -> None:
    class Grown(LocalRows):
        """Rows on a cluster that has more slots by now."""

        def tasks_for(self, executors: int) -> int:
            return 4

        def exchange(self, tasks: int, task_of: Sequence[int] = ()) -> Any:
            asked.append((tasks, task_of))
            return self

    asked: list[tuple[int, Sequence[int]]] = []
    plan = SimpleNamespace(executors=5, drawn_by="swarm")
    task = SimpleNamespace(plan=lambda: plan, packs=True, is_at_stream=False, task_of=(0, 1, 1, 0, 1))
    exchange(Grown(ROWS, list), cast(Any, task))
    assert asked == [(2, (0, 1, 1, 0, 1))]


def test_only_files_of_tasks_that_ended_are_kept(tmp_path: Path) -> None:
    body = write_parts(str(tmp_path), ROWS)
    told = [batch.column(0)[0].as_py() for number in (0, 3) for batch in body(number, iter([rows(7, 8), rows(9)]))]
    unheard = next(body(3, iter([rows(1)]))).column(0)[0].as_py()  # another attempt, of which the driver does not know
    (tmp_path / "part-00009-half.parquet").write_bytes(b"PAR1")
    keep_only(str(tmp_path), told)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(told)
    assert unheard not in told
    assert pq.read_table(tmp_path).column("executor").to_pylist() == [7, 8, 9] * 2


def test_a_task_without_rows_writes_nothing_but_the_first(tmp_path: Path) -> None:
    body = write_parts(str(tmp_path), ROWS)
    assert list(body(1, iter(()))) == []
    (told,) = body(0, iter(()))
    assert told.schema == WRITTEN
    assert pq.read_table(tmp_path).schema.names == ROWS.names
    assert len(pq.read_table(tmp_path)) == 0
