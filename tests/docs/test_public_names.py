"""What `import geoswarm as gs` offers: to a person, to a type checker, and without starting anything."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import geoswarm as gs

ROOT = Path(__file__).parents[2]

PROGRAM = """\
import geoswarm as gs

reveal_type(gs.Engine)
reveal_type(gs.build_session)
reveal_type(gs.sinks.Memory)
gs.Engin
"""


@pytest.mark.slow
def test_importing_geoswarm_starts_neither_spark_nor_numba() -> None:
    program = "import sys, geoswarm; print([m for m in ('pyspark', 'numba', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_dir_shows_all_public_names_and_each_can_be_used() -> None:
    assert dir(gs) == sorted(gs.__all__)
    assert len(set(gs.__all__)) == len(gs.__all__)
    for name in gs.__all__:
        assert getattr(gs, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error_that_lists_the_others() -> None:
    with pytest.raises(AttributeError, match=r"geoswarm has no 'Motor': it has .*Engine"):
        getattr(gs, "Motor")  # noqa: B009 - a type checker would refuse the plain spelling


def test_type_checkers_and_the_interpreter_find_every_name_in_the_same_module() -> None:
    tree = ast.parse((ROOT / "src" / "geoswarm" / "__init__.py").read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    typed: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "`import X as X` is what makes a name public to a type checker"
            typed[alias.name] = node.module or ""
    later: dict[str, str] = vars(gs)["_LATER"]
    assert typed == {name: module.removesuffix(f".{name}") for name, module in later.items()}


def test_no_room_below_the_lab_imports_the_package_as_a_whole() -> None:
    package = ROOT / "src" / "geoswarm"
    files = [file for file in package.rglob("*.py") if "lab" not in file.parts]
    whole = re.compile(r"^\s*(?:import geoswarm(?: |$)|from geoswarm import)", re.MULTILINE)
    assert [str(file.relative_to(package)) for file in files if whole.search(file.read_text())] == []


@pytest.mark.slow
def test_a_users_program_is_type_checked_against_the_real_classes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(tmp_path / "program.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = done.stdout
    assert 'Revealed type is "def (' in said, said + done.stderr
    assert "geoswarm.run.spark.engine.Engine" in said
    assert "pyspark.sql.session.SparkSession" in said
    assert "Memory" in said
    assert 'Module has no attribute "Engin"' in said
    assert 'Revealed type is "Any"' not in said


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "geoswarm" / "py.typed").exists()
