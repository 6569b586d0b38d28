"""The table of rooms in docs/architecture.md, the contract in pyproject.toml and the folders are one house."""

import re
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "geoswarm"


def contracts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def floors_of_contract() -> list[set[str]]:
    """Names by floor, from the top. A name in brackets may be missing from the tree, and then is none."""
    (house,) = [c for c in contracts() if c["type"] == "layers" and c["containers"] == ["geoswarm"]]
    assert house["exhaustive"]
    return [{name for name in re.findall(r"\w+", layer) if exists(name, layer)} for layer in house["layers"]]


def exists(name: str, layer: str) -> bool:
    return f"({name})" not in layer or (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def floors_of_page() -> list[tuple[int, set[str]]]:
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    start = lines.index("| floor | room | what is in it |") + 2
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines[start:end]]
    by_floor = groupby(rows, key=lambda row: int(row[0]))
    return [(floor, {name for _, names in group for name in re.findall(r"\w+", names)}) for floor, group in by_floor]


def test_the_page_has_the_floors_of_the_contract_in_its_order() -> None:
    contract, page = floors_of_contract(), floors_of_page()
    rooms = len(page) - 1
    assert [names for _, names in page[:rooms]] == contract[:rooms]
    assert [floor for floor, _ in page] == list(range(len(page), 0, -1))


def test_the_lowest_floor_of_the_page_is_the_modules_that_are_no_rooms() -> None:
    (_, lowest), rooms = floors_of_page()[-1], len(floors_of_page()) - 1
    assert lowest == set[str]().union(*floors_of_contract()[rooms:])


def test_every_folder_is_a_room_of_the_page() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set[str]().union(*(names for _, names in floors_of_page()[:-1]))


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: str(contract["name"]))
def test_no_contract_has_an_exception(contract: dict[str, Any]) -> None:
    assert not contract.get("ignore_imports")
