"""Which events meet what subscriptions ask of their columns: conditions (`where`), and objects.

    pairs (event, subscription) ──► the condition of each ──► few: on all events of the parcel, once ──► looked up
                                                         └──► many: on the events of its pairs only

Candidates come from the indexes by place and by words; what is left of them meets everything. Nothing here knows how
they were found. `run/oracle/oracle.py` asks event by event.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Bytes, Ints, Ordinals, SubIds, kernel
from geoswarm.core.index.demands import SETTLED, Demands
from geoswarm.core.index.kernels import Hits, SearchProgress
from geoswarm.core.index.lists import value_tokens
from geoswarm.core.subscriptions.where import misfit
from geoswarm.core.text.tokens import Tokens
from geoswarm.core.where.by_pair import Shaped, Slot, shape_of, truths_by_pair
from geoswarm.core.where.clause import Clause, columns_of
from geoswarm.core.where.evaluate import truths
from geoswarm.core.where.read import clause_of
from geoswarm.flow.sound import SOUND
from geoswarm.model import GEOMETRY, OBJECT

HIDDEN = frozenset({SOUND.name, GEOMETRY.name, "_event", "_copies", "_candidates"})
"""Columns that no condition sees: those that travel with events in some pipelines only, and geometries."""
UNKNOWN, ALWAYS, NEVER = -1, -2, -3
"""In place of a row of truths."""
WHOLE_COST, ROW_COST, PAIR_COST = 40.0, 0.002, 0.06
"""Microseconds of a condition on all events, whatever their number; of each event; and of one pair by itself."""
TRUTHS_BYTES_MAX = 64 << 20
"""The truths of a segment's conditions, a byte for each event: 32 k events have 2000 of them."""
CONDITIONS_KEPT, SCHEMAS_KEPT = 100_000, 8
"""Conditions of events with the same columns that a process keeps, about two kilobytes each; and such columns."""
Places = npt.NDArray[np.int32]


class Facts:
    """Some events, and what was found out about them. Rows are places among them."""

    def __init__(self, events: pa.RecordBatch, rows: Ints | None = None) -> None:
        """`rows` are the places of these events in the batch; None: all of it."""
        self._events, self._rows = events, rows  # nothing more: most parcels are asked nothing
        self._truths = dict[str, Bools | None]()
        self._tables = dict[Demands, TruthTable]()
        self._tokens = dict[tuple[str, ...], Tokens]()

    @cached_property
    def _columns(self) -> pa.Schema:
        return pa.schema([field for field in self._events.schema if field.name not in HIDDEN])

    @cached_property
    def _known(self) -> "KnownConditions":
        return known_conditions(self._columns)

    def truth(self, text: str) -> Bools | None:
        """Whether a condition is true of each event; None: of none."""
        if text not in self._truths:
            if len(self._truths) * self.count > TRUTHS_BYTES_MAX:
                self._truths.clear()
            self._truths[text] = self._find_truth(text)
        return self._truths[text]

    def _find_truth(self, text: str) -> Bools | None:
        if not self._known.fits(text):
            return None
        found: Bools = truths(clause_of(text), self._events).fill_null(False).to_numpy(zero_copy_only=False)
        found = found if self._rows is None else found[self._rows]
        return found if found.any() else None

    def tokens(self, keys: tuple[str, ...]) -> Tokens:
        """What the events say by their columns, for lists."""
        if keys not in self._tokens:
            known = [key for key in keys if key.split("\0")[0] in self._columns.names]
            columns = {key.split("\0")[0]: self._column(key.split("\0")[0]) for key in known}
            self._tokens[keys] = value_tokens(columns, known, self.count)
        return self._tokens[keys]

    def _column(self, name: str) -> pa.Array:
        column = self._events.column(name)
        return column if self._rows is None else column.take(pa.array(self._rows))

    @property
    def count(self) -> int:
        return len(self._events) if self._rows is None else len(self._rows)

    @cached_property
    def objects(self) -> pa.StringArray | None:
        """The object of each event as text; None: events have none."""
        return self._column(OBJECT.name).cast(pa.string()) if OBJECT.name in self._columns.names else None

    def meet(self, demands: Demands, rows: Ints, ordinals: Ints) -> Bools:
        """Whether the event of each pair has what the subscription asks for."""
        kept, codes = np.ones(len(rows), np.bool_), demands.codes[ordinals]
        asked = np.flatnonzero(codes != demands.no_condition)
        used, numbers = np.unique(codes[asked], return_inverse=True)
        kept[asked] = self.truths_of(demands.texts.take(pa.array(used)).to_pylist(), rows[asked], numbers)
        asked = np.flatnonzero(kept & demands.names_any[ordinals])
        kept[asked] = self._are_named(demands, rows[asked], ordinals[asked])
        return kept

    def truths_of(self, texts: Sequence[str], rows: Ints, numbers: Ints) -> Bools:
        """Whether the condition texts[numbers[i]] is true of event rows[i]."""
        kept = np.zeros(len(rows), np.bool_)
        alike, lone = dict[int, list[Shaped]](), list[int]()
        group, place = np.full(len(texts), -1), np.zeros(len(texts), np.int64)
        by_pair = not is_whole_cheaper(len(texts), self.count, len(rows))
        for number, text in enumerate(texts):
            found = self._known.shape(text) if by_pair else None
            if found is not None:
                some = alike.setdefault(found[0], [])
                group[number], place[number] = found[0], len(some)
                some.append(found[1])
            elif self._known.fits(text):
                lone.append(number)
        for shape, some in alike.items():
            mine = np.flatnonzero(group[numbers] == shape)
            columns = {name: self._column(name) for name in _columns_of(some[0])}
            kept[mine] = truths_by_pair(some, columns, rows[mine], place[numbers[mine]])
        for number in lone:
            truth, mine = self.truth(texts[number]), np.flatnonzero(numbers == number)
            kept[mine] = False if truth is None else truth[rows[mine]]
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


def is_whole_cheaper(conditions: int, events: int, pairs: int) -> bool:
    """Whether some conditions are tested on all events sooner than on the events of their pairs."""
    return conditions * (WHOLE_COST + ROW_COST * events) <= PAIR_COST * pairs + WHOLE_COST


class KnownConditions:
    """What was found out about conditions for events with certain columns; kept from parcel to parcel."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._fits = dict[str, bool]()
        self._shapes = dict[str, tuple[int, Shaped] | None]()
        self._numbers, self._counter = dict[tuple[Clause, tuple[Slot, ...]], int](), count()

    def fits(self, text: str) -> bool:
        """Whether any of the events may meet it."""
        if text not in self._fits:
            if len(self._fits) >= CONDITIONS_KEPT:
                self._fits.clear()
            clause = clause_of(text)
            self._fits[text] = columns_of(clause) <= set(self._columns.names) and misfit(clause, self._columns) is None
        return self._fits[text]

    def shape(self, text: str) -> tuple[int, Shaped] | None:
        """The number of its shape, and its values; None: it fits none of the events, or has no shape."""
        if text not in self._shapes:
            if len(self._shapes) >= CONDITIONS_KEPT:
                self._shapes.clear()
                self._numbers.clear()  # and no number is given again, since some may be in use
            shaped = shape_of(clause_of(text), self._columns) if self.fits(text) else None
            self._shapes[text] = shaped and (
                self._numbers.setdefault((shaped.clause, shaped.slots), next(self._counter)),
                shaped,
            )
        return self._shapes[text]


@lru_cache(maxsize=SCHEMAS_KEPT)
def known_conditions(columns: pa.Schema) -> KnownConditions:
    return KnownConditions(columns)


def _columns_of(shaped: Shaped) -> set[str]:
    return columns_of(shaped.clause) - {f"\0{k}" for k in range(len(shaped.slots))} | {s.column for s in shaped.slots}


class TruthTable:
    """The conditions of a segment by code, each looked up in a row of truths, which are found when they are needed."""

    def __init__(self, facts: Facts, demands: Demands) -> None:
        self._facts, self._demands = facts, demands
        self._places = np.full(len(demands.texts), UNKNOWN, np.int32)
        if demands.no_condition >= 0:
            self._places[demands.no_condition] = ALWAYS
        self._rows, self._pairs_before = list[Bools](), 0
        self._truths = np.empty((0, 0), np.bool_)

    def decide(self, first: int, hits: Hits, done: SearchProgress, found: SearchProgress, how: Bytes) -> Bools:
        """Which of the hits since `done`, which are ordinals, have a condition that is true, or none. The points of
        the search are the events from `first` on. Nothing is asked of those that are SETTLED in `how`, if that is not
        empty."""
        kept = np.empty(found.hits - done.hits, np.bool_)
        wanted, codes = np.empty((len(kept), 2), np.int64), self._demands.codes
        left = decide(first, hits, done, found, how, codes, self._places, self._truths, kept, wanted)
        if left and self._finds(np.unique(codes[wanted[:left, 1]]), left):
            left = decide(first, hits, done, found, how, codes, self._places, self._truths, kept, wanted)
        if left:
            places, ordinals = wanted[:left].T
            used, numbers = np.unique(codes[ordinals], return_inverse=True)
            texts = self._demands.texts.take(pa.array(used)).to_pylist()
            owners = np.searchsorted(hits.ends[: found.points], places + done.hits, "right")
            kept[places] = self._facts.truths_of(texts, first + owners, numbers)
        return kept

    def _finds(self, codes: Ordinals, pairs: int) -> bool:
        """Find out whether each of some conditions is true of each event, unless it costs less to look at their pairs
        only. Runs of a parcel come one after another: once looking at pairs has cost as much, it does so no more."""
        events = self._facts.count
        is_cheaper = is_whole_cheaper(len(codes), events, self._pairs_before + pairs)
        if not is_cheaper or (len(self._rows) + len(codes)) * events > TRUTHS_BYTES_MAX:
            self._pairs_before += pairs
            return False
        for code in codes.tolist():
            self._find(code)
        self._truths = np.stack(self._rows) if self._rows else self._truths
        return True

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
    """Write whether each hit is kept, and the place and ordinal of those whose conditions are not known yet; returns
    how many those are."""
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
                wanted[count, 0], wanted[count, 1] = at, s
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
