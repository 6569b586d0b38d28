"""What one user may do in the first seconds, before any detection, and what a subscription costs.

`detector.py` finds attacks, `accounts.py` keeps the accounts. This is not in the thesis, whose Guard knows no user
before its first round of 60 s has ended (§5.2).

    cost of a subscription  =  1  +  vertices / 100  +  alternatives of words  +  1000 × its share of the world's area
                             +  characters of `where` / 100  +  objects       (10 ×, if it asks for words or objects)
                             +  windows open at once  ×  10, if it needs a sketch  ×  10, if it has groups

A rectangle in a city costs 1. One round the world costs 1001, because every event meets it; with words 12 and more,
because only events with these words are compared; so it is with objects. The last line is that of an aggregate, whose
state is kept for every slide of a window: 1 for count by the minute, 50 for quantiles of five minutes every minute, 500
with groups. Costs are kept in thousandths, as integers, so sums stay exact.
"""

from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from geoswarm.core.aggregates.spec import SKETCHED
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.aggregate import AggregateValues
from geoswarm.guard.names import NAME_BYTES_MAX
from geoswarm.guard.rules import GuardRules

PARTS_PER_COST = 100
AREA_COST = 1000
AREA_COST_WORDED = 10
THOUSANDTHS = 1000
SKETCH_COST = 10
"""A sketch takes some KB, and merging it microseconds; other partial aggregates take tens of bytes."""
GROUPS_COST = 10
"""How many groups there are is for the stream to say: many subscriptions have some ten."""
PAST_OPERATIONS = 10
"""Operations that the past of a subscription counts as, for each unit of the subscription's cost: kept events are read
and matched once, which takes as long as some operations do, and round the world as long as ten thousand."""

Removes = Literal["nothing", "recent", "all"]
LETTERS_MAX = 10_000
"""The most refused rows of one version that are kept in full; more are counted, in one dead letter for each reason. A
blocked user must not be able to fill the disk."""


class UserLimits(BaseModel):
    """The limits of each user. They do not hold for exempt users, nor for what an operator loads in bulk."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    user_operations_per_s: float = Field(default=200.0, gt=0)
    """The long-term rate: ten times that of the busiest normal user of the thesis."""
    user_operations_burst: int = Field(default=20_000, ge=1)
    """Operations at once, after a pause: a new application registers all its subscriptions."""
    user_subscriptions_max: int = Field(default=1_000_000, ge=1)
    """Live subscriptions: at most a hundredth of what an engine can hold."""
    user_cost_max: float = Field(default=2_000_000.0, gt=0)
    """The cost of all live subscriptions, as defined above: as many rectangles, or 2000 round the world."""
    user_name_bytes_max: int = Field(default=NAME_BYTES_MAX, ge=1, le=NAME_BYTES_MAX)
    """The length of a name, which several tables keep once for each user."""
    accounts_max: int = Field(default=10_000_000, ge=1)
    """Users with live subscriptions, or with operations in the last seconds; 40 bytes each. Beyond, new users are
    refused, as they are where all places for subscriptions are taken."""


class GuardSettings(GuardRules, UserLimits):
    """All settings of an engine with Guard."""

    remove_queries: Removes = "recent"
    """Which live queries of a user whom Guard blocks are cancelled: none, those of the last five rounds, or all. The
    thesis leaves it open (§5.5). The queries of an attack cost as much after it; a user who is unblocked has to
    register those of the last five rounds again."""
    seed: int | None = Field(default=None, ge=0)
    """The seed of Guard's random numbers. None: the checkpoint's own, which no user can predict."""

    @classmethod
    def of(cls, rules: GuardRules) -> "GuardSettings":
        """Settings with these rules and the default limits, unless they already have limits."""
        return rules if isinstance(rules, cls) else cls(**rules.model_dump())

    @model_validator(mode="after")
    def _bursts(self) -> Self:
        if self.user_operations_burst < self.user_operations_per_s:
            raise ValueError(
                f"a burst of {self.user_operations_burst} operations is less than a second's "
                f"{self.user_operations_per_s:g}: raise user_operations_burst"
            )
        return self


def area_shares(grid: Grid, rects: Floats) -> Floats:
    """The areas of rectangles, as shares of the world's area."""
    world = (grid.xmax - grid.xmin) * (grid.ymax - grid.ymin)
    shares: Floats = (rects[:, 2] - rects[:, 0]) * (rects[:, 3] - rects[:, 1]) / world
    return shares


def past_operations(costs: Ints) -> Ints:
    """The operations that the pasts of subscriptions count as, by their costs in thousandths."""
    return -(-costs * PAST_OPERATIONS // THOUSANDTHS)


def aggregate_costs(counts: AggregateValues) -> Ints:
    """The part of the cost that is an aggregate's; 0 without one."""
    table = np.zeros(len(counts.texts) + 1, np.int64)
    for code, (aggregate, window, group_by, _) in counts.specs().items():
        open_at_once = window.length_us // window.slide_us if window.slide_us else 1
        by_function = SKETCH_COST if aggregate.function in SKETCHED else 1
        table[code] = open_at_once * by_function * (GROUPS_COST if group_by is not None else 1)
    found: Ints = table[counts.codes]
    return found


def costs(areas: Floats, alternatives: Ints, parts: Ints, aggregates: Ints) -> Ints:
    """Costs in thousandths. `areas` are shares of the world's; `alternatives` is 0 without words and objects; `parts`
    are vertices, and characters of a condition."""
    by_area = np.where(alternatives > 0, AREA_COST_WORDED, AREA_COST) * np.clip(areas, 0.0, 1.0)
    whole: Ints = np.rint((1 + parts / PARTS_PER_COST + alternatives + by_area + aggregates) * THOUSANDTHS).astype(
        np.int64
    )
    return whole
