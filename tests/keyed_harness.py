"""Keyed operators at work without files and without Spark: a store in memory, and chance where a cluster has freedom.

Each batch is cut into random slices, its keys are dealt over executors by a random plan, a random part of what is held
is compacted, and most batches run several times before one of the attempts counts. None of that may show.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.flow.keyed.operator import KEY, Moment, Operator, StateRows, Turn

INTERVAL_US = 10_000_000
Row = dict[str, Any]


class KeptRows(NamedTuple):
    interval: int
    batch: int
    row: Row


class Batch(NamedTuple):
    interval: int
    rows: pa.RecordBatch


class KeyedOutput(NamedTuple):
    """What went out: with each batch, at the end of each interval, and as each left the window."""

    updates: list[list[Row]]
    closes: dict[int, list[Row]]
    expiries: dict[int, list[Row]]


Store = dict[Any, list[KeptRows]]


class KeyedWorld:
    def __init__(self, operator: Operator, schema: pa.Schema, rng: np.random.Generator) -> None:
        self.operator: Operator = pickle.loads(pickle.dumps(operator))
        self.rng = rng
        self.executors = int(rng.integers(1, 5))
        self.fed = operator.feed(pa.RecordBatch.from_pylist([], schema=schema)).schema
        self.given = operator.given(self.fed)
        self.store: Store = defaultdict(list)
        self.now = Moment(-1, -1, 0)
        self.parts: dict[Any, Any] = {}
        """The executors of the parts of each split key."""

    def run(self, stream: Sequence[Batch]) -> KeyedOutput:
        out = KeyedOutput([], {}, {})
        for number, batch in enumerate(stream):
            before, self.now = self.now, Moment(number, batch.interval, batch.interval * INTERVAL_US + number)
            self._end(before.interval, out)
            updates, kept = self._attempt(batch.rows)
            for _ in range(int(self.rng.integers(0, 3))):
                again, kept = self._attempt(batch.rows)
                assert have_same_rows(again, updates), "a batch that runs again gives something else"
            out.updates.append(updates)
            for key, row in kept:
                self.store[key].append(KeptRows(batch.interval, number, row))
            if self.rng.random() < 0.4:
                self._compact()
        return out

    # -- a batch

    def _attempt(self, rows: pa.RecordBatch) -> tuple[list[Row], list[tuple[Any, Row]]]:
        fed = self._feed(rows)
        given: list[pa.RecordBatch] = []
        kept: list[tuple[Any, Row]] = []
        for executor, share in enumerate(self._shares(fed)):
            for turn in self._turns(share, executor):
                answer = self.operator.update(turn)
                assert answer.kept.schema == self.operator.kept
                assert answer.given.schema == self.given
                assert len(answer.work) == len(turn.keys)
                assert (np.asarray(answer.work) >= 0).all()
                if answer.given_counts is not None:
                    assert len(answer.given_counts) == len(turn.keys)
                    assert answer.given_counts.sum() == len(answer.given)
                assert (np.diff(answer.kept_groups) >= 0).all()
                given.append(answer.given)
                keys = turn.keys.take(pa.array(answer.kept_groups)).to_pylist()
                kept += zip(keys, answer.kept.to_pylist(), strict=True)
        return self._sent_rows(given), kept

    def _feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """As Spark does it: in slices of any size, and in no order."""
        shuffled = rows.take(pa.array(self.rng.permutation(len(rows))))
        cuts = [0, *sorted(self.rng.integers(0, len(rows) + 1, int(self.rng.integers(0, 4))).tolist()), len(rows)]
        slices = [shuffled.slice(a, b - a) for a, b in pairwise(cuts)]
        fed = pa.concat_batches([self.operator.feed(part) for part in slices])
        assert fed.schema == self.fed
        return fed

    def _shares(self, fed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Of each executor; keys that may be split sometimes are."""
        keys = fed.column(KEY).to_pylist()
        owner = {key: int(self.rng.integers(0, self.executors)) for key in dict.fromkeys(keys)}
        split = {key for key in owner if self.operator.can_split and self.rng.random() < 0.3}
        self.parts = {key: self.rng.integers(0, self.executors, 3) for key in split}
        numbers = self.operator.part_numbers(fed)
        if numbers is None:
            owners = [int(self.rng.integers(0, self.executors)) if key in split else owner[key] for key in keys]
        else:
            owners = [self._owner(key, n, owner[key]) for key, n in zip(keys, numbers.tolist(), strict=True)]
        for executor in range(self.executors):
            yield fed.filter(pa.array([o == executor for o in owners], pa.bool_()))

    def _owner(self, key: Any, number: int, whole: int) -> int:
        """The executor of a row by its number; that of the whole key if it is not split."""
        return int(self.parts[key][number % 3]) if key in self.parts else whole

    def _belongs(self, key: Any, kept: KeptRows, executor: int) -> bool:
        if key not in self.parts:
            return True
        numbers = self.operator.part_numbers(pa.RecordBatch.from_pylist([kept.row], schema=self.operator.kept))
        return numbers is None or self._owner(key, int(numbers[0]), executor) == executor

    def _turns(self, rows: pa.RecordBatch, executor: int) -> Iterator[Turn]:
        places: dict[Any, list[int]] = defaultdict(list)
        for place, key in enumerate(rows.column(KEY).to_pylist()):
            places[key].append(place)
        for keys in self._parts(list(places)):
            lists = [self._order(rows, places[key]) for key in keys]
            taken = rows.take(pa.array([p for some in lists for p in some], pa.int64()))
            held = [
                [
                    kept
                    for kept in self.store[key]
                    if self._is_in_window(kept, self.now.interval) and self._belongs(key, kept, executor)
                ]
                for key in keys
            ]
            yield self._turn(keys, taken, lists, held, self.now)

    def _order(self, rows: pa.RecordBatch, places: list[int]) -> list[int]:
        columns = [rows.column(name).to_pylist() for name in self.operator.order]
        return sorted(places, key=lambda p: [(c[p] is None, 0 if c[p] is None else c[p]) for c in columns])

    def _parts(self, keys: list[Any]) -> list[list[Any]]:
        """Keys in any order, in one turn or several."""
        self.rng.shuffle(keys)
        cut = int(self.rng.integers(0, len(keys) + 1))
        return [part for part in (keys[:cut], keys[cut:]) if part]

    def _is_in_window(self, kept: KeptRows, interval: int) -> bool:
        return interval - self.operator.window < kept.interval <= interval

    def _turn(
        self, keys: list[Any], rows: pa.RecordBatch, lists: list[list[int]], held: list[list[KeptRows]], moment: Moment
    ) -> Turn:
        flat = [kept for some in held for kept in some]
        return Turn(
            pa.array(keys, self.fed.field(KEY).type),
            rows,
            _starts(lists),
            pa.RecordBatch.from_pylist([kept.row for kept in flat], schema=self.operator.kept),
            _starts(held),
            np.array([kept.interval for kept in flat], np.int64),
            np.array([kept.batch for kept in flat], np.int64),
            moment,
        )

    # -- ends of intervals

    def _end(self, ended: int, out: KeyedOutput) -> None:
        now, window = self.now.interval, self.operator.window
        if now == ended:
            return
        if ended >= 0:
            kept_in = [key for key, kept in self.store.items() if any(k.interval == ended for k in kept)]
            seen = {key: [k for k in self.store[key] if self._is_in_window(k, ended)] for key in kept_in}
            out.closes[ended] = self._ask(self.operator.close, seen, self.now._replace(interval=ended))
        leaving = {k.interval for kept in self.store.values() for k in kept if k.interval <= now - window}
        for interval in sorted(leaving):
            of = {key: [k for k in kept if k.interval == interval] for key, kept in self.store.items()}
            gone = {key: kept for key, kept in of.items() if kept}
            out.expiries[interval] = self._ask(self.operator.expire, gone, self.now)
        for key, kept in self.store.items():
            self.store[key] = [k for k in kept if k.interval not in leaving]

    def _ask(
        self, ask: Callable[[Turn], pa.RecordBatch | None], held: dict[Any, list[KeptRows]], moment: Moment
    ) -> list[Row]:
        nothing = pa.RecordBatch.from_pylist([], schema=self.fed)
        owner = {key: int(self.rng.integers(0, self.executors)) for key in held}
        answers = []
        for executor in range(self.executors):
            for keys in self._parts([key for key in held if owner[key] == executor]):
                turn = self._turn(keys, nothing, [[] for _ in keys], [held[k] for k in keys], moment)
                answers.append(ask(turn))
        given = [answer for answer in answers if answer is not None]
        assert all(batch.schema == self.given for batch in given)
        return self._sent_rows(given)

    # -- what goes out

    def _sent_rows(self, given: list[pa.RecordBatch]) -> list[Row]:
        if self.operator.merge_by is None:
            return [row for batch in given for row in batch.to_pylist()]
        while len(given) > 1 and self.rng.random() < 0.5:  # what was merged before may be merged again
            at = int(self.rng.integers(0, len(given) - 1))
            given[at : at + 2] = [self._merge(pa.concat_batches(given[at : at + 2]))]
        return self._merge(pa.concat_batches(given)).to_pylist() if given else []

    def _merge(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not len(rows):
            return rows
        by: dict[Any, list[int]] = defaultdict(list)
        values = rows.column(self.operator.merge_by).to_pylist()
        for place in self.rng.permutation(len(rows)).tolist():
            by[values[place]].append(place)
        taken = rows.take(pa.array([p for some in by.values() for p in some]))
        merged = self.operator.merge(taken, _starts(list(by.values())))
        assert merged.schema == self.given
        return merged

    # -- compaction

    def _compact(self) -> None:
        """Of some keys, the rows that some batches in a row kept in one interval."""
        if not self.now.batch:
            return
        interval = self.now.interval if self.rng.random() < 0.7 else self.now.interval - 1
        low, high = sorted(self.rng.integers(0, self.now.batch + 1, 2).tolist())
        chosen = {
            key: [k for k in kept if k.interval == interval and low <= k.batch <= high]
            for key, kept in self.store.items()
            if self.rng.random() < 0.7
        }
        keys = [key for key, kept in chosen.items() if kept]
        flat = [kept for key in keys for kept in chosen[key]]
        rows = pa.RecordBatch.from_pylist([kept.row for kept in flat], schema=self.operator.kept)
        starts = _starts([chosen[key] for key in keys])
        fewer = self.operator.compact(StateRows(rows, starts, np.array([kept.batch for kept in flat], np.int64)))
        assert fewer.rows.schema == self.operator.kept
        assert len(fewer.rows) == len(fewer.batches) == fewer.starts[-1]
        assert len(fewer.starts) == len(keys) + 1
        every = fewer.rows.to_pylist()
        for i, key in enumerate(keys):
            begin, end = int(fewer.starts[i]), int(fewer.starts[i + 1])
            gone = {id(kept) for kept in chosen[key]}
            stays = [kept for kept in self.store[key] if id(kept) not in gone]
            batches = fewer.batches[begin:end].tolist()
            new = [KeptRows(interval, batch, row) for batch, row in zip(batches, every[begin:end], strict=True)]
            self.store[key] = sorted([*stays, *new], key=lambda kept: kept.batch)


def _starts(lists: Sequence[Sequence[Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.cumsum([0, *map(len, lists)]).astype(np.int64)


def moments(rng: np.random.Generator, batches: int) -> list[int]:
    """The interval of each batch: some have several, and now and then some have none."""
    steps = rng.choice([0, 0, 0, 1, 1, 2, 7], batches)
    return [int(i) for i in np.cumsum(steps)]


def have_same_rows(got: Sequence[Row], want: Sequence[Row]) -> bool:
    """In any order, each as often."""
    return sorted(map(repr, got)) == sorted(map(repr, want))
