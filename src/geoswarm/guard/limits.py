"""What one user may do in the first seconds, before any detection, and what a subscription costs.

Finds no attack (`detector.py` does) and keeps no accounts (`accounts.py` does). Not in the thesis, whose Guard knows
nobody before its first round of 60 s has ended (§5.2).

    cost of a subscription  =  1  +  vertices / 100  +  alternatives of words  +  1000 × its share of the world's area
                                                                                  (10 ×, if it asks for words)

A rectangle in a city costs 1. One round the world costs 1001, because every event meets it; with words 12 and more,
because only events that say them are looked at. Costs are kept in thousandths, as integers: sums stay exact.
"""

from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.guard.names import NAME_BYTES_MAX
from geoswarm.guard.rules import GuardRules

VERTICES_PER_COST = 100
AREA_COST = 1000
AREA_COST_WORDED = 10
THOUSANDTHS = 1000

Removes = Literal["nothing", "recent", "all"]
LETTERS_MAX = 10_000
"""Rows that Guard refuses and that are kept in full, of one version; more are counted, in one dead letter for each
reason. Whoever is blocked must not fill the disk by going on."""


class UserLimits(BaseModel):
    """Of each user. Whoever is exempt has none of them, nor has what an operator loads in bulk."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    user_operations_per_s: float = Field(default=200.0, gt=0)
    """In the long run: ten times what the busiest of the thesis' normal users does."""
    user_operations_burst: int = Field(default=20_000, ge=1)
    """At once, after a rest: whoever opens an application for the first time brings what there is."""
    user_subscriptions_max: int = Field(default=1_000_000, ge=1)
    """Live ones: a hundredth of what an engine holds by far."""
    user_cost_max: float = Field(default=2_000_000.0, gt=0)
    """Of all live ones together, as defined above: as many rectangles, or 2000 round the world."""
    user_name_bytes_max: int = Field(default=NAME_BYTES_MAX, ge=1, le=NAME_BYTES_MAX)
    """A name is kept in several tables, once for each user."""
    accounts_max: int = Field(default=10_000_000, ge=1)
    """Users with live subscriptions, or who did something in the last seconds; 40 bytes each. Newcomers are refused
    beyond, as they are where all places for subscriptions are taken."""


class GuardSettings(GuardRules, UserLimits):
    """All that an engine with Guard goes by."""

    remove_queries: Removes = "recent"
    """Which standing queries of whoever Guard blocks are cancelled: none, those of the last five rounds, or all. The
    thesis leaves it open (§5.5). What an attack leaves behind costs as much as the attack; a user who is unblocked has
    to register the last five rounds' again."""
    seed: int | None = Field(default=None, ge=0)
    """Of Guard's chance. None: the checkpoint's own, which nobody can foresee."""

    @classmethod
    def of(cls, rules: GuardRules) -> "GuardSettings":
        """Rules without limits get the limits' defaults."""
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
    """Of rectangles, as shares of the world's area."""
    world = (grid.xmax - grid.xmin) * (grid.ymax - grid.ymin)
    shares: Floats = (rects[:, 2] - rects[:, 0]) * (rects[:, 3] - rects[:, 1]) / world
    return shares


def costs(areas: Floats, alternatives: Ints, vertices: Ints) -> Ints:
    """In thousandths. `areas` are shares of the world's; `alternatives` is 0 where no words are asked for."""
    by_area = np.where(alternatives > 0, AREA_COST_WORDED, AREA_COST) * np.clip(areas, 0.0, 1.0)
    whole: Ints = np.rint((1 + vertices / VERTICES_PER_COST + alternatives + by_area) * THOUSANDTHS).astype(np.int64)
    return whole
