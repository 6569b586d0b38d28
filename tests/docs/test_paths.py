"""Every file that the docs name exists, and every line of prose can be read without scrolling."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "geoswarm"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROSE_COLUMNS_MAX = 119

IMAGINED = {"control/balance/one_move.py", "flow/keyed/latest.py", "lab/bench/swarm/fig21.py"}
"""Files that a walk-through of CONTRIBUTING.md makes."""


def files_named_in(page: Path) -> Iterator[str]:
    for span in re.findall(r"`([^`\n]+)`", page.read_text()):
        yield from re.findall(r"(?<![\w./-])[\w./-]*\w\.py\b", span)


def folders_named_in(page: Path) -> Iterator[str]:
    rooms = "core|flow|control|guard|store|run|service|lab"
    yield from re.findall(rf"`((?:src/geoswarm/)?(?:{rooms})/(?:\w+/)*)`", page.read_text())


def exists(name: str) -> bool:
    if "/" in name:
        return (PACKAGE / name).exists() or (ROOT / name).exists() or name in IMAGINED
    return any(PACKAGE.rglob(name)) or any((ROOT / "tests").rglob(name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert [name for name in files_named_in(page) if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_folder_that_a_page_names_exists(page: Path) -> None:
    assert [name for name in folders_named_in(page) if not exists(name)] == []


@pytest.mark.parametrize("page", [p for p in PAGES if "journey" in p.name], ids=lambda page: page.name)
def test_a_journey_names_each_file_once(page: Path) -> None:
    named = list(files_named_in(page))
    assert named
    assert sorted(name for name in set(named) if named.count(name) > 1) == []
    assert [name for name in named if "/" not in name and name != "config.py"] == []


def prose_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Lines outside of tables, code and images, without the addresses of links."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(("|", "![", "    ")):
            yield number, re.sub(r"\]\([^)]*\)", "]", line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_end_before_column_120(page: Path) -> None:
    long = [number for number, line in prose_lines(page) if len(line) > PROSE_COLUMNS_MAX]
    assert long == []
