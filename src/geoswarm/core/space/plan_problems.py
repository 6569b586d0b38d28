"""What is wrong with a plan: cells without an owner or with two, executors that do not exist, terms in no partition."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from geoswarm.core.space.plan import Plan

PARTITION_ID_MAX = 2**31 - 1  # partition ids are int32 in arrays


def find_problem(plan: "Plan") -> str | None:
    """Why this is not a valid plan, or None. Rectangles are checked first, since painting relies on them."""
    grid, count = plan.grid, len(plan.partitions)
    ids = [p.id for p in plan.partitions]
    if ids != sorted(set(ids)):
        twice = count - len(set(ids))
        return f"uses {twice} partition ids twice" if twice else "does not list its partitions by id"
    if ids and not 0 <= ids[0] <= ids[-1] < plan.next_partition_id <= PARTITION_ID_MAX:
        return f"has partition ids {ids[0]}..{ids[-1]} and next {plan.next_partition_id}, limit {PARTITION_ID_MAX}"
    known = range(plan.executors)  # this runs for every plan of thousands of cells, and few are spread
    strangers = sum(
        p.executor not in known or bool(p.others and not set(p.others) <= set(known)) for p in plan.partitions
    )
    if strangers:
        return f"gives {strangers} of {count} partitions to executors outside 0..{plan.executors - 1}"
    first, last = plan.borders[:, :2], plan.borders[:, 2:]
    wrong = np.any((first < 0) | (first > last) | (last >= (grid.rows, grid.columns)), axis=1)
    if np.any(wrong):
        which = plan.partitions[int(np.argmax(wrong))]
        return (
            f"has {np.count_nonzero(wrong)} of {count} partitions that are empty or leave the grid of "
            f"{grid.rows} rows and {grid.columns} columns, such as {which.id} "
            f"(rows {which.row0}..{which.row1}, columns {which.col0}..{which.col1})"
        )
    divided = _problem_of_terms(plan)
    if divided:
        return divided
    orphans = int(np.count_nonzero(plan.slot_of_cell < 0))
    faults = [f"leaves {orphans} of {grid.cells} cells without an owner"] if orphans else []
    places = {p.box: p for p in plan.partitions if p.cut is not None}.values()
    areas = [*places, *(p for p in plan.partitions if p.cut is None)]
    if sum(p.cells for p in areas) > grid.cells - orphans:  # more area than painted cells
        owners = np.zeros((grid.rows, grid.columns), np.int32)
        for p in areas:
            owners[p.row0 : p.row1 + 1, p.col0 : p.col1 + 1] += 1
        doubles = np.count_nonzero(owners > 1)
        faults.append(f"gives {doubles} of {grid.cells} cells more than one owner")
    return " and ".join(faults) or None


def _problem_of_terms(plan: "Plan") -> str | None:
    """Why terms are not divided correctly (each share of a place to one partition), or None."""
    alone = [p for p in plan.partitions if p.cut is None and p.shares]
    strange = [p for p in plan.partitions if p.cut is not None and not 0 <= p.cut < len(plan.cuts)]
    if alone or strange:
        return f"has partition {(alone + strange)[0].id} with shares of a cut that it does not have"
    for slots in plan.siblings.values():
        parts = [plan.partitions[slot] for slot in slots]
        held = sorted(share for p in parts for share in p.shares)
        cut = parts[0].cut
        if cut is None or {p.cut for p in parts} != {cut} or held != list(range(plan.cuts[cut].count)):
            return f"does not give each share of the terms of partition {parts[0].id}'s place to one partition"
    return None
