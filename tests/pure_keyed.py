"""A keyed operator without Spark: feed, route, exchange, work and merge of one batch after another, in this process.

The files are real. Who draws the plans, and who crashes, is the caller's business.
"""

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from geoswarm.core.keys.plan import KeyPlan, parts_of
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack, unpack
from geoswarm.flow.keyed.operator import Moment, Operator
from geoswarm.flow.keyed.route import fed_schema, route_given, route_rows
from geoswarm.store.keyed_share import KeyedTask, Share, merged
from geoswarm.store.keyed_state import Clock, Files, KeyedState
from geoswarm.store.storage import Storage

ROUTE_TASKS = 2


class PureKeyed:
    def __init__(self, folder: Path, operator: Operator, executors: int = 3) -> None:
        self.operator, self.state = operator, KeyedState(Storage(str(folder)), operator.name)
        held = self.state.newest_plan()
        self.plan = held[0] if held else KeyPlan.first(range(executors))
        self._seal = held[1] if held else self.state.write_plan(self.plan)

    def replan(self, plan: KeyPlan) -> None:
        self.plan, self._seal = plan, self.state.write_plan(plan)

    def batch(self, number: int, interval: int, rows: pa.RecordBatch, *, commit: bool = True) -> pa.Table:
        """What goes out, in no promised order. Without `commit` it is as if the engine died before it."""
        operator, state = self.operator, self.state
        before = state.before(number)
        moment = Moment(number, interval, interval * 1_000_000)
        task = KeyedTask(
            state, operator, moment, before, self.plan.epoch, self._seal, fed_schema(operator, rows.schema)
        )
        given = operator.given(task.fed)
        arrived = self._exchanged(rows, task)
        added, gone, out = [], set[str](), []
        for executor in self.plan.executors:
            share = Share(task, executor, uuid.uuid4().hex[:12])
            out += list(share.run(arrived.pop(executor, [])))
            added += share.report.added
            gone |= set(share.report.gone)
        assert not arrived, "rows came to executors that are not at work"
        if task.merges:
            halves: dict[int, list[pa.RecordBatch]] = {}
            for part in out:
                for parcel in unpack(
                    pack(route_given(part, operator.merge_by or "", np.array(self.plan.executors))), given
                ):
                    halves.setdefault(parcel.executor, []).append(parcel.events)
            out = [whole for some in halves.values() for whole in merged(some, operator)]
        if commit:
            plan, files = (self.plan.epoch, self._seal), Files(added, gone)
            state.commit(before.after(moment, operator.window, files, plan, str(task.columns), Clock(1_000_000)))
        return pa.Table.from_batches(out, schema=given)

    def _exchanged(self, rows: pa.RecordBatch, task: KeyedTask) -> dict[int, list[pa.RecordBatch]]:
        arrived: dict[int, list[pa.RecordBatch]] = {}
        share = -(-len(rows) // ROUTE_TASKS) or 1
        for part in pa.Table.from_batches([rows]).to_batches(max_chunksize=share):
            fed = task.operator.feed(part)
            dead = DeadLetters("row", task.moment.batch)
            for parcel in unpack(pack(route_rows(fed, task.plan, dead)), task.fed):
                arrived.setdefault(parcel.executor, []).append(parcel.events)
        return arrived


def any_plan(plan: KeyPlan, keys: np.ndarray, rng: np.random.Generator, can_split: bool) -> KeyPlan:
    """The next epoch: some keys anywhere, others at work now and then, some keys in parts if that is allowed."""
    executors = plan.executors
    if rng.random() < 0.3:
        executors = tuple(sorted(int(e) for e in rng.choice(6, int(rng.integers(1, 5)), replace=False)))
    fresh = replace(plan.with_executors(executors), epoch=plan.epoch)
    chosen = rng.choice(keys, min(len(keys), int(rng.integers(0, 12))), replace=False)
    if can_split and rng.random() < 0.6:
        split = np.unique(rng.choice(keys, 2))
        ways = rng.integers(2, 5, len(split))
        fresh = replace(fresh, split_keys=split, split_ways=ways)
        chosen = np.union1d(
            chosen, np.concatenate([parts_of(int(k), int(w)) for k, w in zip(split, ways, strict=True)])
        )
    else:
        fresh = replace(fresh, split_keys=fresh.split_keys[:0], split_ways=fresh.split_ways[:0])
    chosen = np.unique(chosen)
    return fresh.with_table(chosen, rng.choice(executors, len(chosen)).astype(np.int32))
