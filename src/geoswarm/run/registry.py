"""The sinks and workloads that settings can name: ours, and those of other packages.

A sink is where matches go; a workload makes events to try things on. Workloads of ours are above this floor, so they
are named here and imported when one is asked for.
"""

import inspect
from typing import Any

from geoswarm.parameters import fits_a_file
from geoswarm.registry import Registry, classes_in, later, name_in_dashes

SINKS_MODULE = "geoswarm.run.sinks"
WORKLOAD_PLACES = {
    "tweets": "geoswarm.lab.workload.tweets:Tweets",
    "posts": "geoswarm.lab.workload.posts:Posts",
}
"""The same as in pyproject.toml, so that a source tree that is not installed has them; a test compares the two."""


def _name_of(kind: Any) -> str | None:
    is_one = hasattr(kind, "write") and not inspect.isabstract(kind)
    return name_in_dashes(kind) if is_one and fits_a_file(kind) else None


SINKS: Registry[Any] = Registry("sink", "geoswarm.sinks", classes_in(SINKS_MODULE, _name_of), ("bind", "write"))

WORKLOADS: Registry[Any] = Registry(
    "workload",
    "geoswarm.workloads",
    later(WORKLOAD_PLACES),
    ("events",),
)
