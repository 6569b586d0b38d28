"""All benchmarks there are: each says which figure it is, has both sizes, and no name means two things."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import geoswarm.lab.bench
from geoswarm.lab.bench.kit.catalogue import OWN, Benchmark, find, find_all, papers
from geoswarm.lab.bench.kit.harness import Scale, load, sizes_of

ROOT = Path(geoswarm.lab.bench.__file__).parent
ALL = find_all()
PROTOCOL = {"measure", "plot", "main", "_row", "_rows", "_summary"}
"""Functions that mean the same in every file: what a benchmark is asked for, and the parts of its result."""
FIGURE = re.compile(r"(SWARM|Thesis|Mixed|PS2Stream|Distributor) (Fig\. \d+|§\d+|Definition \d+)")


def test_there_are_as_many_benchmarks_as_before_and_no_name_twice() -> None:
    names = [benchmark.name for benchmark in ALL]
    assert len(set(names)) == len(names) == 78


@pytest.mark.parametrize("benchmark", ALL, ids=lambda benchmark: benchmark.name)
def test_every_benchmark_says_which_figure_it_is_and_what_it_measures(benchmark: Benchmark) -> None:
    assert len(benchmark.sentence) > 20
    if benchmark.folder != OWN:
        assert FIGURE.search(benchmark.where), benchmark.where
        number = re.search(r"fig([\d.]+)$", benchmark.name)
        assert number is None or f"Fig. {number[1]}" in benchmark.where


@pytest.mark.parametrize("benchmark", ALL, ids=lambda benchmark: benchmark.name)
def test_every_benchmark_is_found_by_name_and_has_both_sizes(benchmark: Benchmark) -> None:
    assert find(benchmark.name) == benchmark
    module, row = load(benchmark)
    assert callable(module.measure)
    assert len(row) == benchmark.is_row
    assert set(sizes_of(benchmark)) == set(Scale)
    small, full = (sizes_of(benchmark)[scale] for scale in Scale)
    assert type(small) is type(full)


def test_the_list_has_a_heading_for_each_paper() -> None:
    titles = [paper.title.split(":")[0] for paper in papers()]
    assert titles == ["SWARM", "TrioStat", "Guard", "Mixed", "PS2Stream", "Distributor", "geoswarm's own"]
    assert sum(len(paper.benchmarks) for paper in papers()) == len(ALL)


def test_no_class_and_no_function_has_the_name_of_another() -> None:
    places = defaultdict[str, list[str]](list)
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in PROTOCOL:
                places[node.name].append(f"{file.parent.name}/{file.name}")
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_only_one_file_reads_the_journal() -> None:
    texts = {file.name: file.read_text() for file in ROOT.rglob("*.py")}
    assert [name for name, text in texts.items() if "JournalReader(" in text] == ["batch_log.py"]
    assert [name for name, text in texts.items() if 'format("noop")' in text] == []
