"""All planners of keyed state by name, found by looking into this folder: a new one joins, and is tested, by existing.

Planners of space are in `control/balance/`, found by `control/registry.py`.
"""

import importlib
import inspect
import pkgutil
from typing import Any

from geoswarm.control import keyed
from geoswarm.control.keyed.problem import Limits, Planner
from geoswarm.errors import SettingsError


def planners() -> dict[str, Any]:
    """Every class here with a name and a way to rebalance; each is made by `kind(limits)`."""
    found: dict[str, Any] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(keyed.__path__)):
        members = inspect.getmembers(importlib.import_module(f"{keyed.__name__}.{module}"), inspect.isclass)
        kind: Any
        for _, kind in members:
            has_all = isinstance(getattr(kind, "name", None), str) and hasattr(kind, "rebalance")
            if has_all and kind.__module__ == f"{keyed.__name__}.{module}":
                found[kind.name] = kind
    return found


def planner(name: str, limits: Limits | None = None) -> Planner:
    known = planners()
    if name not in known:
        raise SettingsError(f"there is no planner of keys {name!r}: use one of {', '.join(sorted(known))}")
    made: Planner = known[name](limits or Limits())
    return made
