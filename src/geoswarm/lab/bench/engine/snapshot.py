"""Snapshot queries over kept events, beside a scan by pyarrow, and DuckDB and Spark SQL on Parquet files of the same.

The engine in one process keeps posts under `per-batch-weighed`, which draws a new plan for every batch. Regions lie
where events are, since people ask where something happens, and are squares that hold a share of all events: 0.01 %,
0.1 % and 1 %; the answers of all are compared. The rivals read Parquet files in arrival order, a file for each batch,
as a sink writes them. DuckDB compares coordinates, without its spatial extension: the fastest way for rectangles.

    p50_ms_0.1pct    milliseconds of a query for 0.1 % of all kept events, median, all columns
    vs_scan          the same against a scan by pyarrow, turn by turn; vs_duckdb likewise, vs_spark by medians
    words_p50_ms     the same regions with words
    touched_share    of all blocks of all files, those that a query for 0.1 % reads, median
    touched_files    of all files, those that it opens
    plans            plans under which the events were kept
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning, WindowSettings
from geoswarm.core.arrays.jit import Floats
from geoswarm.errors import StreamError
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave, median, ratio
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.workload.posts import Posts
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import from_workload
from geoswarm.run.past import Past
from geoswarm.run.sinks import Noop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.0001, 0.001, 0.01)
"""Of all kept events."""
CLAIM = 0.001
SLOW, SLOW_QUERIES = "Spark SQL", 3
"""A rival that takes seconds, and how many queries of each share it gets, after the others."""
SAMPLE = 200_000
"""Events by which squares are sized."""
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class SnapshotSizes:
    batch_events: int
    batches: int
    queries: int
    """Of each share."""


SIZES = {
    Scale.SMALL: SnapshotSizes(62_500, 32, 12),
    Scale.FULL: SnapshotSizes(312_500, 32, 40),
}


def measure(sizes: SnapshotSizes, seed: int, report: Progress, session: Any = None) -> Result:
    with TemporaryDirectory() as folder:
        root, posts = Path(folder), Posts(seed=seed)
        report(f"keeping {sizes.batch_events * sizes.batches:,} events")
        _keep(root, posts, sizes)
        report("writing the same as Parquet")
        sample = _write_parquet(root / "parquet", posts, sizes)
        rng, past = np.random.default_rng(seed), Past(str(root / "state"))
        words = _commonest_word(posts)
        past.query(limit=1)  # maps all files, and compiles what a query needs
        rows = list[dict[str, Any]]()
        with bench_session(session) as spark:
            rivals = _rivals(past, root / "parquet", spark)
            for share in SHARES:
                report(f"queries for {share:.2%}")
                rows += _ask_all(rivals, past, _squares(sample, share, sizes.queries, rng), words, share, rng)
        touched = [past.query(box) for box in _squares(sample, CLAIM, sizes.queries, rng)]
        whole = past.query(limit=1)
        blocks = sum(run.blocks_of_parts for run in whole.touched)
        summary = _summary(rows) | {
            "touched_share": median([sum(run.blocks for run in answer.touched) / blocks for answer in touched]),
            "touched_files": median([sum(run.parts for run in answer.touched) / answer.files for answer in touched]),
            "plans": float(len({batch.plan_epoch for run in whole.touched for batch in run.run.batches})),
            "bytes_per_event": sum(b.bytes for run in whole.touched for b in run.run.batches)
            / sum(run.run.rows for run in whole.touched),
        }
    shown = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return Result(shown, summary, {**sizes.__dict__, "files": whole.files})


def _keep(root: Path, posts: Posts, sizes: SnapshotSizes) -> None:
    contract = Contract(bounds=posts.bounds, executors=8)
    tuning = Tuning(strategy="per-batch-weighed", window=WindowSettings(keep="365 days"))
    with LocalEngine(contract, tuning, checkpoint=str(root / "state")) as engine:
        source = from_workload(posts, rows_per_batch=sizes.batch_events, rows_total=sizes.batch_events * sizes.batches)
        engine.start(events=source, sink=Noop(), available_now=True).wait()


def _write_parquet(folder: Path, posts: Posts, sizes: SnapshotSizes) -> Floats:
    """Returns a sample of the places."""
    folder.mkdir()
    points = []
    for number in range(sizes.batches):
        events = posts.events(number * sizes.batch_events, sizes.batch_events)
        pq.write_table(pa.table(events), folder / f"{number:05d}.parquet")
        every = max(1, sizes.batches * sizes.batch_events // SAMPLE)
        points.append(np.stack([events.column(axis).to_numpy()[::every] for axis in ("x", "y")], axis=1))
    return np.concatenate(points)


def _commonest_word(posts: Posts) -> str:
    texts = posts.events(0, 1000).column("text").to_pylist()
    ((word, _),) = Counter(word for text in texts for word in text.split()).most_common(1)
    return str(word)


def _squares(sample: Floats, share: float, many: int, rng: np.random.Generator) -> list[Box]:
    """Squares round events that hold this share of the sample."""
    found = []
    for x, y in sample[rng.integers(0, len(sample), many)].tolist():
        reach = np.abs(sample - (x, y)).max(axis=1)
        held = max(1, round(share * len(sample)))
        side = float(np.partition(reach, held)[held])
        found.append((max(-180.0, x - side), max(-90.0, y - side), min(180.0, x + side), min(90.0, y + side)))
    return found


Ask = Callable[[Box], int]
"""Asks for all columns of the events in a box; returns how many there are."""


def _rivals(past: Past, folder: Path, spark: Any) -> dict[str, Ask]:
    files = ds.dataset(str(folder), format="parquet")
    frame = spark.read.parquet(str(folder))
    asks: dict[str, Ask] = {
        "geoswarm": lambda box: len(past.query(box).events),
        "pyarrow scan": lambda box: len(files.to_table(filter=_inside(box))),
        SLOW: lambda box: len(frame.where(_sql(box)).toArrow()),
    }
    try:
        import duckdb
    except ImportError:
        return asks
    database = duckdb.connect()
    database.execute(f"SET threads TO {pa.cpu_count()}")
    query = f"SELECT * FROM read_parquet('{folder}/*.parquet') WHERE "
    asks["DuckDB"] = lambda box: database.sql(query + _sql(box)).to_arrow_table().num_rows
    return asks


def _inside(box: Box) -> Any:
    xmin, ymin, xmax, ymax = box
    x, y = pc.field("x"), pc.field("y")
    return (x >= xmin) & (x <= xmax) & (y >= ymin) & (y <= ymax)


def _sql(box: Box) -> str:
    xmin, ymin, xmax, ymax = box
    return f"x >= {xmin!r} AND x <= {xmax!r} AND y >= {ymin!r} AND y <= {ymax!r}"


def _ask_all(
    rivals: dict[str, Ask], past: Past, boxes: list[Box], words: str, share: float, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Every rival asks for each box in turn, and all must find the same number of events."""
    found: dict[str, list[int]] = {name: [] for name in rivals}

    def timed(name: str, ask: Ask) -> Callable[[], float]:
        def run() -> float:
            box = boxes[len(found[name])]
            began_s = time.perf_counter()
            found[name].append(ask(box))
            return time.perf_counter() - began_s

        return run

    seconds = interleave({name: timed(name, ask) for name, ask in rivals.items() if name != SLOW}, len(boxes), rng)
    ask_slow = timed(SLOW, rivals[SLOW])
    seconds[SLOW] = [ask_slow() for _ in boxes[:SLOW_QUERIES]]
    differ = [name for name, counts in found.items() if counts != found["geoswarm"][: len(counts)]]
    if differ:
        raise StreamError(f"{', '.join(differ)} found other events than geoswarm: this compares nothing")
    found["geoswarm, with words"] = []
    with_words = timed("geoswarm, with words", lambda box: len(past.query(box, keywords=words).events))
    seconds["geoswarm, with words"] = [with_words() for _ in boxes]
    for name, spent in seconds.items():
        times = {"p50_ms": median(spent) * 1e3, "worst_ms": max(spent) * 1e3, "seconds": spent}
        yield {"share": share, "what": name, "events": median(found[name]), **times}


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    here = {row["what"]: row for row in rows if row["share"] == CLAIM}
    ours = here["geoswarm"]["seconds"]
    against = {"vs_scan": "pyarrow scan", "vs_duckdb": "DuckDB"}
    return {
        "p50_ms_0.1pct": here["geoswarm"]["p50_ms"],
        "words_p50_ms": here["geoswarm, with words"]["p50_ms"],
        "vs_spark": here[SLOW]["p50_ms"] / here["geoswarm"]["p50_ms"],
        **{key: ratio(here[name]["seconds"], ours) for key, name in against.items() if name in here},
    }


def plot(result: Result) -> "Figure":
    drawn, (panel,) = figure(width_in=7.0, height_in=4.6)
    for name in dict.fromkeys(row["what"] for row in result.rows):
        rows = [row for row in result.rows if row["what"] == name]
        panel.plot([row["share"] * 100 for row in rows], [row["p50_ms"] for row in rows], label=name)
    panel.set(
        title="A snapshot query over kept events",
        xlabel="% of the events",
        ylabel="ms, median",
        xscale="log",
        yscale="log",
    )
    panel.legend()
    return drawn
