"""A virtual cluster under attack: books that balance with Guard and without, and Guard that finds the attackers."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.change import Merge, Move, Split
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.errors import SettingsError
from geoswarm.guard.guard import Guard
from geoswarm.guard.rules import GuardRules
from geoswarm.guard.sensing import triggers
from geoswarm.lab.workload.attack import Attackers, Extra
from geoswarm.lab.workload.crowds import Gathering, NormalUsers
from geoswarm.lab.workload.traffic import Party, Traffic
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.sim.attack_world import AttackCluster, AttackWorld, SensedHotspot, run, stamp
from geoswarm.run.sim.cluster import ClusterSetup
from geoswarm.run.sim.service import Service

BOUNDS = (-125.0, 24.0, -66.0, 50.0)
GRID = Grid(*BOUNDS, columns=300, rows=300)
STREAM = Tweets(seed=1, country="US", bounds=BOUNDS, events_per_s=600.0, side_share=0.004, burst_share=0.01)
NORMAL = NormalUsers(STREAM, queries=18_000, changes_per_s=60.0)
ATTACK = Attackers(STREAM, queries=2000, changes_per_s=60.0, start_s=120.0, side_share=0.02)
SETUP = ClusterSetup(executors=6, routers=2, pending_max=4000, sources=4, service=Service(base_us=20.0, met_us=0.3))
HORIZON_S = 480.0


def world(party: Party, horizon_s: float = HORIZON_S) -> AttackWorld:
    return AttackWorld(Traffic(STREAM, (NORMAL, party)), GRID, horizon_s, weight=500, step_s=5.0)


def play(in_world: AttackWorld, *clusters: AttackCluster) -> AttackCluster:
    for _ in run(in_world, list(clusters)):
        pass
    return clusters[0]


@lru_cache(maxsize=1)
def clusters_under_attack() -> tuple[AttackCluster, AttackCluster, AttackCluster]:
    """Without Guard, with it, and with what the blocked had removed."""
    w = world(ATTACK)
    bare = AttackCluster(w, SETUP, "swarm-measured")
    guarded = AttackCluster(w, SETUP, "swarm-measured", Guard(seed=1))
    removed = AttackCluster(w, SETUP, "swarm-measured", Guard(seed=1), removes="all")
    play(w, bare, guarded, removed)
    return bare, guarded, removed


def test_guard_blocks_all_attackers_and_no_other_user() -> None:
    bare, guarded, _ = clusters_under_attack()
    assert sum(hotspot.is_malicious for hotspot in bare.sensed) >= 2
    assert sorted(guarded.blocked_at_s) == sorted(f"attacker{i}" for i in range(10))
    assert guarded.false_blocks == []
    assert guarded.missed == []
    assert bare.missed
    assert bare.refused == 0 < guarded.refused
    assert guarded.suspected_at_s
    assert guarded.refused_share(max(guarded.blocked_at_s.values()) + 5.0) == 1.0


def test_clusters_are_the_same_until_somebody_is_blocked() -> None:
    bare, guarded, removed = clusters_under_attack()
    blocked_s = min(guarded.blocked_at_s.values())
    before = [span for span in bare.spans if span.start_s < blocked_s]
    assert guarded.spans[: len(before)] == before == removed.spans[: len(before)]
    assert guarded.spans != bare.spans


def test_the_number_of_queries_stays_unless_those_of_blocked_users_are_removed() -> None:
    bare, guarded, removed = clusters_under_attack()
    assert bare.spans[-1].queries == pytest.approx(20_000, abs=2)
    assert guarded.spans[-1].queries == pytest.approx(20_000, abs=2)
    assert removed.spans[-1].queries == pytest.approx(18_000, abs=2)


def test_queries_at_a_cell_are_those_that_are_live() -> None:
    for cluster in clusters_under_attack():
        live = np.flatnonzero(cluster._alive)
        density = np.zeros((GRID.rows, GRID.columns), np.int32)
        for row0, col0, row1, col1 in zip(*cluster.world.of(live), strict=True):
            density[row0 : row1 + 1, col0 : col1 + 1] += 1
        assert np.array_equal(cluster._density, density)
        held = cluster._held
        assert held is not None
        assert np.array_equal(held._live, cluster._alive)


def test_no_user_is_blocked_where_there_is_no_attack() -> None:
    for party in (Extra(NORMAL, 2000, 60.0, 120.0), Gathering(STREAM, (0.8, 0.6), 120.0, 120.0, 1000)):
        w = world(party)
        cluster = play(w, AttackCluster(w, SETUP, "swarm-measured", Guard(seed=1)))
        assert cluster.sensed
        assert cluster.blocked_at_s == {}
        assert len(cluster.rounds) == HORIZON_S / 60


def test_one_seed_is_one_world() -> None:
    first, second = (world(replace(ATTACK, start_s=30.0), 90.0) for _ in range(2))
    a, b = (play(w, AttackCluster(w, SETUP, "swarm", Guard(seed=2))) for w in (first, second))
    assert a.spans == b.spans
    assert a.sensed == b.sensed
    assert [r.entry for r in a.rounds] == [r.entry for r in b.rounds]


def test_guard_by_the_paper_sees_only_the_partition() -> None:
    w = world(ATTACK, 240.0)
    cluster = play(w, AttackCluster(w, SETUP, "swarm", Guard(GuardRules(algorithm="printed", reach=0.0), 1)))
    assert len(cluster.rounds) == 4
    assert cluster.sensed


def test_a_hotspot_is_malicious_if_most_of_what_is_new_in_it_is_the_attackers() -> None:
    assert SensedHotspot(0.0, 100, 10, 6).is_malicious
    assert not SensedHotspot(0.0, 100, 10, 5).is_malicious
    assert not SensedHotspot(0.0, 100, 0, 0).is_malicious


def test_a_hotspot_is_the_costliest_partition_of_the_executor_that_hands_over() -> None:
    plan = uniform(GRID, 2).apply([])
    first, second = (p.id for p in plan.partitions)
    move = Move(first, 1)
    assert triggers(plan, [move], {first: 1.0, second: 9.0}) == [first]
    assert triggers(plan, [move, Split(second, "row", 0, (0, 1))], {}) == [first, second]
    assert triggers(plan, [Merge((first, second), 0)], {}) == []


def test_a_stamp_can_be_taken_back() -> None:
    cells = np.zeros((5, 5), np.int32)
    box = CellBox(*(np.array([v]) for v in (1, 2, 3, 4)))
    stamp(cells, box, 2)
    assert cells.sum() == 2 * 9
    assert cells[1:4, 2:5].min() == 2
    stamp(cells, box, -2)
    assert not cells.any()


def test_a_stream_too_thin_for_its_steps_is_refused() -> None:
    thin = replace(STREAM, events_per_s=0.1)
    with pytest.raises(SettingsError, match="draw more"):
        AttackWorld(Traffic(thin, (NORMAL,)), GRID, 60.0, weight=1, step_s=5.0)
