"""Which regions came into force and left it: what the statistics of the balancing need to know."""

from dataclasses import dataclass, field

from geoswarm.core.arrays.jit import Floats


@dataclass
class Churn:
    """Rectangles of subscriptions."""

    came: list[Floats] = field(default_factory=list)
    went: list[Floats] = field(default_factory=list)
