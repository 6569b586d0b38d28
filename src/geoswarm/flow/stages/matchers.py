"""Chooses the matcher of a parcel, by the pipeline and the place of the join. The matchers are in `flow/`.

static   parcels are matched as they come, with the segments that the worker keeps
stream   subscriptions come with the events, in any order: parcels wait until all are there, and the matcher of a
         partition is made once for all of its parcels, and timed with the first
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

import pyarrow as pa

from geoswarm.core.arrays.batches import gather
from geoswarm.flow.exchange import SUBSCRIPTION_PARCEL, unpack_parcels
from geoswarm.flow.match.match import MatchRun, Searchable, TermShare, match
from geoswarm.flow.rivals.replicated_index import verify
from geoswarm.flow.rivals.shares import PartitionSubs, slot_of_partition
from geoswarm.flow.rivals.sps import scan
from geoswarm.flow.rivals.static_side import WIRE, SubscriptionList, drop_foreign_pairs
from geoswarm.flow.route import Parcel, route
from geoswarm.flow.stages.task import BatchTask

ParcelMatches = Iterator[tuple[Parcel, Iterator[MatchRun]]]
"""Each parcel and its matches, which are found while they are read."""


def match_parcels(batches: Iterator[pa.RecordBatch], task: BatchTask) -> ParcelMatches:
    """Everything that does not depend on parcels is made by this call, the rest later."""
    if task.is_at_stream:
        return _at_stream(batches, task)
    if task.pipeline == "spis":
        segments = task.subscriptions()
        return ((parcel, _by_index(parcel, segments, task)) for parcel in _parcels(batches, task))
    shares = task.shares()

    def own(parcel: Parcel) -> list[PartitionSubs]:
        slot = slot_of_partition(task.plan(), parcel.partition)
        return [share.of(slot, segment) for segment, share in shares]

    return ((parcel, _by_list(parcel, own(parcel), task)) for parcel in _parcels(batches, task))


def _parcels(batches: Iterator[pa.RecordBatch], task: BatchTask) -> Iterator[Parcel]:
    if task.packs:
        for batch in batches:
            yield from unpack_parcels(batch, task.travelling)
    else:
        for batch in gather(batches, task.tuning.route_rows_max):
            yield from route(batch.drop_columns(["executor"]), task.plan())


def _by_index(parcel: Parcel, segments: list[Searchable], task: BatchTask) -> Iterator[MatchRun]:
    return match(
        parcel.events,
        segments,
        task.grid,
        task.now_us,
        rows_max=task.tuning.match_rows_max,
        pairs_max=task.tuning.match_pairs_max,
        terms=TermShare.of(task.plan(), parcel.partition),
    )


def _by_list(parcel: Parcel, shares: list[PartitionSubs], task: BatchTask) -> Iterator[MatchRun]:
    if task.sends_candidates:
        yield verify(parcel.events, shares, task.grid, task.now_us)
        return
    yield from scan(
        parcel.events,
        shares,
        task.plan(),
        parcel.partition,
        task.now_us,
        rows_max=task.tuning.match_rows_max,
        pairs_max=task.tuning.match_pairs_max,
    )


def _at_stream(batches: Iterator[pa.RecordBatch], task: BatchTask) -> ParcelMatches:
    events: dict[int, list[Parcel]] = defaultdict(list)
    lists: dict[int, list[pa.Buffer]] = defaultdict(list)
    for batch in batches:
        kinds, partitions = (batch.column(name).to_pylist() for name in ("kind", "partition"))
        for i, (kind, partition) in enumerate(zip(kinds, partitions, strict=True)):
            if kind == SUBSCRIPTION_PARCEL:
                lists[partition].append(batch.column("payload")[i].as_buffer())
            else:
                events[partition] += unpack_parcels(batch.slice(i, 1), task.travelling)
    for partition, parcels in events.items():
        prepared = _Prepared(lists.pop(partition, []), task)
        for parcel in parcels:
            yield parcel, prepared.match(parcel)


class _Prepared:
    """The matcher of a partition, from the subscriptions that came for it. It is made at the first use."""

    def __init__(self, payloads: list[pa.Buffer], task: BatchTask) -> None:
        self._payloads, self._task = payloads, task
        self._matcher: Callable[[Parcel], Iterator[MatchRun]] | None = None

    def match(self, parcel: Parcel) -> Iterator[MatchRun]:
        if self._matcher is None:
            self._matcher = self._make_matcher()
        yield from self._matcher(parcel)

    def _make_matcher(self) -> Callable[[Parcel], Iterator[MatchRun]]:
        task = self._task
        batches = (pa.ipc.read_record_batch(payload, WIRE) for payload in self._payloads)
        listed = SubscriptionList.concatenate([SubscriptionList.from_batch(batch) for batch in batches])
        if task.pipeline != "spis":
            shares = [PartitionSubs.whole(listed.searchable())]
            return lambda parcel: _by_list(parcel, shares, task)
        segment = listed.build_index(task.grid)
        if not task.splits_events:
            return lambda parcel: _by_index(parcel, [segment], task)
        share = PartitionSubs.whole(segment)
        return lambda parcel: drop_foreign_pairs(parcel, _by_index(parcel, [segment], task), share, task.plan())
