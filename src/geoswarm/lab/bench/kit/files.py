"""Streams as files, one file a batch, and the engine run over them until all files are through.

Measures nothing. Several experiments write their streams first, so that every contestant reads the same bytes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.control.strategy import Sample
from geoswarm.run.sinks import Noop
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine

EVENTS, OPERATIONS = "events", "operations"
CORNERS = ("xmin", "ymin", "xmax", "ymax")


def write_batches(folder: Path, batches: Iterable[pa.RecordBatch], first: int = 0) -> None:
    """One file for each batch, numbered from `first` on."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches, first):
        pq.write_table(pa.table(rows), folder / f"{number:06d}.parquet")


def run_files(engine: Engine, spark: Any, root: Path) -> None:
    """Take a file of events and one of operations in each batch, until all are through; keep no match."""
    events = sources.events_from_files(spark, str(root / EVENTS), format="parquet", files_per_batch=1)
    changes = sources.operations_from_files(spark, str(root / OPERATIONS), format="parquet", files_per_batch=1)
    engine.start(events=events, operations=changes, sink=Noop(), available_now=True).wait()


def sample_of(events: pa.RecordBatch, subscriptions: pa.RecordBatch, *, words: bool = False) -> Sample:
    """What plans are drawn from; with the texts and keywords if `words`."""
    points = np.stack([events.column(side).to_numpy() for side in ("x", "y")], axis=1)
    rects = np.stack([subscriptions.column(side).to_numpy() for side in CORNERS], axis=1)
    if not words:
        return Sample(points, rects)
    return Sample(points, rects, events.column("text"), subscriptions.column("keywords"))
