"""Find the format of the files of a folder by their names, and the columns of Parquet files by the first one."""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.core.shapes.geoparquet import GeoColumns, geo_columns
from geoswarm.errors import SettingsError
from geoswarm.run.columns import PLAIN, Columns

FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
COMPRESSED = (".gz", ".bz2", ".zst")
"""The endings of compressed text that every reader of ours knows."""
FOREIGN = (".snappy", ".deflate", ".lz4", ".xz", ".br")
"""Compressed text as Hadoop writes it, in a frame of its own, or as it is not read here."""


class FirstFile(NamedTuple):
    columns: pa.Schema
    geo: GeoColumns | None
    """What is known of geometries; None if the file is no GeoParquet."""

    def usable_columns(self, named: Columns = PLAIN) -> pa.Schema:
        """Under our names, without rectangles round geometries, and with the primary geometry as `geometry`."""
        if self.geo is None:
            return named.bind(self.columns)
        fields = [field for field in self.columns if field.name not in self.geo.covering]
        plain = pa.schema([f.with_type(pa.binary()) if f.name == self.geo.geometry else f for f in fields])
        return named.or_geometry(self.geo.geometry).bind(plain)


def guess_format(path: str) -> str:
    names = [_without_compression(file.name) for file in _files_in(path)]
    suffixes = {Path(name).suffix for name in names}
    kinds = {FORMATS[suffix] for suffix in suffixes if suffix in FORMATS}
    if len(kinds) != 1:
        found = ", ".join(sorted(suffixes)) or "no files"
        raise SettingsError(f"cannot tell the format of {path} from its files ({found}): say parquet, json or csv")
    return kinds.pop()


def first_parquet(path: str) -> FirstFile | None:
    """None if the folder has no files yet, or is where only Spark can read."""
    for file in _files_in(path):
        schema = pq.read_schema(file)
        return FirstFile(schema.remove_metadata(), geo_columns(str(file), schema))
    return None


def _files_in(path: str) -> list[Path]:
    folder = Path(path.removeprefix("file:").removeprefix("//"))
    return sorted(file for file in folder.glob("*") if file.is_file() and not file.name.startswith((".", "_")))


def _without_compression(name: str) -> str:
    return name.removesuffix(Path(name).suffix) if name.endswith(COMPRESSED) else name
