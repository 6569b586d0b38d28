"""Strategies and planners by name: with parameters that are checked, as instances, and refused with a remedy."""

from typing import Any

import pytest

from geoswarm.config import KeyTuning
from geoswarm.control.balance.adjust import Ps2Adjusted
from geoswarm.control.balance.distributor import Distributor
from geoswarm.control.balance.layouts import Hybrid
from geoswarm.control.balance.swarm import Swarm
from geoswarm.control.keyed.compact import MixedCompact
from geoswarm.control.keyed.problem import Limits
from geoswarm.control.keyed.registry import PLANNERS, planner, planner_parameters, resolve_planner
from geoswarm.control.layout.uniform import uniform
from geoswarm.control.registry import STRATEGIES, first_plan, resolve_strategy, strategy
from geoswarm.control.strategy import Strategy
from geoswarm.core.space.grid import Grid
from geoswarm.errors import SettingsError
from geoswarm.parameters import Parameter, parameters_of

GRID = Grid(0.0, 0.0, 1.0, 1.0, columns=8, rows=8)


def test_every_parameter_that_a_paper_names_can_be_set() -> None:
    swarm = strategy("swarm", {"beta": 3, "merge_every_rounds": 7})
    assert isinstance(swarm, Swarm)
    assert (swarm.machine.beta, swarm.merge_every_rounds) == (3, 7)
    options = {"threshold": 0.2, "events_min": 5, "periods_min": 1, "gain_min": 0.1}
    distributor = strategy("distributor", options)
    assert isinstance(distributor, Distributor)
    assert {key: getattr(distributor, key) for key in options} == options
    adjusted = strategy("ps2-adjusted", {"sigma": 1.5, "cells_max": 2, "way": "dp", "delta": 0.3, "leaves_max": 40})
    assert isinstance(adjusted, Ps2Adjusted)
    assert (adjusted.sigma, adjusted.cells_max, adjusted.way) == (1.5, 2, "dp")
    assert adjusted.layout.keywords["delta"] == 0.3  # type: ignore[attr-defined]
    hybrid = strategy("ps2-hybrid", {"sigma": 1.2, "delta": 0.4, "leaves_max": 9})
    assert isinstance(hybrid, Hybrid)
    assert (hybrid.sigma, hybrid.delta, hybrid.leaves_max) == (1.2, 0.4, 9)
    mixed = resolve_planner(KeyTuning(theta_max=0.1, table_max=50, beta=2.0, options={"table_is_soft": True}), window=4)
    assert mixed.limits == Limits(0.1, 50, 2.0, 4, table_is_soft=True)
    compact = planner("mixed-compact", Limits(), {"level_bits": 5, "as_printed": True})
    assert isinstance(compact, MixedCompact)
    assert (compact.limits.level_bits, compact.as_printed) == (5, True)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown name": ("swam", {}, "there is no strategy 'swam': did you mean 'swarm'?"),
    "an unknown parameter": ("swarm", {"bta": 1}, "strategy swarm has no parameter 'bta': did you mean 'beta'?"),
    "one that is like no other": ("swarm", {"zzz": 1}, "there are 'beta', 'merge_every_rounds', 'subset_share_min'"),
    "a value out of range": ("swarm", {"beta": 0}, "strategy swarm: beta is 0: give 1 or more"),
    "a share for a number of rounds": ("swarm", {"beta": 0.3}, "strategy swarm: beta is 0.3: give a whole number"),
    "text for a number": ("distributor", {"threshold": "0.5"}, "threshold is '0.5': give a number, without quotes"),
    "true for a number": ("distributor", {"events_min": True}, "events_min is True: give a whole number"),
    "no number at all": ("distributor", {"threshold": float("nan")}, "threshold is nan: give"),
    "a choice that is none": ("ps2-adjusted", {"way": "best"}, "way is 'best': give 'dp', 'gr', 'si' or 'ra'"),
    "two that do not fit": ("ps2-adjusted", {"sigma": 1.1, "aim": 1.2}, "aim 1.2 is above sigma 1.1"),
    "a parameter of what has none": ("replicated", {"beta": 1}, "strategy replicated has no parameter 'beta'"),
}


@pytest.mark.parametrize(("name", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_with_a_remedy(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        strategy(name, options)
    assert message in str(raised.value)


def test_a_constructor_checks_what_it_is_given_in_code_too() -> None:
    with pytest.raises(SettingsError, match="Swarm: beta is 0: give 1 or more"):
        Swarm(beta=0)
    with pytest.raises(TypeError):
        Swarm(bta=1)  # type: ignore[call-arg]


def test_a_strategy_may_be_given_as_an_instance() -> None:
    mine = Swarm(beta=2)
    assert resolve_strategy(mine) is mine
    assert first_plan(mine, None, GRID, 3).drawn_by == "swarm"
    assert first_plan("swarm", None, GRID, 3).partitions == uniform(GRID, 3).partitions
    with pytest.raises(SettingsError, match="options beta would not reach it"):
        resolve_strategy(mine, {"beta": 3})
    with pytest.raises(SettingsError, match="is no strategy, since it has no name, needs_stats"):
        resolve_strategy(7)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="given as a class: call it"):
        resolve_strategy(Swarm)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pkg", "ideal"])
def test_a_planner_that_only_compares_cannot_run_in_a_stream(name: str) -> None:
    assert planner(name).name == name
    with pytest.raises(SettingsError, match=f"planner {name} does not route by a plan.*use one of hash"):
        resolve_planner(KeyTuning(planner=name), window=1)


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        (KeyTuning(planner="mixt"), "there is no planner of keys 'mixt': did you mean 'mixed'?"),
        (KeyTuning(options={"theta_max": 0.1}), r"theta_max is no option of a planner.*KeyTuning\(theta_max=...\)"),
        (
            KeyTuning(options={"level_bits": 3}),
            "mixed has no parameter 'level_bits': there are 'table_is_soft', 'theta_is_two_sided'",
        ),
        (KeyTuning(planner="hash", options={"sigma": 1.0}), "planner hash has no parameter 'sigma': it has none"),
        (KeyTuning(planner="readj", options={"sigma": 0}), "planner readj: sigma is 0: give more than 0"),
        (KeyTuning(planner="mixed-compact", options={"level_bits": 31}), "level_bits is 31"),
    ],
)
def test_options_of_planners_are_checked(tuning: KeyTuning, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        resolve_planner(tuning, window=1)


def own_kinds() -> list[tuple[str, type, list[Parameter]]]:
    found = [(name, kind, list(parameters_of(kind))) for name, kind in STRATEGIES.ours().items()]
    return found + [(name, kind, planner_parameters(kind)) for name, kind in PLANNERS.ours().items()]


@pytest.mark.parametrize(("name", "kind", "parameters"), own_kinds())
def test_each_says_in_a_sentence_what_it_does_and_each_parameter_what_it_is(
    name: str, kind: type[Strategy], parameters: list[Parameter]
) -> None:
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}("), "a dataclass without a docstring"
    for parameter in parameters:
        assert not parameter.is_required, "each can be made by its name alone"
        if parameter.is_plain:
            assert parameter.description, f"{name}: {parameter.name}"
