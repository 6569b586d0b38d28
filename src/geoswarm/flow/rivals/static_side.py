"""Sends the subscriptions of a partition to its events, where the join is at the stream.

    sender     list of the partition ── live ones ──► parcels of at most 64 MB, one array after another
    receiver   parcels ──► one list ──► as it is (sPS, RIPS), or with an index made for this batch (sPIS)

Nothing is kept from one batch to the next: the mode exists to measure that. Parcels of subscriptions travel like those
of events, with another kind (`flow/exchange.py`). Distributor §4.5 (STRL).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.buffers import ByteRows, strings_of
from geoswarm.core.arrays.jit import Array, Bytes, Floats, Ints, SubIds
from geoswarm.core.index.cells import build
from geoswarm.core.index.demands import Demands
from geoswarm.core.index.kernels import Records, are_live
from geoswarm.core.index.regions import WITHIN, Regions, build_regions
from geoswarm.core.index.searchable import RestIndex, Searchable
from geoswarm.core.index.word_kernels import Conditions
from geoswarm.core.index.words import build_text, conditions_of
from geoswarm.core.shapes.shapes import Shapes, concatenate_shapes, no_shapes
from geoswarm.core.shapes.wkb import VERTEX_BYTES
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.core.subscriptions.attributes import WHERE
from geoswarm.core.subscriptions.keywords import WORDS_ARRAYS
from geoswarm.core.subscriptions.kinds import text_arrays, text_of
from geoswarm.core.subscriptions.objects import OBJECTS_ARRAYS
from geoswarm.core.subscriptions.region import SHAPE_ARRAYS
from geoswarm.core.text.expression import Expressions, concatenate_expressions, no_conditions
from geoswarm.flow.exchange import SUBSCRIPTION_PARCEL
from geoswarm.flow.match.match import MatchRun
from geoswarm.flow.rivals.pairs import are_reported_here, gather_matches, locate_events, number_of
from geoswarm.flow.rivals.shares import PartitionSubs, slot_of_partition
from geoswarm.flow.route import Parcel
from geoswarm.model import NEVER_US

PARCEL_BYTES_MAX = 64 << 20
"""Bytes of a parcel of subscriptions; a row of Spark may have 2 GB."""
SUBSCRIPTION_BYTES = 48
WIRE = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("columns", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Arrays, one row each."""
PLAIN_ARRAYS = ("ids", "rects", "expires_us", "shaped", "predicates")


class SubscriptionList(NamedTuple):
    """Subscriptions as parallel arrays."""

    ids: SubIds
    rects: Floats
    expires_us: Ints
    words: Expressions
    shaped: Ints
    """Rows whose regions are not rectangles; ascending."""
    shapes: Shapes
    predicates: Bytes
    conditions: pa.DictionaryArray
    """Conditions on columns; the empty text is none."""
    objects: Expressions

    @classmethod
    def of(cls, segment: Searchable, ordinals: Ints) -> "SubscriptionList":
        records, regions, count = segment.records, segment.regions, len(ordinals)
        shaped, shapes, predicates = np.empty(0, np.int64), no_shapes(0), np.empty(0, np.uint8)
        if regions is not None:
            number, has_shape = number_of(regions, ordinals)
            shaped, number = np.flatnonzero(has_shape), number[has_shape]
            shapes = regions.shapes.take(number)
            predicates = regions.predicates[number] if len(regions.predicates) else np.zeros(len(number), np.uint8)
        return cls(
            records.ids[ordinals],
            records.rects[ordinals],
            records.expires_us[ordinals] if len(records.expires_us) else np.full(count, NEVER_US, np.int64),
            no_conditions(count) if segment.conditions is None else _take_expressions(segment.conditions, ordinals),
            shaped,
            shapes,
            predicates,
            *_take_demands(segment.demands, ordinals),
        )

    @classmethod
    def concatenate(cls, parts: Sequence["SubscriptionList"]) -> "SubscriptionList":
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *(len(part.ids) for part in parts)])
        shaped = [first + part.shaped for first, part in zip(firsts, parts, strict=False)]
        return cls(
            np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)]),
            np.concatenate([np.empty((0, 4)), *(part.rects for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.expires_us for part in parts)]),
            concatenate_expressions([part.words for part in parts]),
            np.concatenate([np.empty(0, np.int64), *shaped]),
            concatenate_shapes([part.shapes for part in parts]),
            np.concatenate([np.empty(0, np.uint8), *(part.predicates for part in parts)]),
            WHERE.concatenate([part.conditions for part in parts]),
            concatenate_expressions([part.objects for part in parts]),
        )

    def to_batch(self) -> pa.RecordBatch:
        arrays: dict[str, Array] = {name: getattr(self, name) for name in PLAIN_ARRAYS}
        arrays |= {f"{WORDS_ARRAYS}{name}": array for name, array in self.words.to_arrays().items()}
        arrays |= {f"{SHAPE_ARRAYS}{name}": array for name, array in self.shapes.to_arrays().items()}
        arrays |= {f"{OBJECTS_ARRAYS}{name}": array for name, array in self.objects.to_arrays().items()}
        arrays |= {"codes": self.conditions.indices.to_numpy()} | text_arrays("where", self.conditions.dictionary)
        kinds = [array.dtype.str for array in arrays.values()]
        columns = [1 if array.ndim == 1 else array.shape[1] for array in arrays.values()]
        data = [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
        return pa.record_batch([list(arrays), kinds, pa.array(columns, pa.int32()), data], schema=WIRE)

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> "SubscriptionList":
        arrays: dict[str, Array] = {}
        for i, (name, kind, columns) in enumerate(zip(*(batch.column(k).to_pylist() for k in range(3)), strict=True)):
            flat = np.frombuffer(batch.column("data")[i].as_buffer(), np.dtype(kind))
            arrays[name] = flat if columns == 1 else flat.reshape(-1, columns)
        words = {
            name.removeprefix(WORDS_ARRAYS): array for name, array in arrays.items() if name.startswith(WORDS_ARRAYS)
        }
        shapes = {
            name.removeprefix(SHAPE_ARRAYS): array for name, array in arrays.items() if name.startswith(SHAPE_ARRAYS)
        }
        objects = {
            name.removeprefix(OBJECTS_ARRAYS): array
            for name, array in arrays.items()
            if name.startswith(OBJECTS_ARRAYS)
        }
        plain = {name: arrays[name] for name in PLAIN_ARRAYS}
        return cls(
            words=Expressions.from_arrays(words),
            shapes=Shapes.from_arrays(shapes),
            conditions=pa.DictionaryArray.from_arrays(pa.array(arrays["codes"]), text_of("where", arrays)),
            objects=Expressions.from_arrays(objects),
            **plain,
        )

    def searchable(self) -> Searchable:
        """The list as a segment without an index."""
        records = Records.of(self.rects, self.ids, self.expires_us)
        asks = np.diff(self.words.conjunctions_offsets) > 0
        regions = None
        if len(self.shaped):
            worded = np.flatnonzero(asks[self.shaped])
            worded = worded[np.argsort(self.ids[self.shaped[worded]], kind="stable")]
            ordinals = self.shaped.astype(np.uint32)
            regions = Regions(self.shapes, ordinals, {}, worded, predicates=self.predicates)
        conditions, codes = conditions_of(self.words) if asks.any() else None, self.conditions.indices.to_numpy()
        asked = codes.astype(np.uint32) if any(self.conditions.dictionary.to_pylist()) else codes[:0].astype(np.uint32)
        objects = self.objects if len(self.objects.terms) else None
        demands = Demands.of(asked, self.conditions.dictionary, objects, len(self.ids))
        return Searchable(records, None, None, conditions, regions, demands=demands)

    def build_index(self, grid: Grid) -> Searchable:
        """The list as a segment with an index."""
        bare = self.searchable()
        asks = np.diff(self.words.conjunctions_offsets) > 0
        plain, regions = ~asks, bare.regions
        if regions is not None:
            for_points = ~asks[regions.ordinals] & (regions.predicates != WITHIN)
            regions = regions._replace(cells=build_regions(grid, regions.shapes, for_points))
            plain[regions.ordinals] = False
        chosen = np.flatnonzero(plain)
        rectangles = build(grid, self.rects[chosen]).renumber(chosen) if len(chosen) else None
        text = build_text(grid, self.rects, self.ids, self.words) if asks.any() else None
        return Searchable(bare.records, rectangles, text, bare.conditions, regions, RestIndex(), bare.demands)


def subscription_parcels(shares: Sequence[PartitionSubs], plan: Plan, slot: int, now_us: int) -> Iterator[Parcel]:
    """The subscriptions of a partition as parcels, for each executor that has its events."""
    partition = plan.partitions[slot]
    for share in shares:
        live = share.ordinals[are_live(share.ordinals, share.segment.records, now_us)]
        for some in _pieces(share.segment, live):
            batch = SubscriptionList.of(share.segment, some).to_batch()
            yield from (Parcel(partition.id, owner, batch, SUBSCRIPTION_PARCEL) for owner in partition.owners)


def _pieces(segment: Searchable, ordinals: Ints) -> Iterator[Ints]:
    sizes = np.full(len(ordinals), SUBSCRIPTION_BYTES)
    if segment.regions is not None:
        shapes, (number, shaped) = segment.regions.shapes, number_of(segment.regions, ordinals)
        ends = [shapes.vertices[shapes.rings[shapes.parts[number[shaped] + k]]] for k in (0, 1)]
        sizes[shaped] += VERTEX_BYTES * (ends[1] - ends[0])
    piece = np.cumsum(sizes) // PARCEL_BYTES_MAX
    cuts = np.flatnonzero(np.diff(piece)) + 1
    yield from (some for some in np.split(ordinals, cuts) if len(some))


def _take_expressions(conditions: Conditions, ordinals: Ints) -> Expressions:
    vocabulary = _strings(conditions.words)
    offsets = conditions.conjunctions_offsets, conditions.terms_offsets
    return Expressions(*offsets, conditions.terms, vocabulary).take(ordinals)


def _take_demands(demands: Demands | None, ordinals: Ints) -> tuple[pa.DictionaryArray, Expressions]:
    if demands is None:
        none = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(ordinals), np.int32)), pa.array([""]))
        return none, no_conditions(len(ordinals))
    codes = pa.array(demands.codes[ordinals].astype(np.int32))
    objects = no_conditions(len(ordinals)) if demands.objects is None else demands.objects.take(ordinals)
    asked = pa.DictionaryArray.from_arrays(codes, demands.texts)
    return WHERE.take(asked, np.arange(len(ordinals))), objects


def _strings(rows: ByteRows) -> pa.StringArray:
    """The words of a vocabulary, which lie one after the other (`Expressions.to_arrays`)."""
    if not len(rows.begins):
        return pa.array([], pa.string())
    offsets = np.append(rows.begins, rows.ends[-1])
    return strings_of(offsets - offsets[0], rows.data[offsets[0] : offsets[-1]])


def drop_foreign_pairs(
    parcel: Parcel, runs: Iterator[MatchRun], share: PartitionSubs, plan: Plan
) -> Iterator[MatchRun]:
    """The matches of a parcel's events with the partition's own subscriptions, without the pairs that another partition
    reports."""
    slot, places, done = slot_of_partition(plan, parcel.partition), locate_events(parcel.events, plan.grid), 0
    for met in runs:
        rows = np.repeat(np.arange(done, done + len(met.events)), np.diff(met.offsets))
        rects = share.rects[np.searchsorted(share.ids, met.subs)]
        here = are_reported_here(places, rows, rects, plan, slot)
        yield gather_matches(met.events, [(rows[here] - done, met.subs[here])])
        done += len(met.events)
