"""Real streams of keys as counts by interval: flights by airport and day, edits of Wikipedia by page and hour.

No exchange's trades are among them; `stocks.py` makes those up. Counts, not rows, as in `zipf.py`. The files are not
part of the project: `GEOSWARM_DATA` names their folder, as for `real_posts.py`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.arrays.jit import Ints
from geoswarm.errors import InputError
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE


@dataclass(frozen=True)
class KeySource:
    file: str
    key: str
    """The column that is the key."""
    interval_s: int


SOURCES = {
    "flights": KeySource("keyed_us_flights_2weeks.parquet", "origin", 86_400),
    "edits": KeySource("keyed_wikipedia_edits_20150912.parquet", "page", 3_600),
}


def sources_at_hand(folder: Path | None = None) -> dict[str, Path]:
    """The sources whose files are in `folder`, or in the one that `GEOSWARM_DATA` names; none if neither is given."""
    named = os.environ.get(FOLDER_VARIABLE)
    where = folder or (Path(named) if named else None)
    return {name: where / s.file for name, s in SOURCES.items() if where and (where / s.file).is_file()}


def real_counts(name: str, path: Path) -> Ints:
    """(intervals, keys): the rows of each key in each interval, in the order of time; keys are numbered by name."""
    if name not in SOURCES:
        raise InputError(f"no real keys are called {name!r}: choose one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    rows = pq.read_table(path, columns=["ts", source.key])
    at_s = rows.column("ts").cast(pa.timestamp("s"), safe=False).cast(pa.int64()).to_numpy()
    interval = at_s // source.interval_s
    interval -= interval.min()
    _, keys = np.unique(rows.column(source.key).to_numpy(), return_inverse=True)
    counts = np.zeros((int(interval.max()) + 1, int(keys.max()) + 1), np.int64)
    np.add.at(counts, (interval, keys), 1)
    return counts
