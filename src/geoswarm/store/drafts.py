"""A draft: the next version of the subscriptions, on disk except for its manifest.

A draft is made from the version before and some operations. `checkpoint.py` decides when a draft becomes the version in
force.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from geoswarm.core.subscriptions.id_texts import with_numbers
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations
from geoswarm.model import EXPIRED
from geoswarm.store import dead_files
from geoswarm.store.guard_files import GuardFiles
from geoswarm.store.manifest import Manifest
from geoswarm.store.merging import Merging
from geoswarm.store.subscriptions import Churn, Store, View
from geoswarm.store.subscriptions.reached import reached_since


class Draft(NamedTuple):
    manifest: Manifest
    view: View
    churn: Churn


def make_draft(
    store: Store,
    begun: Manifest,
    view: View,
    tables: Iterable[pa.Table],
    since_us: int,
    last: Callable[[], tuple[View, int]],
    batch: int,
    guarding: GuardFiles | None,
    merging: Merging,
    *,
    is_trusted: bool = False,
) -> Draft:
    """`begun` has the time, term and token of the draft; `view` shows the version before it, which was made at
    `since_us`; `last` opens that of the last batch, and returns its time, too. Segments that were merged meanwhile are
    adopted. Refused operations are in dead/ when this returns."""
    before, now_us = view, begun.now_us
    draft, view = merging.adopt(begun, view)
    dead, churn = DeadLetters("operation", batch), Churn()
    if any(entry.limited for entry in draft.segments):  # before others end: who has been told so is not told again
        for reached in reached_since(store.storage, begun.reached_mark):
            begun = draft.next(reached_mark=reached.batch)
            draft, view = store.end_reached(begun, view, reached, since_us, churn, guarding)
    expired = view.find_expired(since_us, now_us)
    churn.went.append(view.rects_at(expired))
    view = view.with_ended(expired, EXPIRED, now_us)
    if guarding is not None:
        guarding.went(view, expired)
        for removal in guarding.begin(now_us):
            draft, view = store.remove(draft.next(), view, removal, churn, guarding)
    for table in tables:
        whole = conform_operations(table, store.ids).combine_chunks()
        for rows in whole.to_batches(max_chunksize=store.tuning.operations_at_once_max):
            rows = with_numbers(rows) if store.ids == "text" else rows
            draft, view = store.apply(draft.next(), view, rows, dead, churn, guarding, is_trusted=is_trusted)
    view = view.settle_ends(last, now_us)
    draft = store.write_beside(draft, view, before)
    if guarding is not None:
        draft = guarding.finish(draft, dead)
    if len(dead):
        folder = dead_files.folder_of(dead_files.OPERATIONS, draft.version)
        dead_files.write(store.storage, folder, "0", dead.table())
    return Draft(replace(draft, refused=len(dead)), view, churn)
