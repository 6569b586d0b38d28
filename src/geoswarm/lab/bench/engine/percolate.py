"""Documents per second on one core against 228 k subscriptions to words in places, one at a time and in batches.

No Spark: what a task does with its events, from the text to the ids of the subscriptions (`flow/match/`), in CPU time
of one thread. The size is that of a user's report on Elasticsearch's percolator, 228 k queries, 1 to 3 documents a
second; that was another machine and other queries, so it is a scale to read ours by, and no race.

A document is a place and some hundred words: posts from one place, one behind the other. `docs_per_s` is for these, one
at a time, as a percolator is asked; batches, and posts alone, stand beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from geoswarm.core.space.grid import Grid
from geoswarm.errors import GeoswarmError
from geoswarm.flow.match.match import MatchRun, Searchable, match
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, cpu_s, interleave
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.text_density import Q1, posts_grid, sort_by_z, text_segment
from geoswarm.lab.workload.posts import Posts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTRY = "US"
REPORTED_DOCS_PER_S = (1.0, 3.0)
DOCUMENT_POSTS = (16, 40)
"""Posts of 10 to 15 words in a document: 200 to 500 words."""
BATCHES = (1, 1000)


@dataclass(frozen=True)
class PercolateSizes:
    subscriptions: int
    documents: int
    posts: int
    repeats: int


SIZES = {
    Scale.SMALL: PercolateSizes(228_000, 4_000, 20_000, 3),
    Scale.FULL: PercolateSizes(228_000, 20_000, 100_000, 5),
}


def measure(sizes: PercolateSizes, seed: int, report: Progress) -> Result:
    posts, rng = Posts(seed=seed, country=COUNTRY), np.random.default_rng(seed)
    grid = posts_grid(posts)
    report(f"indexing {sizes.subscriptions:,} subscriptions")
    held = text_segment(grid, posts.subscriptions(0, sizes.subscriptions, Q1))
    report("writing documents")
    streams = {
        "documents": sort_by_z(grid, documents(posts, sizes.documents, rng)),
        "posts": sort_by_z(grid, posts.events(0, sizes.posts)),
    }
    tasks = {
        (name, size): _DocumentStream(grid, held, rows, size) for name, rows in streams.items() for size in BATCHES
    }
    for task in tasks.values():
        report("checking that batches find what single documents find")
        task.run()
    for name in streams:
        if len(found := {task.matches for (of, _), task in tasks.items() if of == name}) > 1:
            raise GeoswarmError(
                f"{name} met {sorted(found)} subscriptions in batches of {BATCHES}: one of them is wrong"
            )
    turns = {f"{name}, {size} at a time": _reporting(task, name, report) for (name, size), task in tasks.items()}
    seconds = interleave(turns, sizes.repeats, rng)
    rows = [_row(name, task, seconds[name]) for name, task in zip(turns, tasks.values(), strict=True)]
    (one, batched), (posts_one, posts_batched) = rows[:2], rows[2:]
    summary = {
        "docs_per_s": one["docs_per_s"],
        "docs_per_s_batched": batched["docs_per_s"],
        "posts_per_s": posts_one["docs_per_s"],
        "posts_per_s_batched": posts_batched["docs_per_s"],
        "vs_reported": one["docs_per_s"] / REPORTED_DOCS_PER_S[1],
    }
    config = {
        "subscriptions": sizes.subscriptions,
        "workload": f"Q1 of PS2Stream, {COUNTRY}: squares of 1 to 50 km, 1 to 3 keywords",
        "docs_per_s": "documents, one at a time, CPU time of one thread",
        "reported": "1 to 3 documents/s of an Elasticsearch percolator",
    }
    return Result(rows, summary, config)


def documents(posts: Posts, count: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Each at the place of a post, with its words and those of the posts nearest to it on the map."""
    lengths = rng.integers(DOCUMENT_POSTS[0], DOCUMENT_POSTS[1] + 1, count)
    near = sort_by_z(posts_grid(posts), posts.events(0, int(lengths.sum())))
    ends = np.cumsum(lengths)
    # The posts lie one behind the other already: a document is a longer piece of the same bytes.
    _, offsets_buffer, data = near.column("text").buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)
    spaced = _insert_spaces(np.frombuffer(data, np.uint8), offsets)
    bounds = np.concatenate([[0], ends])
    texts = pa.StringArray.from_buffers(
        count, pa.py_buffer((offsets[bounds] + bounds).astype(np.int32)), pa.py_buffer(spaced)
    )
    heads = near.take(pa.array(bounds[:-1]))
    return heads.set_column(heads.schema.get_field_index("text"), heads.schema.field("text"), texts)


def _insert_spaces(data: Any, offsets: Any) -> Any:
    """A blank behind each post."""
    return np.insert(data[offsets[0] : offsets[-1]], offsets[1:] - offsets[0], ord(" "))


class _DocumentStream:
    """One stream of documents, some at a time."""

    def __init__(self, grid: Grid, held: Searchable, rows: pa.RecordBatch, size: int) -> None:
        self.grid, self.held, self.size = grid, held, size
        self.count, self.words = len(rows), np.mean([len(text.as_py().split()) for text in rows.column("text")[:500]])
        self.batches = [rows.slice(start, size) for start in range(0, len(rows), size)]
        self.matches = 0

    def run(self) -> float:
        """CPU seconds; counts the matches on the way."""
        began_s, found = cpu_s(), 0
        for batch in self.batches:
            found += sum(len(met.subs) for met in self._match(batch))
        self.matches = found
        return cpu_s() - began_s

    def _match(self, batch: pa.RecordBatch) -> list[MatchRun]:
        return list(match(batch, [self.held], self.grid, 0, rows_max=1 << 18, pairs_max=8_000_000))


def _reporting(task: _DocumentStream, name: str, report: Progress) -> Callable[[], float]:
    def turn() -> float:
        report(f"{task.count:,} {name}, {task.size:,} at a time")
        return task.run()

    return turn


def _row(name: str, task: _DocumentStream, seconds: list[float]) -> dict[str, Any]:
    return {
        "stream": name,
        "batch": task.size,
        "words": round(float(task.words)),
        "docs": task.count,
        "docs_per_s": round(task.count / best(seconds)),
        "us_per_doc": round(best(seconds) * 1e6 / task.count, 2),
        "matches_per_doc": round(task.matches / task.count, 1),
        "matches_per_s": round(task.matches / best(seconds)),
    }


def plot(result: Result) -> "Figure":
    drawn, (rates,) = figure()
    labels = [f"{row['stream']}\n{row['words']} words" for row in result.rows]
    rates.barh(labels[::-1], [row["docs_per_s"] for row in result.rows[::-1]], color=PALETTE[0], height=0.6)
    rates.axvspan(*REPORTED_DOCS_PER_S, color=PALETTE[1], alpha=0.5)
    rates.annotate(" reported of a percolator", (REPORTED_DOCS_PER_S[1], 0.5), va="center", fontsize=10)
    rates.set(xscale="log", xlim=(0.7, None), xlabel="documents per second on one core")
    rates.set_title(f"{result.config['subscriptions']:,} subscriptions")
    return drawn
