"""The regions that came into force and those that left it, for the statistics of the balancing."""

from dataclasses import dataclass, field

from geoswarm.core.arrays.jit import Floats


@dataclass
class Churn:
    """Rectangles of the subscriptions that came and of those that went."""

    came: list[Floats] = field(default_factory=list)
    went: list[Floats] = field(default_factory=list)
