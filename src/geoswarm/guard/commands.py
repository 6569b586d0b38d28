"""Commands of operators to Guard: block a user, unblock one, exempt one from all limits.

Files that carry commands from one process to another are in `store/guard_files.py`.
"""

from dataclasses import dataclass
from typing import get_args

from geoswarm.errors import InputError
from geoswarm.guard.guard import Guard
from geoswarm.guard.limits import Removes

COMMANDS = ("block", "unblock", "exempt", "unexempt")
WHY_CHARACTERS_MAX = 1000


@dataclass(frozen=True)
class Command:
    command: str
    user: str
    at_us: int
    """When the command was given, in microseconds since 1970."""
    why: str = ""
    removes: str = "nothing"
    """Which of the user's live queries a block cancels: nothing, recent or all."""

    def check(self) -> None:
        """Raises InputError if no engine could carry the command out."""
        if self.command not in COMMANDS:
            raise InputError(f"there is no command {self.command!r}: use one of {', '.join(COMMANDS)}")
        if self.removes not in get_args(Removes):
            raise InputError(f"{self.removes!r} cannot be removed: use one of {', '.join(get_args(Removes))}")
        if not self.user:
            raise InputError(f"{self.command} needs a user: give a name")
        for what, text in (("user", self.user), ("reason", self.why)):
            if not is_encodable(text):
                raise InputError(f"the {what} {text!r} is no Unicode text: give it in UTF-8")
        if len(self.why) > WHY_CHARACTERS_MAX:
            raise InputError(f"a reason of {len(self.why)} characters: use at most {WHY_CHARACTERS_MAX}")


def obey(guard: Guard, command: Command) -> None:
    user = command.user
    if command.command == "block":
        guard.block(user, command.why or "blocked by an operator", command.at_us / 1e6)
    elif command.command == "unblock":
        guard.unblock(user)
    elif command.command == "exempt":
        guard.exempt(user)
    else:
        guard.unexempt(user)


def is_encodable(text: str) -> bool:
    """Bytes of a command line that are no UTF-8 become lone surrogates, which neither Arrow nor a file takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
