"""The Spark session of a benchmark: one place for all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from geoswarm.run.spark.session import build_session

MASTER = "local[2]"
APP = "geoswarm-bench"


@contextmanager
def bench_session(given: Any = None) -> Iterator[Any]:
    """The session that was given, which stays open, or one of its own, which is stopped at the end."""
    session = given or build_session(MASTER, APP)
    try:
        yield session
    finally:
        if given is None:
            session.stop()
