"""Snapshot queries over kept events, beside a scan by pyarrow, and DuckDB and Spark SQL on Parquet files of the same.

The engine in one process keeps posts under `per-batch-weighed`, which draws a new plan for every batch. Regions lie
where events are, since people ask where something happens, and are squares that hold a share of all events: 0.01 %,
0.1 % and 1 %; the answers of all are compared. The rivals read Parquet files of a million rows in arrival order, as a
sink that rolls them up writes them. DuckDB compares coordinates, without its spatial extension: the fastest way for
rectangles.

    p50_ms_0.1pct    milliseconds of a query for 0.1 % of all kept events, median, all columns
    vs_scan          the same against a scan by pyarrow, turn by turn; vs_duckdb likewise, vs_spark by medians
    words_p50_ms     the same regions with words
    touched_share    of all files, those that a query for 0.1 % opens, median
    touched_blocks   of all blocks of all files, those that it reads
    plans            plans under which the events were kept
    p99_ms_running   the same query in one process, while another keeps events at 80 % of its capacity
    running_share    of the time of that process, what its batches took
    p50_ms_large     the same query where ten times as many events are kept (at small scale twice as many);
                     vs_scan_large: against a scan
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
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
from geoswarm.lab.bench.kit.batch_log import batches
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
OURS, OURS_WORDS, SCAN = "geoswarm", "geoswarm, with words", "pyarrow scan"
SLOW, SLOW_QUERIES = "Spark SQL", 3
"""A rival that takes seconds, and how many queries of each share it gets, after the others."""
SAMPLE = 200_000
"""Events by which squares are sized."""
PARQUET_ROWS = 1_000_000
CAPACITY_SHARE = 0.8
FIRST_BATCHES, POLL_S = 2, 0.05
"""Batches of a stream that goes on before queries are timed: its process has to start."""
TUNING = Tuning(strategy="per-batch-weighed", window=WindowSettings(keep="365 days"))
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class SnapshotSizes:
    batches: int
    batch_events: int
    queries: int
    """Of each share."""
    running_s: float
    """How long the stream goes on while queries are asked."""
    large_batch_events: int
    large_queries: int


SIZES = {
    Scale.SMALL: SnapshotSizes(100, 20_000, 12, 6.0, 40_000, 6),
    Scale.FULL: SnapshotSizes(100, 100_000, 40, 30.0, 1_000_000, 5),
}


def measure(sizes: SnapshotSizes, seed: int, report: Progress, session: Any = None) -> Result:
    rng, posts, rows = np.random.default_rng(seed), Posts(seed=seed), list[dict[str, Any]]()
    with TemporaryDirectory() as folder, bench_session(session) as spark:
        root = Path(folder)
        past, sample = _keep(root, posts, sizes.batches, sizes.batch_events, report)
        words = _commonest_word(posts)
        with_words = {OURS_WORDS: lambda box: len(past.query(box, keywords=words).events)}
        for share in SHARES:
            report(f"queries for {share:.2%}")
            boxes = _squares(sample, share, sizes.queries, rng)
            rows += _ask_all(_rivals(past, root / "parquet", spark), boxes, share, rng)
            rows += _ask_all(with_words, boxes, share, rng)
        boxes = _squares(sample, CLAIM, sizes.queries, rng)
        summary = _summary(rows) | _touched(past, boxes)
        report(f"queries while the stream runs at {CAPACITY_SHARE:.0%} of its capacity")
        summary |= _while_running(root, seed, sizes, past, boxes)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        past, sample = _keep(root, posts, sizes.batches, sizes.large_batch_events, report)
        boxes = _squares(sample, CLAIM, sizes.large_queries, rng)
        large = list(_ask_all(_two(past, root / "parquet"), boxes, CLAIM, rng))
        summary["p50_ms_large"] = large[0]["p50_ms"]
        summary["vs_scan_large"] = ratio(large[1]["seconds"], large[0]["seconds"])
    shown = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return Result(shown, summary, {**sizes.__dict__})


def _keep(root: Path, posts: Posts, batches: int, batch_events: int, report: Progress) -> tuple[Past, Floats]:
    """Kept posts, and the same as Parquet; also a sample of their places."""
    report(f"keeping {batches * batch_events:,} events")
    _go_on(str(root), posts, batch_events, batches)
    report("writing the same as Parquet")
    sample = _write_parquet(root / "parquet", posts, batches, batch_events)
    past = Past(str(root / "state"))
    past.touch()  # maps all files
    past.query(limit=1)  # compiles what a query needs
    return past, sample


def _go_on(root: str, posts: Posts, batch_events: int, batches: int, every_s: float = 0.0) -> None:
    """Keep posts until so many batches are there."""
    contract = Contract(bounds=posts.bounds, executors=8)
    with LocalEngine(contract, TUNING, checkpoint=f"{root}/state") as engine:
        source = from_workload(posts, rows_per_batch=batch_events, rows_total=batch_events * batches)
        engine.start(events=source, sink=Noop(), every_s=every_s, available_now=True).wait()


def _touched(past: Past, boxes: list[Box]) -> dict[str, float]:
    whole, answers = past.query(where="event_id < 0"), [past.query(box) for box in boxes]
    blocks = sum(run.blocks_of_parts for run in whole.touched)
    kept = [batch for run in whole.touched for batch in run.run.batches]
    return {
        "touched_share": median([sum(run.parts for run in answer.touched) / answer.files for answer in answers]),
        "touched_blocks": median([sum(run.blocks for run in answer.touched) / blocks for answer in answers]),
        "files": float(whole.files),
        "plans": float(len({batch.plan_epoch for batch in kept})),
        "bytes_per_event": sum(batch.bytes for batch in kept) / sum(batch.rows for batch in kept),
    }


def _while_running(root: Path, seed: int, sizes: SnapshotSizes, past: Past, boxes: list[Box]) -> dict[str, float]:
    """Queries of this process, one after the other, while another goes on with the stream."""
    before = [entry.prepare_s + entry.batch_s for entry in batches(root / "state")]
    every_s = median(before[len(before) // 2 :]) / CAPACITY_SHARE
    until = sizes.batches + FIRST_BATCHES + max(2, round(sizes.running_s / every_s))
    given = (str(root), Posts(seed=seed), sizes.batch_events, until, every_s)
    stream = get_context("spawn").Process(target=_go_on, args=given, daemon=True)
    stream.start()
    while len(batches(root / "state")) < sizes.batches + FIRST_BATCHES:
        if not stream.is_alive():
            raise StreamError("the stream ended before a query was asked: see what it wrote")
        time.sleep(POLL_S)
    seconds = list[float]()
    while stream.is_alive() or not seconds:
        began_s = time.perf_counter()
        past.query(boxes[len(seconds) % len(boxes)])
        seconds.append(time.perf_counter() - began_s)
    stream.join()
    spent = [entry.prepare_s + entry.batch_s for entry in batches(root / "state")[sizes.batches + FIRST_BATCHES :]]
    return {
        "p99_ms_running": float(np.quantile(seconds, 0.99)) * 1e3,
        "p50_ms_running": median(seconds) * 1e3,
        "running_share": sum(spent) / (len(spent) * every_s),
    }


def _write_parquet(folder: Path, posts: Posts, many: int, batch_events: int) -> Floats:
    """Files of a million rows. Returns a sample of the places."""
    folder.mkdir()
    points, every = [], max(1, many * batch_events // SAMPLE)
    for first in range(0, many * batch_events, PARQUET_ROWS):
        events = posts.events(first, min(PARQUET_ROWS, many * batch_events - first))
        pq.write_table(pa.table(events), folder / f"{first:012d}.parquet")
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


def _two(past: Past, folder: Path) -> dict[str, Ask]:
    files = ds.dataset(str(folder), format="parquet")
    return {
        OURS: lambda box: len(past.query(box).events),
        SCAN: lambda box: len(files.to_table(filter=_inside(box))),
    }


def _rivals(past: Past, folder: Path, spark: Any) -> dict[str, Ask]:
    frame = spark.read.parquet(str(folder))
    asks = _two(past, folder) | {SLOW: lambda box: len(frame.where(_sql(box)).toArrow())}
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
    asks: dict[str, Ask], boxes: list[Box], share: float, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Everyone asks for each box in turn, and all must find the same number of events."""
    found: dict[str, list[int]] = {name: [] for name in asks}

    def timed(name: str) -> Callable[[], float]:
        def run() -> float:
            box = boxes[len(found[name])]
            began_s = time.perf_counter()
            found[name].append(asks[name](box))
            return time.perf_counter() - began_s

        return run

    seconds = interleave({name: timed(name) for name in asks if name != SLOW}, len(boxes), rng)
    if SLOW in asks:
        ask_slow = timed(SLOW)
        seconds[SLOW] = [ask_slow() for _ in boxes[:SLOW_QUERIES]]
    first = next(iter(found.values()))
    differ = [name for name, counts in found.items() if counts != first[: len(counts)]]
    if differ:
        raise StreamError(f"{', '.join(differ)} found other events than geoswarm: this compares nothing")
    for name, spent in seconds.items():
        times = {"p50_ms": median(spent) * 1e3, "worst_ms": max(spent) * 1e3, "seconds": spent}
        yield {"share": share, "what": name, "events": median(found[name]), **times}


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    here = {row["what"]: row for row in rows if row["share"] == CLAIM}
    ours = here[OURS]["seconds"]
    against = {"vs_scan": SCAN, "vs_duckdb": "DuckDB"}
    return {
        "p50_ms_0.1pct": here[OURS]["p50_ms"],
        "words_p50_ms": here[OURS_WORDS]["p50_ms"],
        "vs_spark": here[SLOW]["p50_ms"] / here[OURS]["p50_ms"],
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
