"""`bench noise` at a tiny size, and its judgement by hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from geoswarm.lab.bench.engine import noise
from geoswarm.lab.workload.moves import DEGREE_M, SHIPS_FILE, drive_taxis, real_ships
from geoswarm.lab.workload.real_posts import FOLDER_VARIABLE

KEY = (1, 2, "enter")


def silent(what: str) -> None: ...


def test_confirmed_alerts_of_taxis_have_fewer_false_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    result = noise.measure(noise.NoiseSizes(12, 900.0, 5, 20), 0, silent)
    assert len(result.rows) == 12
    assert all(row["true"] > 20 for row in result.rows)
    for metres in ("5m", "20m", "50m"):
        plain, *others = (result.summary[f"false_per_true_{metres}{rule}"] for rule in ("_plain", "_confirm", ""))
        assert max(others) < plain
    assert 0 <= result.summary["missed_20m"] < 0.6
    assert len(noise.plot(result).axes) == 1


def test_without_noise_every_alert_is_true() -> None:
    moves = drive_taxis(5, 600.0, 2.0, np.random.default_rng(1))
    fences = noise.draw_fences(moves, 20, np.random.default_rng(2))
    truth = noise.find_alerts(moves, fences, {noise.PLAIN: {}})[noise.PLAIN]
    judged = noise.judge(truth, truth, 0.0, 1.0)
    assert judged["true"] > 10
    assert (judged["false"], judged["missed"], judged["late_s"]) == (0, 0.0, 0.0)


def test_an_alert_is_true_once_and_near_its_time() -> None:
    judged = noise.judge({KEY: [100.0, 200.0]}, {KEY: [90.0, 95.0, 130.0, 215.0], (9, 2, "enter"): [100.0]}, 20.0, 1.0)
    assert (judged["true"], judged["false"], judged["missed"]) == (2, 3, 0.0)
    assert judged["late_s"] == 2.5
    assert noise.judge({KEY: [100.0]}, {}, 20.0, 1.0)["missed"] == 1.0


def test_what_is_short_may_be_missed() -> None:
    truth = {KEY: [100.0, 200.0, 300.0], (1, 2, "exit"): [110.0, 290.0]}
    assert noise.find_lasting(truth, 60.0) == {(KEY, 200.0)}
    judged = noise.judge(truth, {KEY: [300.0]}, 20.0, 60.0)
    assert (judged["missed"], judged["missed_lasting"]) == (0.8, 1.0)
    assert noise.judge(truth, {KEY: [202.0]}, 20.0, 60.0)["missed_lasting"] == 0.0


def test_taxis_keep_to_their_streets_and_noise_has_its_size() -> None:
    moves = drive_taxis(20, 600.0, 5.0, np.random.default_rng(3))
    assert np.all(np.diff(moves.ts_us) >= 0)
    assert len(moves.objects) == 20 * 120
    one = moves.objects == 7
    steps_m = (
        np.hypot(np.diff(moves.lon[one]) * np.cos(np.radians(moves.lat[one][1:])), np.diff(moves.lat[one])) * DEGREE_M
    )
    assert 20.0 < steps_m.max() < 71.0
    off_m = (moves.blur(20.0, np.random.default_rng(4)).lat - moves.lat) * DEGREE_M
    assert 19.0 < off_m.std() < 21.0


def test_real_ships_are_read(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_folder / SHIPS_FILE).is_file():
        pytest.skip(f"no {SHIPS_FILE} in {data_folder}")
    monkeypatch.setitem(os.environ, FOLDER_VARIABLE, str(data_folder))
    moves = real_ships(3, np.random.default_rng(0))
    assert len(np.unique(moves.objects)) == 3
    assert len(moves.lon) > 1000
    assert np.all(np.diff(moves.ts_us) >= 0)
