"""`bench fences` at a tiny size, and what it says without a server."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoswarm.errors import MachineError, StreamError
from geoswarm.lab.bench.engine import fences
from geoswarm.lab.bench.engine.fence_contestants import OnTile38, Told
from geoswarm.lab.bench.engine.fence_worlds import World, alert_keys
from geoswarm.lab.bench.kit import tile38
from geoswarm.lab.bench.kit.tile38 import END, PEERS_VARIABLE, PROGRAM, Subscriber, Tile38, encode, find_server

SUBSCRIBED = b"*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n"
TINY = fences.FenceSizes((3_000,), (), 200, 4_000, 2_000, 1.0, 2, 500, 2.5)


def silent(what: str) -> None: ...


@pytest.mark.slow
def test_tile38_and_the_local_engine_report_the_same_alerts(
    peers_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEERS_VARIABLE, str(peers_folder))
    monkeypatch.setattr(fences, "STANDARD", 3_000)  # where delays are measured
    result = fences.measure(TINY, 0, silent)
    assert [(row["fences"], row["engine"]) for row in result.rows] == [(3_000, "tile38"), (3_000, "local")]
    assert result.rows[1]["alerts_per_move"] > 0.01
    assert result.rows[1]["moves"] == 4_000
    assert all(value > 0 for value in result.summary.values())
    assert {"vs_tile38_3k", "cpu_vs_tile38_3k", "mb_3k", "tile38_mb_3k", "local_p99_ms"} <= set(result.summary)
    assert len(fences.plot(result).axes) == 1


def test_without_a_server_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PEERS_VARIABLE, raising=False)
    with pytest.raises(MachineError, match=r"set GEOSWARM_PEERS to a folder that holds tile38-server"):
        fences.measure(TINY, 0, silent)
    monkeypatch.setenv(PEERS_VARIABLE, str(tmp_path))
    with pytest.raises(MachineError, match=r"has neither tile38-server nor tile38-server\.xz"):
        find_server()


def told(*alerts: int, moves: int = 10) -> Told:
    return Told(1.0, moves, np.array(alerts), 1.0)


def test_alerts_that_differ_end_it_unless_one_was_given_fewer_moves() -> None:
    first, second, late = (int(alert_keys(*map(np.array, ([7], [1], [n])))[0]) for n in (0, 3, 9))
    same: Any = {"tile38": [told(first, second, moves=5)], "local": [told(first, second, late)]}
    fences.check_alerts(same)
    with pytest.raises(StreamError, match=r"local reports 1 alerts, and tile38 2; 1 are not of both"):
        fences.check_alerts({"tile38": [told(first, second)], "local": [told(second)]})
    with pytest.raises(StreamError, match="has no alerts"):
        fences.check_alerts({"tile38": [told()], "local": [told()]})


def test_moves_are_small_and_fences_lie_over_each_other() -> None:
    world = World.of(2_000, 3)
    moves = world.moves(100, 1_000, 0, 3)
    assert len(moves) == 1_000
    assert len(moves.x) == 1_100
    steps = np.abs(moves.x[100:] - moves.x[:-100])
    assert 0 < np.median(steps) < 0.1 * (world.rects[0, 2] - world.rects[0, 0])
    assert moves.events(100, 300, 500)["object_id"].to_pylist()[:2] == [500, 501]
    assert moves.commands(100, 101, 500)[0].split(b"\r\n")[6] == b"500"


def test_a_million_fences_have_a_tenth_of_the_moves() -> None:
    few, many = TINY.among(1_000), TINY.among(1_000_000)
    assert few == TINY
    assert (many.objects, many.moves, many.batch) == (20, 400, 200)


def test_moves_of_one_object_are_not_divided_among_connections() -> None:
    world = World.of(100, 3)
    with pytest.raises(AssertionError, match="the moves of 6 objects are divided among 4 connections"):
        OnTile38(world, 1.0).run(world.moves(6, 60, 2, 3), 2)


@pytest.mark.parametrize("why", [StreamError("refused"), KeyboardInterrupt()])
def test_a_server_that_was_not_given_all_fences_is_closed(monkeypatch: pytest.MonkeyPatch, why: BaseException) -> None:
    contestant, closed = OnTile38(World.of(100, 3), 1.0), list[bool]()

    def refuse() -> None:
        raise why

    monkeypatch.setattr(Tile38, "_start", lambda server, program: None)
    monkeypatch.setattr(tile38, "find_server", Path)
    monkeypatch.setattr(tile38, "_unpack", lambda found, folder: found)
    monkeypatch.setattr(contestant._server, "connect", refuse)
    monkeypatch.setattr(contestant._server, "close", lambda: closed.append(True))
    with pytest.raises(type(why)):
        contestant.__enter__()
    assert closed


def answering(pieces: Sequence[bytes], pause_s: float) -> int:
    """The port of a server that waits before each piece of its answer to the first command, and then says no more."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1024)
            for piece in pieces:
                time.sleep(pause_s)
                connection.sendall(piece)
            connection.recv(1024)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def test_the_last_message_may_come_in_pieces() -> None:
    told = b'{"command":"set","detect":"enter","hook":"7","id":"3","object":{"type":"Point","coordinates":[2.5,1.5]}}'
    channel, note = encode("pmessage", "*", "7", ""), b"$%d\r\n%s\r\n" % (len(told), told)
    last = encode("pmessage", "*", END, END)
    cut = last.index(END.encode()) + len(END) + 4
    pieces = [SUBSCRIBED, channel.removesuffix(b"$0\r\n\r\n") + note + last[:cut], last[cut : cut + 5], last[cut + 5 :]]
    subscriber = Subscriber(answering(pieces, 0.05))
    subscriber.wait()
    assert [(note.channel, note.detect, note.lon) for note in subscriber.notifications()] == [("7", "enter", 2.5)]


def test_a_server_of_somebody_else_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PROGRAM).write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv(PEERS_VARIABLE, str(tmp_path))
    port = answering([b'$11\r\n{"ok":true}\r\n$10\r\n{"pid":12,}\r\n'], 0.0)
    monkeypatch.setattr(tile38, "free_ports", lambda many: [port])
    with pytest.raises(MachineError, match=rf"another server has taken port {port} meanwhile: start again"), Tile38():
        pass


def test_a_server_that_ends_as_it_starts_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / PROGRAM).write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv(PEERS_VARIABLE, str(tmp_path))
    with pytest.raises(MachineError, match="ended with code 3 as it started on port"), Tile38():
        pass


HARNESS = """
import subprocess, time
from geoswarm.lab.crash.servers import ending_with_parent
print(subprocess.Popen(ending_with_parent(["sleep", "300"])).pid, flush=True)
time.sleep(300)
"""


@pytest.mark.slow
def test_a_server_ends_with_the_process_that_started_it_even_if_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HARNESS], stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        assert wait_for(lambda: state_of(pid)[0] == "(sleep)"), "setpriv has become the program"
        harness.kill()
    assert wait_for(lambda: state_of(pid)[1] in ("gone", "Z"))


def state_of(pid: int) -> list[str]:
    """The program, and whether it runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[1:3]
    except OSError:
        return ["", "gone"]


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    until_s = time.monotonic() + seconds
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.02)
    return condition()
