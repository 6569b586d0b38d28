"""Changes to how the terms of one place are shared: divide it in two, join two shares, or hand some shares over.

`adjust.py` decides whether a change is worth it. The first two are PS2Stream §V-A, Phase I. The third is not in the
paper, which migrates whole cells: one cell of a large town, or half of it, can be more than an executor's part of all
work. So its terms are divided into many shares of about the same load, and executors hold some of these. When shares
become too coarse for the load to be moved, each is divided further, and no term changes its owner by that:

    12 shares, owner of share s      ──►  60 shares, owner of share s is the former owner of s modulo 12
    an unlisted term: hash mod 12    ──►  hash mod 60, which is the same modulo 12
"""

import numpy as np

from geoswarm.control.balance.seen import Seen
from geoswarm.control.layout.load_model import Costs
from geoswarm.control.layout.places import anything_first, term_cut
from geoswarm.control.layout.terms import by_load
from geoswarm.control.layout.text_sample import ANYTHING, TextSample
from geoswarm.control.layout.unit import Unit, checks_of, counts_of
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.change import Change, Divide, Merge
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.stats.triostat import Box
from geoswarm.core.text.cut import LISTED_MAX, SHARES_MAX, TermCut

SHARES_PER_EXECUTOR = 16
"""The number of shares that an executor's part of all work is divided into: the finest load that can be moved."""


def divide_in_two(part: Partition, text: TextSample, costs: Costs, high: int, low: int) -> Divide | None:
    """Divides a partition into two shares of about the same load; `low` gets the one with fewer queries."""
    unit = Unit.whole(text).within(Box(*part.box))
    shares = anything_first(by_load(unit, 2, costs))
    if not {0, 1} <= set(shares.tolist()):
        return None
    first, second = (len(half.queries) for half in unit.divide(shares, 2))
    return Divide(part.id, term_cut(2, shares, text), (high, low) if first >= second else (low, high))


def join_shares(seen: Seen, part: Partition, low: int) -> Merge | None:
    """Joins a share with a share of the same place that `low` has."""
    for slot in seen.slots_held_by(low)[~seen.is_proposed[seen.slots_held_by(low)]]:
        other = seen.plan.partitions[slot]
        if other.cut == part.cut and other.box == part.box:
            return Merge((part.id, other.id), low)
    return None


def hand_over_share(
    seen: Seen, part: Partition, text: TextSample, costs: Costs, low: int, share: float
) -> list[Change]:
    """Moves about `share` of a partition's load to `low`, by terms; other executors of the place keep theirs."""
    plan, unit = seen.plan, Unit.whole(text).within(Box(*part.box))
    family = [slot for slot, p in enumerate(plan.partitions) if p.box == part.box]
    fine = int(
        np.ceil(SHARES_PER_EXECUTOR * seen.times[family].sum() / seen.of_executor.mean()).clip(
            SHARES_PER_EXECUTOR, SHARES_MAX // 2
        )
    )
    if part.cut is None:
        cut = term_cut(fine, anything_first(by_load(unit, fine, costs)), text)
        owners = [part.executor] * fine
    else:
        cut, owners = plan.cuts[part.cut], _owners(plan, family)
        if 2 * cut.count <= fine:
            owners *= -(-fine // cut.count)
            cut = refine_cut(cut, len(owners), unit, costs)
    mine = np.flatnonzero(np.array(owners) == part.executor)
    loads: Floats = np.bincount(cut.shares_of(text.hashes), _loads(unit, costs), minlength=cut.count).astype(float)[
        mine
    ]
    for i in mine[_count_out(loads, share * float(loads.sum()))]:
        owners[i] = low
    if part.executor not in owners or owners.count(part.executor) == len(mine):
        return []
    whole: list[Change] = []
    if len(family) > 1:
        whole = [Merge(tuple(plan.partitions[slot].id for slot in family), part.executor)]
    return [*whole, Divide(plan.next_partition_id if whole else part.id, cut, tuple(owners))]


def refine_cut(cut: TermCut, count: int, unit: Unit, costs: Costs) -> TermCut:
    """Divides each share further: a term of share s now was in share s modulo the former count before."""
    text, loads, coarse = unit.sample, _loads(unit, costs), cut.shares_of(unit.sample.hashes).astype(np.int64)
    coarse[ANYTHING] = 0
    sums = np.zeros((count // cut.count, cut.count))
    shares = np.full(text.terms, -1, np.int64)
    for term in np.argsort(-loads, kind="stable")[: np.count_nonzero(loads)].tolist():
        part = int(np.argmin(sums[:, coarse[term]])) if term != ANYTHING else 0
        sums[part, coarse[term]] += loads[term]
        shares[term] = coarse[term] + part * cut.count
    fresh = term_cut(count, shares, text)
    # A listed term that is not in this sample would go by its hash, and might change its owner.
    kept = ~np.isin(cut.hashes, fresh.hashes)
    hashes = np.concatenate([fresh.hashes, cut.hashes[kept]])[:LISTED_MAX]
    both = np.concatenate([fresh.shares, cut.shares[kept]])[:LISTED_MAX]
    order = np.argsort(hashes)
    return TermCut(count, hashes[order], both[order])


def _loads(unit: Unit, costs: Costs) -> Floats:
    """The cost of each term's events in the unit."""
    text = unit.sample
    said = counts_of(unit.events, text.asked, text.terms)
    found: Floats = costs.c1_check * checks_of(unit.events, text.asked, text.checks, text.terms) + costs.c2_event * said
    return found


def _count_out(loads: Floats, wanted: float) -> list[int]:
    """Picks shares, largest first, that still fit; if none does, the smallest, unless it is twice too large."""
    found, sum_ = list[int](), 0.0
    for i in np.argsort(-loads, kind="stable").tolist():
        if 0 < loads[i] <= wanted - sum_:
            found.append(i)
            sum_ += float(loads[i])
    some = np.flatnonzero(loads)
    if not found and len(some):
        least = int(some[np.argmin(loads[some])])
        found = [least] if loads[least] < 2 * wanted else []
    return found


def _owners(plan: Plan, family: list[int]) -> list[int]:
    """The executor of each share."""
    owner_of = {share: plan.partitions[slot].executor for slot in family for share in plan.partitions[slot].shares}
    return [owner_of[share] for share in range(len(owner_of))]
