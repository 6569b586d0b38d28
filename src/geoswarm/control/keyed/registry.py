"""All planners of keyed state by name: ours, found by looking into this folder, and those of other packages.

A planner is made by `kind(limits, **options)`. θ_max, A_max and β are settings of every keyed operator
(`config.KeyTuning`); its `options` are the other limits of `problem.Limits`, and what a planner takes beside them.
Strategies, which plan places, are in `control/balance/`, found by `control/registry.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geoswarm.config import KeyBalancing
from geoswarm.control.keyed.problem import Limits, Planner
from geoswarm.errors import SettingsError
from geoswarm.parameters import Parameter, check_options, parameters_of, suggestion
from geoswarm.registry import Registry, classes_in

PLANNER_PARTS = ("name", "rebalance")
LIMITS_OF_TUNING = ("theta_max", "table_max", "beta")
"""Limits that are fields of `KeyTuning`."""
LIMITS_OF_OPTIONS = ("level_bits", "table_is_soft", "theta_is_two_sided")
"""Limits that are options of the planners whose `heeds` names them."""


def _name_of(kind: Any) -> str | None:
    return kind.name if isinstance(getattr(kind, "name", None), str) and hasattr(kind, "rebalance") else None


PLANNERS: Registry[Planner] = Registry(
    "planner of keys", "geoswarm.planners", classes_in("geoswarm.control.keyed", _name_of), PLANNER_PARTS
)


def planners() -> dict[str, Any]:
    """The planners of this package by name; each is made by `kind(limits)`."""
    return dict(PLANNERS.ours())


def planner(name: str, limits: Limits | None = None, options: Mapping[str, Any] | None = None) -> Planner:
    """The planner of this name, which may be one that only compares."""
    kind, limits = PLANNERS.kind(name), limits or Limits()
    mine = check_planner_options(name, options or {})
    changed = {key: mine.pop(key) for key in LIMITS_OF_OPTIONS if key in mine}
    made: Planner = kind(limits=replace(limits, **changed), **mine)  # type: ignore[call-arg]
    return made


def resolve_planner(tuning: KeyBalancing, window: int) -> Planner:
    """The planner of a running stream, whose operator keeps state for `window` intervals."""
    check_planner(tuning)
    limits = Limits(tuning.theta_max, tuning.table_max, tuning.beta, window)
    return planner(tuning.planner, limits, tuning.options)


def check_planner(tuning: KeyBalancing) -> None:
    """Raises SettingsError for a planner, or options, that a stream cannot run with."""
    kind = PLANNERS.kind(tuning.planner)
    if getattr(kind, "only_compares", False):
        runs = [name for name, each in planners().items() if not getattr(each, "only_compares", False)]
        raise SettingsError(
            f"planner {tuning.planner} does not route by a plan: a stream would route by plain hash, and report loads "
            f"that are not true. It is there to compare with: use one of {', '.join(sorted(runs))}"
        )
    check_planner_options(tuning.planner, tuning.options)


def check_planner_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    kind, who = PLANNERS.kind(name), f"planner {name}"
    for key in options:
        if key in LIMITS_OF_TUNING:
            raise SettingsError(f"{key} is no option of a planner: give it beside them, as KeyTuning({key}=...)")
        known = [parameter.name for parameter in planner_parameters(kind)]
        if key not in known:
            raise SettingsError(f"{who} has no parameter {key!r}: {suggestion(key, known) if known else 'it has none'}")
    limits = {key: value for key, value in options.items() if key in LIMITS_OF_OPTIONS}
    own = {key: value for key, value in options.items() if key not in LIMITS_OF_OPTIONS}
    checked = check_options(kind, own | {"limits": Limits()}, who)
    del checked["limits"]
    return check_options(Limits, limits, who) | checked


def planner_parameters(kind: Any) -> list[Parameter]:
    """The parameters that `options` may set for a planner of this class."""
    shared = [parameter for parameter in parameters_of(Limits) if parameter.name in getattr(kind, "heeds", ())]
    return shared + [parameter for parameter in parameters_of(kind) if parameter.name not in ("limits", "name")]
