"""A running stream, on any runner: wait for its end, drain it, stop it."""

from typing import Protocol


class Run(Protocol):
    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; True if it has ended. Raises the error that ended it, if any."""

    def drain(self) -> None:
        """Wait until everything that was available at the call is processed."""

    def stop(self) -> None:
        """Let the current batch finish, unless it takes long, then stop."""

    @property
    def is_active(self) -> bool: ...
