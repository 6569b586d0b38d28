"""`geoswarm strategies`: the strategies and planners, with the parameters of each and a sentence about it.

All of it is read from the classes (`registry.py`), those of other packages included.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from geoswarm.config import KeyTuning
from geoswarm.control.keyed.registry import LIMITS_OF_TUNING, PLANNERS, planner_parameters
from geoswarm.control.registry import STRATEGIES
from geoswarm.parameters import PLAIN, Parameter, parameters_of
from geoswarm.registry import OURS, RegistryEntry

TITLES = {
    "strategies": 'Strategies, which draw the plan of the map: Tuning(strategy="...", options={...}), [tuning.options]',
    "planners": 'Planners, which deal out the keys of an operator: KeyTuning(planner="...", options={...})',
}


def list_strategies() -> dict[str, list[dict[str, Any]]]:
    """Strategies and planners as plain values: name, package, sentence and parameters, or the problem with it."""
    return {
        "strategies": [_values_of(entry, parameters_of) for entry in STRATEGIES.entries()],
        "planners": [_values_of(entry, planner_parameters) for entry in PLANNERS.entries()],
    }


def _values_of(entry: RegistryEntry, parameters: Callable[[Any], Iterable[Parameter]]) -> dict[str, Any]:
    if entry.problem:
        return {"name": entry.name, "package": entry.package, "problem": entry.problem}
    return {
        "name": entry.name,
        "package": entry.package,
        "sentence": entry.sentence,
        "only_compares": bool(getattr(entry.kind, "only_compares", False)),
        "parameters": [
            {
                "name": p.name,
                "type": p.type,
                "required": p.is_required,
                "default": p.default if isinstance(p.default, PLAIN) else None,
                "description": p.description,
            }
            for p in parameters(entry.kind)
            if p.is_plain
        ],
    }


def strategies_table(found: dict[str, list[dict[str, Any]]]) -> Group:
    """The same as tables for the terminal."""
    tables: list[Table | str] = []
    for group, title in TITLES.items():
        table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, show_header=False)
        for cells in _rows(found[group]):
            table.add_row(*cells)
        if group == "planners":
            limits = ", ".join(f"{name} = {KeyTuning.model_fields[name].default}" for name in LIMITS_OF_TUNING)
            table.caption = f"Every planner also heeds {limits}, which KeyTuning has itself."
            table.caption_justify = "left"
        tables += [table, ""]
    return Group(*tables)


def _rows(found: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in found:
        package = "" if entry["package"] == OURS else f" [dim]({escape(entry['package'])})[/]"
        if "problem" in entry:
            yield f"[bold]{escape(entry['name'])}[/]{package}", f"[red]{escape(entry['problem'])}[/]"
            continue
        note = " To compare with; it cannot run in a stream." if entry["only_compares"] else ""
        yield f"[bold]{escape(entry['name'])}[/]{package}", escape(entry["sentence"] + note)
        for parameter in entry["parameters"]:
            about = f"{parameter['description']} ({parameter['type']})".strip()
            yield f"    {escape(parameter['name'])} = {escape(_toml(parameter['default']))}", f"[dim]{escape(about)}[/]"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
