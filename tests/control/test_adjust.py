"""PS2Stream's adjustment: who hands over what, and when; the engine's coordinator takes it."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.control.balance.adjust import Ps2Adjusted
from geoswarm.control.balance.seen import see
from geoswarm.control.balance.tally import tally
from geoswarm.control.balance.term_shares import SHARES_PER_EXECUTOR, hand_over_share
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.layout.hybrid import hybrid
from geoswarm.control.layout.load_model import COSTS, ENGINE, Costs, executor_loads
from geoswarm.control.layout.text_sample import TextSample
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import RoundReport, Sample
from geoswarm.core.space.change import Divide, Merge, Move, Split
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.cut import TermCut
from geoswarm.errors import SettingsError
from geoswarm.flow.observe import Load, LoadReport

GRID = Grid(0.0, 0.0, 8.0, 8.0, columns=8, rows=8)
WORDS = [f"w{i}" for i in range(60)]


def line(executors: list[int], rows: int = 1) -> Plan:
    """A partition for each column, on a map of so many rows."""
    grid = Grid(0.0, 0.0, float(len(executors)), float(rows), columns=len(executors), rows=rows)
    parts = tuple(Partition(i, 0, i, rows - 1, i, executor) for i, executor in enumerate(executors))
    return Plan(0, grid, max(executors) + 1, parts, len(parts))


def report(plan: Plan, times_us: list[int], sample: Sample | None = None, number: int = 1) -> RoundReport:
    load = LoadReport()
    for part, time_us in zip(plan.partitions, times_us, strict=True):
        load.add(part.id, part.executor, Load(max(1, time_us // 2), 0, 0, time_us))
    return RoundReport(number, 15.0 * number, load, {}, sample)


def words_around(
    rng: np.random.Generator, events: int, queries: int, centre: float, spread: float, said: int = 6
) -> Sample:
    points = rng.normal(centre, spread, (events, 2)).clip(0, 8)
    centres = rng.normal(centre, spread, (queries, 2)).clip(0, 8)
    rects = np.concatenate([centres - 0.2, centres + 0.2], axis=1).clip(0, 8)
    texts = [" ".join(rng.choice(WORDS, said)) for _ in range(events)]
    keywords = [" OR ".join(rng.choice(WORDS, 2, replace=False)) for _ in range(queries)]
    return Sample(points, rects, pa.array(texts), pa.array(keywords))


# fmt: off
TABLE = [
    # executors of six partitions, their times, and what is moved
    ([0, 0, 0, 1, 1, 1],  [10, 10, 10, 9, 9, 9],    []),                  # within σ
    ([0, 0, 0, 0, 1, 1],  [10, 10, 10, 10, 10, 10], [Move(0, 1)]),        # half of the gap
    ([0, 0, 0, 0, 1, 1],  [40, 3, 3, 4, 5, 5],      [Move(1, 1), Move(2, 1), Move(3, 1)]),  # 40 would change places
    ([0, 0, 1, 1, 2, 2],  [30, 30, 5, 5, 20, 20],   [Move(0, 1)]),        # from the most to the least loaded
]
# fmt: on


@pytest.mark.parametrize(("executors", "times_us", "moves"), TABLE)
def test_the_most_loaded_executor_hands_over_half_of_the_gap(
    executors: list[int], times_us: list[int], moves: list[Move]
) -> None:
    plan = line(executors)
    decision = Ps2Adjusted(pairs_max=1).rebalance(plan, report(plan, times_us))
    assert list(decision.changes) == moves
    assert decision.why["decision"] == ("adjust" if moves else "wait")
    json.dumps(dict(decision.why))


def test_no_more_than_sigma_asks_for_is_moved_where_every_byte_counts() -> None:
    plan = line([0] * 10 + [1] * 6)
    level, frugal = (
        len(Ps2Adjusted(sigma=1.3, aim=aim, pairs_max=1).rebalance(plan, report(plan, [10] * 16)).changes)
        for aim in (1.0, 1.3)
    )
    assert (level, frugal) == (2, 1)  # 80 : 80, or 90 : 70


def test_a_partition_larger_than_the_gap_is_cut_in_two() -> None:
    plan = line([0, 1], rows=8)
    decision = Ps2Adjusted(pairs_max=1).rebalance(plan, report(plan, [80, 20]))
    (cut,) = decision.changes
    assert isinstance(cut, Split)
    assert (cut.partition, cut.axis) == (0, "row")
    proposed = plan.apply(decision.changes)
    moved = sum(p.cells for p in proposed.partitions if p.executor == 1) - 8
    assert moved == 3  # 3/8 of 80, the half of the gap, as far as areas tell


def test_a_cell_too_hot_for_one_executor_is_shared_by_terms_and_again_when_it_grows_hotter() -> None:
    rng = np.random.default_rng(1)
    sample = words_around(rng, 400, 300, 3.5, 0.1)  # all in cell (4, 3)
    plan = uniform(GRID, 1).replace_by(Plan(0, GRID, 3, (Partition(0, 0, 0, 7, 7, 0),), 1), "")
    costs = Costs(c1_check=0.06, c2_event=0.6)  # an event is compared with much, and a copy of it costs little
    coordinator = Coordinator(Ps2Adjusted(global_every_rounds=0, costs=costs))
    maxima = []
    for number in range(1, 16):
        text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
        times = (1000 * tally(plan, text).weights(costs)).astype(int).tolist()
        maxima.append(np.bincount(plan.executor_of_slot, times, minlength=3).max())
        outcome = coordinator.decide(plan, report(plan, times, sample, number))
        plan = outcome.plan or plan
    hot = [p for p in plan.partitions if p.cut is not None]
    assert {p.executor for p in hot} == {0, 1, 2}
    assert plan.cuts[0].count == 3 * SHARES_PER_EXECUTOR  # the cell has the work of three executors
    assert maxima[-1] < 0.5 * maxima[0]


def test_an_executor_that_cannot_be_relieved_does_not_keep_the_others_waiting() -> None:
    plan = line([0, 1, 1, 1, 2])  # executor 0 has a single cell, which cannot be cut without a sample
    decision = Ps2Adjusted().rebalance(plan, report(plan, [100, 20, 20, 20, 20]))
    assert list(decision.changes) == [Move(1, 2)]
    assert list(Ps2Adjusted(pairs_max=1).rebalance(plan, report(plan, [100, 20, 20, 20, 20])).changes) == []


def test_shares_that_have_grown_too_coarse_are_divided_further_and_no_other_term_changes_its_owner() -> None:
    sample = words_around(np.random.default_rng(8), 600, 400, 3.5, 0.1)
    text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
    coarse = TermCut.of(3, {int(h): i % 3 for i, h in enumerate(text.hashes[1::2])})  # the others go by their hashes
    plan = Plan(0, GRID, 4, (Partition(0, 0, 0, 7, 7, 0),), 1).apply([Divide(0, coarse, (0, 1, 2))])
    seen = see(plan, plan, report(plan, [500, 300, 200]).load, tally(plan, text), COSTS, 1.0)
    (part,) = (p for p in plan.partitions if p.executor == 0)
    merge, divide = hand_over_share(seen, part, text, COSTS, 3, 0.5)
    assert isinstance(merge, Merge)
    assert isinstance(divide, Divide)
    assert divide.terms.count == 66  # at least 4 * SHARES, in 22 parts of each
    hashes = np.concatenate([text.hashes, np.random.default_rng(9).integers(0, 1 << 63, 1000, np.uint64)])
    before, after = coarse.shares_of(hashes), np.array(divide.executors)[divide.terms.shares_of(hashes)]
    assert (after[before != 0] == before[before != 0]).all()
    assert set(after[before == 0]) == {0, 3}
    proposed = plan.apply([merge, divide])
    proposal = see(proposed, plan, report(plan, [500, 300, 200]).load, tally(proposed, text), COSTS, 1.0, seen.counted)
    assert proposal.of_executor[1:3].tolist() == pytest.approx([300, 200])  # terms that stay keep their time
    assert proposal.of_executor[0] < 400
    assert proposal.of_executor[3] == pytest.approx(proposal.of_executor[0], rel=0.2)
    assert proposal.of_executor[[0, 3]].sum() > 500  # events with words of both visit both


def test_phase_one_divides_a_cell_where_queries_are_kept_and_never_here() -> None:
    rng = np.random.default_rng(2)
    sample = words_around(rng, 400, 300, 1.0, 0.3, said=1)
    plan = Plan(0, GRID, 2, (Partition(0, 0, 0, 7, 3, 0), Partition(1, 0, 4, 7, 7, 1)), 2)
    text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
    times = [900, 100]
    costs = Costs(c1_check=1.0, c2_event=1.0, c3_insertion=0.1, c4_deletion=0.1)
    printed = Ps2Adjusted(replicates=True, costs=costs, pairs_max=1, global_every_rounds=0)
    kept = printed.rebalance(plan, report(plan, times, sample))
    (divide, *_) = kept.changes
    assert isinstance(divide, Divide)
    assert kept.why["divided"] == 1
    before, after = (executor_loads(p, text, costs).sum() for p in (plan, plan.apply([divide])))
    assert after < before  # Definition 1 of the paper
    ours = Ps2Adjusted(costs=costs, pairs_max=1, global_every_rounds=0).rebalance(plan, report(plan, times, sample))
    assert not any(isinstance(change, Divide) for change in ours.changes)


def test_shares_of_one_place_are_joined_if_that_saves_copies_of_events() -> None:
    rng = np.random.default_rng(3)
    sample = words_around(rng, 300, 300, 1.0, 0.2)
    parts = (Partition(0, 0, 0, 7, 3, 0), Partition(1, 0, 4, 7, 7, 0))
    plan = Plan(0, GRID, 2, parts, 2).apply([Divide(0, TermCut.of(2, {}), (0, 1))])
    times = {1: 700, 2: 300, 3: 250}  # 1 is the untouched one; 2 and 3 are the shares
    decision = Ps2Adjusted(pairs_max=1, sigma=1.5, global_every_rounds=0).rebalance(
        plan, report(plan, [times[p.id] for p in plan.partitions], sample)
    )
    assert decision.changes[0] == Merge((2, 3), 1)
    assert decision.why["joined"] == 1


def test_a_fresh_plan_takes_over_when_it_promises_enough() -> None:
    rng = np.random.default_rng(4)
    sample = words_around(rng, 600, 400, 1.5, 0.8)
    plan = uniform(GRID, 4)  # one quarter has it all
    text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
    times = (1000 * tally(plan, text).weights(COSTS)).astype(int).tolist()
    coordinator = Coordinator(Ps2Adjusted(global_every_rounds=5))
    early = coordinator.decide(plan, report(plan, times, sample, number=4))
    assert early.entry.decision != "global"
    due = coordinator.decide(plan, report(plan, times, sample, number=5))
    assert due.plan is not None
    assert due.entry.decision == "global"
    assert float(due.entry.why["global_fresh"]) < 0.8 * float(due.entry.why["global_now"])
    assert due.plan.epoch == 1
    assert not set(due.plan.partition_id_of_slot) & set(plan.partition_id_of_slot)
    assert due.entry.estimate_before is not None
    assert due.entry.estimate_after is not None
    assert due.entry.estimate_after < due.entry.estimate_before
    content = coordinator.decide(due.plan, report(due.plan, [100] * len(due.plan.partitions), sample, number=10))
    assert content.entry.decision != "global"


def test_first_plans_are_hybrid_where_words_are_known() -> None:
    sample = words_around(np.random.default_rng(5), 300, 200, 4.0, 2.0)
    plain = Sample(sample.points, sample.rects)
    assert Ps2Adjusted().first_plan(GRID, 4, plain) == uniform(GRID, 4)
    text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
    assert Ps2Adjusted().first_plan(GRID, 4, sample) == hybrid(GRID, 4, text, costs=ENGINE)


def test_the_time_of_what_is_gone_goes_to_what_is_in_its_place() -> None:
    plan = line([0, 0, 1, 1], rows=4)
    load = report(plan, [40, 10, 20, 20]).load
    proposed = plan.apply([Split(0, "row", 0, (0, 1)), Merge((2, 3), 1)])
    seen = see(proposed, plan, load, None, COSTS, 1.0)
    by_id = dict(zip(proposed.partition_id_of_slot.tolist(), seen.times.tolist(), strict=True))
    assert by_id == {1: 10.0, 4: 10.0, 5: 30.0, 6: 40.0}
    assert seen.is_proposed.tolist() == [False, True, True, True]
    assert seen.of_executor.tolist() == [20.0, 70.0]


@pytest.mark.parametrize("executors", [2, 5])
def test_partitions_are_counted_as_the_load_model_counts_executors(executors: int) -> None:
    rng = np.random.default_rng(6)
    sample = words_around(rng, 300, 200, 4.0, 2.5)
    text = TextSample.of(GRID, *sample[:2], sample[2], sample[3])
    plan = uniform(GRID, executors)
    cut = TermCut.of(3, {})
    plan = plan.apply([Divide(plan.partitions[0].id, cut, tuple(rng.integers(0, executors, 3).tolist()))])
    for replicates in (True, False):
        want = executor_loads(plan, text, COSTS, replicates=replicates)
        assert tally(plan, text).loads(text, COSTS, replicates=replicates) == pytest.approx(want)


@pytest.mark.parametrize("wrong", [{"sigma": 1.0}, {"aim": 2.0}, {"way": "best"}, {"pairs_max": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="give"):
        Ps2Adjusted(**wrong)
