"""Write an example pipeline into a folder: a settings file, the folders that it names, and sample rows.

Overwrites nothing: if one file is in the way, none is written. The examples lie in `service/examples/`: `NAME.toml` is
the settings file, and a folder `NAME/`, if any, holds files that are copied beside it. Every such file is an example.
Settings are read and checked by `cli/settings_file.py`.
"""

import os
import shlex
import shutil
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from geoswarm.errors import SettingsError

EXAMPLES = Path(__file__).parent / "examples"


@dataclass(frozen=True)
class ExampleFiles:
    settings_file: Path
    files: tuple[Path, ...]
    """All files that were written, the settings file first."""
    empty_folders: tuple[Path, ...]
    """Folders that the settings name and that the example leaves empty."""


def example_names() -> list[str]:
    return sorted(file.stem for file in EXAMPLES.glob("*.toml"))


def write_example(folder: Path, name: str) -> ExampleFiles:
    """Copy an example into `folder`, which is made if it does not exist."""
    if name not in example_names():
        raise SettingsError(f"there is no example {name!r}: use one of {', '.join(example_names())}")
    copies = {EXAMPLES / f"{name}.toml": folder / f"{name}.toml"}
    beside = EXAMPLES / name
    copies |= {file: folder / file.relative_to(beside) for file in sorted(beside.rglob("*")) if file.is_file()}
    _refuse_to_overwrite(folder, list(copies.values()))
    began_ns = time.time_ns()
    for back, (source, target) in enumerate(reversed(copies.items())):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        # Streams read files in the order of their times, and Spark knows milliseconds only: a second for each.
        os.utime(target, ns=(began_ns - back * 10**9,) * 2)
    settings_file, *_ = copies.values()
    return ExampleFiles(settings_file, tuple(copies.values()), tuple(_make_input_folders(settings_file)))


def describe(written: ExampleFiles) -> list[str]:
    """Sentences about what was written and what to do next."""
    lines = [f"wrote {file}" for file in written.files]
    lines += [f"made {folder}/, which is empty: put files with rows into it" for folder in written.empty_folders]
    return [*lines, f"next: geoswarm run {shlex.quote(str(written.settings_file))}"]


def _refuse_to_overwrite(folder: Path, targets: list[Path]) -> None:
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file: give a folder, or a name that does not exist yet")
    there = [str(target) for target in targets if target.exists()]
    if there:
        problem = "exists already: nothing was written; give another folder, or remove it"
        raise SettingsError(f"{', '.join(there)} {problem}")


def _make_input_folders(settings_file: Path) -> list[Path]:
    """Make the folders of file sources that the example does not have; return the new ones."""
    sections = tomllib.loads(settings_file.read_text())
    sources = [sections.get(name, {}) for name in ("events", "operations")]
    folders = [settings_file.parent / source["path"] for source in sources if source.get("kind") == "files"]
    new = [folder for folder in folders if not folder.exists()]
    for folder in new:
        folder.mkdir(parents=True)
    return new
