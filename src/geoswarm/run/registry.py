"""The sinks and workloads that settings can name: ours, and those of other packages.

A sink receives matches; a workload generates events for trials. Our workloads are above this floor, so they are named
here and imported on request.
"""

import inspect
from typing import Any

from geoswarm.parameters import fits_a_file
from geoswarm.registry import Registry, classes_in, lazy_classes, name_in_dashes

SINKS_MODULE = "geoswarm.run.sinks"
WORKLOAD_PLACES = {
    "tweets": "geoswarm.lab.workload.tweets:Tweets",
    "posts": "geoswarm.lab.workload.posts:Posts",
}
"""The same as in pyproject.toml, for a source tree that is not installed; a test compares the two."""


def _name_of(kind: Any) -> str | None:
    is_one = hasattr(kind, "write") and not inspect.isabstract(kind)
    return name_in_dashes(kind) if is_one and fits_a_file(kind) else None


SINKS: Registry[Any] = Registry("sink", "geoswarm.sinks", classes_in(SINKS_MODULE, _name_of), ("bind", "write"))

WORKLOADS: Registry[Any] = Registry(
    "workload",
    "geoswarm.workloads",
    lazy_classes(WORKLOAD_PLACES),
    ("events",),
)
