"""Plans that divide the terms of a place as well as the map."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.control.layout.uniform import uniform
from geoswarm.core.space.change import Divide, Merge, Move
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.space.plan_problems import PARTITION_ID_MAX
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import PlanError

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=8, rows=8)
THREE = TermCut.of(3, {11: 2, 5: 0, 2**63 + 1: 1})


def plan_with_divided_terms() -> Plan:
    plan = uniform(GRID, 4)
    return plan.apply([Divide(plan.partitions[1].id, THREE, (1, 2, 1))])


def test_a_listed_term_has_its_share_and_any_other_the_same_one_each_time() -> None:
    hashes = np.array([5, 11, 2**63 + 1, 12345 << 32, 7], np.uint64)
    shares = THREE.shares_of(hashes)
    assert shares[:3].tolist() == [0, 2, 1]
    assert shares.tolist() == THREE.shares_of(hashes).tolist()
    assert set(THREE.shares_of(np.random.default_rng(1).integers(0, 2**63, 1000).astype(np.uint64))) == {0, 1, 2}


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_listed_term_has_its_share_and_any_other_that_of_its_hash(count: int) -> None:
    rng = np.random.default_rng(count)
    crowded = rng.integers(0, 4, 50).astype(np.uint64)  # hashes that begin alike
    listed = np.unique(np.append(rng.integers(0, 2**64, count, np.uint64), crowded[: 50 * count]))
    cut = TermCut(3, listed, (np.arange(len(listed)) % 3).astype(np.int16))
    edges = np.array([0, 2**64 - 1], np.uint64)
    asked = np.concatenate([listed, listed + np.uint64(1), rng.integers(0, 2**64, 500, np.uint64), edges])
    named = dict(zip(listed.tolist(), cut.shares.tolist(), strict=True))
    assert cut.shares_of(asked).tolist() == [named.get(h, (h >> 32) % 3) for h in asked.tolist()]


def test_shares_of_one_executor_make_one_partition() -> None:
    plan = plan_with_divided_terms()
    parts = [p for p in plan.partitions if p.cut is not None]
    assert [(p.executor, p.shares) for p in parts] == [(1, (0, 2)), (2, (1,))]
    assert {p.box for p in parts} == {parts[0].box}
    assert list(plan.siblings.values()) == [(3, 4)]
    assert set(plan.slot_of_cell) == {0, 1, 2, 3}  # the first stands for both
    assert np.count_nonzero(plan.slot_of_cell == 3) == parts[0].cells


def test_a_plan_with_divided_terms_is_written_and_read_again() -> None:
    plan = plan_with_divided_terms()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_all_shares_merged_are_a_place_like_any_other() -> None:
    plan = plan_with_divided_terms()
    ids = tuple(p.id for p in plan.partitions if p.cut is not None)
    whole = plan.apply([Merge(ids, 3)])
    assert whole.cuts == ()
    assert whole.siblings == {}
    assert [p.executor for p in whole.partitions if set(p.parent) == set(ids)] == [3]


def test_some_shares_merged_are_one_partition_with_all_of_them() -> None:
    plan = uniform(GRID, 4)
    plan = plan.apply([Divide(plan.partitions[0].id, THREE, (0, 1, 2))])
    first, second = [p.id for p in plan.partitions if p.cut is not None and p.shares in ((0,), (2,))]
    merged = plan.apply([Merge((first, second), 0)])
    assert sorted(p.shares for p in merged.partitions if p.cut is not None) == [(0, 2), (1,)]


def test_shares_cannot_be_cut_along_rows_nor_merged_with_a_neighbour() -> None:
    plan = plan_with_divided_terms()
    part = next(p for p in plan.partitions if p.cut is not None)
    with pytest.raises(PlanError, match="merge them first"):
        plan.split(part.id, "row", part.row0, (0, 0))
    with pytest.raises(PlanError, match="divided already"):
        plan.apply([Divide(part.id, THREE, (0, 1, 2))])
    with pytest.raises(PlanError, match="different places"):
        plan.apply([Merge((part.id, plan.partitions[0].id), 0)])
    with pytest.raises(PlanError, match="one for each share"):
        plan.apply([Divide(plan.partitions[0].id, THREE, (0, 1))])


@pytest.mark.parametrize(
    ("count", "hashes", "shares", "message"),
    [
        (1, [], [], "2 to 4096"),
        (2, [1, 1], [0, 1], "out of order"),
        (2, [1], [2], "does not have"),
        (2, [1], [], "each one"),
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(count: int, hashes: list[int], shares: list[int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        TermCut(count, np.array(hashes, np.uint64), np.array(shares, np.int16))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_done_each_share_of_each_place_has_one_owner(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = uniform(GRID, 5)
    for _ in range(12):
        part = plan.partitions[int(rng.integers(len(plan.partitions)))]
        cut = TermCut.of(int(rng.integers(2, 5)), {})
        if part.cut is None and rng.random() < 0.6:
            plan = plan.apply([Divide(part.id, cut, tuple(rng.integers(0, 5, cut.count).tolist()))])
        elif part.cut is None:
            plan = plan.apply([Move(part.id, int(rng.integers(5)))])
        else:
            family = [p.id for p in plan.partitions if p.box == part.box]
            if len(family) > 1:
                plan = plan.apply([Merge(tuple(family[:2]), int(rng.integers(5)))])
    for slots in plan.siblings.values():
        held = [share for slot in slots for share in plan.partitions[slot].shares]
        cut_number = plan.partitions[slots[0]].cut
        assert cut_number is not None
        assert sorted(held) == list(range(plan.cuts[cut_number].count))
    assert (plan.slot_of_cell >= 0).all()
    assert plan == Plan.from_json(plan.to_json())


def test_a_plan_from_before_terms_could_be_divided_is_read() -> None:
    plan = uniform(GRID, 3)
    written = plan.to_json()
    old = {k: v for k, v in written.items() if k not in ("cuts", "drawn_by")}
    assert Plan.from_json(old | {"partitions": [row[:8] for row in written["partitions"]]}) == plan


def test_a_plan_for_every_batch_never_runs_out_of_ids() -> None:
    plan = uniform(GRID, 3)
    late = Plan(
        5,
        GRID,
        3,
        tuple(replace(p, id=PARTITION_ID_MAX - 5 + i) for i, p in enumerate(plan.partitions)),
        PARTITION_ID_MAX - 1,
    )
    after = late.replace_by(plan, "x")
    assert [p.id for p in after.partitions] == [0, 1, 2]
    assert after.epoch == 6
    assert all(p.parent == () for p in after.partitions)
