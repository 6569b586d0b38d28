"""A tiny package of another author, written to a folder: a strategy, a sink, an operator, a planner and a workload.

Nothing is installed: a folder on `sys.path` with a package and its metadata is all that Python needs to find its entry
points. Spark's workers find it if the folder is on PYTHONPATH before the session starts.
"""

from collections.abc import Mapping
from pathlib import Path

PACKAGE, MODULE = "tiny-geo", "tiny_geo"

FILES = {
    "strategy.py": '''
"""A strategy that hands one partition round, so that its work is easy to see."""

from typing import Annotated

from pydantic import Field

import geoswarm as gs
from geoswarm.control.balance.static import StaticUniform
from geoswarm.control.strategy import Decision
from geoswarm.core.space.change import Move
from geoswarm.parameters import checked


class RoundRobin(StaticUniform):
    """Hands the first partition to the next executor, every so many rounds."""

    name = "tiny-round-robin"

    @checked
    def __init__(self, *, every_rounds: Annotated[int, Field(ge=1, description="rounds between moves")] = 1) -> None:
        self.every_rounds = every_rounds

    def rebalance(self, plan, report):
        if report.round % self.every_rounds or plan.executors == 1:
            return Decision((), {"decision": "wait"})
        first = plan.partitions[0]
        return Decision([Move(first.id, (first.executor + 1) % plan.executors)], {"decision": "next"})

    def estimate(self, plan, report):
        return 0.0
''',
    "sink.py": '''
"""A sink that writes a file of JSON lines for every batch."""

import json
from pathlib import Path

import geoswarm as gs


class Lines(gs.sinks.Sink):
    """Write the rows of each batch as lines of JSON, in a file of its own."""

    def __init__(self, path: str, prefix: str = "batch") -> None:
        self.path, self.prefix = Path(path), prefix

    def write(self, matches, batch_id):
        self.path.mkdir(parents=True, exist_ok=True)
        rows = matches.to_arrow().to_pylist()
        text = "".join(json.dumps(row, default=str) + "\\n" for row in rows)
        (self.path / f"{self.prefix}-{batch_id}.jsonl").write_text(text)
''',
    "operator.py": '''
"""An operator that counts by a key of its own."""

import pyarrow as pa
import pyarrow.compute as pc

import geoswarm as gs


class Parity(gs.operators.Count):
    """Counts events with even ids and events with odd ids."""

    def __init__(self, window: int = 1, name: str = "parity") -> None:
        super().__init__("event_id", window, name)

    def feed(self, rows):
        odd = pc.bit_wise_and(rows.column("event_id"), pa.scalar(1, pa.int64()))
        return pa.RecordBatch.from_arrays([odd], names=["key"])
''',
    "planner.py": '''
"""A planner that never plans."""

from dataclasses import dataclass

from geoswarm.control.keyed.fixed import Hash
from geoswarm.control.keyed.problem import Limits


@dataclass(frozen=True)
class Lazy(Hash):
    """Leaves all as it is, with a parameter to show for it."""

    name: str = "tiny-lazy"
    patience: int = 3
    """Of which there is plenty."""
''',
    "workload.py": '''
"""Events along a diagonal."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.model import EVENT


@dataclass(frozen=True)
class Diagonal:
    """Events one after the other, from the lower left to the upper right."""

    stream_name: ClassVar[str] = "tiny-diagonal"
    event_schema: ClassVar[pa.Schema] = EVENT
    id_max: ClassVar[int] = 1 << 40
    bounds: tuple[float, float, float, float] = (-10.0, -10.0, 10.0, 10.0)
    events_per_s: float = 1000.0
    seed: int = 0

    def events(self, first_id, count):
        ids = np.arange(first_id, first_id + count)
        way = (ids % 1000) / 1000.0
        x, y = (low + way * (high - low) for low, high in zip(self.bounds[:2], self.bounds[2:]))
        ts = pa.array((ids * 1e6 / self.events_per_s).astype(np.int64)).cast(EVENT.field("ts").type)
        return pa.record_batch([pa.array(ids), ts, pa.array(x), pa.array(y)], schema=EVENT)
''',
}

ENTRY_POINTS = {
    "geoswarm.strategies": {"tiny-round-robin": "strategy:RoundRobin", "tiny-broken": "missing:Nothing"},
    "geoswarm.sinks": {"tiny-lines": "sink:Lines"},
    "geoswarm.operators": {"tiny-parity": "operator:Parity"},
    "geoswarm.planners": {"tiny-lazy": "planner:Lazy"},
    "geoswarm.workloads": {"tiny-diagonal": "workload:Diagonal"},
}


def write_plugin_package(
    folder: Path, entry_points: Mapping[str, Mapping[str, str]] = ENTRY_POINTS, package: str = PACKAGE
) -> Path:
    """Write the package and its metadata to `folder`, which is to be put on `sys.path`."""
    module = folder / package.replace("-", "_")
    module.mkdir(parents=True)
    for name, text in {"__init__.py": "", **FILES}.items():
        (module / name).write_text(text.lstrip())
    metadata = folder / f"{module.name}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    lines = []
    for group, things in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {module.name}.{place}" for name, place in things.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return folder
