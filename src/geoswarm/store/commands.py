"""What operators ask of Guard, as files that wait for the next version: from any process, whether an engine runs.

A command is written whole or not at all, and removed once a version that has taken it in is durable. That version has
its name, so that nobody takes it in again after a crash in between (`guarding.py`).
"""

import uuid
from dataclasses import asdict, dataclass
from typing import get_args

from geoswarm.errors import CorruptState, InputError
from geoswarm.guard.limits import Removes
from geoswarm.store.storage import Storage

FOLDER = "commands"
COMMANDS = ("block", "unblock", "exempt", "unexempt")
WHY_CHARACTERS_MAX = 1000
WAITING_MAX = 10_000
"""Files that wait; beyond, nobody seems to take them in."""


@dataclass(frozen=True)
class Command:
    command: str
    user: str
    at_us: int
    """When it was given, microseconds since 1970."""
    why: str = ""
    removes: str = "nothing"
    """Which of the user's standing queries a block cancels: nothing, recent or all."""


def put(storage: Storage, command: Command) -> None:
    """On disk when it returns."""
    if command.command not in COMMANDS:
        raise InputError(f"there is no command {command.command!r}: use one of {', '.join(COMMANDS)}")
    if command.removes not in get_args(Removes):
        raise InputError(f"{command.removes!r} cannot be removed: use one of {', '.join(get_args(Removes))}")
    if not command.user:
        raise InputError(f"{command.command} needs a user: nobody without a name can be meant")
    for what, text in (("user", command.user), ("reason", command.why)):
        if not is_encodable(text):
            raise InputError(f"the {what} {text!r} is no Unicode text: give it in UTF-8")
    if len(command.why) > WHY_CHARACTERS_MAX:
        raise InputError(f"a reason of {len(command.why)} characters: use at most {WHY_CHARACTERS_MAX}")
    waiting = len(storage.names(FOLDER))
    if waiting >= WAITING_MAX:
        raise InputError(f"{waiting} commands wait, the limit is {WAITING_MAX}: start an engine that has Guard on")
    name = f"{FOLDER}/{command.at_us:020d}-{uuid.uuid4().hex[:8]}.json"
    storage.write_document(name, asdict(command), replace=False)


def is_encodable(text: str) -> bool:
    """Bytes of a command line that are no UTF-8 become lone surrogates, which neither Arrow nor a file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def waiting(storage: Storage) -> dict[str, Command | None]:
    """By file name, the oldest first; None where a file is damaged."""
    found: dict[str, Command | None] = {}
    for name in storage.names(FOLDER):
        try:
            found[name] = Command(**storage.read_document(f"{FOLDER}/{name}"))
        except (CorruptState, TypeError):
            found[name] = None  # it must not stop the stream
    return found


def clear(storage: Storage, names: list[str]) -> None:
    for name in names:
        storage.remove(f"{FOLDER}/{name}")
