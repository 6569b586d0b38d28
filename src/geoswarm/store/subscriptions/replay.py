"""The outcome of a batch's operations for each id: they are carried out in the order of arrival, on what was live.

live before, replace, cancel       ->   GONE          not live, register, register   ->   the first; the second is
live before, register              ->   UNCHANGED                                         a DUPLICATE
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Bools, Ints, SubIds, kernel
from geoswarm.core.subscriptions.attributes import CANCEL, REGISTER

OK, DUPLICATE, UNKNOWN = 0, 1, 2
"""The outcome of one operation. DUPLICATE registers an id that is live; UNKNOWN cancels one that is not."""
GONE, UNCHANGED = -1, -2
"""The outcome of one id, where no operation's subscription is in force at the end."""


class OperationsById(NamedTuple):
    """Operations by id, those of one id in the order of arrival."""

    ids: SubIds
    """Each id once, ascending."""
    rows: Ints
    """Rows of the batch, those of one id together."""
    starts: Ints
    """The operations on ids[i] are rows[starts[i]:starts[i + 1]]."""


class OperationsOutcome(NamedTuple):
    duplicates: Ints
    """Rows of the batch that register a live id."""
    unknown: Ints
    """Rows of the batch that cancel an id that is not live."""
    final: Ints
    """For each id, the row whose subscription is in force at the end, GONE or UNCHANGED."""


def group_by_id(ids: SubIds, rows: Ints) -> OperationsById:
    """Group operations; `ids` are those of `rows`, in the order of arrival."""
    order = np.argsort(ids, kind="stable")
    unique, first = np.unique(ids[order], return_index=True)
    return OperationsById(unique, rows[order], np.append(first, len(order)))


def replay(grouped: OperationsById, ops: Ints, is_live: Bools) -> OperationsOutcome:
    """`ops` are the codes of all rows of the batch; `is_live` is, for each id, whether it was live before."""
    verdicts, final = _replay(ops[grouped.rows], grouped.starts, is_live)
    has_row = final >= 0
    final[has_row] = grouped.rows[final[has_row]]
    return OperationsOutcome(grouped.rows[verdicts == DUPLICATE], grouped.rows[verdicts == UNKNOWN], final)


def goes_on(grouped: OperationsById, ops: Ints, is_live: Bools, keys: Ints, keys_before: Ints) -> Bools:
    """For each id that is live at the end, whether it went on with the same key all the while: it was live before, was
    never cancelled, and nothing in between had another key. `keys` are those of all rows of the batch."""
    return _goes_on(ops[grouped.rows], keys[grouped.rows], grouped.starts, is_live, keys_before)


@kernel
def _goes_on(ops: Ints, keys: Ints, starts: Ints, live_before: Bools, keys_before: Ints) -> Bools:
    same = live_before.copy()
    for i in range(len(starts) - 1):
        live = live_before[i]
        for k in range(starts[i], starts[i + 1]):
            if ops[k] == CANCEL:
                live, same[i] = False, False
            elif ops[k] != REGISTER or not live:
                live, same[i] = True, same[i] and keys[k] == keys_before[i]
    return same


@kernel
def _replay(ops: Ints, starts: Ints, live_before: Bools) -> tuple[npt.NDArray[np.int8], Ints]:
    """The outcome of each operation, and for each id the position of the operation that is in force at the end, GONE or
    UNCHANGED."""
    verdicts = np.zeros(len(ops), np.int8)
    final = np.full(len(starts) - 1, UNCHANGED, np.int64)
    for i in range(len(starts) - 1):
        live = live_before[i]
        for k in range(starts[i], starts[i + 1]):
            if ops[k] == CANCEL:
                if live:
                    live, final[i] = False, GONE
                else:
                    verdicts[k] = UNKNOWN
            elif ops[k] == REGISTER and live:
                verdicts[k] = DUPLICATE
            else:
                live, final[i] = True, k
    return verdicts, final
