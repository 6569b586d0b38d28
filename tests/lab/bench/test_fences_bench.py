"""`bench fences` at a tiny size, and what it says without a server."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoswarm.errors import MachineError, StreamError
from geoswarm.lab.bench.engine import fences
from geoswarm.lab.bench.engine.fence_contestants import Told
from geoswarm.lab.bench.engine.fence_worlds import World, alert_keys
from geoswarm.lab.bench.kit.tile38 import PEERS_VARIABLE, find_server

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
