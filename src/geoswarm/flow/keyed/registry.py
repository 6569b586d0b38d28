"""The keyed operators that settings can name: ours, found by looking into this folder, and those of other packages.

`WordCount` is "word-count". Operators whose arguments do not fit into a file, such as `Own`, are made in code only.
"""

import inspect
from typing import Any

from geoswarm.flow.keyed.operator import Operator
from geoswarm.parameters import fits_a_file
from geoswarm.registry import Registry, classes_in, name_in_dashes


def _name_of(kind: Any) -> str | None:
    is_one = issubclass(kind, Operator) and not inspect.isabstract(kind)
    return name_in_dashes(kind) if is_one and fits_a_file(kind) else None


OPERATORS: Registry[Operator] = Registry(
    "operator", "geoswarm.operators", classes_in("geoswarm.flow.keyed", _name_of), ("kept", "given", "feed", "update")
)
