"""Real posts with a place and words, read from files into the columns of `posts.POST`, in the order of their time.

Nothing is made up here; the files are not part of the project, and `GEOSWARM_DATA` names the folder that holds them.
They are for trials on what people really write about: news from all over the world, and the crimes of one city.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoswarm.errors import InputError, MachineError
from geoswarm.lab.workload.posts import POST
from geoswarm.model import TIMESTAMP

FOLDER_VARIABLE = "GEOSWARM_DATA"


@dataclass(frozen=True)
class PostSource:
    file: str
    text: tuple[str, ...]
    """Columns whose words make the text, in this order."""


SOURCES = {
    "news": PostSource("geotext_gdelt_events_202508.parquet", ("text",)),
    "crime": PostSource("points_crime_houston_2010.parquet", ("offense", "location", "address")),
}
"""The sources by name. The hours of `crime` are Houston's own, taken as if they were UTC: only their order matters."""


def real_posts(name: str, folder: Path | None = None) -> pa.RecordBatch:
    """All posts of a source that have a time, a place and a word; `event_id` counts them from 0."""
    if name not in SOURCES:
        raise InputError(f"no real posts are called {name!r}: choose one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    path = (folder or _folder()) / source.file
    if not path.is_file():
        raise MachineError(f"there is no {source.file} in {path.parent}: put it there, or set {FOLDER_VARIABLE}")
    rows = pq.read_table(path, columns=["ts", "lat", "lon", *source.text])
    words = [rows.column(column).cast(pa.string()) for column in source.text]
    # Not null_handling="skip": Arrow 26 then loses the rows that are null in all columns.
    joined = pc.binary_join_element_wise(*words, " ", null_handling="replace", null_replacement="")
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(joined, r"\s+", " "))
    table = pa.table({"ts": rows.column("ts").cast(TIMESTAMP), "x": rows.column("lon"), "y": rows.column("lat")})
    table = table.append_column("text", text)
    whole = pc.and_(pc.and_(pc.is_finite(table["x"]), pc.is_finite(table["y"])), pc.not_equal(text, ""))
    table = table.filter(pc.and_(whole, pc.is_valid(table["ts"])))
    table = table.take(pa.array(np.argsort(table["ts"].cast(pa.int64()).to_numpy(), kind="stable")))
    ids = pa.array(np.arange(table.num_rows))
    columns = [ids, *(table.column(column).combine_chunks() for column in POST.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=POST)


def at_hand(name: str) -> bool:
    """Whether `real_posts` would find the file of this source in the folder that `GEOSWARM_DATA` names."""
    named = os.environ.get(FOLDER_VARIABLE)
    return bool(named) and (Path(str(named)) / SOURCES[name].file).is_file()


def _folder() -> Path:
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        raise MachineError(f"no folder of real data is known: set {FOLDER_VARIABLE} to one, or give it")
    return Path(named)
