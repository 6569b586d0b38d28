"""Guard in the engine: who may pass, what users have, and all of it as of each version.

Decides nothing (`guard/` does): here Guard meets operations, segments and files. Off unless asked for, because it may
refuse users.

    operations ──► `enter`: name? blocked? rate? ──► flow/validate.py ──► `admit`: owner? limits? ──► the store
                                ▲                                                                     │
    commands, a round is over ──┘ `begin`        features ◄── `done`, accounts ◄── `came`, `went` ◄───┘
                                                 hotspots ◄── `sense` ◄── a plan was applied

Guard's memory rests in guard/, in a file that the manifest names: a version and what Guard knew of it are one. A replay
finds its version made, so nothing is counted twice. Accounts are counted anew at a start, and what was sensed since
the last version is lost with the process. A draft that fails is forgotten by `load`. Thesis chapter 5.
"""

import json
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.subscriptions.columns import BIRTH, KEYWORDS, REGION, USER
from geoswarm.core.subscriptions.keywords import alternatives
from geoswarm.core.subscriptions.kinds import LONG_AGO_US
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.flow.dead_letters import MALFORMED, DeadLetters
from geoswarm.flow.validate import ValidatedOperations, codes_of_ops
from geoswarm.guard import accounts as judging
from geoswarm.guard.accounts import Accounts, Operations, SubscriptionFacts
from geoswarm.guard.guard import Guard
from geoswarm.guard.limits import GuardSettings, costs
from geoswarm.guard.sensing import Queries, sense
from geoswarm.guard.sensor import AGES, Place
from geoswarm.store import commands
from geoswarm.store.journal import Journal
from geoswarm.store.letters import Letters
from geoswarm.store.manifest import Manifest
from geoswarm.store.owners import areas, as_text, costs_at, is_text
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.view import Removal, View, find_live

FOLDER = "guard"
USERS_EXACT_MAX = 10_000
"""Known users up to whom every count is on disk with its version: about 1.5 MB. Beyond, counts of operations and
hotspots are written when a round is closed or an operator commands: a crash forgets those of a round, and no block."""


class Guarding:
    def __init__(self, storage: Storage, grid: Grid, settings: GuardSettings, journal: Journal, seed: int) -> None:
        self._storage, self._grid, self._settings, self._journal = storage, grid, settings, journal
        self._seed = settings.seed if settings.seed is not None else seed
        self.guard = Guard(settings, self._seed)
        self.accounts = Accounts(settings)
        self._decided, self._counted, self._written = True, False, False  # since the last file
        self._taken: list[str] = []  # commands that are in the draft
        self._obeyed: list[str] = []  # in the version before it, and perhaps still there
        self._letters = Letters(settings)  # of the draft
        self._judged: tuple[pa.StringArray, Ints, Bools, Bools] | None = None  # of the operations at hand

    def load(self, manifest: Manifest, view: View) -> None:
        """As of a version; what came since is forgotten."""
        self.guard = read_guard(self._storage, manifest, self._settings) or Guard(self._settings, self._seed)
        self._obeyed = read_obeyed(self._storage, manifest)
        self._decided, self._counted = manifest.guard is None, False
        self.accounts = Accounts(self._settings)
        for name, held in view.segments.items():
            live = np.flatnonzero(held.live(view.dead[name], manifest.now_us))
            users, paid = held[USER], costs_at(self._grid, held, live)
            self.accounts.add(users.names, users.codes[live].astype(np.int64), paid, 1)

    def begin(self, now_us: int) -> list[Removal]:
        """A draft begins: commands are taken in, and a round is closed if it is over. Returns which standing queries
        are to be cancelled."""
        self._letters = Letters(self._settings)
        removed: dict[str, list[str]] = {}
        found = commands.waiting(self._storage)
        for name in set(self._obeyed) & set(found):  # a crash came before they were removed
            commands.clear(self._storage, [name])
            del found[name]
        for command in found.values():
            self._obey(command)
            if command is not None and command.command == "block":
                removed.setdefault(command.removes, []).append(command.user)
        self._taken = list(found)
        if self.guard.is_due(now_us / 1e6):
            closed = self.guard.close_round(now_us / 1e6)
            # Before the version is durable: a verdict without its reason would be worse than one told twice.
            self._journal.append("guard", now_us=now_us, **closed.entry)
            self._decided = True
            removed.setdefault(self._settings.remove_queries, []).extend(closed.blocked)
        recent_us = now_us - int(AGES * self._settings.round_s * 1e6)
        since_us = {"recent": recent_us, "all": LONG_AGO_US}
        return [Removal(users, since_us[which]) for which, users in removed.items() if which in since_us and users]

    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        """Before anything is read of them: whoever is blocked, or in too great a hurry, costs next to nothing."""
        if not len(operations):
            return operations
        unread = np.zeros(len(operations), np.bool_)  # to be told so, and no more
        if MALFORMED in operations.schema.names:
            unread = operations.column(MALFORMED).is_valid().to_numpy(zero_copy_only=False)
        chosen = self._named(operations, np.flatnonzero(~unread), dead)
        users = operations.column("user").take(pa.array(chosen))
        admitted = self.guard.admits(users)
        if not admitted.all():
            self._letters.blocked(operations, chosen[~admitted], self.guard.blocked(), dead)
            chosen, users = chosen[admitted], users.filter(pa.array(admitted))
        coded = users.dictionary_encode()
        names = coded.dictionary
        verdicts = self.accounts.take(names, self._free(names), _codes(coded), now_us / 1e6)
        self._letters.judged(operations, chosen, verdicts, np.zeros(len(chosen), np.int64), dead)
        unread[chosen[verdicts == judging.FINE]] = True
        return operations if unread.all() else operations.filter(pa.array(unread))

    def admit(self, validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters) -> Bools:
        """Which of the fit operations may be carried out, as to who has what."""
        rows, chosen = validated.rows, np.flatnonzero(validated.fit)
        taken = pa.array(chosen)
        users = rows.column("user").take(taken)
        ids, number = np.unique(np.asarray(rows.column("sub_id").take(taken), np.int64), return_inverse=True)
        coded = users.dictionary_encode()
        names = coded.dictionary
        region, words = validated[REGION], alternatives(validated[KEYWORDS], chosen)
        rects = np.nan_to_num(region.rects[chosen])  # a cancel has no sides
        asked = costs(areas(self._grid, rects), words, region.vertex_counts()[chosen])
        todo = Operations(codes_of_ops(rows.column("op").take(taken)), number, _codes(coded), asked)
        judged = self.accounts.judge(names, self._free(names), todo, self._facts(view, ids, names, now_us))
        self._letters.judged(rows, chosen, judged.verdicts, asked, dead)
        fine = judged.verdicts == judging.FINE
        self._judged = users.filter(pa.array(fine)), chosen[fine], judged.begins[fine], judged.ends[fine]
        admitted = np.zeros(len(rows), np.bool_)
        admitted[chosen[fine]] = True
        return admitted

    def done(self, refused: Ints, now_us: int) -> None:
        """Those that were admitted have been carried out, all but some rows."""
        assert self._judged is not None
        users, rows, begins, ends = self._judged
        kept = ~np.isin(rows, refused) & (begins | ends)
        if kept.any():
            self.guard.operations(users.filter(pa.array(kept)), begins[kept], ends[kept], now_us / 1e6)
            self._counted = True

    def came(self, subs: Subs) -> None:
        users, region = subs[USER], subs[REGION]
        words = alternatives(subs[KEYWORDS], np.arange(len(subs)))
        codes = users.indices.to_numpy(zero_copy_only=False)
        paid = costs(areas(self._grid, region.rects), words, region.vertex_counts())
        self.accounts.add(users.dictionary, codes, paid, 1)

    def went(self, view: View, places: Ints) -> None:
        held = list(view.segments.values())
        for number in np.unique(places[0]):
            ordinals, segment = places[1, places[0] == number], held[number]
            paid = costs_at(self._grid, segment, ordinals)
            users = segment[USER]
            self.accounts.add(users.names, users.codes[ordinals].astype(np.int64), paid, -1)

    def finish(self, draft: Manifest, dead: DeadLetters) -> Manifest:
        """The draft is complete: what Guard knows is on disk before the manifest that names it."""
        self._letters.close(dead)
        exact = self._counted and self.guard.users <= USERS_EXACT_MAX
        self._written = self._decided or exact or draft.guard is None
        if not self._written:
            return draft
        name = f"{draft.version:012d}-{draft.token[:8]}"
        parts = {"guard": self.guard.to_bytes(), "obeyed": json.dumps(self._taken).encode()}
        arrays = {part: np.frombuffer(data, np.uint8) for part, data in parts.items()}
        self._storage.write_arrays(f"{FOLDER}/{name}", arrays)
        return replace(draft, guard=name)

    def adopted(self) -> None:
        """The manifest is durable."""
        if self._written:
            self._decided = self._counted = False
        commands.clear(self._storage, self._taken)
        self._taken, self._obeyed = [], []

    def sense(self, partition: Partition, view: View, now_us: int) -> None:
        """This partition has made the cluster rebalance."""
        grid = self._grid
        width, height = (grid.xmax - grid.xmin) / grid.columns, (grid.ymax - grid.ymin) / grid.rows
        left, right = grid.xmin + partition.col0 * width, grid.xmin + (partition.col1 + 1) * width
        bottom, top = grid.ymax - (partition.row1 + 1) * height, grid.ymax - partition.row0 * height
        inside = self._queries(view, now_us, np.array([left, bottom, right, top]), is_middle=False)

        def around(place: Place, reach: float) -> Queries:
            x, y = grid.xmin + place[0] * (grid.xmax - grid.xmin), grid.ymin + place[1] * (grid.ymax - grid.ymin)
            far_x, far_y = reach * (grid.xmax - grid.xmin), reach * (grid.ymax - grid.ymin)
            window = np.array([x - far_x, y - far_y, x + far_x, y + far_y])
            return self._queries(view, now_us, window, is_middle=True)

        if len(inside.users):
            sense(self.guard, inside, around)
            self._counted = True

    # -- commands

    def _obey(self, command: commands.Command | None) -> None:
        if command is None:
            self._journal.append("operator", command="none", why="a file in commands/ is damaged: give it again")
            return
        guard, user = self.guard, command.user
        if command.command == "block":
            guard.block(user, command.why or "blocked by an operator", command.at_us / 1e6)
        elif command.command == "unblock":
            guard.unblock(user)
        elif command.command == "exempt":
            guard.exempt(user)
        else:
            guard.unexempt(user)
        self._journal.append("operator", **asdict(command))
        self._decided = True

    # -- who may pass

    def _named(self, rows: pa.RecordBatch, chosen: Ints, dead: DeadLetters) -> Ints:
        """Those of some rows that say who asks."""
        users = rows.column("user").take(pa.array(chosen))
        lengths = pc.binary_length(users).fill_null(0).to_numpy(zero_copy_only=False)
        nameless, limit = lengths == 0, self._settings.user_name_bytes_max
        if nameless.any():
            detail = "operation {op} of subscription {sub_id} says no user: send who asks, or turn Guard off"
            self._letters.turn_away(rows, chosen[nameless], dead, "no-user", detail)
        wrong = (lengths > limit) | ~is_text(users)
        if wrong.any():
            detail = f"the user's name of subscription {{sub_id}} is no text of at most {limit} bytes: use another"
            self._letters.turn_away(rows, chosen[wrong], dead, "user-name", detail)
        named: Ints = chosen[~nameless & ~wrong]
        return named

    def _free(self, names: pa.StringArray) -> Bools:
        exempt = pc.is_in(names, value_set=pa.array(self.guard.exempted(), pa.string()))
        return np.asarray(exempt.to_numpy(zero_copy_only=False), np.bool_)

    def _facts(self, view: View, ids: Ints, names: pa.StringArray, now_us: int) -> SubscriptionFacts:
        places = find_live(view, ids, now_us)
        owner, cost = np.full(len(ids), judging.NOT_HERE, np.int64), np.zeros(len(ids), np.int64)
        for number, segment in enumerate(view.segments.values()):
            mine = np.flatnonzero(places[0] == number)
            if len(mine):
                ordinals = places[1, mine]
                users = segment[USER]
                known = pc.index_in(users.names, value_set=names).fill_null(judging.NOT_HERE)
                owner[mine] = known.to_numpy(zero_copy_only=False)[users.codes[ordinals]]
                cost[mine] = costs_at(self._grid, segment, ordinals)
        return SubscriptionFacts(places[0] >= 0, owner, cost)

    # -- what is live

    def _queries(self, view: View, now_us: int, window: Floats, *, is_middle: bool) -> Queries:
        """Live ones that meet a window, or whose middle lies in it."""
        grid, first = self._grid, 0
        users, names, born_s = [np.empty(0, np.int64)], [pa.array([], pa.string())], [np.empty(0)]
        rects = [np.empty((0, 4))]
        for name, held in view.segments.items():
            near = np.flatnonzero(_within(held.rects, window, is_middle))
            near = near[held.live_at(near, view.dead[name], now_us)]
            stored = held[USER]
            users.append(stored.codes[near].astype(np.int64) + first)
            names.append(as_text(stored.names))
            born_s.append(BIRTH.read(held[BIRTH], near) / 1e6)
            rects.append(held.rects[near])
            first += len(stored.names)
        found = np.concatenate(rects)
        x = ((found[:, 0] + found[:, 2]) / 2 - grid.xmin) / (grid.xmax - grid.xmin)
        y = ((found[:, 1] + found[:, 3]) / 2 - grid.ymin) / (grid.ymax - grid.ymin)
        return Queries(np.concatenate(users), pa.concat_arrays(names), np.concatenate(born_s), x, y)


def read_guard(storage: Storage, manifest: Manifest, settings: GuardSettings | None = None) -> Guard | None:
    """What Guard knew at a version; None: it was never on."""
    if manifest.guard is None:
        return None
    arrays = storage.map_arrays(f"{FOLDER}/{manifest.guard}")
    return Guard.from_bytes(arrays["guard"].tobytes(), settings)


def read_obeyed(storage: Storage, manifest: Manifest) -> list[str]:
    """The commands that a version took in."""
    if manifest.guard is None:
        return []
    arrays = storage.map_arrays(f"{FOLDER}/{manifest.guard}")
    return list(json.loads(arrays["obeyed"].tobytes())) if "obeyed" in arrays else []


def collect_garbage(storage: Storage, used: set[str | None]) -> None:
    for name in storage.names(FOLDER):
        if name not in used:
            storage.remove(f"{FOLDER}/{name}")


def _codes(coded: pa.DictionaryArray) -> Ints:
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)


@kernel
def _within(rects: Floats, window: Floats, is_middle: bool) -> Bools:
    met = np.zeros(len(rects), np.bool_)
    for i in range(len(rects)):
        if is_middle:
            x, y = (rects[i, 0] + rects[i, 2]) / 2, (rects[i, 1] + rects[i, 3]) / 2
            met[i] = window[0] <= x <= window[2] and window[1] <= y <= window[3]
        else:
            across = rects[i, 0] <= window[2] and rects[i, 2] >= window[0]
            met[i] = across and rects[i, 1] <= window[3] and rects[i, 3] >= window[1]
    return met
