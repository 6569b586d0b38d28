"""The state of aggregates gives what brute force gives, under any plan and after any restart."""

from pathlib import Path

import numpy as np
import pytest

from counted_world import SECOND, CountedWorld, draw_events, draw_operations
from stepped_keyed import random_key_plan

BATCHES, SUBS = 40, 14


@pytest.mark.parametrize("seed", range(6))
def test_every_window_is_given_once_whatever_the_plan(tmp_path: Path, seed: int) -> None:
    rng, world, given, first_id = np.random.default_rng(seed), CountedWorld(tmp_path), 0, 0
    clock_us = 1_800_000_000 * SECOND
    for batch in range(BATCHES):
        clock_us += int(rng.choice([0, 1, 1, 2, 5, 30])) * SECOND
        world.begin(clock_us, draw_operations(rng, world, int(rng.choice([0, 1, 6])) if batch else 60, SUBS, clock_us))
        events, met = draw_events(rng, world, int(rng.choice([0, 5, 20])), clock_us, first_id)
        first_id += len(events)
        if rng.random() < 0.3:
            replan(world, rng)
        if rng.random() < 0.2:
            world.run.scale(int(rng.integers(1, 6)))
        want = world.expect(events, met)
        if rng.random() < 0.3:  # an attempt that died before its commit
            assert world.give(events, met, rng) == want, batch
        assert world.give(events, met, rng) == want, batch
        given += len(want)
        world.finish(events)
        if rng.random() < 0.2:  # the commit was there, and the batch is run again
            world.number -= 1
            assert world.give(events, met, rng) == want, batch
            world.finish(events)
        if rng.random() < 0.2:
            world.restart()
    assert given > 100
    world.close()


def replan(world: CountedWorld, rng: np.random.Generator) -> None:
    """Some keys anywhere, and sometimes other executors."""
    run = world.run._run
    keys = np.concatenate([np.arange(SUBS), rng.integers(-(1 << 62), 1 << 62, 3)])
    run._loop.plan = random_key_plan(run.plan, keys, rng, can_split=False)
    run._adopt(run.plan)
    run.scale(len(run.plan.executors))
