"""What the driver does before a join: the regions become one segment, and few points get few tasks. Without Spark."""

import json
from pathlib import Path

import pytest
import shapely

from geoswarm.config import Contract, Tuning
from geoswarm.core.space.grid import Grid
from geoswarm.run.spark import join_index
from geoswarm.run.spark.join_index import build_index, names_of
from geoswarm.run.spark.table_files import TASK_BYTES, TASKS_PER_SLOT, count_tasks


def test_a_file_that_is_read_in_many_batches_becomes_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_index, "ROWS_MAX", 5)
    shapes = [shapely.Point(k, k).buffer(0.4) for k in range(12)] + [shapely.LineString([(0, 0), (1, 1)])]
    features = [
        {"type": "Feature", "properties": {"code": f"r{k}"}, "geometry": json.loads(shapely.to_geojson(shape))}
        for k, shape in enumerate(shapes)
    ]
    file = tmp_path / "districts.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    home = tmp_path / "home"
    home.mkdir()
    index, ids = build_index(str(home), str(file), "code", "contains", Grid.of(Contract()), Tuning())
    assert [entry.subs for entry in index.manifest.segments] == [12]
    assert ids.to_pylist() == names_of(index.storage).to_pylist() == [f"r{k}" for k in range(13)]
    (segment,) = index.segments().values()
    assert sorted(segment.records.ids.tolist()) == list(range(12))
    assert segment.regions is not None
    assert len(segment.regions.predicates) == 12


@pytest.mark.parametrize(
    ("size", "tasks"),
    [
        (0, 3),
        (2 * 3 * TASK_BYTES - 1, 3),  # a second round of tasks would be too short
        (2 * 3 * TASK_BYTES, 6),
        (1 << 40, 3 * TASKS_PER_SLOT),
    ],
)
def test_every_slot_has_as_many_tasks_and_few_points_have_no_second_round(size: int, tasks: int) -> None:
    assert count_tasks(size, 3) == tasks
