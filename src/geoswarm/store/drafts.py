"""A draft: the next version of the subscriptions, on disk except for its manifest.

A draft is made from the version before and some operations. `checkpoint.py` decides when a draft becomes the version in
force.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import conform_operations
from geoswarm.store import dead_files
from geoswarm.store.guard_files import GuardFiles
from geoswarm.store.manifest import Manifest
from geoswarm.store.subscriptions import Churn, Store, View


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
    batch: int,
    guarding: GuardFiles | None,
    *,
    is_trusted: bool = False,
) -> Draft:
    """`begun` has the time, term and token of the draft; `view` shows the version before it, which was made at
    `since_us`. Refused operations are in dead/ when this returns."""
    draft, now_us = begun, begun.now_us
    dead, churn = DeadLetters("operation", batch), Churn()
    expired = view.find_expired(since_us, now_us)
    churn.went.append(view.rects_at(expired))
    if guarding is not None:
        guarding.went(view, expired)
        for removal in guarding.begin(now_us):
            draft = store.remove(draft.next(), view, removal, churn, guarding)
            view = View.open(store.storage, draft, view)
    for table in tables:
        whole = conform_operations(table).combine_chunks()
        for rows in whole.to_batches(max_chunksize=store.tuning.operations_at_once_max):
            draft = store.apply(draft.next(), view, rows, dead, churn, guarding, is_trusted=is_trusted)
            view = View.open(store.storage, draft, view)
            merged = store.compact(draft, view)
            if merged is not draft:
                draft, view = merged, View.open(store.storage, merged, view)
    if guarding is not None:
        draft = guarding.finish(draft, dead)
    if len(dead):
        folder = dead_files.folder_of(dead_files.OPERATIONS, draft.version)
        dead_files.write(store.storage, folder, "0", dead.table())
    return Draft(replace(draft, refused=len(dead)), view, churn)
