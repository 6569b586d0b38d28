"""Every detector stays quiet on calm traffic: users who ask as before are blocked by no algorithm that can be chosen.

The algorithms are those that `GuardRules` accepts; a new one is tested by existing.
"""

from typing import get_args

import numpy as np
import pytest

from geoswarm.guard.guard import Guard
from geoswarm.guard.rules import GuardRules
from guard.crowd import World, normal

ALGORITHMS = get_args(GuardRules.model_fields["algorithm"].annotation)


def test_the_algorithms_are_found() -> None:
    assert set(ALGORITHMS) >= {"careful", "printed"}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(4))
def test_every_detector_stays_quiet_on_calm_traffic(algorithm: str, seed: int) -> None:
    """Twenty minutes of a crowd in which every user has homes. Hotspots come of themselves: calm is not uniform."""
    rng = np.random.default_rng((seed, 5))
    users, per_s = int(rng.integers(40, 200)), float(rng.choice([100.0, 300.0]))
    rules = GuardRules.model_validate({"algorithm": algorithm})
    world = World([normal(rng, users, per_s)], Guard(rules, seed=seed), seed).run(1200.0)
    assert len(world.hot) > 20
    assert world.blocked == {}
