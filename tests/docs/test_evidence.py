"""The page of evidence has every figure of the papers, once, with a picture that is there."""

import re
from pathlib import Path

from geoswarm.lab.bench.kit.catalogue import papers

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "evidence.md").read_text()
ROW = re.compile(r"^\| \[([\d.]+)\]\((images/[\w./-]+\.png)\)", re.MULTILINE)
SECTIONS = {"SWARM": "swarm", "TrioStat": "triostat", "Guard": "guard", "Mixed": "mixed", "PS2Stream": "ps2"}
SECTIONS |= {"Distributor": "distributor"}
OF_OTHER_BENCHMARKS = {"swarm-fig20", "triostat-fig6.1"}
"""Figures that another paper's benchmark measures: SWARM Fig. 20 is Thesis Fig. 6.2, and 6.1 is SWARM Fig. 19."""
PICTURE_BYTES_MAX = 40_000


def figures_on_the_page() -> list[tuple[str, str]]:
    """The name of each row's figure, as its benchmark is called, and its picture."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return [
        (f"{SECTIONS[title]}-fig{number}", picture)
        for title, body in found
        if title in SECTIONS
        for number, picture in ROW.findall(body)
    ]


def test_every_figure_that_has_a_benchmark_has_one_row() -> None:
    listed = {b.name for paper in papers() for b in paper.benchmarks if re.search(r"fig[\d.]+$", b.name)}
    rows = [name for name, _ in figures_on_the_page()]
    assert sorted(rows) == sorted(listed | OF_OTHER_BENCHMARKS)
    assert len(rows) == 55


def test_every_row_has_a_picture_and_every_picture_a_row() -> None:
    shown = {picture for _, picture in figures_on_the_page()}
    assert [picture for picture in shown if not (DOCS / picture).is_file()] == []
    folder = DOCS / "images" / "figures"
    assert {f"images/figures/{file.name}" for file in folder.glob("*.png")} <= shown
    assert [file.name for file in folder.glob("*.png") if file.stat().st_size > PICTURE_BYTES_MAX] == []
