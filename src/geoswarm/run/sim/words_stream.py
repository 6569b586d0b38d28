"""Posts and queries of a run, as numbers: which lists of the grid-inverted index each of them touches.

The machines are in `words.py`. A *list* is a cell of the map and a term that some query is indexed under there
(PS2Stream §IV-D); everything that is simulated is counted by lists:

    query ──► cells that it meets × the rarest term of each of its conjunctions ──► lists that it is on
    event ──► its cell × its terms ───────────────────────────────────────────────► lists that it is compared with

A drawn query stands for many, see `TextScale`.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.control.balance.tally import QUERY_BYTES, TERM_BYTES
from geoswarm.control.layout.text_sample import Lists, TextSample, distinct_counts
from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import CellBox, Grid
from geoswarm.run.sim.workloads import TextStream


class TextScale(NamedTuple):
    """How many tuples are drawn, and what they stand for."""

    live: int
    """The number of drawn queries that are live at any time."""
    query_weight: int
    """The number of queries that each stands for: live × query_weight is the paper's μ."""
    events: int
    """Events drawn in a step."""
    changes: int
    """Queries drawn in a step that come; as many go."""
    posts_per_change: int = 5
    """The number of events for each change of a query (§VI-A)."""

    @property
    def event_weight(self) -> float:
        """The number of events that each stands for. Each query makes two changes: it comes and goes."""
        return 2 * self.posts_per_change * self.changes * self.query_weight / self.events


class TextStep(NamedTuple):
    events: Ints
    inserted: Ints
    deleted: Ints


@dataclass(frozen=True, eq=False)
class TextRun:
    posts: TextStream
    grid: Grid
    scale: TextScale
    steps: int
    queries: str = "Q1"
    """The kind of the workload's queries."""
    interval: int = 0
    """The number of drawn queries after which a tenth of the regions of Q3 changes."""
    given: TextSample | None = None
    """All posts and queries of the run, if they have been drawn as numbers already."""
    sent: Lists | None = None
    """By event, the terms that it is sent for. A drawn query stands for many, on lists that the drawn one is not on;
    None: an event is sent for the terms of lists that drawn queries are on."""

    def step(self, number: int) -> TextStep:
        events, changes = self.scale.events, self.scale.changes
        numbers = np.arange(number * changes, (number + 1) * changes)
        gone = self.posts.departures(self.scale.live, numbers)
        return TextStep(np.arange(number * events, (number + 1) * events), self.scale.live + numbers, gone)

    def sample(self, events: Ints, queries: Ints) -> Sample:
        """The sample that a strategy gets."""
        asked = self.posts.subscriptions_of(queries, self.queries, self.interval)
        texts = self._texts.take(pa.array(events))
        return Sample(self._points[events], _rects(asked), texts, asked.column("keywords"))

    def standing_for(self, query_weight: int) -> "TextRun":
        """The same drawn stream with another weight of queries; nothing is drawn again."""
        _ = self.of_events, self.of_queries
        other = replace(self, scale=self.scale._replace(query_weight=query_weight))
        own = {f.name for f in fields(self)}
        other.__dict__.update((name, value) for name, value in self.__dict__.items() if name not in own)
        return other

    @property
    def count(self) -> int:
        """The number of all queries of the run."""
        return self.scale.live + self.steps * self.scale.changes

    @cached_property
    def text(self) -> TextSample:
        if self.given is not None:
            return self.given
        asked = self.posts.subscriptions(0, self.count, self.queries, self.interval)
        return TextSample.of(self.grid, self._points, _rects(asked), self._texts, asked.column("keywords"))

    @cached_property
    def query_bytes(self) -> Ints:
        sizes: Ints = QUERY_BYTES + TERM_BYTES * np.diff(self.text.keywords.offsets)
        return sizes

    @cached_property
    def _keys(self) -> tuple[Ints, Ints, Ints]:
        """Offsets and keys by query, and all distinct keys, ascending."""
        offsets, keys = _entries(self.text.boxes, self.text.postings, self.grid.columns, self.text.terms)
        return offsets, keys, distinct_counts(np.concatenate([keys, self._sent_keys]))[0]

    @cached_property
    def _sent_keys(self) -> Ints:
        return np.empty(0, np.int64) if self.sent is None else self._keys_of(self.sent)

    def _keys_of(self, terms: Lists) -> Ints:
        """The list that each pair of an event and a term asks for."""
        text = self.text
        cells = text.rows * self.grid.columns + text.columns
        found: Ints = cells[terms.rows] * text.terms + terms.terms
        return found

    @cached_property
    def is_sent(self) -> Bools:
        """By list, whether events are sent for it though no drawn query is on it."""
        found = np.zeros(self.lists, np.bool_)
        found[np.searchsorted(self._keys[2], self._sent_keys)] = True
        return found

    @property
    def lists(self) -> int:
        return len(self._keys[2])

    @cached_property
    def cell_of_list(self) -> Ints:
        cells: Ints = self._keys[2] // self.text.terms
        return cells

    @cached_property
    def term_of_list(self) -> Ints:
        terms: Ints = self._keys[2] % self.text.terms
        return terms

    @cached_property
    def of_queries(self) -> Lists:
        """The lists that each query is on, by cell."""
        offsets, keys, known = self._keys
        return Lists(offsets, np.searchsorted(known, keys))

    @cached_property
    def of_events(self) -> Lists:
        """The lists that each event meets, if a query is ever on them, or it is sent for them."""
        asked, known = self.sent or self.text.asked, self._keys[2]
        keys = self._keys_of(asked)
        at = np.searchsorted(known, keys).clip(max=len(known) - 1)
        kept = known[at] == keys
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[asked.offsets]
        return Lists(offsets, at[kept])

    @cached_property
    def _drawn(self) -> pa.RecordBatch:
        return self.posts.events(0, self.steps * self.scale.events)

    @property
    def _texts(self) -> pa.StringArray:
        return self._drawn.column("text")

    @cached_property
    def _points(self) -> Floats:
        return np.stack([self._drawn.column(side).to_numpy() for side in ("x", "y")], axis=1)


def _rects(asked: pa.RecordBatch) -> Floats:
    return np.stack([asked.column(side).to_numpy() for side in ("xmin", "ymin", "xmax", "ymax")], axis=1)


@kernel
def _entries(boxes: CellBox, postings: Lists, columns: int, terms: int) -> tuple[Ints, Ints]:
    count = len(boxes.row0)
    offsets = np.zeros(count + 1, np.int64)
    for i in range(count):
        cells = (boxes.row1[i] - boxes.row0[i] + 1) * (boxes.col1[i] - boxes.col0[i] + 1)
        offsets[i + 1] = offsets[i] + cells * (postings.offsets[i + 1] - postings.offsets[i])
    keys = np.empty(offsets[count], np.int64)
    n = 0
    for i in range(count):
        for row in range(boxes.row0[i], boxes.row1[i] + 1):
            for column in range(boxes.col0[i], boxes.col1[i] + 1):
                for p in range(postings.offsets[i], postings.offsets[i + 1]):
                    keys[n] = (row * columns + column) * terms + postings.terms[p]
                    n += 1
    return offsets, keys
