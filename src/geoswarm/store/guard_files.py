"""Guard's files: its memory at each version, and the commands that operators give it.

`guard/door.py` decides; this file connects its decisions to the versions. Guard's memory lies in guard/, in a file that
the manifest names, so that it changes together with the version. A replay finds its version made, so nothing is counted
twice. What was sensed since the last version is lost with the process. After a draft that failed, `load` restores the
memory of the version in force.

Operators' commands are files in commands/ that wait for the next version. Any process may write one, whether an engine
runs or not. A command is written whole or not at all, and removed once a version that contains it is durable. That
version records the command's name, so that it is not applied again after a crash in between.
"""

import json
import uuid
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.partition import Partition
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.errors import CorruptState, InputError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.validate import ValidatedOperations
from geoswarm.guard.accounts import Accounts
from geoswarm.guard.commands import Command
from geoswarm.guard.door import GuardDoor, Removal
from geoswarm.guard.guard import Guard
from geoswarm.guard.limits import GuardSettings
from geoswarm.store.journal import Journal
from geoswarm.store.journal.entries import CommandEntry
from geoswarm.store.manifest import Manifest
from geoswarm.store.owners import OwnedSubscriptions, owners_in_segment, owners_of
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

GUARD_FOLDER = "guard"
COMMANDS_FOLDER = "commands"
WAITING_MAX = 10_000
"""The most commands that may wait; with more, no engine seems to be applying them."""


class GuardFiles:
    """The door of an engine, as `store/subscriptions/door_protocol.py` declares it, with its memory on disk."""

    door: GuardDoor

    def __init__(self, storage: Storage, grid: Grid, settings: GuardSettings, journal: Journal, seed: int) -> None:
        """Call `load` before any other method."""
        self._storage, self._grid, self._settings, self._journal = storage, grid, settings, journal
        self._seed = settings.seed if settings.seed is not None else seed
        self._is_written = False  # whether the draft has a file of its own
        self._taken: list[str] = []  # commands that are in the draft
        self._obeyed: list[str] = []  # commands in the version before it, whose files may still be there

    @property
    def guard(self) -> Guard:
        return self.door.guard

    @property
    def accounts(self) -> Accounts:
        return self.door.accounts

    def load(self, manifest: Manifest, view: View) -> None:
        """Read the memory of a version; what was counted since is forgotten."""
        guard = read_guard(self._storage, manifest, self._settings) or Guard(self._settings, self._seed)
        self._obeyed = read_obeyed(self._storage, manifest)
        self.door = GuardDoor(self._settings, self._grid, guard, self._live(view, manifest.now_us))

    def begin(self, now_us: int) -> list[Removal]:
        """Begin a draft. Returns which standing queries are to be cancelled."""
        found = waiting_commands(self._storage)
        for name in set(self._obeyed) & set(found):  # a crash came before they were removed
            clear_commands(self._storage, [name])
            del found[name]
        self._taken = list(found)
        begun = self.door.begin([command for command in found.values() if command is not None], now_us)
        for command in found.values():
            if command is None:
                self._journal.append(CommandEntry("none", why="a file in commands/ is damaged: give it again"))
            else:
                self._journal.append(CommandEntry.of(command))
        if begun.closed is not None:
            # Before the version is durable: a verdict without its reason would be worse than one that is written twice.
            self._journal.append(begun.closed.entry)
        return begun.removals

    def enter(self, operations: pa.RecordBatch, now_us: int, dead: DeadLetters) -> pa.RecordBatch:
        return self.door.enter(operations, now_us, dead)

    def admit(self, validated: ValidatedOperations, view: View, now_us: int, dead: DeadLetters) -> Bools:
        return self.door.admit(validated, self._live(view, now_us), now_us, dead)

    def done(self, refused: Ints, now_us: int) -> None:
        self.door.count_done(refused, now_us)

    def came(self, subs: Subs) -> None:
        self.door.add_owned(owners_of(self._grid, subs))

    def went(self, view: View, places: Ints) -> None:
        held = list(view.segments.values())
        for number in np.unique(places[0]):
            self.door.remove_owned(owners_in_segment(self._grid, held[number], places[1, places[0] == number]))

    def finish(self, draft: Manifest, dead: DeadLetters) -> Manifest:
        """Complete the draft: write Guard's memory to disk, before the manifest that names it."""
        self.door.close(dead)
        self._is_written = self.door.has_news or draft.guard is None
        if not self._is_written:
            return draft
        name = f"{draft.version:012d}-{draft.token[:8]}"
        parts = {"guard": self.guard.to_bytes(), "obeyed": json.dumps(self._taken).encode()}
        arrays = {part: np.frombuffer(data, np.uint8) for part, data in parts.items()}
        self._storage.write_arrays(f"{GUARD_FOLDER}/{name}", arrays)
        return replace(draft, guard=name)

    def confirm(self) -> None:
        """The manifest is durable: remove the commands that it contains."""
        if self._is_written:
            self.door.mark_kept()
        clear_commands(self._storage, self._taken)
        self._taken, self._obeyed = [], []

    def sense(self, partition: Partition, view: View, now_us: int) -> None:
        """Look at a partition that has made the cluster rebalance."""
        self.door.sense(partition, self._live(view, now_us))

    def _live(self, view: View, now_us: int) -> OwnedSubscriptions:
        return OwnedSubscriptions(self._grid, view, now_us)


def read_guard(storage: Storage, manifest: Manifest, settings: GuardSettings | None = None) -> Guard | None:
    """Guard's memory at a version; None if it was never on."""
    if manifest.guard is None:
        return None
    arrays = storage.map_arrays(f"{GUARD_FOLDER}/{manifest.guard}")
    return Guard.from_bytes(arrays["guard"].tobytes(), settings)


def read_obeyed(storage: Storage, manifest: Manifest) -> list[str]:
    """The names of the commands that a version contains."""
    if manifest.guard is None:
        return []
    arrays = storage.map_arrays(f"{GUARD_FOLDER}/{manifest.guard}")
    return list(json.loads(arrays["obeyed"].tobytes())) if "obeyed" in arrays else []


def collect_garbage(storage: Storage, used: set[str | None]) -> None:
    for name in storage.names(GUARD_FOLDER):
        if name not in used:
            storage.remove(f"{GUARD_FOLDER}/{name}")


def put_command(storage: Storage, command: Command) -> None:
    """Write a command to disk."""
    command.check()
    waiting = len(storage.names(COMMANDS_FOLDER))
    if waiting >= WAITING_MAX:
        raise InputError(f"{waiting} commands wait, the limit is {WAITING_MAX}: start an engine that has Guard on")
    name = f"{COMMANDS_FOLDER}/{command.at_us:020d}-{uuid.uuid4().hex[:8]}.json"
    storage.write_document(name, asdict(command), replace=False)


def waiting_commands(storage: Storage) -> dict[str, Command | None]:
    """The commands by file name, the oldest first; None where a file is damaged."""
    found: dict[str, Command | None] = {}
    for name in storage.names(COMMANDS_FOLDER):
        try:
            found[name] = Command(**storage.read_document(f"{COMMANDS_FOLDER}/{name}"))
        except (CorruptState, TypeError):
            found[name] = None  # it must not stop the stream
    return found


def clear_commands(storage: Storage, names: list[str]) -> None:
    for name in names:
        storage.remove(f"{COMMANDS_FOLDER}/{name}")
