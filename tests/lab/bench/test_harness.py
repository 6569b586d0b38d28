"""The harness on benchmarks made up for the purpose."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from geoswarm.errors import InputError, SettingsError
from geoswarm.lab.bench.kit.catalogue import bench_names, describe, find, papers
from geoswarm.lab.bench.kit.harness import Scale, best, cpu_s, interleave, median, ratio, run_benchmark
from geoswarm.lab.bench.kit.machine import machine

TOY = '''
"""How fast a toy spins.

More about it.
"""
import numpy as np
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure

SIZES = {Scale.SMALL: 2, Scale.FULL: 5}

def measure(n: int, seed: int, report: Progress) -> Result:
    report("spinning")
    rows = [{"turn": i, "speed": np.float64(i * 1.5), "who": "toy"} for i in range(n)]
    rows.append({"turn": n, "speed": float("nan"), "who": "toy"})
    return Result(rows, {"speed_max": np.float32(4.5)}, {"turns": np.int64(n)})

def plot(result):
    drawn, (axes,) = figure()
    axes.plot([row["turn"] for row in result.rows], [row["speed"] for row in result.rows])
    return drawn
'''

HEAVY = '"""Never import this to list it."""\nraise RuntimeError("imported")\ndef measure(sizes, seed, report): ...\n'
EMPTY = '''
"""Measures nothing."""
from geoswarm.lab.bench.kit.harness import Result, Scale

SIZES = dict.fromkeys(Scale)

def measure(sizes, seed, report):
    return Result([], {})
'''
TABLE = '''
"""Spins of several toys: the table has them."""
from dataclasses import dataclass
from geoswarm.lab.bench.kit.catalogue import FigureRow
from geoswarm.lab.bench.kit.harness import Result, Scale

@dataclass(frozen=True)
class SpinFigure(FigureRow):
    turns: int
    sizes: dict | None = None

SIZES = {Scale.SMALL: 1, Scale.FULL: 10}
FIGURES = {
    "toys-fig2": SpinFigure("Toys Fig. 2", "two turns", 2),
    "toys-fig10": SpinFigure("Toys Fig. 10", "ten turns", 10, {Scale.SMALL: 3, Scale.FULL: 3}),
}

def measure(shown, sizes, seed, report):
    return Result([{"turns": shown.turns}], {"turns_in_all": shown.turns * sizes})
'''
ENDLESS = EMPTY.replace("[], {}", "[{'a': 1}], {'claim': float('inf')}")


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = f"toys_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / package / "engine"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    files = {
        "__init__": "",
        "spin_fig11": TOY,
        "heavy": HEAVY,
        "helper": "X = 1\n",
        "empty": EMPTY,
        "endless": ENDLESS,
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text.lstrip())
    (folder.parent / "toys").mkdir()
    (folder.parent / "toys" / "__init__.py").write_text('"""Toys: a paper."""\n')
    (folder.parent / "toys" / "spins.py").write_text(TABLE.lstrip())
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_a_file_that_measures_is_a_benchmark_and_a_helper_is_not(toys: str) -> None:
    assert bench_names(toys) == ["empty", "endless", "heavy", "spin-fig11", "toys-fig10", "toys-fig2"]
    assert describe("spin-fig11", toys) == "How fast a toy spins."


def test_rows_of_a_table_are_benchmarks_with_parameters_and_maybe_sizes_of_their_own(toys: str) -> None:
    two, ten = (find(name, toys) for name in ("toys-fig2", "toys-fig10"))
    assert (two.where, two.sentence, two.description) == ("Toys Fig. 2", "two turns", "Toys Fig. 2: two turns")
    assert two.module == ten.module
    assert run_benchmark("toys-fig2", quiet=True, package=toys)["summary"] == {"turns_in_all": 2}
    assert run_benchmark("toys-fig2", Scale.FULL, quiet=True, package=toys)["summary"] == {"turns_in_all": 20}
    assert run_benchmark("toys-fig10", Scale.FULL, quiet=True, package=toys)["summary"] == {"turns_in_all": 30}


def test_benchmarks_are_listed_by_paper_in_the_order_of_figures_and_our_own_last(toys: str) -> None:
    first, last = papers(toys)
    assert first.title == "Toys: a paper"
    assert [benchmark.name for benchmark in first.benchmarks] == ["toys-fig2", "toys-fig10"]
    assert [benchmark.name for benchmark in last.benchmarks] == ["spin-fig11", "empty", "endless", "heavy"]


def test_a_table_that_cannot_be_read_without_importing_is_refused(toys: str, tmp_path: Path) -> None:
    file = tmp_path / toys / "toys" / "spins.py"
    file.write_text(TABLE.replace('"Toys Fig. 2", ', "WHERE, ").lstrip())
    with pytest.raises(SettingsError, match="plain strings"):
        bench_names(toys)


def test_the_list_imports_no_benchmark(toys: str) -> None:
    assert describe("heavy", toys) == "Never import this to list it."


def test_the_harness_itself_is_no_benchmark() -> None:
    assert not {"harness", "plots", "machine"} & set(bench_names())


def test_listing_loads_neither_spark_nor_matplotlib_nor_numba() -> None:
    code = (
        "import io, sys; from rich.console import Console; from geoswarm.lab.bench.commands import print_list;"
        "print_list(Console(file=io.StringIO()));"
        "print([m for m in ('pyspark', 'matplotlib', 'numba') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_leaves_one_json_object_a_picture_and_two_tables(
    toys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_path, plot_path = tmp_path / "out.json", tmp_path / "out.png"
    returned = run_benchmark("spin-fig11", Scale.SMALL, 3, json_path, plot_path, package=toys)
    record = json.loads(json_path.read_text())
    assert record == returned
    assert list(record) == ["name", "config", "machine", "rows", "summary"]
    assert record["name"] == "spin-fig11"
    assert record["config"] == {"scale": "small", "seed": 3, "turns": 2}
    assert record["rows"][1] == {"turn": 1, "speed": 1.5, "who": "toy"}
    assert record["rows"][2]["speed"] is None
    assert record["summary"] == {"speed_max": 4.5}
    assert plot_path.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "turn" in printed
    assert "speed_max" in printed
    assert "4.5" in printed


def test_a_full_run_is_larger_and_a_quiet_one_prints_nothing(toys: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = run_benchmark("spin-fig11", Scale.FULL, quiet=True, package=toys)
    assert len(record["rows"]) == 6
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_misspelt_benchmark_is_refused_with_the_likely_one(toys: str) -> None:
    with pytest.raises(SettingsError, match=r"'spin-fig12'.*did you mean spin-fig11"):
        run_benchmark("spin-fig12", package=toys)


def test_what_cannot_be_written_is_refused_before_the_run(toys: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        run_benchmark("heavy", json_path=tmp_path / "no" / "out.json", package=toys)
    with pytest.raises(SettingsError, match="draws no figure"):
        run_benchmark("heavy", plot_path=tmp_path / "out.png", package=toys)


def test_a_result_without_figures_is_an_error_and_writes_nothing(toys: str, tmp_path: Path) -> None:
    json_path = tmp_path / "out.json"
    with pytest.raises(InputError, match="no rows"):
        run_benchmark("empty", json_path=json_path, quiet=True, package=toys)
    with pytest.raises(InputError, match="claim"):
        run_benchmark("endless", json_path=json_path, quiet=True, package=toys)
    assert not json_path.exists()


def test_contestants_take_turns_in_changing_order() -> None:
    calls: list[str] = []

    def contestant(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    measured = interleave({name: partial(contestant, name) for name in "abc"}, 20, np.random.default_rng(1))
    turns = [tuple(calls[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) > 2
    assert all(len(values) == 20 for values in measured.values())
    assert measured[calls[0]][0] == 1.0


def test_a_ratio_compares_turn_by_turn() -> None:
    assert ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == 2.0
    assert best([3.0, 1.0, 2.0]) == 1.0
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_cpu_time_counts_work_and_not_sleep() -> None:
    started = cpu_s()
    time.sleep(0.2)
    slept = cpu_s() - started
    sum(range(30_000_000))
    worked = cpu_s() - started - slept
    assert slept < 0.02 < worked


def test_the_machine_is_described_without_names_or_paths() -> None:
    facts = machine()
    assert isinstance(facts["cores"], int)
    assert facts["cores"] >= 1
    assert facts["pyspark"]
    assert facts["numpy"] == np.__version__
    assert os.uname().nodename not in json.dumps(facts)
    assert "/" not in json.dumps([facts["cpu"], facts["system"]])


IN_ORDER = """
import signal, sys, tempfile, time
from geoswarm.lab.bench.commands import ending_in_order

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup ignore it, and so do their processes
with ending_in_order(), tempfile.TemporaryDirectory(dir=sys.argv[1]):
    print("begun", flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_stopped_from_outside_removes_its_folders(tmp_path: Path, how: signal.Signals) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", IN_ORDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "begun\n"
        assert list(tmp_path.iterdir())
        stopped.send_signal(how)
    assert (stopped.returncode, list(tmp_path.iterdir())) == (128 + how, [])
