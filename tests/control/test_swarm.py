"""SWARM acts when it pays, and what it hands over makes the costliest cheaper: loads in, loads out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.lines import Loads, line, report_of
from core.stats.by_hand import Cell, Rect, arrive, stat_of, worlds
from geoswarm.control.balance.merge import find_merges, find_rectangles
from geoswarm.control.balance.split import best_split
from geoswarm.control.balance.subset import find_subset
from geoswarm.control.balance.swarm import DecisionMachine, Swarm
from geoswarm.control.estimate import executor_costs
from geoswarm.core.space.change import Merge
from geoswarm.core.space.partition import Partition
from geoswarm.core.stats.redraw import redraw_stats
from geoswarm.core.stats.triostat import Box
from geoswarm.errors import InputError, SettingsError

UNHURRIED = settings(deadline=None)


def eager_swarm(**settings: float) -> Swarm:
    """One that will rebalance in its next round."""
    swarm = Swarm(**settings)  # type: ignore[arg-type]
    swarm.machine.rebalances = True
    return swarm


# fmt: off
LOADS = [
    ([[[4], [3], [1]], []],             [4, 4],      "move"),   # the largest that fits
    ([[[5], [4]], [[1]]],               [5, 5],      "move"),
    ([[[9], [2], [2]], []],             [9, 4],      "move"),   # several at once
    ([[[9], [8, 8]], [[1]]],            [16, 10],    "move"),   # whole partitions before any split
    ([[[1, 1, 1, 1]], []],              [2, 2],      "split"),
    ([[[7, 1, 1, 1]], []],              [3, 7],      "split"),  # the hot half may move ...
    ([[[7, 1, 1, 1]], [[4]]],           [7, 7],      "split"),  # ... or the rest
    ([[[6, 1]], [[5]]],                 [6, 6],      "split"),
    ([[[10, 10], [0]], [[1]]],          [10, 11],    "split"),  # what costs nothing is no relief
    ([[[20], [10, 9]], [[4]]],          [29, 14],    "split"),  # one cell cannot be cut: the next largest
    ([[[20], [11, 0, 8]], [[4]]],       [28, 15],    "split"),
    ([[[20]], [[5, 5]], [[1]]],         [20, 5, 6],  "split"),  # the highest has nothing: the next highest
    ([[[20]], [[5], [4]], [[1]]],       [20, 5, 5],  "move"),
    ([[[9]], [[1]]],                    [9, 1],      "nothing to hand over"),
    ([[[4, 4]], [[5]]],                 [8, 5],      "nothing to hand over"),  # don't over balance
    ([[[5]], [[5]]],                    [5, 5],      "nothing to hand over"),
    ([[[0, 0]], [[0]]],                 [0, 0],      "nothing to hand over"),
    ([[[5, 5]]],                        [10],        "nothing to hand over"),  # no executor to hand it to
]
# fmt: on


@pytest.mark.parametrize(("loads", "after", "decision"), LOADS)
def test_loads_in_loads_out(loads: Loads, after: list[float], decision: str) -> None:
    plan, stats = line(loads)
    found = eager_swarm().rebalance(plan, report_of(stats))
    assert found.why["decision"] == decision
    assert executor_costs(plan.apply(found.changes), redraw_stats(stats, plan.apply(found.changes))).tolist() == after


def test_the_reasons_carry_the_numbers_of_a_split() -> None:
    plan, stats = line([[[20], [10, 9]], [[4]]])
    why = eager_swarm().rebalance(plan, report_of(stats)).why
    told = {k: why[k] for k in ("from", "to", "cost_high", "cost_low", "cost_moved_max", "cost_moved", "cost_kept")}
    assert told == {
        "from": 0, "to": 1, "cost_high": 39, "cost_low": 4, "cost_moved_max": 17.5, "cost_moved": 10, "cost_kept": 9,
    }  # fmt: skip
    assert (why["partition"], why["cost_partition"], why["cost_diff"]) == (1, 19, 15)


def test_a_subset_too_small_to_matter_can_be_passed_over_for_a_split() -> None:
    plan, stats = line([[[20, 20], [1]], []])
    assert eager_swarm().rebalance(plan, report_of(stats)).why["decision"] == "move"
    assert eager_swarm(subset_share_min=0.1).rebalance(plan, report_of(stats)).why["decision"] == "split"


# fmt: off
DECISIONS = [
    (20, [5, 5, 5, 5, 5, 5, 5, 5],          "wwwrrwwr"),  # first a step right, from nothing; then two lefts flip
    (20, [9, 8, 7, 6, 5, 4, 3, 2],          "wwwrrwwr"),
    (20, [5, 4, 3, 2, 3, 4, 5, 6, 5, 4, 3], "wwwrrrrrrrr"),  # far right: four lefts are needed
    (20, [5, 4, 3, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0, 0], "wwwrrrrrrrrwwrr"),
    (20, list(range(1, 23)),                "w" * 20 + "rr"),  # ever better, but β
    (3,  [5, 4, 5, 4, 5, 4, 5],             "wwwrrrw"),        # up and down, but β
    (1,  [1, 2, 3, 4],                      "wrwr"),
]
# fmt: on


@pytest.mark.parametrize(("beta", "arrivals", "decisions"), DECISIONS)
def test_the_decision_is_kept_while_arrivals_grow_and_flipped_after_two_steps_left(
    beta: int, arrivals: list[float], decisions: str
) -> None:
    machine = DecisionMachine(beta)
    assert "".join("wr"[machine.step(r)] for r in arrivals) == decisions


def test_it_waits_with_the_reason_until_arrivals_stop_growing() -> None:
    plan, stats = line([[[4], [3], [1]], []])
    swarm = Swarm()
    kinds = [swarm.rebalance(plan, report_of(stats, i)).why["decision"] for i in range(4)]
    assert kinds == ["wait", "wait", "wait", "move"]


# fmt: off
SUBSETS = [
    ({1: 5.0, 2: 3.0, 3: 2.0}, 10.0, 0.0, (1,),      5.0),   # exactly half: stops there
    ({1: 6.0, 2: 3.0, 3: 1.0}, 10.0, 0.0, (2, 3),    4.0),
    ({1: 4.0, 2: 4.0, 3: 2.0}, 10.0, 0.0, (1,),      4.0),   # ties go to the older
    ({1: 9.0, 2: 0.0},          9.0, 0.0, (),        0.0),   # by the paper, it would move partition 2
    ({},                        0.0, 0.0, (),        0.0),
]
# fmt: on


@pytest.mark.parametrize(("costs", "high", "low", "chosen", "moved"), SUBSETS)
def test_the_subset_is_the_largest_first_that_fits(
    costs: dict[int, float], high: float, low: float, chosen: tuple[int, ...], moved: float
) -> None:
    subset = find_subset(costs, high, low)
    assert (subset.partitions, subset.cost) == (chosen, moved)
    assert subset.cost_max == (high - low) / 2


@UNHURRIED
@given(worlds(), st.floats(0, 1), st.floats(0, 1))
def test_the_binary_searches_find_what_trying_every_cut_finds(
    world: tuple[Box, list[Cell], list[Rect]], others: float, low: float
) -> None:
    box, points, queries = world
    stat = stat_of(box, points[::2], queries[::2])
    arrive(stat, points[1::2], queries[1::2])
    stat.close_round()
    cost_high = stat.cost * (1 + others)
    cost_low = cost_high * low
    every = []
    for axis in ("row", "column"):
        a, b = (half.cost for half in stat.halves(axis))
        every += [np.abs(cost_high - stat.cost + kept - cost_low - moved) for kept, moved in ((a, b), (b, a))]
    cut = best_split(7, stat, cost_high, cost_low)
    if box.cells == 1:
        assert cut is None
    else:
        assert cut is not None
        assert abs(cut.cost_diff) == pytest.approx(min(float(e.min()) for e in every if e.size))


# --- merging

PINWHEEL = [(0, 0, 3, 1), (0, 2, 1, 5), (2, 2, 3, 3), (2, 4, 5, 5), (4, 0, 5, 3)]


def parts_of(*boxes: tuple[int, int, int, int]) -> list[Partition]:
    return [Partition(i, *box, executor=0) for i, box in enumerate(boxes)]


# fmt: off
RECTANGLES = [
    ([(0, 0, 1, 1), (0, 2, 1, 3)],                                   (0, 1)),
    ([(0, 0, 1, 1), (2, 0, 3, 1)],                                   (0, 1)),
    ([(0, 0, 1, 1), (0, 2, 2, 3)],                                   None),  # heights differ
    ([(0, 0, 1, 1), (0, 3, 1, 4)],                                   None),  # apart
    ([(0, 0, 1, 1), (2, 2, 3, 3)],                                   None),  # touch at a corner
    ([(0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 1, 0), (1, 1, 1, 1)],       (0, 1, 2, 3)),
    ([(0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 1, 1), (5, 5, 6, 6)],       (0, 1, 2)),
    (PINWHEEL,                                                       (0, 1, 2, 3, 4)),  # no two of them do
    (PINWHEEL[:4],                                                   None),
    ([(3, 3, 4, 4)],                                                 None),
]
# fmt: on


@pytest.mark.parametrize(("boxes", "largest"), RECTANGLES)
def test_partitions_that_form_a_rectangle_are_found(
    boxes: list[tuple[int, int, int, int]], largest: tuple[int, ...] | None
) -> None:
    found = find_rectangles(parts_of(*boxes))
    assert (found[0] if found else None) == largest


def test_only_an_executors_own_partitions_are_merged() -> None:
    plan, stats = line([[[1], [1], [1]], [[2]], [[0], [0], [30]]])
    merges = find_merges(plan, stats)
    assert merges.changes == [Merge((0, 1, 2), 0), Merge((4, 5), 2)]  # 4, 5 and 6 together count a query thrice
    assert merges.left_out == 1


def test_a_merge_that_would_make_its_executor_the_costliest_waits() -> None:
    #  N·Q·R of the union is at most 8 * 2 * 2, since either may count the one query
    plan, stats = line([[[4], [4]], [[31]]])
    assert find_merges(plan, stats) == ([], 1)
    plan, stats = line([[[4], [4]], [[32]]])
    assert find_merges(plan, stats) == ([Merge((0, 1), 0)], 0)


def test_merging_has_its_own_slower_clock() -> None:
    plan, stats = line([[[1], [1], [1]], [[50]]])
    swarm = Swarm(merge_every_rounds=3)
    kinds = [swarm.rebalance(plan, report_of(stats, i)).why["decision"] for i in range(6)]
    assert [i for i, kind in enumerate(kinds) if kind == "merge"] == [2, 5]


@pytest.mark.parametrize("wrong", [{"beta": 0}, {"merge_every_rounds": 0}, {"subset_share_min": 1.5}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="give"):
        Swarm(**wrong)  # type: ignore[arg-type]


def test_a_partition_without_statistics_is_named() -> None:
    plan, stats = line([[[1], [1]], [[5]]])
    del stats[1]
    with pytest.raises(InputError, match="1 of 3 partitions of plan 0 have no statistics, such as 1"):
        executor_costs(plan, stats)
