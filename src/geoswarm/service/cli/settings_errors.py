"""What is wrong with a settings file, in the words of the person who wrote it, with a remedy.

Finds nothing by itself: pydantic and `tomllib` do, and `settings_file.py` asks them.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from geoswarm.service.cli.toml_lines import Location

Problem = tuple[Location, str]
"""Where, and what to say."""

KINDS = ("events", "operations", "sink")
NEEDED = {
    "checkpoint": 'add [checkpoint] with path = "..."',
    "events": 'add [events] with kind = "files", "kafka", "tweets" or "posts"',
    "sink": 'add [sink] with kind = "parquet", "kafka" or "console"',
}


def invalid_toml(file: Path, why: str) -> str:
    at = re.search(r" \(at line (\d+), column (\d+)\)$", why)
    if at is None:
        return f"{file} is no valid TOML ({why}): is it cut short?"
    what = why[: at.start()]
    remedy = "every line is a [section], key = value or # comment, and text stands in quotes"
    return f"{file}, line {at[1]}: no valid TOML at column {at[2]} ({what}): {remedy}"


def problem_of(error: Mapping[str, Any], data: Mapping[str, Any], settings: type[BaseModel]) -> Problem:
    """One of pydantic's errors, in the words of the file's user."""
    location, kind, given = error["loc"], error["type"], error["input"]
    if len(location) > 1 and location[0] in KINDS:
        location = (location[0], *location[2:])  # without the name of the union's member
    if kind == "extra_forbidden":
        return location, _unknown(location, data, settings)
    if kind == "missing":
        if len(location) == 1:
            return (), f"there is no section [{location[0]}]: {NEEDED[location[0]]}"
        return location, f"[{location[0]}] lacks the key '{location[1]}': add it"
    if kind in ("model_type", "model_attributes_type"):
        return location, f"{location[0]} is {given!r}: write it as a section, [{location[0]}]"
    if kind == "union_tag_not_found":
        return location, f"[{location[0]}] lacks the key 'kind': {NEEDED.get(location[0], 'say files or kafka')}"
    if kind == "union_tag_invalid":
        given, allowed = error["ctx"]["tag"], re.findall(r"'(\w+)'", error["ctx"]["expected_tags"])
        return (*location, "kind"), f"[{location[0]}] has no kind '{given}': {_suggest(given, allowed)}"
    if kind == "value_error":
        say = error["msg"].removeprefix("Value error, ")
        return location, f"[{location[0]}] {'.'.join(map(str, location[1:]))} {say}".replace("  ", " ")
    if kind == "literal_error":
        allowed = re.findall(r"'(\w+)'", error["ctx"]["expected"])
        return location, f"{_name(location)} cannot be {given!r}: {_suggest(str(given), allowed)}"
    return location, f"{_name(location)} is {_toml(given)}: {_wanted(kind, error)}"


def _wanted(kind: str, error: Mapping[str, Any]) -> str:
    limits = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}
    words = {"ge": "{} or more", "gt": "more than {}", "le": "{} or less", "lt": "less than {}"}
    if kind in limits:
        return "give " + words[limits[kind]].format(f"{error['ctx'][limits[kind]]:g}")
    known = {
        "int_type": "give a whole number, without quotes",
        "float_type": "give a number, without quotes",
        "bool_type": "give true or false, without quotes",
        "string_type": "give text, in quotes",
        "dict_type": "give a table of options",
        "tuple_type": "give [xmin, ymin, xmax, ymax]",
        "missing": "give [xmin, ymin, xmax, ymax]",
        "too_long": "give [xmin, ymin, xmax, ymax]",
    }
    return known.get(kind) or str(error["msg"])


def _unknown(location: Location, data: Mapping[str, Any], settings: type[BaseModel]) -> str:
    *section, key = (str(part) for part in location)
    if not section:
        return f"there is no section [{key}]: {_suggest(key, list(settings.model_fields), '[{}]')}"
    known = list(_model_of(section[0], data, settings).model_fields)
    return f"[{'.'.join(section)}] has no key '{key}': {_suggest(key, known)}"


def _model_of(section: str, data: Mapping[str, Any], settings: type[BaseModel]) -> type[BaseModel]:
    given = data.get(section)
    tag = given.get("kind") if isinstance(given, Mapping) else None
    for model in _models(settings.model_fields[section].annotation):
        kind = model.model_fields.get("kind")
        if kind is None or tag in get_args(kind.annotation):
            return model
    raise AssertionError(section)  # an unknown kind is an error of its own, without this one


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _suggest(word: str, known: list[str], form: str = "'{}'") -> str:
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {form.format(close[0])}?"
    return f"there are {', '.join(form.format(name) for name in known)}"


def _name(location: Location) -> str:
    section, *rest = (str(part) for part in location)
    return f"[{section}] {'.'.join(rest)}"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def sharpened(location: Location, say: str) -> Location:
    """A relation between keys is an error of its section; its message opens with the key it is most about."""
    first = re.match(r"(?:\[\w+\] )?(\w+)", say)
    return (*location, first[1]) if len(location) == 1 and first else location
