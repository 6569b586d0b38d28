"""The parameters of a class, read from the signature of its constructor alone.

    def __init__(self, *, beta: Annotated[int, Field(ge=1, description="β: how often ...")] = 20) -> None: ...

Types are checked strictly, limits are pydantic's, and `geoswarm strategies` shows the description. `registry.py` checks
the parameters of what is made by name; with `check_arguments` a constructor also checks the arguments of calls in code.
"""

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from functools import cache, wraps
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from geoswarm.errors import SettingsError

P = ParamSpec("P")
S = TypeVar("S")
PLAIN = (int, float, str, bool, NoneType, list, tuple, dict)
"""Types that a settings file can hold."""
WORDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    tuple: "list",
    dict: "table",
    NoneType: "none",
}


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: Any
    default: Any = MISSING
    """MISSING if it must be given."""
    doc: str = ""
    """The docstring below it, if it is a field of a dataclass."""

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def is_plain(self) -> bool:
        """Whether a settings file can hold it; other parameters are given in code."""
        return _is_plain(self.annotation)

    @property
    def type(self) -> str:
        return _type(self.annotation)

    @property
    def description(self) -> str:
        found = [part.description for part in get_args(self.annotation)[1:] if isinstance(part, FieldInfo)]
        return next(filter(None, [*found, self.doc]), "")


@cache
def parameters_of(kind: Any) -> tuple[Parameter, ...]:
    """The parameters in the order of the signature, without `*args` and `**kwargs`."""
    docs = field_docs(kind)
    return tuple(replace(p, doc=docs.get(p.name, "")) for p in _parameters(kind.__init__)[1:])


def fits_a_file(kind: Any) -> bool:
    """Whether a settings file can hold all required parameters of its constructor."""
    return all(parameter.is_plain for parameter in parameters_of(kind) if parameter.is_required)


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class, by field."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    lines = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for field, below in pairwise(lines):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a function, `self` included."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError:  # types that were imported for type checkers only
        hints = {}
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            default = MISSING if parameter.default is parameter.empty else parameter.default
            found.append(Parameter(parameter.name, hints.get(parameter.name, Any), default))
    return found


@cache
def _model(function: Callable[..., Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(_parameters(function)[1:]):
        is_checked = parameter.is_plain or inspect.isclass(parameter.annotation)
        default = ... if parameter.is_required else None
        # The name is an alias, since pydantic keeps some names of fields for itself.
        fields[f"p{number}"] = (
            parameter.annotation if is_checked else Any,
            Field(default=default, alias=parameter.name),
        )
    config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    return create_model("Options", __config__=config, **fields)


def constructor_values(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the types of the constructor. Raises pydantic's ValidationError, with the names of the options."""
    return _values(kind.__init__, options)


def _values(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    model, hints = _model(function), {p.name: p.annotation for p in _parameters(function)}
    given = {key: _as_tuple(value, hints.get(key)) for key, value in options.items()}
    found = model.model_validate(given)
    return {info.alias: getattr(found, name) for name, info in model.model_fields.items() if info.alias in given}


def check_options(kind: Any, options: Mapping[str, Any], who: str) -> dict[str, Any]:
    """As `constructor_values`, but raises a SettingsError that lists all that is wrong with the parameters of `who`."""
    try:
        return constructor_values(kind, options)
    except ValidationError as why:
        known = [parameter.name for parameter in parameters_of(kind)]
        raise SettingsError("; ".join(_sentence(who, error, known) for error in why.errors())) from None


def check_arguments(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorate a constructor so that it checks its arguments against its own signature."""

    @wraps(init)
    def checking(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        given = dict(inspect.signature(init).bind(self, *args, **kwargs).arguments)
        given.pop("self")
        try:
            _values(init, given)
        except ValidationError as why:
            sentences = (_sentence(type(self).__name__, error, []) for error in why.errors())
            raise SettingsError("; ".join(sentences)) from None
        init(self, *args, **kwargs)

    return checking


def _sentence(who: str, error: Any, known: list[str]) -> str:
    name = ".".join(map(str, error["loc"][:1])) or "?"
    if error["type"] == "extra_forbidden":
        remedy = suggestion(name, known) if known else "it takes none"
        return f"{who} has no parameter {name!r}: {remedy}"
    if error["type"] == "missing":
        return f"{who} lacks its parameter {name!r}: give it"
    return f"{who}: {name} is {error['input']!r}: {remedy_for(error)}"


def suggestion(word: str, known: list[str], form: str = "'{}'", *, lists: bool = False) -> str:
    """A remedy for an unknown name. If it `lists`, all known names follow the one that was probably meant."""
    close, all_known = difflib.get_close_matches(word, known, n=1), ", ".join(form.format(name) for name in known)
    if close:
        return f"did you mean {form.format(close[0])}?" + (f" There are {all_known}" if lists else "")
    return f"there are {all_known}"


LIMITS = {
    "greater_than_equal": ("ge", "{:g} or more"),
    "greater_than": ("gt", "more than {:g}"),
    "less_than_equal": ("le", "{:g} or less"),
    "less_than": ("lt", "less than {:g}"),
}
KINDS = {
    "int_type": "a whole number, without quotes",
    "float_type": "a number, without quotes",
    "finite_number": "a number that is finite",
    "bool_type": "true or false, without quotes",
    "string_type": "text, in quotes",
    "dict_type": "a table of options",
    "tuple_type": "a list",
}


def remedy_for(error: Mapping[str, Any]) -> str:
    """A remedy for one of pydantic's errors."""
    kind = error["type"]
    if kind in LIMITS:
        limit, words = LIMITS[kind]
        return "give " + words.format(error["ctx"][limit])
    if kind == "literal_error":
        return f"give {error['ctx']['expected']}"
    return f"give {KINDS[kind]}" if kind in KINDS else str(error["msg"])


def _as_tuple(value: Any, annotation: Any) -> Any:
    """A list as a tuple, where the annotation asks for one: TOML has lists only."""
    is_tuple = any(get_origin(part) is tuple for part in _alternatives(annotation))
    return tuple(value) if isinstance(value, list) and is_tuple else value


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(part for each in get_args(annotation) for part in _alternatives(each))
    return (annotation,)


def _is_plain(annotation: Any) -> bool:
    return any(
        part is Any or get_origin(part) is Literal or part in PLAIN or get_origin(part) in PLAIN
        for part in _alternatives(annotation)
        if part is not NoneType
    )


def _type(annotation: Any) -> str:
    words: list[str] = []
    for part in _alternatives(annotation):
        inner: Any = get_origin(part) or part
        if inner is Literal:
            words += [repr(value) for value in get_args(part)]
        else:
            words.append(WORDS.get(inner, getattr(inner, "__name__", "?")))
    return " or ".join(words)
