"""All strategies by name, found by looking into `balance/`: a new one joins, and its laws are tested, by existing."""

import importlib
import inspect
import pkgutil
from dataclasses import replace
from typing import Any

from geoswarm.control import balance
from geoswarm.control.strategy import Sample, Strategy
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError


def strategies() -> dict[str, type[Strategy]]:
    """Every class in `control/balance/` with a name, a first plan and a way to rebalance."""
    found: dict[str, type[Strategy]] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(balance.__path__)):
        members = inspect.getmembers(importlib.import_module(f"{balance.__name__}.{module}"), inspect.isclass)
        kind: Any
        for _, kind in members:
            has_all = all(hasattr(kind, part) for part in ("name", "first_plan", "rebalance"))
            if has_all and kind.__module__ == f"{balance.__name__}.{module}":
                found[kind.name] = kind
    return found


def strategy(name: str) -> Strategy:
    known = strategies()
    if name not in known:
        raise SettingsError(f"there is no strategy {name!r}: use one of {', '.join(sorted(known))}")
    return known[name]()


def first_plan(name: str, sample: Sample | None, grid: Grid, executors: int) -> Plan:
    """Of a strategy by name, and signed by it."""
    return replace(strategy(name).first_plan(grid, executors, sample), drawn_by=name)
