"""Find the format of the files of a folder by their names."""

from pathlib import Path

from geoswarm.errors import SettingsError

FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}


def guess_format(path: str) -> str:
    names = [file.name.removesuffix(".gz") for file in Path(path.removeprefix("file://")).glob("*")]
    suffixes = {Path(name).suffix for name in names if not name.startswith((".", "_"))}
    kinds = {FORMATS[suffix] for suffix in suffixes if suffix in FORMATS}
    if len(kinds) != 1:
        found = ", ".join(sorted(suffixes)) or "no files"
        raise SettingsError(f"cannot tell the format of {path} from its files ({found}): say parquet, json or csv")
    return kinds.pop()
