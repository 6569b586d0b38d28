"""Which events meet what subscriptions ask of their columns: conditions (`where`), and objects.

    pairs (event, subscription) ──► the condition of each ──► few: on all events of the parcel, once ──► looked up
                                                         └──► many: on the events of its pairs only

Candidates come from the indexes by place and by words; what is left of them meets everything. Nothing here knows how
they were found. `run/oracle/oracle.py` asks event by event.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Bytes, Ints, Ordinals, SubIds, kernel
from geoswarm.core.index.demands import SETTLED, Demands
from geoswarm.core.index.kernels import Hits, SearchProgress
from geoswarm.core.index.lists import value_tokens
from geoswarm.core.subscriptions.where import clause_of, misfit
from geoswarm.core.text.tokens import Tokens
from geoswarm.core.where.clause import columns_of
from geoswarm.core.where.evaluate import truths
from geoswarm.flow.sound import SOUND
from geoswarm.model import GEOMETRY, OBJECT

HIDDEN = frozenset({SOUND.name, GEOMETRY.name, "_event", "_copies", "_candidates"})
"""Columns that no condition sees: those that travel with events in some pipelines only, and geometries."""


UNKNOWN, ALWAYS, NEVER = -1, -2, -3
"""In place of a row of truths."""
Places = npt.NDArray[np.int32]


class Facts:
    """Some events, and what was found out about them. Rows are places among them."""

    def __init__(self, events: pa.RecordBatch, rows: Ints | None = None) -> None:
        """`rows` are the places of these events in the batch; None: all of it."""
        self._events, self._rows = events, rows
        self._columns = pa.schema([field for field in events.schema if field.name not in HIDDEN])
        self._truths = dict[str, Bools | None]()
        self._tables = dict[Demands, TruthTable]()
        self._tokens = dict[tuple[str, ...], Tokens]()
        self._named: pa.StringArray | None = None

    def truth(self, text: str) -> Bools | None:
        """Whether a condition is true of each event; None: of none."""
        if text not in self._truths:
            self._truths[text] = self._find_truth(text)
        return self._truths[text]

    def _find_truth(self, text: str) -> Bools | None:
        clause = clause_of(text)
        if not columns_of(clause) <= set(self._columns.names) or misfit(clause, self._columns) is not None:
            return None
        found: Bools = truths(clause, self._events).fill_null(False).to_numpy(zero_copy_only=False)
        found = found if self._rows is None else found[self._rows]
        return found if found.any() else None

    def tokens(self, keys: tuple[str, ...]) -> Tokens:
        """What the events say by their columns, for lists."""
        if keys not in self._tokens:
            known = [key for key in keys if key.split("\0")[0] in self._columns.names]
            columns = {key.split("\0")[0]: self._column(key.split("\0")[0]) for key in known}
            count = len(self._events) if self._rows is None else len(self._rows)
            self._tokens[keys] = value_tokens(columns, known, count)
        return self._tokens[keys]

    def _column(self, name: str) -> pa.Array:
        column = self._events.column(name)
        return column if self._rows is None else column.take(pa.array(self._rows))

    @property
    def objects(self) -> pa.StringArray | None:
        """The object of each event as text; None: events have none."""
        if self._named is None and OBJECT.name in self._columns.names:
            self._named = self._column(OBJECT.name).cast(pa.string())
        return self._named

    def meet(self, demands: Demands, rows: Ints, ordinals: Ints) -> Bools:
        """Whether the event of each pair has what the subscription asks for."""
        kept = np.ones(len(rows), np.bool_)
        if not len(rows):
            return kept
        codes = demands.codes[ordinals]
        order = np.argsort(codes, kind="stable")
        used, firsts = np.unique(codes[order], return_index=True)
        for code, mine in zip(used.tolist(), np.split(order, firsts[1:]), strict=True):
            if code != demands.no_condition:
                truth = self.truth(demands.texts[code].as_py())
                kept[mine] = False if truth is None else truth[rows[mine]]
        asked = np.flatnonzero(kept & demands.names_any[ordinals])
        kept[asked] = self._are_named(demands, rows[asked], ordinals[asked])
        return kept

    def _are_named(self, demands: Demands, rows: Ints, ordinals: Ints) -> Bools:
        """Whether the object of each event is among those that the subscription names, of which there are some."""
        if not len(rows) or self.objects is None:
            return np.zeros(len(rows), np.bool_)
        counts, names = demands.names(ordinals)
        own = self.objects.take(pa.array(np.repeat(rows, counts)))
        equal = pc.equal(own, names).fill_null(False).to_numpy(zero_copy_only=False)
        named: Bools = np.logical_or.reduceat(equal, np.cumsum(counts) - counts)
        return named

    def table(self, demands: Demands) -> "TruthTable":
        """What is known of the conditions of a segment, for these events."""
        if demands not in self._tables:
            self._tables[demands] = TruthTable(self, demands)
        return self._tables[demands]


class TruthTable:
    """The conditions of a segment by code, each looked up in a row of truths, which are found when they are needed."""

    def __init__(self, facts: Facts, demands: Demands) -> None:
        self._facts, self._demands = facts, demands
        self._places = np.full(len(demands.texts), UNKNOWN, np.int32)
        if demands.no_condition >= 0:
            self._places[demands.no_condition] = ALWAYS
        self._rows = list[Bools]()
        self._truths = np.empty((0, 0), np.bool_)

    def decide(self, first: int, hits: Hits, done: SearchProgress, found: SearchProgress, how: Bytes) -> Bools:
        """Which of the hits since `done`, which are ordinals, have a condition that is true, or none. The points of
        the search are the events from `first` on. Nothing is asked of those that are SETTLED in `how`, if that is not
        empty."""
        kept = np.empty(found.hits - done.hits, np.bool_)
        wanted = np.empty(len(kept), np.int64)
        count = decide(first, hits, done, found, how, self._demands.codes, self._places, self._truths, kept, wanted)
        if count:
            for code in wanted[:count].tolist():
                self._find(code)
            self._truths = np.stack(self._rows) if self._rows else self._truths
            decide(first, hits, done, found, how, self._demands.codes, self._places, self._truths, kept, wanted)
        return kept

    def _find(self, code: int) -> None:
        truth = self._facts.truth(self._demands.texts[code].as_py())
        self._places[code] = NEVER if truth is None else len(self._rows)
        if truth is not None:
            self._rows.append(truth)


@kernel
def decide(
    first: int,
    hits: Hits,
    done: SearchProgress,
    found: SearchProgress,
    how: Bytes,
    codes: Ordinals,
    places: Places,
    truths: Bools,
    kept: Bools,
    wanted: Ints,
) -> int:
    """Write whether each hit is kept, and which conditions are not known yet; returns how many those are."""
    h, count, by_lists = done.hits, 0, len(how) > 0
    for i in range(done.points, found.points):
        while h < hits.ends[i]:
            s, at = hits.subs[h], h - done.hits
            h += 1
            if by_lists and how[s] == SETTLED:
                kept[at] = True
                continue
            place = places[codes[s]]
            kept[at] = place == ALWAYS
            if place >= 0:
                kept[at] = truths[place, first + i]
            elif place == UNKNOWN:
                places[codes[s]] = NEVER
                wanted[count] = codes[s]
                count += 1
    return count


@kernel
def compact(kept: Bools, ids: SubIds, hits: Hits, done: SearchProgress, found: SearchProgress) -> int:
    """Drop the hits since `done` that are not kept, and put the ids in place of ordinals; returns where they end."""
    h = n = done.hits
    for i in range(done.points, found.points):
        while h < hits.ends[i]:
            s, keeps = hits.subs[h], kept[h - done.hits]
            hits.subs[n] = ids[s]
            n += keeps
            h += 1
        hits.ends[i] = n
    return n
