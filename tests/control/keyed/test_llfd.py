"""LLFD on random cases: every unit is put down, loads add up, and results are those of the first version."""

import zlib

import numpy as np
import pytest

from geoswarm.control.keyed.llfd import SLACK, llfd, loads_of
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.keys.hashing import KeyOwners

# fmt: off
GOLDEN: tuple[int, ...] = (
    3435818020, 1212518158, 2731645856, 2789387542, 3335432485, 2134476881, 1762306819, 1991166141, 3607411984,
    2204944657, 2694354341, 1552541746, 3199881858, 347270682, 282262924, 960218257, 4196202665, 867228179,
    1360595415, 4257377847, 1091577103, 3835672587, 3564970425, 2952517870, 136085065, 74295434, 3641943489,
    1350059537, 1198452354, 1735607783, 3182927316, 1337618242, 2125510825, 1799961737, 434232500, 540473701,
    3482726789, 4122828458, 2385477359, 3524503335, 4111446625, 3350683211, 656199741, 469146233, 3818040991,
    3826983729, 3062773520, 1421133003, 4096832901, 1654159742, 2409326997, 535313754, 110010620, 1843992985,
    1576975438, 3115172166, 2487100155, 3428678308, 3949492143, 3125255182,
)
# fmt: on
"""CRC-32 of items, targets and loads of cases 0, 1, ..., computed with the first version."""


def case(seed: int) -> tuple[Floats, Floats, Ints, KeyOwners, int, float]:
    """(load, rank, count, owner, executors, most load): with ties, with nothing to do, with too much."""
    rng = np.random.default_rng(seed)
    executors, items = int(rng.integers(1, 13)), int(rng.integers(1, 400))
    load = np.round(rng.zipf(1.5, items).clip(max=500) * rng.choice([0.0, 1.0, 1.0, 0.37], items), 2)
    state = rng.random(items) if seed % 2 else np.ones(items)
    rank = [load, load * np.sqrt(load) / state, rng.permutation(items).astype(np.float64)][seed % 3].copy()
    count = rng.integers(1, 6, items) if seed % 4 == 0 else np.ones(items, np.int64)
    at = (rng.integers(0, executors, items) % max(1, executors // (1 + seed % 3))).astype(np.int32)
    theta = float(rng.choice([0.0, 0.02, 0.08, 0.5]))
    return load, rank, count, at, executors, (1 + theta) * float((load * count).sum()) / executors


def crc(seed: int) -> int:
    load, rank, count, at, executors, load_max = case(seed)
    loads = loads_of(load, count, at, executors)
    items, targets = llfd(load, rank, count, at, loads, load_max)
    return zlib.crc32(items.tobytes() + targets.tobytes() + loads.tobytes())


def test_the_results_are_those_of_the_first_version() -> None:
    assert tuple(crc(seed) for seed in range(len(GOLDEN))) == GOLDEN


@pytest.mark.parametrize("seed", range(100, 130))
def test_every_unit_is_put_down_and_the_loads_add_up(seed: int) -> None:
    load, rank, count, at, executors, load_max = case(seed)
    before = loads_of(load, count, at, executors)
    loads = before.copy()
    items, targets = llfd(load, rank, count, at, loads, load_max)
    assert loads.sum() == pytest.approx(before.sum())
    assert ((targets >= 0) & (targets < executors)).all()
    assert loads.max() <= max(before.max(), load_max, float(load.max())) * (1 + SLACK)
    if before.max() <= load_max:
        assert not len(items), "nothing is taken up where nothing is overloaded"
