"""Files that docstrings and comments name exist: beside the file that names them, or at a path under the package."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "geoswarm"
ROOMS = sorted({file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.py")})
NAMED = re.compile(r"`((?:[\w.]+/)*\w+\.py)`")


def missing_files(source: Path) -> list[str]:
    """What a source file names that is not there. A bare name means a file of the same folder, or of one below; a path
    begins at a folder that the source lies in."""
    above = [folder for folder in (*source.parents, ROOT) if folder.is_relative_to(PACKAGE) or folder == ROOT]
    missing = []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        for name in NAMED.findall(line):
            found = [(folder / name).exists() for folder in above] if "/" in name else [any(source.parent.rglob(name))]
            if not any(found) and not (PACKAGE / name).exists():
                missing.append(f"{source.relative_to(ROOT)}:{number} {name}")
    return missing


@pytest.mark.parametrize("room", ROOMS)
def test_every_file_that_a_docstring_names_is_there(room: str) -> None:
    sources = [PACKAGE / room] if room.endswith(".py") else sorted((PACKAGE / room).rglob("*.py"))
    assert [name for source in sources for name in missing_files(source)] == []
