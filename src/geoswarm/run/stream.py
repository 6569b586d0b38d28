"""A stream under way, whoever runs it: waited for, drained, stopped."""

from typing import Protocol


class Run(Protocol):
    def wait(self, timeout_s: float | None = None) -> bool:
        """True once it has ended. Raises what made it end, if that was an error."""

    def drain(self) -> None:
        """Return when everything that was there at the call has gone through."""

    def stop(self) -> None:
        """Let the batch under way finish, unless it takes long, then stop."""

    @property
    def is_active(self) -> bool: ...
