"""What a harness needs to start a server of others beside itself: free ports, and a command that ends with it.

For one process each; those of an engine and its workers are watched by `processes.py`.
"""

import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack


def ending_with_parent(command: Sequence[str]) -> list[str]:
    """The command as the kernel kills it when the thread that starts it ends, also by SIGKILL of its process. Without
    `setpriv` it is the command itself."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


def free_ports(many: int) -> list[int]:
    """Ports of loopback that nobody has now; another process may take one before it is used."""
    with ExitStack() as closing:  # all are open at once, so that they differ
        probes = [closing.enter_context(socket.socket()) for _ in range(many)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
