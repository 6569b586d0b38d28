"""What a subscription counts instead of reporting matches, as an attribute: four columns, read in `core/aggregates/`.

Few distinct specs are shared by many subscriptions, so a value is a code, a position among texts; and most
subscriptions have none, so a segment stores those that have one, by id. With each goes the version in which its
counting began. A subscription that is replaced with the same function, window and group goes on with what was counted;
the store decides that (`store/subscriptions/replay.py`). State of another beginning is not its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.aggregates.columns import misfit
from geoswarm.core.aggregates.spec import SKETCHED, AggregateSpec, parse_spec, read_spec
from geoswarm.core.arrays.flat_arrays import ArrayPieces
from geoswarm.core.arrays.jit import Bools, Ints, Ordinals, SubIds, kernel, read_only
from geoswarm.core.arrays.merged_rows import GONE, MergedRows
from geoswarm.core.stats.sketches import check_library
from geoswarm.core.subscriptions.attribute_kind import Arrays, Attribute, Column, Inspection, Placement, find_ordinals
from geoswarm.core.subscriptions.kinds import text_arrays, text_of
from geoswarm.core.subscriptions.trigger import is_on_inside
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.errors import InputError, MachineError

AGGREGATE_ARRAYS = "aggregate_"
"""The prefix of its array names in a segment."""
NO_SPEC = -1
"""The code of a subscription that reports matches."""
NOT_BEGUN = -1
"""The version in which the counting of a subscription began that counts nothing, or that is not stored yet."""
_COLUMNS = ("aggregate", "window", "group_by", "when")


class AggregateValues(NamedTuple):
    codes: Ints
    """Positions in `texts`, or NO_SPEC."""
    texts: pa.StringArray
    """Each is the `text` of a spec."""
    began: Ints
    """The version in which counting began."""

    def spec(self, code: int) -> AggregateSpec:
        return parse_spec(self.texts[code].as_py())

    def counts_any(self) -> bool:
        return bool((self.codes != NO_SPEC).any())

    def since(self, began: Ints) -> "AggregateValues":
        """The same, counted since these versions."""
        return self._replace(began=np.where(self.codes == NO_SPEC, NOT_BEGUN, began))

    def specs(self) -> dict[int, AggregateSpec]:
        """Those that some row has, by code."""
        return {code: self.spec(code) for code in np.unique(self.codes[self.codes != NO_SPEC]).tolist()}


class StoredAggregates(NamedTuple):
    """The subscriptions of a segment that count, by id."""

    ids: SubIds
    ordinals: Ordinals
    codes: Ordinals
    began: Ints
    texts: pa.StringArray


NONE_COUNTS = StoredAggregates(
    np.empty(0, np.int64),
    np.empty(0, np.uint32),
    np.empty(0, np.uint32),
    np.empty(0, np.int64),
    pa.array([], pa.string()),
)


def no_aggregates(count: int) -> AggregateValues:
    return AggregateValues(np.full(count, NO_SPEC), pa.array([], pa.string()), np.full(count, NOT_BEGUN))


class AggregateAttribute(Attribute[AggregateValues, StoredAggregates]):
    name = "aggregate"
    columns = (
        Column(
            "aggregate", pa.string(), "what is counted instead of matches, such as count or avg(speed); null: nothing"
        ),
        Column("window", pa.string(), "of an aggregate: such as tumbling(60 s), sliding(300 s, 60 s) or session(30 s)"),
        Column("group_by", pa.string(), "of an aggregate: a column whose values are counted apart; null: none"),
        Column("when", pa.string(), "of an aggregate: which answers are given, such as count > 100; null: all"),
    )
    reasons: ClassVar[Mapping[str, str]] = {"aggregate": "an aggregate cannot be read, or cannot be given here"}

    def parse(self, inspection: Inspection) -> AggregateValues:
        rows, count = inspection.rows, len(inspection.rows)
        if all(rows.column(name).null_count == count for name in _COLUMNS):
            return no_aggregates(count)
        given = {name: ~inspection.is_null(name) for name in _COLUMNS}
        asks = inspection.puts & given["aggregate"]
        for name in _COLUMNS[1:]:
            detail = (
                f"subscription {{sub_id}} has {name} and no aggregate: send an aggregate such as count, or leave it out"
            )
            self._refuse(inspection, given[name] & ~given["aggregate"], detail)
        detail = "subscription {sub_id} has aggregate {aggregate!r} and no window: send one such as tumbling(60 s)"
        self._refuse(inspection, asks & ~given["window"], detail)
        self._refuse_company(inspection, asks)
        values = self._read(inspection, np.flatnonzero(asks & given["window"]))
        self._refuse_unless_counted(inspection, values)
        return values

    def _refuse_company(self, inspection: Inspection, asks: Bools) -> None:
        detail = "subscription {sub_id} has an aggregate and is on {on}: aggregates count events inside, so send on = "
        self._refuse(inspection, asks & ~is_on_inside(inspection), detail + "inside, or leave it out")
        detail = "subscription {sub_id} has an aggregate and asks for kept events since {since}: windows begin with "
        self._refuse(inspection, asks & ~inspection.is_null("since"), detail + "the subscription, so leave since out")

    def _read(self, inspection: Inspection, asking: Ints) -> AggregateValues:
        """The specs of some rows; each distinct one is read once."""
        values = no_aggregates(len(inspection.rows))
        kinds, coded = np.zeros(len(asking), np.int64), list[tuple[Ints, list[str | None]]]()
        for name in _COLUMNS:
            # As bytes: text that is not UTF-8 must not stop the stream.
            column = inspection.rows.column(name).take(pa.array(asking)).cast(pa.binary()).dictionary_encode()
            said = [None, *(text.decode(errors="replace") for text in column.dictionary.to_pylist())]
            codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy() + 1
            kinds = np.unique(kinds * len(said) + codes, return_inverse=True)[1]
            coded.append((codes, said))
        _, first = np.unique(kinds, return_index=True)
        numbers, texts = np.full(len(first), NO_SPEC), dict[str, int]()
        wrong = dict[int, str]()
        for kind, row in enumerate(first.tolist()):
            aggregate, window, group_by, when = (said[codes[row]] for codes, said in coded)
            try:
                spec = read_spec(aggregate or "", window or "", group_by, when)
                if spec.aggregate.function in SKETCHED:
                    check_library()  # here, since a task that lacks it would end the stream
                numbers[kind] = texts.setdefault(spec.text, len(texts))
            except (InputError, MachineError) as why:
                wrong[kind] = str(why)
        faulty = np.flatnonzero(numbers[kinds] == NO_SPEC)
        self._refuse_each(inspection, asking[faulty], [wrong[kind] for kind in kinds[faulty].tolist()])
        values.codes[asking] = numbers[kinds]
        return values._replace(texts=pa.array(texts, pa.string()))

    def _refuse_unless_counted(self, inspection: Inspection, values: AggregateValues) -> None:
        """Refuse what the running stream cannot give."""
        stream, counts = inspection.stream, values.codes != NO_SPEC
        if stream is None:
            return
        if not stream.takes_aggregates:
            detail = (
                "subscription {sub_id} has an aggregate, and this stream has nowhere to put the rows: give start a "
            )
            self._refuse(inspection, counts, detail + "sink for aggregates, or the settings file [aggregates.sink]")
            return
        misfits = {code: misfit(spec, stream.columns) for code, spec in values.specs().items()}
        said = [misfits.get(code) for code in values.codes.tolist()] if any(misfits.values()) else []
        faulty = [row for row, why in enumerate(said) if why]
        self._refuse_each(inspection, np.array(faulty, np.int64), [why for why in said if why])

    def _refuse_each(self, inspection: Inspection, rows: Ints, whys: Sequence[str]) -> None:
        inspection.refusals.turn_away_each(rows, "aggregate", "subscription {sub_id}: {why}", whys)

    def _refuse(self, inspection: Inspection, chosen: Bools, detail: str) -> None:
        inspection.refusals.turn_away(inspection.puts & chosen, "aggregate", detail)

    def take(self, values: AggregateValues, rows: Ints) -> AggregateValues:
        return AggregateValues(values.codes[rows], values.texts, values.began[rows])

    def concatenate(self, parts: Sequence[AggregateValues]) -> AggregateValues:
        texts, renamed = _unite([part.texts for part in parts])
        codes = [_renamed(part.codes, table) for part, table in zip(parts, renamed, strict=True)]
        return AggregateValues(np.concatenate(codes), texts, np.concatenate([part.began for part in parts]))

    def write(self, values: AggregateValues, placement: Placement) -> Arrays:
        chosen = placement.by_id[values.codes[placement.by_id] != NO_SPEC]
        return _written(placement.ids[chosen], chosen, values.codes[chosen], values.began[chosen], values.texts)

    def merge(self, parts: Sequence[StoredAggregates], rows: MergedRows, counts: TermCounts | None) -> ArrayPieces:
        texts, renamed = _unite([part.texts for part in parts])
        ordinals = [places[part.ordinals] for part, places in zip(parts, rows.places, strict=True)]
        kept = [place != GONE for place in ordinals]
        ids = np.concatenate([part.ids[chosen] for part, chosen in zip(parts, kept, strict=True)])
        order = np.argsort(ids)
        codes = [table[part.codes[chosen]] for part, table, chosen in zip(parts, renamed, kept, strict=True)]
        began = np.concatenate([part.began[chosen] for part, chosen in zip(parts, kept, strict=True)])
        places = np.concatenate(ordinals)[np.concatenate(kept)]
        arrays = _written(ids[order], places[order], np.concatenate(codes)[order], began[order], texts)
        return [(name, [array]) for name, array in arrays.items()]

    def open(self, records: Arrays) -> StoredAggregates:
        if f"{AGGREGATE_ARRAYS}ids" not in records:
            return NONE_COUNTS
        ids, ordinals, codes, began = (records[f"{AGGREGATE_ARRAYS}{part}"] for part in StoredAggregates._fields[:-1])
        return StoredAggregates(ids, ordinals, codes, began, text_of(f"{AGGREGATE_ARRAYS}texts", records))

    def read(self, stored: StoredAggregates, ordinals: Ints) -> AggregateValues:
        values = no_aggregates(len(ordinals))._replace(texts=stored.texts)
        place = find_ordinals(stored.ordinals, ordinals)
        known = place >= 0
        values.codes[known], values.began[known] = stored.codes[place[known]], stored.began[place[known]]
        return values

    def show(self, values: AggregateValues) -> dict[str, pa.Array]:
        specs = values.specs()
        said = {NO_SPEC: (None,) * len(_COLUMNS)}
        said |= {c: (str(s.aggregate), str(s.window), s.group_by, s.when) for c, s in specs.items()}  # type: ignore[misc]
        rows = [said[code] for code in values.codes.tolist()]
        return {name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate(_COLUMNS)}


def state_keys(*some: AggregateValues) -> list[Ints]:
    """A number for each row: equal for those that count the same, whatever their conditions; NO_SPEC for others."""
    numbers, found = dict[str, int](), list[Ints]()
    for values in some:
        table = np.full(len(values.texts) + 1, NO_SPEC)
        for code, spec in values.specs().items():
            table[code] = numbers.setdefault(spec.state_key, len(numbers))
        found.append(table[values.codes])
    return found


def look_up(
    ids: SubIds, segments: Sequence[StoredAggregates], are_live: Sequence[Callable[[Ints], Bools]]
) -> AggregateValues:
    """What the subscription with each ascending id counts, if it is live; `are_live` says which ordinals of each
    segment are. All of a million ids take some milliseconds for each segment."""
    values = no_aggregates(len(ids))
    if len(segments) == 1:  # its texts differ from each other already
        texts, renamed = segments[0].texts, [np.arange(len(segments[0].texts))]
    else:
        texts, renamed = _unite([held.texts for held in segments])
    for held, table, is_live in zip(segments, renamed, are_live, strict=True):
        rows, found = _look_up(read_only(held.ids), read_only(ids))
        lives = is_live(held.ordinals[found].astype(np.int64))
        codes, began = read_only(held.codes), read_only(held.began)
        _copy_values(rows, found, lives, codes, began, read_only(table), values.codes, values.began)
    return values._replace(texts=texts)


def _unite(parts: Sequence[pa.StringArray]) -> tuple[pa.StringArray, list[Ints]]:
    every = pa.concat_arrays([pa.array([], pa.string()), *parts]).dictionary_encode()
    codes = np.asarray(every.indices, np.int64)
    return every.dictionary, np.split(codes, np.cumsum([len(part) for part in parts]))[: len(parts)]


def _renamed(codes: Ints, table: Ints) -> Ints:
    return np.append(table, NO_SPEC)[codes]  # NO_SPEC is the last position


def _written(ids: SubIds, ordinals: Ints, codes: Ints, began: Ints, texts: pa.StringArray) -> Arrays:
    """The arrays of a segment; of the texts only those that are still used."""
    if not len(ids):
        return {}
    used, codes = np.unique(codes, return_inverse=True)
    arrays: Arrays = {
        "ids": ids,
        "ordinals": ordinals.astype(np.uint32),
        "codes": codes.astype(np.uint32),
        "began": began,
    }
    arrays |= text_arrays("texts", texts.take(pa.array(used)))
    return {f"{AGGREGATE_ARRAYS}{name}": array for name, array in arrays.items()}


@kernel
def _look_up(ascending: SubIds, wanted: SubIds) -> tuple[Ints, Ints]:
    """Which of the wanted ids are there, and where. Each is looked for first where it would be if the ids had no gaps
    or even ones, as most have, for which the processor need not wait for the id before. From the one before, steps
    double until they are too far, and are then halved."""
    rows, found, n = np.empty(len(wanted), np.int64), np.empty(len(wanted), np.int64), 0
    last, at = len(ascending) - 1, 0
    if last < 0:
        return rows[:0], found[:0]
    first = float(ascending[0])
    per_id = last / max(1.0, float(ascending[last]) - first)
    for i in range(len(wanted)):
        guess = min(max(int((float(wanted[i]) - first) * per_id + 0.5), 0), last)
        if ascending[guess] == wanted[i]:
            at = guess
        else:
            step = 1
            while at + step <= last and ascending[at + step] <= wanted[i]:
                at += step
                step *= 2
            while step:
                if at + step <= last and ascending[at + step] <= wanted[i]:
                    at += step
                step //= 2
            if ascending[at] != wanted[i]:
                continue
        rows[n], found[n] = i, at
        n += 1
    return rows[:n], found[:n]


@kernel
def _copy_values(
    rows: Ints, found: Ints, lives: Bools, codes: Ordinals, began: Ints, table: Ints, to_codes: Ints, to_began: Ints
) -> None:
    for i in range(len(rows)):
        if lives[i]:
            to_codes[rows[i]], to_began[rows[i]] = table[codes[found[i]]], began[found[i]]
