"""The nearest of a million objects by their last places, beside scikit-learn's BallTree and shapely's STRtree.

The engine in one process keeps the last places of objects, each of which has sent an event; then another process asks
for the k nearest of random objects' places, through `gs.Past`, so that each answer includes the look whether a batch
has been committed since, and is a table. BallTree gets the same places as numpy arrays and measures on the sphere, too:
its answers must be the same. STRtree is planar: it knows neither the length of a degree nor the antimeridian, and finds
the one nearest only, so it is timed beside k = 1, and its answers differ.

    p50_us          microseconds of a query for the 10 nearest, median
    vs_balltree     BallTree's time for the same query against it, turn by turn
    vs_strtree      STRtree's time for the nearest one against ours for the nearest one
    tree_vs_...     the same, without the table and the look: the tree that the objects are held in
    events_p50_ms   milliseconds of a query for the 10 nearest of as many kept events, which lie in files, median
    open_s          seconds of the first query after a commit, which reads all objects and builds the tree
    build_vs_...    seconds in which BallTree is built, against it
    strtree_wrong   share of places whose nearest object, as STRtree finds it, is not the nearest on the sphere
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import shapely
from sklearn.neighbors import BallTree

from geoswarm.config import Contract, Tuning, WindowSettings
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.core.shapes.circle import EARTH_M, METRES_MAX
from geoswarm.core.space.grid import Grid
from geoswarm.errors import StreamError
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, median, ratio
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.posts import Posts
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import from_tables
from geoswarm.run.past import Past
from geoswarm.run.sinks import Noop
from geoswarm.store.objects import ObjectReader
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K = 10
AGREES_M = 1e-3
"""Answers are the same if their distances are: of objects at one place, another may be named."""
BATCH_EVENTS = 250_000
Ask = Callable[[float, float], Any]
"""Asks for the nearest to a lon and lat."""


@dataclass(frozen=True)
class NearestSizes:
    objects: int
    queries: int


SIZES = {Scale.SMALL: NearestSizes(1_000_000, 400), Scale.FULL: NearestSizes(1_000_000, 4_000)}


def measure(sizes: NearestSizes, seed: int, report: Progress) -> Result:
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        report(f"keeping the places of {sizes.objects:,} objects")
        posts = Posts(seed=seed)
        ids, places = _keep_objects(Path(folder), posts, sizes.objects)
        storage = Storage(str(Path(folder) / "state"))
        Past(storage).nearest(0.0, 0.0, of="objects")  # compiles what a query needs
        report("opening")
        past, began_s = Past(storage), time.perf_counter()
        past.nearest(0.0, 0.0, of="objects")
        open_s = time.perf_counter() - began_s
        past.nearest(0.0, 0.0)  # maps all files
        objects = ObjectReader(storage, Grid.of(Contract(bounds=posts.bounds))).read()
        assert objects is not None, "they have just been kept"
        began_s = time.perf_counter()
        ball = BallTree(np.radians(places[:, ::-1]), metric="haversine")
        ball_s = time.perf_counter() - began_s
        flat = shapely.STRtree(shapely.points(places))
        flat.query_nearest(shapely.Point(0.0, 0.0))  # it is built by its first query
        report("asking")
        nearby = places[rng.integers(0, len(places), sizes.queries)] + rng.normal(0.0, 0.01, (sizes.queries, 2))
        asked = nearby.clip(posts.bounds[:2], posts.bounds[2:])
        asks: dict[str, Ask] = {
            "geoswarm": lambda lon, lat: past.nearest(lon, lat, K, of="objects"),
            "geoswarm, tree alone": lambda lon, lat: objects.nearest(lon, lat, K, METRES_MAX),
            "BallTree": lambda lon, lat: ball.query(np.radians([[lat, lon]]), k=K),
            "geoswarm, kept events": lambda lon, lat: past.nearest(lon, lat, K),
            "geoswarm, k = 1": lambda lon, lat: past.nearest(lon, lat, 1, of="objects"),
            "geoswarm, tree alone, k = 1": lambda lon, lat: objects.nearest(lon, lat, 1, METRES_MAX),
            "STRtree, k = 1": lambda lon, lat: flat.query_nearest(shapely.Point(lon, lat)),
        }
        answers: dict[str, list[Any]] = {name: [] for name in asks}
        spent = interleave({name: _timed(ask, asked, answers[name]) for name, ask in asks.items()}, len(asked), rng)
        wrong = _compare(answers, ids)
    rows = [
        {"what": name, "p50_us": median(s) * 1e6, "p99_us": float(np.percentile(s, 99)) * 1e6}
        for name, s in spent.items()
    ]
    summary = {
        "p50_us": median(spent["geoswarm"]) * 1e6,
        "vs_balltree": ratio(spent["BallTree"], spent["geoswarm"]),
        "vs_strtree": ratio(spent["STRtree, k = 1"], spent["geoswarm, k = 1"]),
        "tree_vs_balltree": ratio(spent["BallTree"], spent["geoswarm, tree alone"]),
        "tree_vs_strtree": ratio(spent["STRtree, k = 1"], spent["geoswarm, tree alone, k = 1"]),
        "events_p50_ms": median(spent["geoswarm, kept events"]) * 1e3,
        "open_s": open_s,
        "build_vs_balltree": ball_s / open_s,
        "strtree_wrong": wrong,
    }
    return Result(rows, summary, {**sizes.__dict__, "k": K})


def _keep_objects(root: Path, posts: Posts, many: int) -> tuple[Ints, Floats]:
    """Objects and their places, which the engine has kept, and the events that said so."""
    tables = []
    for first in range(0, many, BATCH_EVENTS):
        events = pa.table(posts.events(first, min(BATCH_EVENTS, many - first)).select(["event_id", "ts", "x", "y"]))
        tables.append(events.append_column("object_id", events["event_id"]))
    tuning = Tuning(strategy="static-uniform", keeps_objects=True, window=WindowSettings(keep="1 day"))
    with LocalEngine(Contract(bounds=posts.bounds), tuning, checkpoint=str(root / "state")) as engine:
        engine.start(events=from_tables(*tables), sink=Noop(), available_now=True).wait()
    whole = pa.concat_tables(tables)
    return whole["object_id"].to_numpy(), np.stack([whole[axis].to_numpy() for axis in ("x", "y")], axis=1)


def _timed(ask: Ask, asked: Floats, answers: list[Any]) -> Callable[[], float]:
    def run() -> float:
        lon, lat = asked[len(answers)].tolist()
        began_s = time.perf_counter()
        answers.append(ask(lon, lat))
        return time.perf_counter() - began_s

    return run


def _compare(answers: dict[str, list[Any]], ids: Ints) -> float:
    """An error if the sphere's answers differ; returns the share of the plane's answers that do."""
    theirs = np.array([metres[0] * EARTH_M for metres, _ in answers["BallTree"]])
    for name in ("geoswarm", "geoswarm, kept events"):
        ours = np.array([found["distance_m"].to_numpy() for found in answers[name]])
        if not np.allclose(ours, theirs, rtol=0.0, atol=AGREES_M):
            raise StreamError(f"BallTree found others than {name}: this compares nothing")
    one = [found["object_id"][0].as_py() for found in answers["geoswarm, k = 1"]]
    planar = [set(ids[rows].tolist()) for rows in answers["STRtree, k = 1"]]
    return sum(mine not in others for mine, others in zip(one, planar, strict=True)) / len(one)


def plot(result: Result) -> "Figure":
    drawn, (panel,) = figure(width_in=7.0, height_in=3.6)
    names = [row["what"] for row in result.rows]
    panel.barh(names[::-1], [row["p50_us"] for row in result.rows][::-1])
    panel.set(title=f"The nearest of {result.config['objects']:,} objects", xlabel="µs a query, median", xscale="log")
    return drawn
