"""What another package brings along runs on Spark, too. Its workers find it where Spark put it; the process in which
Spark runs sources that are written in Python does not, so a workload must be installed, or be on PYTHONPATH."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from geoswarm.run.registry import WORKLOADS
from geoswarm.service import launch
from geoswarm.service.cli.settings_file import read_settings
from plugin_package import write_plugin_package
from worlds import write_files

SETTINGS = """\
[checkpoint]
path = "state"

[contract]
columns = 20
rows = 20
executors = 3

[tuning]
strategy = "tiny-round-robin"
options = { every_rounds = 1 }
round_s = 0.001

[events]
kind = "files"
path = "events"
files_per_batch = 1

[sink]
kind = "tiny-lines"
path = "matches"

[[stages]]
operator = "tiny-parity"
interval_s = 3600.0
sink = { kind = "tiny-lines", path = "counts" }

[trigger]
available_now = true
"""


def test_a_package_of_another_author_runs_by_name_through_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write_plugin_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site))
    spark.sparkContext.addPyFile(shutil.make_archive(str(tmp_path / "tiny"), "zip", site))
    workload = WORKLOADS.make("tiny-diagonal", {"bounds": [0, 0, 5, 5]})
    rows = [
        pa.Table.from_batches([workload.events(first, count)]) for first, count in ((0, 400), (400, 400), (800, 200))
    ]
    write_files(tmp_path / "events", rows)
    file = tmp_path / "pipeline.toml"
    file.write_text(SETTINGS)
    settings = read_settings(file)
    with launch.build_engine(settings) as engine:
        engine.subscribe(7, (0.0, 0.0, 2.5, 2.5))
        launch.start(engine, settings, Console(quiet=True)).wait()
        assert engine.status()["plan_epoch"] >= 1, "the strategy has moved a partition"
    matches = [line for batch in (tmp_path / "matches").iterdir() for line in batch.read_text().splitlines()]
    assert len(matches) == 501, "half of the way, both ends included"
    last = (tmp_path / "counts" / "batch-2.jsonl").read_text().splitlines()
    assert sorted((row["key"], row["count"]) for row in map(json.loads, last)) == [(0, 500), (1, 500)]
