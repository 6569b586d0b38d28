"""Everything an engine must remember, in one folder, and the one order in which it changes.

    contract.json    what it was made for; identity.json     plans/        each plan, by epoch
    terms/, lock     who may write (`fence.py`)              manifests/    each version (`manifest.py`)
    inbox/           acknowledged, not yet taken in          subscriptions/ segments and bitmaps
    dead/            rows turned away, with the reason       reports/      what tasks counted, by batch
    journal/         what happened (`journal/`)              spark/            Spark's own offsets
    guard/           what Guard knew (`guard_files.py`)      commands/     what operators ask of it
    scale/           executors that were asked for (`scale_requests.py`)
    reached/         who has had its `max_events`, by batch (`subscriptions/reached.py`)

A batch: `prepare` fixes its version and plan (or finds what a crashed attempt had fixed), the batch runs, `finish`
clears what it no longer needs. A crash anywhere in between is repaired by running the batch again with the same
version.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from geoswarm.config import EXECUTORS_MIN, Contract, SubIdKind, Tuning
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.aggregates.columns import AggregateStream
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.space.plan import Plan
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.tokens import tokenize
from geoswarm.errors import CorruptState, FencedOut, StateError
from geoswarm.flow.keyed.reorder import ReorderSettings
from geoswarm.guard.limits import GuardSettings
from geoswarm.guard.rules import GuardRules
from geoswarm.store import guard_files, inbox, manifest, plans
from geoswarm.store.batch_state import share_view
from geoswarm.store.drafts import Draft, make_draft
from geoswarm.store.fence import Fence
from geoswarm.store.founding import create_or_check
from geoswarm.store.guard_files import GuardFiles
from geoswarm.store.housekeeping import Janitor, collect_garbage, repair
from geoswarm.store.journal import Journal
from geoswarm.store.journal.entries import RepairEntry
from geoswarm.store.key_source import KeySource
from geoswarm.store.manifest import Manifest
from geoswarm.store.merging import Merging
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import Churn, Store, View
from geoswarm.store.subscriptions.ends import NOBODY_BEGAN, NOBODY_ENDED
from geoswarm.store.subscriptions.lacking import Lacking, columns_of_stream, find_lacking, may_have_conditions
from geoswarm.store.subscriptions.pasts import NONE_WAITS

TERMS_FADED = 0.98
"""The share of each term's count that is left after a batch; after 34 batches it is a half."""
LOADS_MAX = 1000
"""The number of bulk-loaded files that a version remembers."""


class Checkpoint:
    def __init__(
        self,
        root: str,
        contract: Contract,
        tuning: Tuning,
        first_plan: Callable[[Grid, int], Plan] = uniform,
        key: KeySource | None = None,
        guard: GuardRules | None = None,
        executors: int = EXECUTORS_MIN,
    ) -> None:
        """`first_plan` is called once, when the folder is made, with the contract's number of executors, or else with
        `executors`. Without a `key`, the key of the environment is used, if there is one. Without a `guard` no user is
        limited; what Guard knew is kept for a later start with one."""
        self.storage = Storage(root, key=key)
        self.grid = Grid.of(contract)
        self.fence = Fence(self.storage)
        self._tuning = tuning
        self._store = Store(self.storage, self.grid, tuning, TermCounts.empty(), ids=contract.subscription_ids)
        self._janitor = Janitor(self.storage)
        try:
            self.identity = create_or_check(self.storage, contract, executors, first_plan, self.fence)
            self.journal = Journal(self.storage)
            self.plan, self._plan_seal = plans.newest(self.storage)
            self.manifest = manifest.newest(self.storage)
            for name in repair(self.storage, self.grid, self.manifest, self.plan):
                self.journal.append(RepairEntry(name, "index rebuilt from its records"))
            self._view = View.open(self.storage, self.manifest)
            self.merging = Merging(self.storage, self.grid, tuning, self.journal, self._store.counts, self._view)
            self._collect_garbage()
            self.guarding: GuardFiles | None = None
            if guard is not None:
                seed = int(self.identity[:16], 16)
                self.guarding = GuardFiles(self.storage, self.grid, GuardSettings.of(guard), self.journal, seed)
                self.guarding.load(self.manifest, self._view)
        except BaseException:
            self.fence.release()
            raise
        self._churn = Churn()
        self.stream: AggregateStream | None = None
        """The running stream: batches refuse subscriptions whose aggregates it cannot give. None: nothing is refused
        for that."""
        self._inbox_lock = threading.Lock()
        self._inbox_next = max([self.manifest.inbox_mark, *inbox.waiting(self.storage, -1)]) + 1

    def submit(self, operations: pa.Table) -> None:
        """Write operations to disk, for the next version to apply. Any thread may call it, also while a batch runs."""
        self.fence.check()  # an engine that took over may number its files the same
        with self._inbox_lock:
            waiting = self._inbox_next - 1 - self.manifest.inbox_mark
            if waiting >= self._tuning.inbox_files_max:
                raise StateError(
                    f"{waiting} calls wait for a batch to take them in, the limit is {self._tuning.inbox_files_max}: "
                    "put more operations into one call, or send them as a stream"
                )
            inbox.put(self.storage, self._inbox_next, operations, self.ids)
            self._inbox_next += 1

    def fold(self, now_us: int) -> Manifest:
        """Apply the operations in the inbox, and the operators' commands to Guard, outside any batch."""
        waiting = inbox.waiting(self.storage, self.manifest.inbox_mark)
        asked = self.guarding is not None and self.storage.names(guard_files.COMMANDS_FOLDER)
        if waiting or asked:
            with self._undo_if_it_fails():
                draft = self._draft(inbox.take(self.storage, waiting), now_us, -1)
                self._adopt(draft, batch=None, inbox_mark=max([self.manifest.inbox_mark, *waiting]))
            inbox.clear(self.storage, self.manifest.inbox_mark)
            self._collect_garbage()
        return self.manifest

    def take_in(self, operations: pa.Table, now_us: int, loads: dict[str, int]) -> Manifest:
        """Apply a step of a bulk load outside any batch: all of it is in force when this returns, or nothing is."""
        kept = list((self.manifest.loads | loads).items())[-LOADS_MAX:]
        with self._undo_if_it_fails():
            draft = self._draft([operations], now_us, -1, is_trusted=True)
            self._adopt(draft, batch=None, loads=dict(kept))
        self.take_churn()  # no stream runs during a load, and one that starts counts what is live
        self._collect_garbage()
        return self.manifest

    def settle(self, now_us: int) -> Manifest:
        """Wait until no segments are left that are worth merging, outside any batch, and what is not needed any more is
        removed."""
        self.merging.begin(self.manifest, self._view, settles=True)
        while not self.merging.is_idle:
            self.merging.wait()
            with self._undo_if_it_fails():
                self._adopt(self._draft([], now_us, -1), batch=None)
            self.merging.begin(self.manifest, self._view, settles=True)
        self._collect_garbage()
        self._janitor.wait()
        return self.manifest

    def prepare(
        self,
        batch: int,
        operations: Callable[[], Iterable[pa.Table]],
        now_us: int,
        content: str = "",
        replan: Callable[[], Plan] | None = None,
    ) -> Manifest:
        """The version that `batch` runs with, the same one at each call. `content` is a digest of what the source put
        into the batch, where it is known: a replay must have the same. `replan` draws a plan for this batch; it is
        not called when the batch has one from a crashed attempt."""
        self.fence.check()
        if batch < self.manifest.last_batch:
            raise StateError(
                f"Spark asks for batch {batch}, but batch {self.manifest.last_batch} has been run on this checkpoint: "
                "the folder spark/ in it was removed or restored from an older copy; restore both together"
            )
        if batch == self.manifest.last_batch:
            fixed = manifest.for_batch(self.storage, batch)
            if fixed is None:
                raise CorruptState(f"the version of batch {batch} is missing from manifests/: restore it from a backup")
            if content and fixed.content and content != fixed.content:
                raise StateError(
                    f"batch {batch} has been run with other events than Spark now puts into it: "
                    "entries of spark/offsets were removed; restore them, or start a new checkpoint"
                )
            return fixed
        if batch > self.manifest.last_batch + 1:
            raise StateError(
                f"Spark asks for batch {batch}, but the newest of this checkpoint is {self.manifest.last_batch}: "
                "all but the folder spark/ in it was removed or restored from an older copy; restore both together"
            )
        waiting = inbox.waiting(self.storage, self.manifest.inbox_mark)
        mark = waiting[-1] if waiting else self.manifest.inbox_mark

        def all_operations() -> Iterable[pa.Table]:
            yield from inbox.take(self.storage, waiting)
            yield from operations()

        with self._undo_if_it_fails():
            draft = self._draft(all_operations(), now_us, batch)
            drawn = self.plan if replan is None else replan()
            if drawn is not self.plan:
                self.adopt_plan(drawn)
            drawn_up = {
                "plan_epoch": self.plan.epoch,
                "plan_seal": self._plan_seal,
                "reorder": ReorderSettings.of(self._tuning),
            }
            self._adopt(draft, batch=batch, last_batch=batch, inbox_mark=mark, content=content, **drawn_up)
        return self.manifest

    def share_view(self, prepared: Manifest) -> None:
        """Let tasks that run in this process read the open files of the version that a batch was prepared with."""
        if (prepared.version, prepared.token) == (self.manifest.version, self.manifest.token):  # it may be a replay
            share_view(self.storage, prepared, self._view)

    @property
    def view(self) -> View:
        """The subscriptions of the newest version. Any thread may read it; it is replaced, never changed."""
        return self._view

    @property
    def ids(self) -> SubIdKind:
        return self._store.ids

    def live_rects(self) -> Floats:
        """The rectangles of all subscriptions in force, by the newest version."""
        return self._view.live_rects(self.manifest.now_us)

    def counts_events(self) -> bool:
        """Whether some subscription in force has an aggregate."""
        is_asked = any(entry.aggregates for entry in self.manifest.segments)
        return is_asked and self._view.counts_events(self.manifest.now_us)

    def lacking(self) -> list[Lacking]:
        """What subscriptions in force ask for and the events of the stream cannot give; nothing before a stream."""
        columns = columns_of_stream(self.storage) if self.stream is None else self.stream.columns
        has_conditions, now_us = may_have_conditions(self.manifest.segments), self.manifest.now_us
        return [] if columns is None else find_lacking(lambda: self._view, columns, has_conditions, now_us)

    def some_queries(self, most: int) -> tuple[Floats, pa.StringArray]:
        """Rectangles and keywords of at most `most` subscriptions in force, evenly spread."""
        return self._view.some_queries(most, self.manifest.now_us)

    def live_count(self) -> int:
        """The number of subscriptions in the newest version."""
        return self.manifest.subs

    def take_churn(self) -> Churn:
        """The subscriptions that came into force and left it since the last call."""
        taken, self._churn = self._churn, Churn()
        return taken

    def sense(self, partitions: Iterable[Partition]) -> None:
        """Let Guard, if it is on, look at partitions of the plan before that have made the cluster rebalance."""
        if self.guarding is not None:
            for partition in partitions:
                self.guarding.sense(partition, self._view, self.manifest.now_us)

    def adopt_plan(self, plan: Plan) -> None:
        """Put a plan in force from the next batch on, or from the one that is being prepared."""
        self.fence.check()
        self._plan_seal = plans.write(self.storage, plan)
        self.plan = plan

    def finish(self, batch: int, texts: Sequence[str | None] = ()) -> None:
        """Clean up after a batch that its sink has received; `texts` is a sample of the texts of its events."""
        self.fence.check()
        if texts:
            self._store.counts.take_in(tokenize(pa.array(texts, pa.string())).hashes, TERMS_FADED)
        inbox.clear(self.storage, self.manifest.inbox_mark)
        self._collect_garbage()

    def close(self) -> None:
        self.merging.close()
        self._janitor.close()
        self.fence.release()

    # -- making versions

    def _draft(self, tables: Iterable[pa.Table], now_us: int, batch: int, *, is_trusted: bool = False) -> Draft:
        before, view = self.manifest, self._view
        now_us = max(now_us, before.now_us)  # a clock set back must not revive what has expired
        begun = before.next(now_us=now_us, content="", term=self.fence.term, token=self.fence.token)
        if before.batch is not None:  # which gives those their past who waited for it, and tells those who have ended
            begun = replace(begun, pasts=None, ends=None)
            view = replace(view, pasts=NONE_WAITS, ends=NOBODY_ENDED, begun=NOBODY_BEGAN)
        stream = self.stream
        if stream is not None and before.reorder is not None and before.reorder.reorder_us:
            stream = stream._replace(reorders=True)  # what the batch before has held may go on in this one
        store = replace(self._store, stream=stream) if batch >= 0 else self._store
        return make_draft(
            store,
            begun,
            view,
            tables,
            before.now_us,
            self._of_last_batch,
            batch,
            self.guarding,
            self.merging,
            is_trusted=is_trusted,
        )

    def _of_last_batch(self) -> tuple[View, int]:
        """The subscriptions that the last batch had, and its time; none before the first."""
        last = self.manifest
        if last.batch is not None:
            return self._view, last.now_us
        found = manifest.for_batch(self.storage, last.last_batch) if last.last_batch >= 0 else None
        return (View({}, {}), 0) if found is None else (View.open(self.storage, found, self._view), found.now_us)

    def _adopt(self, draft: Draft, **changes: Any) -> None:
        """Put a draft in force: the one atomic step. A draft that fails to be written leaves no trace."""
        self.fence.check()
        new = replace(draft.manifest, **changes)
        self.storage.make_durable(new.files_since(self.manifest))
        manifest.write(self.storage, new)
        self.manifest, self._view = new, draft.view
        self.merging.confirm(new)
        self.merging.begin(new, draft.view)
        self._churn.came += draft.churn.came
        self._churn.went += draft.churn.went
        if self.guarding is not None:
            self.guarding.confirm()

    @contextmanager
    def _undo_if_it_fails(self) -> Iterator[None]:
        """Guard and the accounts change while a draft is made; if it fails, reload them from the version in force."""
        try:
            yield
        except FencedOut:
            raise  # this engine was replaced, and its files may be gone
        except BaseException:
            if self.guarding is not None:
                self.guarding.load(self.manifest, self._view)
            raise

    def _collect_garbage(self) -> None:
        needed = self.merging.names()
        collect_garbage(self.storage, self.manifest, self._tuning.dead_letter_folders_max, needed, self._janitor)
