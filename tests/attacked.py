"""A small world under attack: a crowd of users, a gang that moves from place to place, and an engine with Guard."""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract
from geoswarm.control.loop import ControlLoop
from geoswarm.control.registry import strategy
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.guard.limits import GuardSettings
from geoswarm.guard.sensing import triggers
from geoswarm.store.checkpoint import Checkpoint
from stepped import BatchResult, SteppedEngine
from worlds import events

WORLD = Contract(bounds=(-180.0, -90.0, 180.0, 90.0), columns=60, rows=40, executors=4)
STEP_S = 15
START_S = 1_700_000_000
NORMAL = [f"user{i}" for i in range(40)]
GANG = [f"mallory{i}" for i in range(5)]
SETTINGS = GuardSettings(seed=1)


class Traffic:
    """What users ask for and events that come, in steps of 15 s; the gang stays `stay` steps at a place."""

    def __init__(self, seed: int = 0, stay: int = 16) -> None:
        self._seed, self._rng, self._stay = seed, np.random.default_rng(seed), stay
        self._places = self._rng.uniform((-150, -70), (150, 70), (100, 2))
        self._homes = self._rng.uniform((-170, -80), (170, 80), (len(NORMAL), 3, 2))
        self._mine: dict[str, deque[int]] = {user: deque() for user in (*NORMAL, *GANG)}
        self._next_id = 0

    def operations(self, step: int, *, attacks: bool) -> pa.Table:
        rows = []
        for user, homes in zip(NORMAL, self._homes, strict=True):
            for _ in range(self._rng.poisson(3)):
                is_home = self._rng.random() < 0.5
                place = homes[self._rng.integers(3)] if is_home else self._rng.uniform((-170, -80), (170, 80))
                rows.append(self._register(user, place))
        target = self._places[step // self._stay % len(self._places)]
        if attacks:
            rows += [self._register(user, target + self._rng.uniform(-1, 1, 2)) for user in GANG for _ in range(30)]
        for user, ids in self._mine.items():
            while len(ids) > (150 if user in GANG else 30):
                rows.append({"op": "cancel", "sub_id": ids.popleft(), "user": user})
        self._rng.shuffle(rows)
        return pa.Table.from_pylist(rows, schema=OPERATION)

    def events(self, step: int) -> pa.Table:
        return pa.table(events(np.random.default_rng((self._seed, step)), 600, first_id=step * 600))

    def _register(self, user: str, middle: Floats) -> dict[str, Any]:
        x, y = middle.clip((-179, -89), (179, 89))
        self._mine[user].append(self._next_id)
        self._next_id += 1
        sides = {"xmin": x - 1.0, "ymin": y - 1.0, "xmax": x + 1.0, "ymax": y + 1.0}
        return {"op": "register", "sub_id": self._next_id - 1, "user": user, **sides}


class AttackedEngine:
    """The engine without Spark in such traffic, one batch a step."""

    def __init__(self, folder: Path, settings: GuardSettings = SETTINGS) -> None:
        self.folder, self.settings, self.traffic = folder, settings, Traffic()
        self.batches = 0
        self.open()

    def open(self) -> None:
        self.engine = SteppedEngine(self.folder, WORLD, guard=self.settings)
        self.loop = ControlLoop(strategy("swarm"), self.held.plan, STEP_S, self.held)
        self.held.take_churn()

    def close(self) -> None:
        self.engine.close()

    @property
    def held(self) -> Checkpoint:
        return self.engine.checkpoint

    @property
    def now_us(self) -> int:
        return (START_S + self.batches * STEP_S) * 1_000_000

    def blocked(self) -> set[str]:
        assert self.held.guarding is not None
        return {user for user, _, _ in self.held.guarding.guard.blocked_users()}

    def step(self, *, attacks: bool = True) -> BatchResult:
        """One batch, and what it has the cluster do."""
        rows = self.traffic.operations(self.batches, attacks=attacks)
        result = self.engine.batch(self.batches, self.traffic.events(self.batches), rows, self.now_us)
        self._steer(result)
        self.batches += 1
        return result

    def _steer(self, result: BatchResult) -> None:
        """Rebalance after the batch, as `run/steering.py` does."""
        held, churn, before = self.held, self.held.take_churn(), self.loop.plan
        outcome = self.loop.add_batch(churn.came, churn.went, result.report, self.now_us / 1e6)
        if outcome is not None and outcome.plan is not None:
            held.adopt_plan(outcome.plan)
            work = {i: float(load.cpu_us) for i, load in result.report.partitions.items()}
            hot = set(triggers(before, outcome.entry.changes, work))
            held.sense(p for p in before.partitions if p.id in hot)
