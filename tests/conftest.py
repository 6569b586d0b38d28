"""What tests share: one Spark session for the whole run, and the folder of real data sets."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Every run draws the same examples: what fails, fails for everybody, and chance decides no landing.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# Where tests run side by side, they are told a width, and consoles that are made at import would keep it.
os.environ.pop("COLUMNS", None)

# For the S3 server of test_remote_storage.py: Spark's workers get the environment that the session started with.
os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


LONG = ("lab/crash", "run/kafka", "run/spark", "lab/bench", "store", "service")
"""Folders whose files take long, the longest first: where two processes share the files (`make test`), both should end
together. All others come before them, and leave compiled kernels on the disk for everybody."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((i for i, folder in enumerate(LONG) if name.startswith(f"{folder}/")), -1)

    items.sort(key=place)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from geoswarm.run.spark.session import build_session  # here: most tests never start Java

    session = build_session("local[2]", "geoswarm-tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """GEOSWARM_DATA, else shared/data beside the repository."""
    folder = Path(os.environ.get("GEOSWARM_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}: set GEOSWARM_DATA to the folder that holds them")
    return folder
