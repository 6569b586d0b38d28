"""Classes found by name: strategies, planners, sinks, operators and workloads, ours and those of other packages.

A registry finds ours in the module or package that it searches. Those of other packages are entry points, in the
registry's group:

    [project.entry-points."geoswarm.strategies"]
    mine = "my_package.balance:Mine"

A class declares its name, its parameters (those of its constructor, `parameters.py`) and its description (the first
sentence of its docstring). A package that cannot be imported is an error only for those who ask for a class in it. Of
two classes with one name, ours is used.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from geoswarm.errors import SettingsError
from geoswarm.parameters import check_options, parameters_of, suggestion

T = TypeVar("T")
Loader = Callable[[], Any]
"""Imports a class, or raises the error that prevented it."""
OURS = "geoswarm"


@dataclass(frozen=True)
class RegistryEntry:
    """One class that a registry knows of."""

    name: str
    package: str
    kind: Any = None
    """Its class; None if it cannot be used."""
    problem: str = ""
    """Why it cannot be used."""

    @property
    def sentence(self) -> str:
        return first_sentence(self.kind)


class Registry(Generic[T]):
    def __init__(
        self, noun: str, group: str, ours: Callable[[], Mapping[str, Loader]], parts: tuple[str, ...] = ()
    ) -> None:
        """`ours` comes from `classes_in` or `lazy_classes`; a class of another package must have all of `parts`."""
        self.noun, self.group = noun, group
        self._ours, self._parts = ours, parts

    def ours(self) -> dict[str, type[T]]:
        """The classes that come with geoswarm."""
        return {name: load() for name, load in self._ours().items()}

    def names(self) -> list[str]:
        """All names, also those of classes that cannot be used."""
        return sorted({*self._ours(), *(point.name for point in self._outside())})

    def kind(self, name: str) -> type[T]:
        """The class of this name."""
        ours = self._ours()
        if name in ours:
            return cast("type[T]", ours[name]())
        found = [point for point in self._outside() if point.name == name]
        if not found:
            raise SettingsError(f"there is no {self.noun} {name!r}: {suggestion(name, self.names(), lists=True)}")
        if len(found) > 1:
            packages = ", ".join(_package(point) for point in found)
            raise SettingsError(f"{self.noun} {name!r} is in {len(found)} packages, {packages}: remove all but one")
        return self._load(found[0])

    def make(self, name: str, options: Mapping[str, Any] | None = None, **offers: Any) -> T:
        """An instance of the class of this name. Of `offers` it gets those for which it has a parameter."""
        kind: Any = self.kind(name)
        checked = check_options(kind, options or {}, f"{self.noun} {name}")
        taken = {parameter.name for parameter in parameters_of(kind)}
        made: T = kind(**{key: value for key, value in offers.items() if key in taken}, **checked)
        return made

    def entries(self) -> list[RegistryEntry]:
        """All classes, ours first."""
        ours = self._ours()
        found = [RegistryEntry(name, OURS, load()) for name, load in sorted(ours.items())]
        for point in sorted(self._outside(), key=lambda point: (point.name, _package(point))):
            try:
                if point.name in ours:
                    raise SettingsError(f"{OURS} has a {self.noun} of this name, which is used: choose another name")
                found.append(RegistryEntry(point.name, _package(point), self.kind(point.name)))
            except SettingsError as error:
                found.append(RegistryEntry(point.name, _package(point), problem=str(error)))
        return found

    def _outside(self) -> Iterator[EntryPoint]:
        return (point for point in entry_points(group=self.group) if _package(point) != OURS)

    def _load(self, point: EntryPoint) -> type[T]:
        whose = f"{self.noun} {point.name!r} of package {_package(point)}"
        try:
            kind: Any = point.load()
        except Exception as error:
            raise SettingsError(
                f"{whose} cannot be imported from {point.value} ({type(error).__name__}: {error}): mend that package, "
                "or remove it"
            ) from error
        lacks = [part for part in self._parts if not hasattr(kind, part)]
        if lacks or not inspect.isclass(kind):
            lack = f"{point.value} has no {', '.join(lacks)}" if lacks else f"{point.value} is no class"
            raise SettingsError(f"{whose} is no {self.noun}: {lack}")
        called = getattr(kind, "name", point.name)
        if "name" in self._parts and called != point.name:
            raise SettingsError(f"{whose} calls itself {called!r}: give the class and its entry point one name")
        return cast("type[T]", kind)


def classes_in(home: str, name_of: Callable[[Any], str | None]) -> Callable[[], Mapping[str, Loader]]:
    """The classes of a module, or of all modules of a package, by what `name_of` returns; None leaves one out."""
    return partial(_classes_in, home, name_of)


@cache
def _classes_in(home: str, name_of: Callable[[Any], str | None]) -> Mapping[str, Loader]:
    top = importlib.import_module(home)
    inner = sorted(module.name for module in pkgutil.iter_modules(getattr(top, "__path__", [])))
    found: dict[str, Loader] = {}
    for module in (top, *(importlib.import_module(f"{home}.{name}") for name in inner)):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            name = name_of(kind) if kind.__module__ == module.__name__ else None
            if name is not None:
                found[name] = partial(_itself, kind)
    return found


def lazy_classes(targets: Mapping[str, str]) -> Callable[[], Mapping[str, Loader]]:
    """Classes given as "module:class", imported on request, so that a lower floor can name classes of a higher one."""
    return lambda: {name: partial(_import, target) for name, target in targets.items()}


def _itself(kind: Any) -> Any:
    return kind


def _import(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(".")[0]


def name_in_dashes(kind: type) -> str:
    """`WordCount` is "word-count"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def first_sentence(kind: Any) -> str:
    """The first sentence of a class's own docstring, else of its module's."""
    own = kind.__dict__.get("__doc__")
    if own is None or own.startswith(f"{kind.__name__}("):  # a dataclass without one is given its signature
        own = getattr(inspect.getmodule(kind), "__doc__", None)
    text = " ".join(inspect.cleandoc(own or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", text, maxsplit=1)[0]
