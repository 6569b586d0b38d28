"""Normal users, crowds and attackers: who does what when, again and again the same, and the number of queries stays."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import SettingsError
from geoswarm.lab.workload.attack import Attackers, Extra, Poisoners, flash_crowd, most_crowded, slow_drip
from geoswarm.lab.workload.crowds import Commuters, Gathering, NormalUsers, skew_of
from geoswarm.lab.workload.hotspots import Hotspot, Hotspots
from geoswarm.lab.workload.traffic import Party, Traffic
from geoswarm.lab.workload.tweets import Tweets

BOUNDS = (-125.0, 24.0, -66.0, 50.0)
STREAM = Tweets(seed=3, country="US", bounds=BOUNDS, events_per_s=500.0)
NORMAL = NormalUsers(STREAM, queries=9000, changes_per_s=60.0)
ATTACK = Attackers(STREAM, queries=1000, changes_per_s=60.0, start_s=60.0)
PARTIES: list[Party] = [
    NORMAL,
    ATTACK,
    replace(ATTACK, rename_s=30.0, names_max=25),
    Extra(NORMAL, 1000, 30.0, 60.0),
    Poisoners(STREAM, 500, 10.0, 60.0),
    slow_drip(STREAM, 30.0, queries=1000),
    flash_crowd(STREAM, (0.5, 0.5), 30.0, users=50, queries=300),
    Gathering(STREAM, (0.2, 0.3), 20.0, 40.0, 300, stay_s=60.0),
    Commuters(STREAM, (0.2, 0.3), 20.0, 100.0, 300),
]


@pytest.mark.parametrize("party", PARTIES, ids=lambda p: type(p).__name__)
def test_a_stretch_of_time_gives_the_same_operations_however_it_is_cut(party: Party) -> None:
    traffic = Traffic(STREAM, (NORMAL, party))
    whole = traffic.operations(0.0, 180.0)
    cuts = [0.0, 17.3, 60.0, 61.0, 100.0, 180.0]
    parts = [traffic.operations(a, b) for a, b in pairwise(cuts)]
    assert whole.num_rows > 10_000
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(whole)


@pytest.mark.parametrize("party", PARTIES, ids=lambda p: type(p).__name__)
def test_only_what_is_live_is_cancelled_and_by_the_user_who_registered_it(party: Party) -> None:
    traffic = Traffic(STREAM, (party,))
    live = {row["sub_id"]: row["user"] for row in traffic.standing().to_pylist()}
    rows = traffic.operations(0.0, 400.0).to_pylist()
    assert {row["op"] for row in rows} >= {"register"}
    for row in rows:
        if row["op"] == "register":
            assert row["sub_id"] not in live
            live[row["sub_id"]] = row["user"]
            assert BOUNDS[0] <= row["xmin"] < row["xmax"] <= BOUNDS[2]
            assert BOUNDS[1] <= row["ymin"] < row["ymax"] <= BOUNDS[3]
        else:
            assert live.pop(row["sub_id"]) == row["user"]


def test_normal_users_and_attackers_keep_the_number_of_queries() -> None:
    traffic = Traffic(STREAM, (NORMAL, ATTACK))
    assert traffic.standing().num_rows == 10_000
    came = [pa.compute.equal(traffic.operations(t, t + 60.0).column("op"), "register") for t in (0.0, 60.0, 600.0)]
    for registers in came:
        assert abs(2 * pa.compute.sum(registers).as_py() - len(registers)) <= 2


def test_four_fifths_of_the_activity_come_from_a_fifth_of_the_users() -> None:
    rows = NORMAL.changes(0.0, 3000.0)
    counts = np.sort(np.bincount(rows.users, minlength=100))[::-1]
    assert counts[:20].sum() / counts.sum() == pytest.approx(0.8, abs=0.01)
    assert counts.min() > 0
    assert skew_of(100) == pytest.approx(1.215, abs=0.01)


def test_normal_users_have_homes() -> None:
    def columns_of_a_user(home_share: float) -> int:
        standing = replace(NORMAL, home_share=home_share).standing()
        return len(np.unique((standing.x[standing.users == 5] * 2).astype(int)))  # half degrees

    assert columns_of_a_user(1.0) <= 3 * 5  # three homes, each 1.8 degrees wide
    assert columns_of_a_user(0.0) > 2 * columns_of_a_user(1.0)
    assert columns_of_a_user(1.0) < columns_of_a_user(0.5) < columns_of_a_user(0.0)


def test_attackers_are_equally_active_and_go_from_one_crowded_place_to_the_next() -> None:
    each = np.bincount(ATTACK.changes(0.0, 600.0).users, minlength=10)
    assert each.min() > 0.85 * each.mean()
    move_s = 1000 * 2 / 60.0
    side = 59.0 * ATTACK.side_share
    targets = [ATTACK.target_of(i) for i in range(4)]
    for i, (x, y) in enumerate(targets):
        start_s = 60.0 + i * move_s
        done = ATTACK.changes(start_s + 0.1, start_s + move_s - 0.1)
        new = done.registers
        assert np.abs(done.x[new] - x).max() <= side / 2 + 1e-9
        assert np.abs(done.y[new] - y).max() <= side / 2 + 1e-9
    assert len({(round(x, 1), round(y, 1)) for x, y in targets}) == 4
    stream = Tweets(seed=3, country="US", bounds=BOUNDS, events_per_s=5000.0)
    posts = stream.events(0, 50_000)
    px, py = posts.column("x").to_numpy(), posts.column("y").to_numpy()
    hit = [((np.abs(px - x) < side * 5) & (np.abs(py - y) < side * 5)).mean() for x, y in targets]
    anywhere = [
        ((np.abs(px - x) < side * 5) & (np.abs(py - y) < side * 5)).mean()
        for x, y in zip(px[:200], py[:200], strict=True)
    ]
    assert np.mean(hit) > np.mean(anywhere)


def test_nothing_happens_before_an_attack_or_after_it() -> None:
    party = replace(ATTACK, stop_s=120.0)
    assert len(party.changes(0.0, 60.0).ids) == 0
    assert len(party.changes(60.0, 120.0).ids) == 3600
    assert len(party.changes(120.0, 500.0).ids) == 0


def test_rotating_attackers_register_under_new_names_and_run_out_of_a_pool() -> None:
    rotating = replace(ATTACK, rename_s=30.0)
    first, later = (set(rotating.changes(a, a + 29.0).users[::2]) for a in (60.0, 91.0))
    assert len(first) == len(later) == 10
    assert not first & later
    pool = replace(rotating, names_max=25)
    assert set(pool.changes(60.0, 600.0).users) == set(range(25))
    assert pool.names(np.array([0, 24])).to_pylist() == ["attacker0", "attacker24"]


def test_poisoners_do_one_thing_each() -> None:
    done = Poisoners(STREAM, 500, 10.0, 60.0).changes(0.0, 100.0)
    assert done.registers.all()
    assert np.array_equal(np.sort(done.users), np.arange(500))


def test_a_mimic_is_many_users_with_few_queries_at_one_place_once() -> None:
    done = flash_crowd(STREAM, (0.5, 0.5), 30.0, users=50, queries=300).changes(0.0, 700.0)
    new = done.registers
    assert np.bincount(done.users[new]).tolist() == [6] * 50
    assert done.at_s[new].max() < 150.0
    assert np.ptp(done.x[new]) < 1.0


def test_extra_activity_is_that_of_the_normal_users_in_the_same_world_until_it_starts() -> None:
    extra = Extra(NORMAL, 1000, 60.0, 60.0)
    assert np.array_equal(extra.standing().x, ATTACK.standing().x)
    assert len(extra.changes(0.0, 60.0).ids) == 0
    more = extra.changes(60.0, 120.0)
    assert len(more.ids) == 3600
    assert set(extra.names(more.users).to_pylist()) <= set(NORMAL.names(np.arange(100)).to_pylist())


def test_commuters_leave_the_centre_for_the_suburbs() -> None:
    party = Commuters(STREAM, (0.5, 0.5), 20.0, 100.0, 300)
    before, after = party.standing(), party.changes(0.0, 200.0)
    assert np.ptp(after.x[after.registers]) > 4 * np.ptp(before.x)
    assert after.registers.sum() == (~after.registers).sum() == 300


def test_attackers_also_see_a_hotspot_of_the_stream() -> None:
    spot = Hotspot((0.5, 0.5), 0.0, 1000.0, 0, intensity="step", peak_share=0.9, side_share=0.002)
    x, y = replace(ATTACK, stream=Hotspots(STREAM, (spot,)), places=1).target_of(3)
    assert (x, y) == pytest.approx((-95.5, 37.0), abs=0.1)


def test_crowded_places_are_apart() -> None:
    points = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [5.0, 5.0], [5.1, 5.0], [9.0, 9.0]])
    assert most_crowded(points, np.array([1.0, 1.0]), 2).tolist() == [0, 3]
    assert most_crowded(points, np.array([1.0, 1.0]), 9).tolist() == [0, 3, 5]


def test_no_attackers_no_queries_and_too_few_names_are_refused() -> None:
    with pytest.raises(SettingsError, match="attack nothing"):
        replace(ATTACK, users=0)
    with pytest.raises(SettingsError, match="at least one"):
        replace(ATTACK, names_max=5)
    with pytest.raises(SettingsError, match="no crowd"):
        replace(NORMAL, queries=0)
    with pytest.raises(SettingsError, match="no share"):
        replace(NORMAL, home_share=1.5)
