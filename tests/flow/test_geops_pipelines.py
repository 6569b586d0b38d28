"""The four pipelines and two sides without Spark: whatever way events take, what they match is what the oracle says."""

from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoswarm.config import Contract, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.observe import LoadReport
from geoswarm.flow.stages.task import BatchTask
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Pair, pairs_of
from geoswarm.run.to_matches import exchange, match
from geoswarm.store.batch_state import StoredBatch
from geoswarm.store.checkpoint import Checkpoint
from restless import legal_changes
from stepped import rows_of, task_of
from worlds import (
    BOUNDS,
    events,
    operations,
    with_areas,
    with_demands,
    with_facts,
    with_keywords,
    with_predicates,
    with_shapes,
    with_texts,
)

CONTRACT = Contract(columns=40, rows=30, executors=4)
BATCHES, EVENTS = 4, 90
WAYS = list(product(("spis", "sps", "rihps", "risps"), ("static", "stream")))


def run_batch(task: BatchTask, table: pa.Table, rng: np.random.Generator) -> tuple[list[Pair], int]:
    """The matches of a batch, and how many rows reached an executor. No runner promises an order of parcels."""

    def shuffle(executor: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = pa.Table.from_batches(list(batches), PACKED)
        yield from mine.take(pa.array(rng.permutation(len(mine)))).to_batches()

    found = match(exchange(rows_of(table), task).map(shuffle, PACKED), task).to_arrow()
    assert isinstance(task.state, StoredBatch)
    report = sum(chain.from_iterable(task.state.reports().values()), LoadReport())
    assert report.events + report.dead == report.events_in == len(table)
    assert report.in_transit == 0
    return pairs_of([found]), sum(load.events for load in report.partitions.values())


def world(
    tmp_path: Path, seed: int, kind: str, pipeline: str, join_at: str
) -> Iterator[tuple[BatchTask, pa.Table, set[Pair], np.random.Generator]]:
    """Batches with operations before them, over plans that change, and what the oracle says."""
    rng, oracle = np.random.default_rng(seed), Oracle(BOUNDS)
    tuning = Tuning.model_validate({"pipeline": pipeline, "join_at": join_at, "deltas_max": 2, "match_rows_max": 50})
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, tuning, uniform)
    for b in range(BATCHES):
        now_us = 20 * b
        table = pa.table(events(rng, EVENTS, first_id=1000 * b, snap=3.0))
        storm = with_shapes(rng, operations(rng, 80, ids=90, now_us=now_us), snap=3.0)
        if "words" in kind:
            table, storm = with_texts(rng, table.combine_chunks().to_batches()[0]), with_keywords(rng, storm)
        if "areas" in kind:
            table, storm = with_areas(rng, table, snap=3.0), with_predicates(rng, storm)
        if "demands" in kind:
            table, storm = with_facts(rng, table), with_demands(rng, storm, 0.4)
        oracle.operate(storm, now_us)
        manifest = checkpoint.prepare(b, lambda storm=storm: [storm], now_us, "", None)  # type: ignore[misc]
        yield (
            task_of(StoredBatch(checkpoint.storage, b, manifest), CONTRACT, tuning, table.schema),
            table,
            oracle.match(table, now_us),
            rng,
        )
        checkpoint.finish(b)
        checkpoint.adopt_plan(checkpoint.plan.apply(legal_changes(checkpoint.plan, rng, 3)))
    checkpoint.close()


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "join_at"), WAYS)
@pytest.mark.parametrize("kind", ["places", "words", "areas", "words and areas", "demands", "words, areas and demands"])
def test_every_way_to_join_finds_what_the_oracle_finds(tmp_path: Path, pipeline: str, join_at: str, kind: str) -> None:
    total = 0
    for task, table, want, rng in world(tmp_path, 11, kind, pipeline, join_at):
        got, _ = run_batch(task, table, rng)
        assert sorted(got) == sorted(want)
        total += len(got)
    assert total > (20 if "demands" in kind else 100)


def test_an_area_visits_the_partitions_it_meets_and_goes_out_once(tmp_path: Path) -> None:
    tuning = Tuning(pipeline="sps")
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, tuning, uniform)
    storm = operations(np.random.default_rng(1), 1, ids=1)
    storm = storm.set_column(0, "op", pa.array(["register"])).set_column(1, "sub_id", pa.array([7]))
    for name, side in zip(("xmin", "ymin", "xmax", "ymax"), BOUNDS, strict=True):
        storm = storm.set_column(storm.schema.get_field_index(name), name, pa.array([side]))
    storm = storm.set_column(storm.schema.get_field_index("expires"), "expires", pa.nulls(1, TIMESTAMP))
    island = shapely.to_wkb(shapely.segmentize(shapely.box(-170.0, -80.0, 170.0, 80.0), 90.0))
    table = pa.table(events(np.random.default_rng(2), 2)).append_column("geometry", pa.array([island, None]))
    manifest = checkpoint.prepare(0, lambda: [storm], 0, "", None)
    task = task_of(StoredBatch(checkpoint.storage, 0, manifest), CONTRACT, tuning, table.schema)
    partitions = len(task.plan().partitions)
    assert partitions > 1
    got, arrived = run_batch(task, table, np.random.default_rng(3))
    assert sorted(got) == [(0, 7), (1, 7)]
    assert arrived == partitions + 1
    checkpoint.close()


@pytest.mark.parametrize("pipeline", ["rihps", "risps"])
def test_an_event_without_candidates_goes_nowhere(tmp_path: Path, pipeline: str) -> None:
    tuning = Tuning.model_validate({"pipeline": pipeline})
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, tuning, uniform)
    table = pa.table(events(np.random.default_rng(1), 50))
    manifest = checkpoint.prepare(0, lambda: [], 0, "", None)
    task = task_of(StoredBatch(checkpoint.storage, 0, manifest), CONTRACT, tuning, table.schema)
    assert run_batch(task, table, np.random.default_rng(2)) == ([], 0)
    checkpoint.close()


def test_lists_outlive_a_partition_that_changes_hands_and_not_one_that_is_cut(tmp_path: Path) -> None:
    tuning = Tuning(pipeline="sps")
    checkpoint = Checkpoint(str(tmp_path), CONTRACT, tuning, uniform)
    storm = operations(np.random.default_rng(1), 40, ids=40)
    held = []
    for b, change in enumerate(("nothing", "move", "split")):
        plan = checkpoint.plan
        if change == "move":
            checkpoint.adopt_plan(plan.move(plan.partitions[0].id, 3))
        if change == "split":
            checkpoint.adopt_plan(plan.split(plan.partitions[0].id, "row", plan.partitions[0].row0, (0, 1)))
        manifest = checkpoint.prepare(b, lambda b=b: [storm] if b == 0 else [], 0, "", None)  # type: ignore[misc]
        task = task_of(
            StoredBatch(checkpoint.storage, b, manifest), CONTRACT, tuning, events(np.random.default_rng(0), 0).schema
        )
        held.append(task.shares()[0][1])
        checkpoint.finish(b)
    assert held[0] is held[1]
    assert len(held[2].starts) == len(held[1].starts) + 1
    checkpoint.close()
