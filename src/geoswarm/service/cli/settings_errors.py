"""Messages about errors in a settings file, in the words of the file, with a remedy.

pydantic and `tomllib` find the errors; `settings_file.py` calls them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel

from geoswarm.parameters import remedy_for, suggestion
from geoswarm.service.cli.toml_lines import Location

SettingsProblem = tuple[Location, str]
"""The location of an error, and its message."""

NEEDED = {
    "checkpoint": 'add [checkpoint] with path = "..."',
    "events": 'add [events] with kind = "files", "kafka", "tweets" or "posts"',
    "sink": 'add [sink] with kind = "parquet", "kafka" or "console"',
    "aggregates": 'add kind = "parquet", "kafka" or "console"',
    "stages": 'add operator = "count", "delivery" or another',
}


def invalid_toml(file: Path, why: str) -> str:
    at = re.search(r" \(at line (\d+), column (\d+)\)$", why)
    if at is None:
        return f"{file} is no valid TOML ({why}): is it cut short?"
    what = why[: at.start()]
    remedy = "every line is a [section], key = value or # comment, and text stands in quotes"
    return f"{file}, line {at[1]}: no valid TOML at column {at[2]} ({what}): {remedy}"


def problem_of(error: Mapping[str, Any], data: Mapping[str, Any], settings: type[BaseModel]) -> SettingsProblem:
    """One of pydantic's errors, in the words of the file."""
    location, kind, given = error["loc"], error["type"], error["input"]
    header, key = _split(location, data)
    if kind == "unknown_key":
        return location, f"{header} has no key '{key}': {suggestion(key, error['ctx']['known'])}"
    if kind == "extra_forbidden":
        return location, _unknown(location, header, key, settings)
    if kind == "missing":
        if len(location) == 1:
            return (), f"there is no section [{location[0]}]: {NEEDED[location[0]]}"
        return location, f"{header} lacks the key '{key}': add it"
    if kind in ("model_type", "model_attributes_type"):
        return location, f"{location[0]} is {given!r}: write it as a section, [{location[0]}]"
    if kind == "tag_missing":
        tag, header = error["ctx"]["tag"], _header(location, data)
        return location, f"{header} lacks the key '{tag}': {NEEDED.get(str(location[0]), 'say files or kafka')}"
    if kind == "tag_unknown":
        tag, name, known = (error["ctx"][part] for part in ("tag", "name", "known"))
        return (*location, tag), f"{_header(location, data)} has no {tag} '{name}': {suggestion(name, known)}"
    if kind == "value_error":
        message = error["msg"].removeprefix("Value error, ")
        if isinstance(given, Mapping):  # the error is about a whole section
            return location, f"{_header(location, data)} {message}"
        return location, f"{header} {key} {message}".replace("  ", " ")
    if kind == "literal_error":
        allowed = re.findall(r"'([^']+)'", error["ctx"]["expected"])
        return location, f"{header} {key} cannot be {given!r}: {suggestion(str(given), allowed)}"
    return location, f"{header} {key} is {_toml(given)}: {_remedy(key, error)}"


def problem_of_option(section: Location, error: Mapping[str, Any], known: list[str]) -> SettingsProblem:
    """The same for an error in a parameter of a strategy, sink, operator or workload."""
    key = str(error["loc"][0])
    location, header = (*section, key), f"[{'.'.join(map(str, section))}]"
    if error["type"] == "extra_forbidden":
        return location, f"{header} has no key '{key}': {suggestion(key, known) if known else 'it takes none'}"
    return location, f"{header} {key} is {_toml(error['input'])}: {remedy_for(error)}"


def _remedy(key: str, error: Mapping[str, Any]) -> str:
    if key.startswith("bounds") and error["type"] in ("tuple_type", "missing", "too_long"):
        return "give [xmin, ymin, xmax, ymax]"
    return remedy_for(error)


def _unknown(location: Location, header: str, key: str, settings: type[BaseModel]) -> str:
    if len(location) == 1:
        return f"there is no section [{key}]: {suggestion(key, list(settings.model_fields), '[{}]')}"
    models = list(_models(settings.model_fields[str(location[0])].annotation))
    for part in location[1:-1]:
        inner = [m.model_fields[str(part)].annotation for m in models if str(part) in m.model_fields]
        models = [model for annotation in inner for model in _models(annotation)]
    known = [name for model in models for name in model.model_fields]
    return f"{header} has no key '{key}': {suggestion(key, known)}"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _split(location: Location, data: Mapping[str, Any]) -> tuple[str, str]:
    """The section of a key as it is written in the file, [a.b] or [[a]], and the key within it."""
    depth, is_list, node = 0, False, cast("Any", data)
    for part in location[:-1]:
        try:
            inner = node[part]
        except (KeyError, IndexError, TypeError):
            break
        if not isinstance(inner, Mapping) and not (isinstance(inner, list) and inner and isinstance(inner[0], Mapping)):
            break
        node, depth, is_list = inner, depth + 1, isinstance(part, int)
    names = ".".join(str(part) for part in location[:depth] if isinstance(part, str))
    header = f"[[{names}]]" if is_list else f"[{names}]"
    return header, ".".join(map(str, location[depth:]))


def _header(location: Location, data: Mapping[str, Any]) -> str:
    """The section as it is written in the file."""
    return _split((*location, ""), data)[0]


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def key_location(location: Location, message: str) -> Location:
    """The location of the key that a message begins with: pydantic reports a relation between keys for its section."""
    first = re.match(r"(?:\[+[\w.]+\]+ )?(\w+)", message)
    return (*location, first[1]) if first else location
