"""The benchmarks there are, found by reading their files. No file is imported, so that the list stays quick.

Runs nothing: `harness.py` does. A folder of `lab/bench/` is a paper, whose title is the first line of the docstring in
its `__init__.py`. A file of the folder with a function `measure` is an experiment, in one of two forms:

    one figure       the first line of the file's docstring is "WHERE: SENTENCE", such as "SWARM Fig. 11: units of
                     work ..."; the name is that of folder and file: `swarm/fig11.py` is swarm-fig11, and
                     `guard/fig6_23.py` is guard-fig6.23
    several figures  a table `FIGURES = {"swarm-fig12": TimelineFigure("SWARM Fig. 12", "one hotspot ...", ...), ...}`
                     of figures that differ in a parameter only; the keys are the names

Benchmarks of the folder `engine/` belong to no paper: their docstrings are a sentence, and their names have no folder.
"""

import ast
import difflib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from geoswarm.errors import SettingsError

PACKAGE = "geoswarm.lab.bench"
OWN = "engine"
ORDER = ("swarm", "triostat", "guard", "mixed", "ps2", "distributor")
"""Papers in the order of the list; folders that are not named here follow, and `engine/` is the last."""
TABLE, MEASURE, PLOT = "FIGURES", "measure", "plot"


@dataclass(frozen=True)
class FigureRow:
    """One figure of a table. These two are written out as plain strings, because they are read without importing."""

    where: str
    """The paper and its figure, such as "SWARM Fig. 12"."""
    sentence: str


@dataclass(frozen=True)
class Benchmark:
    name: str
    folder: str
    module: str
    where: str
    """The paper and its figure; empty for our own."""
    sentence: str
    draws: bool
    is_row: bool
    """Whether it is a row of a table of figures, under its name."""

    @property
    def description(self) -> str:
        return f"{self.where}: {self.sentence}" if self.where else self.sentence


@dataclass(frozen=True)
class Paper:
    title: str
    benchmarks: list[Benchmark]


def bench_names(package: str = PACKAGE) -> list[str]:
    return sorted(benchmark.name for benchmark in find_all(package))


def describe(name: str, package: str = PACKAGE) -> str:
    """What the benchmark measures, and which figure it is."""
    return find(name, package).description


def papers(package: str = PACKAGE) -> list[Paper]:
    """All benchmarks by paper, in the order of figures."""
    found: dict[str, list[Benchmark]] = {}
    for benchmark in find_all(package):
        found.setdefault(benchmark.folder, []).append(benchmark)
    place = {folder: i for i, folder in enumerate(ORDER)} | {OWN: len(ORDER) + 1}
    folders = sorted(found, key=lambda folder: (place.get(folder, len(ORDER)), folder))
    return [Paper(_title(package, folder), sorted(found[folder], key=_by_figure)) for folder in folders]


def find(name: str, package: str = PACKAGE) -> Benchmark:
    found = {benchmark.name: benchmark for benchmark in find_all(package)}
    if name not in found:
        close = difflib.get_close_matches(name, found, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see `geoswarm bench list`"
        raise SettingsError(f"no benchmark is called {name!r}, of {len(found)}: {hint}")
    return found[name]


def find_all(package: str = PACKAGE) -> list[Benchmark]:
    return [
        benchmark
        for folder in _folders(package)
        for file in sorted(folder.glob("*/*.py"))
        for benchmark in _read(file, package)
    ]


def _read(file: Path, package: str) -> Iterator[Benchmark]:
    tree = ast.parse(file.read_text(), file.name)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if MEASURE not in functions:
        return
    folder, module, draws = file.parent.name, f"{package}.{file.parent.name}.{file.stem}", PLOT in functions
    rows = list(_table_rows(tree))
    for name, where, sentence in rows:
        yield Benchmark(name, folder, module, where, sentence, draws, True)
    if not rows:
        line = (ast.get_docstring(tree) or "(no description)").splitlines()[0]
        where, colon, sentence = ("", "", "") if folder == OWN else line.partition(": ")
        yield Benchmark(_name_of(file), folder, module, where if colon else "", sentence or line, draws, False)


def _table_rows(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Name, figure and sentence of each row of a table."""
    tables = [
        node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and TABLE in _names(node)
    ]
    for table in tables:
        if not isinstance(table, ast.Dict):
            raise SettingsError(f"{TABLE} is not a dictionary that is written out: list its rows")
        for key, row in zip(table.keys, table.values, strict=True):
            written = [key, *row.args[:2]] if isinstance(row, ast.Call) else []
            texts = [node.value for node in written if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            if len(texts) != 3:
                raise SettingsError(
                    f"the row of {TABLE} on line {row.lineno} has no name, figure and sentence that can be read "
                    "without importing the file: write all three as plain strings"
                )
            yield texts[0], texts[1], texts[2]


def _names(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _name_of(file: Path) -> str:
    stem = re.sub(r"(?<=\d)_(?=\d)", ".", file.stem).replace("_", "-")
    return stem if file.parent.name == OWN else f"{file.parent.name}-{stem}"


def _by_figure(benchmark: Benchmark) -> tuple[list[int], str]:
    """Figures by their numbers; those that are no figure come last."""
    numbers = re.search(r"fig([\d.]+)$", benchmark.name)
    return [int(n) for n in numbers[1].split(".")] if numbers else [1_000], benchmark.name


def _title(package: str, folder: str) -> str:
    for root in _folders(package):
        text = ast.get_docstring(ast.parse((root / folder / "__init__.py").read_text()))
        if text:
            return text.splitlines()[0].rstrip(".")
    return folder


def _folders(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
