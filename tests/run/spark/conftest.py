"""Which road small batches take: most tests here are about tasks, and their batches are small."""

import pytest

from geoswarm.run.spark import driver_rows


@pytest.fixture(autouse=True)
def _tasks_run_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_rows, "is_warm", lambda: False)


@pytest.fixture
def driver_runs(_tasks_run_all: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first batch on, the driver runs small ones itself."""
    monkeypatch.setattr(driver_rows, "is_warm", lambda: True)
