"""Benchmarks collect garbage at every turn, which takes long in a process that holds as much as that of the tests."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def pass_over_what_is_there() -> None:
    gc.collect()
    gc.freeze()
