"""A virtual cluster under attack, with or without Guard: users' operations go in, the outcome comes out.

This connects the cluster of `cluster.py` with the engine's own Guard (`guard/`). Guarded and unguarded clusters get the
same stream and the same wishes of its users, but not the same queries: those that Guard refuses are missing. So each
has its own count of the queries at a cell, while clusters in a plain `World` share one.

    operations ──► guard.admits ──► cluster ──(a round of 15 s: rebalance)──► hotspot sensor ─┐
                        ▲                                                                     ▼
                        └──────────────── blocked users ◄──(a round of 60 s)──────── guard.add_hotspot

A hotspot is the costliest partition of an executor that gave work in a rebalance that was applied, with all its live
queries, their users and ages (thesis §5.3.1). It is not the partition that moved: an executor whose hot partition is a
single cell gives away its others. Each executor that gives work in a round is a hotspot of its own.

With `query_weight`, a user asks for as many queries as are drawn: Guard then sees fewer operations of each user than in
reality, which makes its task harder, not easier.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.dealt import is_dealt
from geoswarm.control.registry import strategy
from geoswarm.control.strategy import watch_places
from geoswarm.core.arrays.jit import CellIds, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.errors import SettingsError
from geoswarm.guard.guard import ClosedRound, Guard
from geoswarm.guard.sensing import LiveQueries, sense, triggers
from geoswarm.guard.sensor import AGES, MapPlace, near
from geoswarm.run.sim.cluster import Cluster, ClusterSetup
from geoswarm.run.sim.routing import ByPlan
from geoswarm.run.sim.workloads import UserStream
from geoswarm.run.sim.world import Step, World

LONG_AGO_S = -1e9
"""When the queries of the start were registered."""


class Wishes(NamedTuple):
    """The events and operations of one step, before Guard. Queries are ordinals in `World.boxes`."""

    number: int
    start_s: float
    came: Ints
    went: Ints
    cells: CellIds


class AttackWorld(World):
    """A world with all operations that users want within `horizon_s`."""

    def __init__(
        self,
        traffic: UserStream,
        grid: Grid,
        horizon_s: float,
        *,
        weight: int,
        query_weight: int = 1,
        step_s: float = 2.5,
    ) -> None:
        self.traffic, self.grid, self.horizon_s = traffic, grid, horizon_s
        self.weight, self.query_weight, self.step_s = weight, query_weight, step_s
        self.events_per_step = int(traffic.events_per_s * step_s)
        if self.events_per_step < 1:
            raise SettingsError(f"{traffic.events_per_s:g} events/s make no step of {step_s:g} s: draw more")
        standing, later = traffic.named_standing(), traffic.named_changes(0.0, horizon_s)
        self.subscriptions = len(standing.ids)
        ids = np.concatenate([standing.ids, later.ids[later.registers]])
        order = np.argsort(ids, kind="stable")
        found = order[np.minimum(np.searchsorted(ids, later.ids, sorter=order), len(ids) - 1)]
        known = ids[found] == later.ids
        self._at_s, self._comes, self._ordinals = later.at_s[known], later.registers[known], found[known]
        x, y = (np.concatenate([a, b[later.registers]]) for a, b in ((standing.x, later.x), (standing.y, later.y)))
        self.boxes = grid.cover(*traffic.rectangles(x, y))
        self.x, self.y = (x - grid.xmin) / (grid.xmax - grid.xmin), (y - grid.ymin) / (grid.ymax - grid.ymin)
        """The queries' centres by ordinal, as shares of the world's sides."""
        coded = pa.concat_arrays([standing.users, later.users]).dictionary_encode()
        codes = coded.indices.to_numpy().astype(np.int64)
        self.names = coded.dictionary
        """Every user's name, once."""
        self.user_of = codes[np.concatenate([np.ones(self.subscriptions, np.bool_), later.registers])]
        """The position of the user's name in `names`, by ordinal."""

    def wishes(self) -> Iterator[Wishes]:
        for number in range(int(self.horizon_s / self.step_s)):
            start_s = number * self.step_s
            low, high = np.searchsorted(self._at_s, (start_s, start_s + self.step_s))
            comes, ordinals = self._comes[low:high], self._ordinals[low:high]
            rows = self.traffic.events(number * self.events_per_step, self.events_per_step)
            cells = self.grid.locate(rows.column("x").to_numpy(), rows.column("y").to_numpy())
            yield Wishes(number, start_s, ordinals[comes], ordinals[~comes], cells)


@dataclass(frozen=True)
class SensedHotspot:
    """One hotspot, and what only the simulator knows about it."""

    at_s: float
    queries: int
    fresh: int
    """The number of these that are at most five detection rounds old."""
    malicious: int
    """The number of fresh ones that are attackers'."""

    @property
    def is_malicious(self) -> bool:
        """Whether most of its fresh queries are attackers'."""
        return self.malicious * 2 > self.fresh


class AttackCluster(Cluster):
    """Feed it wishes; read `spans`, `sensed`, `rounds`, and `refused`."""

    def __init__(
        self,
        world: AttackWorld,
        setup: ClusterSetup,
        name: str,
        guard: Guard | None = None,
        *,
        attackers: str = "attacker",
        removes: Literal["nothing", "recent", "all"] = "nothing",
    ) -> None:
        """`removes`: which queries of a blocked user are cancelled, which the thesis leaves open; recent ones were
        registered in the last five detection rounds. `attackers`: how their names begin; Guard does not know it."""
        kind = watch_places(strategy(name))
        plan = kind.first_plan(world.grid, setup.executors, None)
        self.guard, self.world = guard, world
        self.sensed: list[SensedHotspot] = []
        self.rounds: list[ClosedRound] = []
        """The detection rounds that Guard closed, one a minute."""
        self.blocked_at_s: dict[str, float] = {}
        self.suspected_at_s: list[float] = []
        """The ends of rounds in which Guard found an attacker suspicious."""
        self.refused = 0
        self._wished: list[tuple[float, int, int]] = []  # when, by attackers, refused
        self._removes = removes
        self._evil = np.asarray(pa.compute.starts_with(world.names, attackers), np.bool_)
        self._attackers = set(world.names.filter(pa.array(self._evil)).to_pylist())
        self._born_s = np.full(len(world.user_of), LONG_AGO_S)
        self._alive = np.zeros(len(world.user_of), np.bool_)
        self._alive[: world.subscriptions] = True
        self._density = np.zeros((world.grid.rows, world.grid.columns), np.int32)
        stamp(self._density, world.of(np.arange(world.subscriptions)), 1)
        self._to_remove = np.empty(0, np.int64)
        super().__init__(world, setup, name, ByPlan(plan, waits=setup.batches), Coordinator(kind))

    @property
    def false_blocks(self) -> list[str]:
        return [user for user in self.blocked_at_s if user not in self._attackers]

    @property
    def missed(self) -> list[str]:
        """Attackers who did something and are not blocked."""
        acted = self.world.names.take(pa.array(np.unique(self.world.user_of[self.world.subscriptions :])))
        return [user for user in acted.to_pylist() if user in self._attackers and user not in self.blocked_at_s]

    def refused_share(self, since_s: float) -> float:
        """The share of the attackers' wishes after a moment that was refused."""
        later = [(wished, refused) for at_s, wished, refused in self._wished if at_s >= since_s]
        return sum(refused for _, refused in later) / max(1, sum(wished for wished, _ in later))

    def offer(self, wishes: Wishes) -> None:
        world, now_s = self.world, wishes.start_s + self.world.step_s
        came, went = self._admit(wishes.came, wishes.went, wishes.start_s)
        went = np.concatenate([went[self._alive[went]], self._to_remove[self._alive[self._to_remove]]])
        self._to_remove = np.empty(0, np.int64)
        self._alive[came], self._alive[went] = True, False
        self._born_s[came] = wishes.start_s
        stamp(self._density, world.of(came), 1)
        stamp(self._density, world.of(went), -1)
        met = self._density.ravel()[wishes.cells].astype(np.int64) * world.query_weight
        live = int(self._alive.sum()) * world.query_weight
        self.advance(Step(wishes.number, wishes.start_s, came, went, live, wishes.cells, met))
        if self.guard is not None and self.guard.is_due(now_s):
            self._detect(self.guard, now_s)

    def _admit(self, came: Ints, went: Ints, now_s: float) -> tuple[Ints, Ints]:
        if self.guard is None:
            return came, went
        both = np.concatenate([came, went])
        users = self.world.names.take(pa.array(self.world.user_of[both]))
        comes = np.arange(len(both)) < len(came)
        admitted = np.asarray(self.guard.admits(users), np.bool_)
        self.refused += int((~admitted).sum())
        evil = self._evil[self.world.user_of[both]]
        self._wished.append((now_s, int(evil.sum()), int((evil & ~admitted).sum())))
        accepted = users.filter(pa.array(admitted))
        self.guard.count_operations(accepted, comes[admitted], ~comes[admitted], now_s)
        return both[comes & admitted], both[~comes & admitted]

    def _detect(self, guard: Guard, now_s: float) -> None:
        closed = guard.close_round(now_s)
        self.rounds.append(closed)
        if not self._attackers.isdisjoint(closed.entry.suspicious):
            self.suspected_at_s.append(now_s)
        for user in closed.blocked:
            self.blocked_at_s.setdefault(user, now_s)
        if self._removes != "nothing" and len(closed.blocked):
            theirs = np.asarray(pa.compute.is_in(self.world.names, pa.array(closed.blocked, pa.string())), np.bool_)
            since_s = now_s - AGES * guard.rules.round_s if self._removes == "recent" else LONG_AGO_S
            self._to_remove = np.flatnonzero(self._alive & theirs[self.world.user_of] & (self._born_s >= since_s))

    def _rebalance(self, now_s: float) -> None:
        plan, held = self.plan, None if self._held is None else self._held._held
        work_us = {i: load.cpu_us for i, load in self._load(plan).partitions.items()}
        super()._rebalance(now_s)
        if self.watched is not None:
            hot = set(triggers(*self.watched))
            for place in (p for p in self.watched.plan.partitions if p.id in hot):
                alive = np.flatnonzero(self._alive)
                self._sense(alive[self.world.meets(alive, place.row0, place.col0, place.row1, place.col1)], now_s)
        if held is None or not self.entries or self.entries[-1].outcome != "applied":
            return
        if is_dealt(plan) or is_dealt(self.plan):  # their number is the reason, no place
            return
        for partition in triggers(plan, self.entries[-1].changes, work_us):
            self._sense(held[partition], now_s)

    def _sense(self, ordinals: Ints, now_s: float) -> None:
        users, born_s = self.world.user_of[ordinals], self._born_s[ordinals]
        fresh = born_s > now_s - AGES * (self.guard or Guard()).rules.round_s
        self.sensed.append(
            SensedHotspot(now_s, len(ordinals), int(fresh.sum()), int((fresh & self._evil[users]).sum()))
        )
        if self.guard is None:
            return
        sense(self.guard, self._queries(ordinals), self._around)

    def _around(self, place: MapPlace, reach: float) -> LiveQueries:
        return self._queries(np.flatnonzero(self._alive & near(place, self.world.x, self.world.y, reach)))

    def _queries(self, ordinals: Ints) -> LiveQueries:
        world = self.world
        users, born_s = world.user_of[ordinals], self._born_s[ordinals]
        return LiveQueries(users, world.names, born_s, world.x[ordinals], world.y[ordinals])


def run(world: AttackWorld, clusters: list[AttackCluster]) -> Iterator[float]:
    """Runs all clusters through the world; yields the simulated time."""
    for wishes in world.wishes():
        for cluster in clusters:
            cluster.offer(wishes)
        yield wishes.start_s + world.step_s


@kernel
def stamp(cells: Any, boxes: CellBox, by: int) -> None:
    """Adds `by` to every cell of each box: most have nine cells, so this is cheaper than running sums over a map."""
    for i in range(len(boxes.row0)):
        for row in range(boxes.row0[i], boxes.row1[i] + 1):
            for column in range(boxes.col0[i], boxes.col1[i] + 1):
                cells[row, column] += by
