"""The door: which operations Guard admits, and what it counts.

There are no files and no segments here: `LiveSubscriptions` is what the door needs of the store, and
`store/guard_files.py` keeps its memory. It is off by default, because it may refuse users. Thesis chapter 5.

    operations ──► `enter`: name? blocked? rate? ──► flow/validate.py ──► `admit`: owner? limits? ──► the store
                                ▲                                                                     │
    commands, a round is over ──┘ `begin`         features ◄── `count_done`                           │
                                                  accounts ◄── `add_owned`, `remove_owned` ◄──────────┘
                                                  hotspots ◄── `sense` ◄── a plan was applied
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.subscriptions.attributes import AGGREGATE, CANCEL, KEYWORDS, OBJECTS, REGION, SINCE, WHERE
from geoswarm.core.subscriptions.keywords import alternatives
from geoswarm.core.subscriptions.where import lengths_of
from geoswarm.flow.dead_letters import MALFORMED, DeadLetters
from geoswarm.flow.operations import operation_codes
from geoswarm.flow.validate import ValidatedOperations
from geoswarm.guard.accounts import FINE, Accounts, HeldSubscriptions, UserOperations
from geoswarm.guard.commands import Command, obey
from geoswarm.guard.guard import ClosedRound, Guard
from geoswarm.guard.letters import Letters
from geoswarm.guard.limits import GuardSettings, aggregate_costs, area_shares, costs, past_operations
from geoswarm.guard.names import is_text
from geoswarm.guard.sensing import LiveQueries, sense
from geoswarm.guard.sensor import AGES, MapPlace
from geoswarm.model import NEVER_US

USERS_EXACT_MAX = 10_000
"""Up to so many known users, counts are written with every version: about 1.5 MB. Beyond, counts of operations and
hotspots are written when a round is closed or an operator commands: a crash loses those of a round, and no block."""
EVER_US = -(1 << 63)
"""A time before any subscription."""


class Owned(NamedTuple):
    """The owners of some subscriptions, and their costs in thousandths. `codes` are positions in `names`."""

    names: pa.StringArray
    codes: Ints
    costs: Ints


class LiveSubscriptions(Protocol):
    """The subscriptions in force at one moment."""

    def owned(self) -> Iterable[Owned]:
        """The owners of all subscriptions, in parts."""

    def held(self, ids: Ints, users: pa.StringArray) -> HeldSubscriptions:
        """Which of these ids, ascending, are live, which of the users owns each, and its cost."""

    def queries(self, window: Floats, *, is_middle: bool) -> LiveQueries:
        """The queries that meet a window (xmin, ymin, xmax, ymax), or whose centre lies in it."""


class Removal(NamedTuple):
    """An order to cancel all that these users registered since a moment."""

    users: list[str]
    since_us: int


class DraftStart(NamedTuple):
    removals: list[Removal]
    closed: ClosedRound | None
    """The detection round that was closed, if one was over."""


class _Admitted(NamedTuple):
    """Operations that `admit` accepted, as parallel arrays."""

    users: pa.StringArray
    rows: Ints
    begins: Bools
    ends: Bools


class GuardDoor:
    def __init__(self, settings: GuardSettings, grid: Grid, guard: Guard, live: LiveSubscriptions) -> None:
        """Accounts are counted from the live subscriptions."""
        self._settings, self._grid = settings, grid
        self.guard = guard
        self.accounts = Accounts(settings)
        for owned in live.owned():
            self.accounts.add(*owned, 1)
        self._has_decided = self._has_counted = False  # since `mark_kept`
        self._letters = Letters(settings)  # letters of the present draft
        self._admitted: _Admitted | None = None  # those of the operations at hand

    # -- a draft of a version

    def begin(self, commands: Iterable[Command], now_us: int) -> DraftStart:
        """Begins a draft: obeys commands, and closes a round if it is over."""
        self._letters = Letters(self._settings)
        removed: dict[str, list[str]] = {}
        for command in commands:
            obey(self.guard, command)
            self._has_decided = True
            if command.command == "block":
                removed.setdefault(command.removes, []).append(command.user)
        closed = None
        if self.guard.is_due(now_us / 1e6):
            closed = self.guard.close_round(now_us / 1e6)
            self._has_decided = True
            removed.setdefault(self._settings.remove_queries, []).extend(closed.blocked)
        recent_us = now_us - int(AGES * self._settings.round_s * 1e6)
        since_us = {"recent": recent_us, "all": EVER_US}
        removals = [Removal(users, since_us[which]) for which, users in removed.items() if which in since_us and users]
        return DraftStart(removals, closed)

    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        """The operations of users who may pass, checked before anything else is read, so that refusing costs little."""
        if not len(operations):
            return operations
        passes = np.zeros(len(operations), np.bool_)
        if MALFORMED in operations.schema.names:  # unreadable rows: validation will report them
            passes = operations.column(MALFORMED).is_valid().to_numpy(zero_copy_only=False)
        chosen = self._rows_with_names(operations, np.flatnonzero(~passes), dead)
        users = operations.column("user").take(pa.array(chosen))
        admitted = self.guard.admits(users)
        if not admitted.all():
            self._letters.refuse_blocked(operations, chosen[~admitted], self.guard.blocked_users(), dead)
            chosen, users = chosen[admitted], users.filter(pa.array(admitted))
        coded = users.dictionary_encode()
        names = coded.dictionary
        verdicts = self.accounts.take(names, self._free(names), _codes(coded), now_us / 1e6)
        self._letters.refuse(operations, chosen, verdicts, np.zeros(len(chosen), np.int64), dead)
        passes[chosen[verdicts == FINE]] = True
        return operations if passes.all() else operations.filter(pa.array(passes))

    def admit(self, validated: ValidatedOperations, live: LiveSubscriptions, now_us: int, dead: DeadLetters) -> Bools:
        """Which of the valid operations may be carried out, by their owners and limits."""
        rows = validated.rows
        chosen = self._rows_with_paid_pasts(validated, np.flatnonzero(validated.fit), now_us, dead)
        taken = pa.array(chosen)
        users = rows.column("user").take(taken)
        ids, number = np.unique(np.asarray(rows.column("sub_id").take(taken), np.int64), return_inverse=True)
        coded = users.dictionary_encode()
        names = coded.dictionary
        asked = self._costs(validated, chosen)
        todo = UserOperations(operation_codes(rows.column("op").take(taken)), number, _codes(coded), asked)
        judged = self.accounts.judge(names, self._free(names), todo, live.held(ids, names))
        self._letters.refuse(rows, chosen, judged.verdicts, asked, dead)
        fine = judged.verdicts == FINE
        self._admitted = _Admitted(users.filter(pa.array(fine)), chosen[fine], judged.begins[fine], judged.ends[fine])
        admitted = np.zeros(len(rows), np.bool_)
        admitted[chosen[fine]] = True
        return admitted

    def count_done(self, refused: Ints, now_us: int) -> None:
        """Counts the admitted operations as carried out, except for the refused rows."""
        assert self._admitted is not None
        users, rows, begins, ends = self._admitted
        counted = ~np.isin(rows, refused) & (begins | ends)
        if counted.any():
            self.guard.count_operations(users.filter(pa.array(counted)), begins[counted], ends[counted], now_us / 1e6)
            self._has_counted = True

    def add_owned(self, owned: Owned) -> None:
        """Counts subscriptions that have come into force."""
        self.accounts.add(*owned, 1)

    def remove_owned(self, owned: Owned) -> None:
        self.accounts.add(*owned, -1)

    def close(self, dead: DeadLetters) -> None:
        """Completes the draft."""
        self._letters.close(dead)

    # -- what is worth a file

    @property
    def has_news(self) -> bool:
        """Whether Guard's memory must be written with the next version."""
        return self._has_decided or (self._has_counted and self.guard.users <= USERS_EXACT_MAX)

    def mark_kept(self) -> None:
        self._has_decided = self._has_counted = False

    # -- hotspots

    def sense(self, partition: Partition, live: LiveSubscriptions) -> None:
        """Reports to Guard the queries of a partition that has made the cluster rebalance."""
        grid = self._grid
        world_x, world_y = grid.xmax - grid.xmin, grid.ymax - grid.ymin
        width, height = world_x / grid.columns, world_y / grid.rows
        left, right = grid.xmin + partition.col0 * width, grid.xmin + (partition.col1 + 1) * width
        bottom, top = grid.ymax - (partition.row1 + 1) * height, grid.ymax - partition.row0 * height
        inside = live.queries(np.array([left, bottom, right, top]), is_middle=False)

        def around(place: MapPlace, reach: float) -> LiveQueries:
            x, y = grid.xmin + place[0] * world_x, grid.ymin + place[1] * world_y
            far_x, far_y = reach * world_x, reach * world_y
            return live.queries(np.array([x - far_x, y - far_y, x + far_x, y + far_y]), is_middle=True)

        if len(inside.users):
            sense(self.guard, inside, around)
            self._has_counted = True

    # -- who may pass

    def _rows_with_names(self, rows: pa.RecordBatch, chosen: Ints, dead: DeadLetters) -> Ints:
        """The rows, among those chosen, with a valid user name; the others become dead letters."""
        users = rows.column("user").take(pa.array(chosen))
        lengths = pc.binary_length(users).fill_null(0).to_numpy(zero_copy_only=False)
        nameless, limit = lengths == 0, self._settings.user_name_bytes_max
        if nameless.any():
            detail = "operation {op} of subscription {sub_id} has no user: send who asks, or turn Guard off"
            self._letters.turn_away(rows, chosen[nameless], dead, "no-user", detail)
        wrong = (lengths > limit) | ~is_text(users)
        if wrong.any():
            detail = f"the user's name of subscription {{sub_id}} is no text of at most {limit} bytes: use another"
            self._letters.turn_away(rows, chosen[wrong], dead, "user-name", detail)
        named: Ints = chosen[~nameless & ~wrong]
        return named

    def _rows_with_paid_pasts(
        self, validated: ValidatedOperations, chosen: Ints, now_us: int, dead: DeadLetters
    ) -> Ints:
        """The rows, among those chosen, without those whose user may not ask for the past any more: it counts as more
        operations, so whoever asks again and again is refused like one who is too fast."""
        puts = operation_codes(validated.rows.column("op").take(pa.array(chosen))) != CANCEL
        asks = chosen[puts & (validated[SINCE][chosen] != NEVER_US)]
        if not len(asks):
            return chosen
        coded = validated.rows.column("user").take(pa.array(asks)).dictionary_encode()
        names, settings = coded.dictionary, self._settings
        # The operation itself has been taken, and after a rest any past may be asked for.
        weights = np.minimum(past_operations(self._costs(validated, asks)), settings.user_operations_burst - 1)
        late = asks[self.accounts.take(names, self._free(names), _codes(coded), now_us / 1e6, weights) != FINE]
        if len(late):
            detail = "kept events for subscription {sub_id} count as more operations than user {user} may do now, "
            detail += f"{settings.user_operations_per_s:g} a second: send it later, or without since"
            self._letters.turn_away(validated.rows, late, dead, "user-rate", detail)
        return np.setdiff1d(chosen, late, assume_unique=True)

    def _costs(self, validated: ValidatedOperations, chosen: Ints) -> Ints:
        """What the subscriptions of some rows would cost, in thousandths."""
        region, where = validated[REGION], lengths_of(WHERE.take(validated[WHERE], chosen))
        listed = alternatives(validated[KEYWORDS], chosen) + alternatives(validated[OBJECTS], chosen)
        rects = np.nan_to_num(region.rects[chosen])  # a cancel has no sides
        counted = aggregate_costs(AGGREGATE.take(validated[AGGREGATE], chosen))
        return costs(area_shares(self._grid, rects), listed, region.vertex_counts()[chosen] + where, counted)

    def _free(self, names: pa.StringArray) -> Bools:
        """Which users have no limits."""
        exempt = pc.is_in(names, value_set=pa.array(self.guard.exempt_users(), pa.string()))
        return np.asarray(exempt.to_numpy(zero_copy_only=False), np.bool_)


def _codes(coded: pa.DictionaryArray) -> Ints:
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
