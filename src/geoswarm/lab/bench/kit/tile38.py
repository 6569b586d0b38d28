"""A real Tile38 server, and as much of its protocol as tests and benchmarks speak: one process, on loopback only.

No client for applications. Commands are encoded before the clock runs, and replies and notifications are taken as
bytes, so that the client costs the server's core little. The server is not part of the project: `GEOSWARM_PEERS` names
a folder that holds `tile38-server`, or `tile38-server.xz`, which is unpacked. Its data are gone with it.
"""

import json
import lzma
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from geoswarm.errors import MachineError, StreamError
from geoswarm.lab.crash.servers import ending_with_parent, free_ports

PEERS_VARIABLE = "GEOSWARM_PEERS"
PROGRAM = "tile38-server"
START_S_MAX = 30.0
STOP_S_MAX = 10.0
REPLY_S_MAX = 120.0
"""Seconds until the next bytes of a reply, or of a notification that is still to come."""
RECEIVE_BYTES = 1 << 20
END = "the-end"
"""The channel that says that all notifications before it have been received, and all that is said on it."""
_LAST_BYTES = b"$%d\r\n%s\r\n" % (len(END), END.encode()) * 2
"""How the last message ends: its channel, and what is said."""


def find_server() -> Path:
    """The program, or its packed form."""
    named = os.environ.get(PEERS_VARIABLE)
    if not named:
        raise MachineError(
            f"no {PROGRAM} is known: set {PEERS_VARIABLE} to a folder that holds {PROGRAM} or {PROGRAM}.xz"
        )
    for name in (PROGRAM, f"{PROGRAM}.xz"):
        if (Path(named) / name).is_file():
            return Path(named) / name
    raise MachineError(
        f"{named}, which {PEERS_VARIABLE} names, has neither {PROGRAM} nor {PROGRAM}.xz: put one there, or name another"
    )


def encode(*words: str | float) -> bytes:
    """A command as the protocol of Redis has it; floats keep all their digits."""
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Connection:
    """Commands and their replies, one after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), REPLY_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, *words: str | float) -> bytes:
        """The first line of the reply."""
        return self.send(encode(*words), 1)

    def send(self, commands: bytes, replies: int) -> bytes:
        """Send commands whose replies have one line each, and wait for so many of them; returns the last bytes."""
        self._socket.sendall(commands)
        got = b""
        while replies > 0:
            got = self.receive()
            if got.startswith(b"-") or b"\n-" in got:
                raise StreamError(f"Tile38 refuses a command: {got[got.index(b'-') :].splitlines()[0].decode()}")
            replies -= got.count(b"\n")
        return got

    def subscribe(self) -> None:
        """To all channels; `receive` gives their notifications from now on."""
        self._socket.sendall(encode("PSUBSCRIBE", "*"))
        self.receive()

    def receive(self) -> bytes:
        got = self._socket.recv(RECEIVE_BYTES)
        if not got:
            raise StreamError("Tile38 has closed the connection: see whether it still runs")
        return got

    def close(self) -> None:
        self._socket.close()


class Notification(NamedTuple):
    channel: str
    detect: str
    """What the object did, or for a deleted object the command."""
    object_id: str
    lon: float
    lat: float
    """Where the event lies; that, and the object, name it."""
    number: int
    """The field `number` of the object, or 0, which Tile38 does not tell from none."""
    at_s: float
    """When it was received, in seconds since 1970."""


class Subscriber:
    """Takes all notifications, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._connection.subscribe()
        self._got = list[tuple[float, bytes]]()
        self._is_whole = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = b""
        while not self._is_whole:
            try:
                got = self._connection.receive()
            except (OSError, StreamError):
                return  # `wait` finds that the end is missing
            self._got.append((time.time(), got))
            last = last[-len(_LAST_BYTES) :] + got
            self._is_whole = _LAST_BYTES in last

    def wait(self) -> None:
        """Until everything has come that was told before `END` was published."""
        self._thread.join(REPLY_S_MAX)
        self._connection.close()
        if not self._is_whole:
            raise StreamError(f"the last of Tile38's notifications did not come within {REPLY_S_MAX:.0f} s")

    def notifications(self) -> Iterator[Notification]:
        """In the order in which they came."""
        ends, end = list[tuple[int, float]](), 0
        for at_s, got in self._got:
            end += len(got)
            ends.append((end, at_s))
        text, chunk = b"".join(got for _, got in self._got), 0
        for place, words in _messages(text):
            while ends[chunk][0] < place:
                chunk += 1
            told = json.loads(words) if words.startswith(b"{") else {}
            if told:
                lon, lat = (told.get("object") or {"coordinates": (0.0, 0.0)})["coordinates"][:2]
                detect = told.get("detect", told["command"])
                number = int(told.get("fields", {}).get("number", 0))
                yield Notification(told["hook"], detect, told["id"], lon, lat, number, ends[chunk][1])


def _messages(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The last part of each array of the protocol, and where it ends."""
    at = 0
    while at < len(text):
        line_end = text.index(b"\r\n", at)
        parts, at = int(text[at + 1 : line_end]), line_end + 2
        part = b""
        for _ in range(parts):
            line_end = text.index(b"\r\n", at)
            if text[at : at + 1] == b"$":
                size = int(text[at + 1 : line_end])
                part, at = text[line_end + 2 : line_end + 2 + size], line_end + size + 4
            else:
                part, at = text[at:line_end], line_end + 2
        yield at, part


class Tile38:
    """A server."""

    def __init__(self, *, is_durable: bool = False) -> None:
        """With `is_durable` it writes every command to its log, flushed to disk once a second, as it does unless told
        otherwise."""
        self._is_durable = is_durable
        self._folder = Path(tempfile.mkdtemp(prefix="geoswarm-tile38-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        try:
            self._start(_unpack(find_server(), self._folder))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it has been started"
        return self._process.pid

    def connect(self) -> Connection:
        return Connection(self.port)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S_MAX)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, program: Path) -> None:
        (self.port,) = free_ports(1)
        durable = "yes" if self._is_durable else "no"
        words = ["-h", "127.0.0.1", "-p", str(self.port), "-d", str(self._folder / "data"), "-q"]
        self._process = subprocess.Popen(
            ending_with_parent([str(program), *words, "--appendonly", durable, "--http-transport", "no"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        gives_up_s = time.monotonic() + START_S_MAX
        while time.monotonic() < gives_up_s and self._process.poll() is None:
            try:
                connection = self.connect()
            except OSError:
                time.sleep(0.02)
                continue
            with closing(connection):
                told = connection.send(encode("OUTPUT", "json") + encode("SERVER"), 4)
            if f'"pid":{self._process.pid},'.encode() not in told:
                raise MachineError(f"another server has taken port {self.port} meanwhile: start again")
            return
        if self._process.poll() is not None:
            code = self._process.returncode
            raise MachineError(f"{PROGRAM} ended with code {code} as it started on port {self.port}: try it by hand")
        raise MachineError(f"{PROGRAM} did not answer on port {self.port} within {START_S_MAX:.0f} s: try it by hand")


def _unpack(found: Path, folder: Path) -> Path:
    program = folder / PROGRAM
    with lzma.open(found) if found.suffix == ".xz" else found.open("rb") as packed, program.open("wb") as out:
        shutil.copyfileobj(packed, out)
    program.chmod(0o755)
    return program


def batched(commands: Sequence[bytes], depth: int) -> Iterable[tuple[bytes, int]]:
    """Commands as they are pipelined, `depth` in a piece: bytes, and how many replies they have."""
    for first in range(0, len(commands), depth):
        part = commands[first : first + depth]
        yield b"".join(part), len(part)


def fence(channel: str, key: str, detect: str, *area: Any) -> bytes:
    """SETCHAN of a fence about objects whose point is in an area, such as BOUNDS south west north east."""
    return encode("SETCHAN", channel, "INTERSECTS", key, "FENCE", "DETECT", detect, *area)
