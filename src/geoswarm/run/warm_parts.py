"""Small streams that need the kernels of real ones: each part runs the real engine, or the real join, on a few rows.

numba compiles for the exact types of arguments, so kernels are compiled by using them. Parts share kernels; their order
is that in which most users need them. `warm.py` runs them, and `core/arrays/kernel_cache.py` keeps what they compile.
"""

import tempfile
from collections.abc import Callable
from itertools import count, cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning, WindowSettings
from geoswarm.core.subscriptions.attributes import operation_table
from geoswarm.flow.keyed.registry import OPERATORS
from geoswarm.model import TIMESTAMP
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import from_tables
from geoswarm.run.registry import WORKLOADS
from geoswarm.run.side_stages import Stage
from geoswarm.run.sinks import Memory

WORLD = Contract(bounds=(0.0, 0.0, 16.0, 16.0), columns=64, rows=64, executors=4)
BATCHES, EVENTS, SUBSCRIPTIONS = 4, 300, 40
TUNING = Tuning(strategy="auto", round_s=0.001, deltas_max=2)
"""A round after each batch, and segments that are merged."""
SECOND_US = 1_000_000
TEXTS = ("Flood at the dam", "the river, a stormy day \u00e9", "calm high water", None)
KEYWORDS = ("flood", "flood AND (river OR dam)", "storm* AND calm", "high OR water")
REGIONS = (
    "POLYGON((2 2, 6 2, 4 7, 2 2))",
    "CIRCLE(8 8, 90000)",
    "POLYGON((1 1, 9 1, 9 9, 1 9, 1 1), (3 3, 4 3, 4 4, 3 3))",
)
AREAS = ("POLYGON((2 2, 3 2, 3 3, 2 2))", "CIRCLE(8 8, 9000)", "POLYGON((7 7, 9 7, 8 9, 7 7))", None)
PREDICATES = ("intersects", "contains", "within", "covers")
TRIGGERS = ("enter", "exit", "dwell(1)", "inside", "cross")
BUFFERS = (None, 1000.0, None, None, None)


def places() -> None:
    """Points in rectangles: events that are dealt out, and plans that follow the load."""
    _stream(_events, _rectangles())
    _stream(_events, _rectangles(), tuning=TUNING.model_copy(update={"strategy": "auto-places"}))


def words() -> None:
    """The same, for those that ask for words."""
    _stream(lambda first: _with(_events(first), text=TEXTS), _rectangles(keywords=KEYWORDS))


def demands() -> None:
    """Those that ask for objects and for values of columns, among others for words."""
    _stream(
        lambda first: _with(_events(first), text=TEXTS, object_id=(1, 2, 3, None), v=(0.5, 1.0, None)),
        _rectangles(
            objects=("[1, 2]", None, None, "[3]"), where=(None, "v = 1", "v > 0.5"), keywords=(None, *KEYWORDS)
        ),
    )


def regions() -> None:
    """Polygons and circles, for events that are points, areas, and texts."""
    _stream(lambda first: _with(_events(first), geometry=AREAS), _regions(predicate=PREDICATES))
    _stream(lambda first: _with(_events(first), geometry=AREAS, text=TEXTS), _regions(keywords=KEYWORDS))


def join() -> None:
    """`gs.join`, of points and of areas."""
    from geoswarm.run.spark.batch_join import rehearse  # here, because it needs pyspark

    shapes = pa.table({"geometry": list(REGIONS), "name": ["a", "b", "c"]})
    rehearse(_events(0), shapes, ("x", "y"))
    rehearse(_with(_events(0), geometry=AREAS), shapes, ("geometry",))


def transitions() -> None:
    """Who enters, leaves and stays; who is where, and what is nearest."""

    def ask(engine: LocalEngine) -> None:
        engine.objects((1.0, 1.0, 9.0, 9.0))
        engine.nearest(8.0, 8.0, of="objects")
        engine.nearest(8.0, 8.0)

    followed = TUNING.model_copy(update={"window": WindowSettings(keep="1 hour")})
    asked = _rectangles(on=TRIGGERS, exit_buffer_m=BUFFERS)
    _stream(lambda first: _with(_events(first), object_id=(1, 2, 3, None)), asked, None, followed, ask)


def digests() -> None:
    """Keyed operators beside the matching."""
    stages = [
        Stage(OPERATORS.make("word-count", {}), Memory()),
        Stage(OPERATORS.make("trending", {}), Memory()),
        Stage(OPERATORS.make("delivery", {"per_interval": 1}), Memory(), on="matches"),
    ]
    _stream(lambda first: _with(_events(first), text=TEXTS), _rectangles(user=("ana", "ben")), stages)


def aggregates() -> None:
    """Subscriptions that count. Sketches are no kernels of ours, and may not be installed."""
    _stream(
        lambda first: _with(_events(first), v=(0.5, 1.25, None), n=(1, 2, 3), kind=("a", "b", None)),
        _rectangles(
            aggregate=("count", "sum(v)", "avg(n)", "min(v)", "count"),
            window=("sliding(30 s, 10 s)", "tumbling(10 s)", "session(3 s)", "count(5)"),
            group_by=(None, None, "kind"),
        ),
    )


def workloads() -> None:
    """The events and subscriptions of `geoswarm demo` and of settings that generate them."""
    for name in WORKLOADS.names():
        made = WORKLOADS.make(name, {})
        made.events(0, EVENTS)
        for draw in ("subscriptions", "operations"):
            if hasattr(made, draw):
                getattr(made, draw)(0, SUBSCRIPTIONS, *([SUBSCRIPTIONS] if draw == "operations" else []))


PARTS: dict[str, Callable[[], None]] = {
    part.__name__: part for part in (places, workloads, regions, join, words, demands, transitions, digests, aggregates)
}


def _stream(
    events: Callable[[int], pa.Table],
    subscriptions: pa.Table,
    stages: list[Stage] | None = None,
    tuning: Tuning = TUNING,
    ask: Callable[[LocalEngine], None] | None = None,
) -> None:
    """Some are loaded from a file, the others come one by one; some are cancelled while the stream runs. Afterwards
    the engine is asked."""
    clock = count(1_800_000_000, 60)
    with (
        tempfile.TemporaryDirectory(prefix="geoswarm-warm-") as folder,
        LocalEngine(WORLD, tuning, checkpoint=f"{folder}/state", clock=lambda: next(clock)) as engine,
    ):
        half = len(subscriptions) // 2
        pq.write_table(subscriptions.slice(0, half).drop_columns(["op"]), f"{folder}/subscriptions.parquet")
        engine.load(f"{folder}/subscriptions.parquet")
        engine.submit(subscriptions.slice(half))
        asked = [operation_table([{"op": "cancel", "sub_id": i}]) for i in range(BATCHES)]
        tables = [events(i * EVENTS) for i in range(BATCHES)]
        run = engine.start(
            events=from_tables(*tables),
            operations=from_tables(*asked),
            sink=Memory(),
            stages=stages or (),
            aggregates=Memory(),
            available_now=True,
        )
        run.wait()
        if ask is not None:
            ask(engine)


def _events(first: int) -> pa.Table:
    """Most are in one corner, so that plans change."""
    rng = np.random.default_rng(first)
    ids = np.arange(first, first + EVENTS)
    x, y = rng.uniform(0, 16, (2, EVENTS)) ** np.where(ids % 4, 0.5, 1.0)
    times = pa.array(ids * SECOND_US).cast(TIMESTAMP)
    return pa.table({"event_id": ids, "ts": times, "x": x, "y": y})


def _rectangles(**columns: tuple[Any, ...]) -> pa.Table:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 12, (SUBSCRIPTIONS, 2))
    sides = dict(
        zip(("xmin", "ymin", "xmax", "ymax"), np.hstack([low, low + rng.uniform(0.01, 4, low.shape)]).T, strict=True)
    )
    rows = [{name: float(side[i]) for name, side in sides.items()} for i in range(SUBSCRIPTIONS)]
    return _operations(rows, columns)


def _regions(**columns: tuple[Any, ...]) -> pa.Table:
    return _operations([{} for _ in range(SUBSCRIPTIONS)], {"geometry": REGIONS, **columns})


def _operations(rows: list[dict[str, Any]], columns: dict[str, tuple[Any, ...]]) -> pa.Table:
    for i, row in enumerate(rows):
        row.update({name: values[i % len(values)] for name, values in columns.items()})
        row.update(op="register", sub_id=i)
    return operation_table(rows)


def _with(events: pa.Table, **columns: tuple[Any, ...]) -> pa.Table:
    for name, values in columns.items():
        events = events.append_column(name, pa.array(islice(cycle(values), len(events))))
    return events
