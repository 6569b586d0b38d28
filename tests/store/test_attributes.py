"""Attributes of subscriptions: each is declared once, shows what was registered, and a new one takes one entry."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm
from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Ints
from geoswarm.core.subscriptions.attributes import (
    ATTRIBUTES,
    OPERATION,
    OPERATION_COLUMNS,
    operation_batch,
    operation_table,
    registration,
)
from geoswarm.errors import InputError
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.subscriptions import View
from worlds import operations, with_alert_rules, with_demands, with_on

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
SOURCE = Path(geoswarm.__file__).parent
RUNNING = SOURCE.parents[1] / "docs/running.md"
IDS: Ints = np.arange(-5, 420)


def register(sub_id: int, **said: Any) -> dict[str, Any]:
    return registration(sub_id, None if "geometry" in said else (0.0, 0.0, 1.0, 1.0), **said)


EVERY_KIND = [
    register(401, user="ana", keywords='flood AND (river OR "and")', on="dwell(2.5)"),
    register(402, geometry="POLYGON((2 48, 3 48, 3 49, 2 48))", predicate="within"),
    register(403, geometry="CIRCLE(2.25 48.5, 1500.5)", on="exit", confirm="3 fixes", cooldown="1.5 min"),
    register(408, on="enter", confirm="0.5 s"),
    register(412, on="exit", max_events=5, notify="ended, initial"),
    register(413, max_events=1_000_000_000, notify=" ended"),
    register(
        404, geometry="MULTIPOLYGON(((2 48, 3 48, 3 49, 2 48)), ((5 5, 7 5, 7 7, 5 7, 5 5), (6 6, 6.5 6, 6 6.5, 6 6)))"
    ),
    register(405, predicate="contains"),
    registration(406, keywords="dam"),
    registration(409, keywords='flood AND NOT ("and" OR drill)'),
    register(410, where="speed>80 and status in ('free', 'it''s')", objects=["van-7", 12]),
    register(411, where='NOT "km/h" BETWEEN 1 AND 2.50'),
    register(
        407, aggregate='Top("my kind", 3)', window="sliding(1 h, 60000 ms)", group_by="v", when="count>3 and count<9"
    ),
]


def live_table(checkpoint: Checkpoint) -> pa.Table:
    return View.open(checkpoint.storage, checkpoint.manifest).table(IDS, checkpoint.manifest.now_us)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_version_shows_registers_the_same_again(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = Checkpoint(str(tmp_path / "first"), CONTRACT, EAGER)
    first.submit(operation_table(EVERY_KIND))
    for number in range(8):
        storm = with_alert_rules(rng, with_on(rng, operations(rng, 100, ids=400, now_us=number)))
        first.submit(with_demands(rng, storm, 0.2))
        first.fold(number)
    before = live_table(first)
    second = Checkpoint(str(tmp_path / "second"), CONTRACT, Tuning())
    second.submit(before)
    second.fold(first.manifest.now_us)
    after = live_table(second)
    assert second.manifest.refused == 0
    assert before.num_rows == len(second.live_rects()) > 100
    assert after.equals(before)
    first.close()
    second.close()


def test_what_was_said_is_shown(tmp_path: Path) -> None:
    held = Checkpoint(str(tmp_path / "held"), CONTRACT, EAGER)
    held.submit(operation_table(EVERY_KIND))
    held.fold(0)
    rows = {row["sub_id"]: row for row in live_table(held).to_pylist()}
    assert list(rows) == list(range(401, 414))
    assert rows[401]["keywords"] == '"and" AND flood OR flood AND river'
    assert (rows[401]["user"], rows[401]["on"], rows[401]["expires"]) == ("ana", "dwell(2.5)", None)
    assert rows[402]["predicate"] == "within"
    assert [(rows[n]["confirm"], rows[n]["cooldown"]) for n in (403, 408, 401)] == [
        ("3 fixes", "90 s"),
        ("0.5 s", None),
        (None, None),
    ]
    assert [(rows[n]["max_events"], rows[n]["notify"]) for n in (412, 413, 401)] == [
        (5, "ended, initial"),
        (1_000_000_000, "ended"),
        (None, None),
    ]
    assert rows[403]["geometry"] == b"CIRCLE(2.25 48.5, 1500.5)"
    assert (rows[401]["geometry"], rows[401]["xmax"], rows[406]["xmin"]) == (None, 1.0, -180.0)
    counts = [rows[407][name] for name in ("aggregate", "window", "group_by", "when")]
    assert counts == ['top("my kind", 3)', "sliding(3600 s, 60 s)", "v", "count > 3 AND count < 9"]
    view = View.open(held.storage, held.manifest)
    assert view.column("on", np.array([7, 401, 403]), 0).to_pylist() == [None, "dwell(2.5)", "exit"]
    held.close()


def test_no_two_attributes_use_one_name() -> None:
    assert len({attribute.name for attribute in ATTRIBUTES}) == len(ATTRIBUTES)
    assert len({column.name for column in OPERATION_COLUMNS}) == len(OPERATION_COLUMNS) == len(OPERATION)


def test_the_docs_list_every_column() -> None:
    rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in OPERATION_COLUMNS]
    assert "\n".join(rows) in RUNNING.read_text()


def test_a_column_that_no_operation_has_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"has no keyword, did you mean keywords\? \(known are op, sub_id, user"):
        operation_table([register(1, keyword="flood")])
    with pytest.raises(InputError, match=r"ids are integers \(or texts\)"):
        operation_table([{"op": "cancel", "sub_id": 1.5}])


def test_whole_columns_make_operations_and_the_others_are_null() -> None:
    batch = operation_batch({"op": pa.array(["cancel"] * 2), "sub_id": pa.array([1, 2])})
    assert batch.schema.equals(OPERATION)
    assert batch.column("keywords").null_count == 2


NOTE = """
NOTE = TextAttribute("note", "an opaque text that is kept with the subscription", bytes_max=20)
"""

USE_OF_NOTE = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations, validate_operations
from geoswarm.run.spark.schemas import SPARK_OPERATION
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.loading import load
from geoswarm.store.subscriptions import View

here = Path(sys.argv[1])
held = Checkpoint(str(here / "before"), Contract(columns=20, rows=20, executors=2), Tuning(deltas_max=2))
row = {"op": "register", "xmin": 0.0, "ymin": 0.0, "xmax": 1.0, "ymax": 1.0}
view = lambda: View.open(held.storage, held.manifest)
read = lambda *ids: view().column("note", np.array(ids), held.manifest.now_us).to_pylist()
assert SPARK_OPERATION["note"].dataType.simpleString() == "string"
assert read(1, 2) == [None, None] and view().table(np.array([1]), 0).num_rows == 1  # of before it was made
for sub_id in range(10, 20):
    held.submit(operation_table([registration(sub_id, (0, 0, 1, 1), note=f"p{sub_id}")]))
    held.fold(0)
assert len(held.manifest.segments) < 5  # they have been merged
assert read(1, 9, 10, 19) == [None, None, "p10", "p19"]
held.submit(operation_table([row | {"op": "replace", "sub_id": 10, "note": "new"}, {"op": "cancel", "sub_id": 11}]))
held.fold(0)
assert read(10, 11, 12) == ["new", None, "p12"]
table = pa.table({"sub_id": [30, 31], **{k: [v] * 2 for k, v in row.items() if k != "op"}, "note": ["bulk", None]})
pq.write_table(table, here / "bulk.parquet")
region = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
feature = {"type": "Feature", "id": 40, "geometry": region, "properties": {"note": "drawn"}}
(here / "regions.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
for name in ("bulk.parquet", "regions.geojson"):
    assert load(held, str(here / name), 0).dead == 0
assert read(30, 31, 40) == ["bulk", None, "drawn"]
dead = DeadLetters("operation", -1)
long = conform_operations(operation_table([row | {"sub_id": 50, "note": "x" * 21}])).to_batches()[0]
validate_operations(long, held.grid, 0, dead)
(letter,) = dead.table().to_pylist()
assert letter["reason"] == "too-long"
assert letter["detail"] == "note of subscription 50 has more than 20 bytes: send a shorter one", letter
held.close()
"""


@pytest.mark.slow
def test_a_new_attribute_is_one_entry_of_one_file(tmp_path: Path) -> None:
    """In a copy of the package: validated, stored, merged, loaded in bulk, read back, in Spark's schema; and segments
    that were written without it open."""
    held = Checkpoint(str(tmp_path / "before"), Contract(columns=20, rows=20, executors=2), Tuning())
    held.submit(operation_table([register(1), register(2, user="ana")]))
    held.fold(0)
    held.close()
    shutil.copytree(SOURCE, tmp_path / "src/geoswarm")  # with compiled kernels, which go by a file's time
    table = tmp_path / "src/geoswarm/core/subscriptions/attributes.py"
    text = table.read_text()
    text = text.replace("ExpiryAttribute, UserAttribute\n", "ExpiryAttribute, TextAttribute, UserAttribute\n")
    text = text.replace("\nATTRIBUTES:", f"{NOTE}\nATTRIBUTES:")
    text = text.replace("    BIRTH,\n", "    BIRTH,\n    NOTE,\n")
    table.write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [sys.executable, "-c", USE_OF_NOTE, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
