"""All strategies by name: ours, found by looking into `balance/`, and those of other packages (`geoswarm.strategies`).

A new strategy in `balance/` is listed, and tested by the laws, without further steps. Its parameters are those of its
constructor.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geoswarm.control.layout.uniform import uniform
from geoswarm.control.strategy import Sample, Strategy, draws_from_sample
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError
from geoswarm.registry import Registry, classes_in

STRATEGY_PARTS = ("name", "needs_stats", "needs_sample", "first_plan", "rebalance", "estimate")
"""What makes a class a strategy."""


def _name_of(kind: Any) -> str | None:
    return kind.name if all(hasattr(kind, part) for part in STRATEGY_PARTS) else None


STRATEGIES: Registry[Strategy] = Registry(
    "strategy", "geoswarm.strategies", classes_in("geoswarm.control.balance", _name_of), STRATEGY_PARTS
)


def strategies() -> dict[str, type[Strategy]]:
    """The strategies of this package, by name."""
    return STRATEGIES.ours()


def strategy(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    return STRATEGIES.make(name, options)


def resolve_strategy(chosen: str | Strategy, options: Mapping[str, Any] | None = None) -> Strategy:
    """The strategy of this name with these options, or the given instance. A strategy keeps memory between rounds, so
    every stream needs its own."""
    if isinstance(chosen, str):
        return strategy(chosen, options)
    lacks = [part for part in STRATEGY_PARTS if not hasattr(chosen, part)]
    if lacks:
        raise SettingsError(f"{chosen!r} is no strategy, since it has no {', '.join(lacks)}: see control/strategy.py")
    if inspect.isclass(chosen):
        raise SettingsError(f"strategy {chosen.name} is given as a class: call it, or give its name")
    if options:
        raise SettingsError(
            f"strategy {chosen.name} is made already, and options {', '.join(options)} would not reach it: give it "
            "these when it is made, or give its name"
        )
    return chosen


def first_plan(
    chosen: str | Strategy, sample: Sample | None, grid: Grid, executors: int, options: Mapping[str, Any] | None = None
) -> Plan:
    """The first plan of a strategy, with the strategy's name in `drawn_by`. A strategy that draws from a sample and has
    none gets equal shares of the map, with an empty `drawn_by`, until the first batch has come."""
    made = resolve_strategy(chosen, options)
    if sample is None and draws_from_sample(made):
        return uniform(grid, executors)
    return replace(made.first_plan(grid, executors, sample), drawn_by=made.name)
