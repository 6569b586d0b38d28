"""Every example in the README and the docs runs."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLLOWED = "tutorial.md"
"""Its commands and blocks belong together: `test_tutorial.py`."""


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_readme_has_its_examples() -> None:
    """One on Spark, one in this process."""
    assert len(blocks(ROOT / "README.md")) == 2


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page) and page.name != FOLLOWED], ids=lambda page: page.name
)
def test_examples_run_as_printed(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    engines: list[Any] = []
    found: list[list[tuple[int, list[int]]]] = []
    for block in blocks(page):
        exec(block, names)  # `build_session` finds the session of the tests
        if "engine" in names and names["engine"] not in engines:
            engines.append(names["engine"])
        if page.name == "README.md":
            matches = names["matches"].table()
            assert all(-0.5 <= x <= 0.3 for x in matches["x"].to_pylist())
            found.append(sorted(zip(matches["event_id"].to_pylist(), matches["sub_ids"].to_pylist(), strict=True)))
    for engine in engines:
        engine.close()
    if page.name == "README.md":
        assert found[0] == found[1], "both engines give the same"
        assert len(found[0]) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
