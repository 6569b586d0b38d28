"""What Guard keeps: names within a limit, blocks that survive a restart, and nothing that a flood of names can turn."""

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.errors import CorruptState, InputError
from geoswarm.guard.guard import Guard
from geoswarm.guard.names import NAME_BYTES_MAX, short_name
from geoswarm.guard.rules import GuardRules
from geoswarm.guard.sensor import HotspotSummary, summarise_hotspot
from guard.crowd import World, attack, normal

SMALL = GuardRules(users_max=100, hotspots_max=5, makers_max=10)


def register(guard: Guard, names: list[str | None], now_s: float = 0.0, times: int = 1) -> None:
    users = pa.array(names * times, pa.string())
    guard.count_operations(users, np.ones(len(users), np.bool_), np.zeros(len(users), np.bool_), now_s)


def test_a_user_has_one_number_and_a_missing_user_has_none() -> None:
    guard = Guard()
    first = guard.codes(pa.array(["ann", "ben", None, "ann"]))
    assert first.tolist() == [first[0], first[1], -1, first[0]]
    assert guard.codes(pa.chunked_array([["ben"], ["cem"]]))[0] == first[1]
    assert len(guard.codes(pa.array([], pa.string()))) == 0


def test_no_more_users_are_known_than_there_is_room_for() -> None:
    guard = Guard(SMALL)
    register(guard, [f"nobody{i}" for i in range(5000)])
    assert len(guard._names) == 100
    codes = guard.codes(pa.array([f"more{i}" for i in range(300)]))
    assert (codes >= 0).sum() == 100
    assert codes.max() < 100


def test_those_who_have_been_silent_for_long_make_room_first() -> None:
    guard = Guard(SMALL)
    register(guard, [f"silent{i}" for i in range(50)])
    for minute in range(1, 40):
        register(guard, [f"busy{i}" for i in range(50)], minute * 60.0 - 1)
        guard.close_round(minute * 60.0)
    register(guard, [f"new{i}" for i in range(50)], 40 * 60.0)
    assert all(guard._names.code(f"busy{i}") >= 0 for i in range(50))
    assert guard.close_round(41 * 60.0).entry.users_driven_out == 0


def test_a_flood_of_names_drives_out_its_own_before_those_who_were_there() -> None:
    guard = Guard(SMALL)
    for minute in range(1, 8):
        register(guard, [f"user{i}" for i in range(50)], minute * 60.0 - 1)
        guard.close_round(minute * 60.0)
    for batch in range(20):
        register(guard, [f"nobody{batch}-{i}" for i in range(40)], 480.0)
    assert all(guard._names.code(f"user{i}") >= 0 for i in range(50))


def test_who_made_a_hotspot_cannot_hide_behind_a_flood_of_names() -> None:
    guard = Guard(SMALL)
    register(guard, ["culprit"], times=50)
    register(guard, ["other1", "other2", "other3"])
    code = guard.codes(pa.array(["culprit"]))
    guard.add_hotspot(summarise_hotspot(np.repeat(code, 50), np.zeros(50, np.int64)))
    guard.close_round(60.0)
    for batch in range(20):
        register(guard, [f"nobody{batch}-{i}" for i in range(100)], 70.0)
    assert guard.codes(pa.array(["culprit"])) == code
    assert guard._features.close_round().raw[:, 5].max() >= 25


def test_a_name_of_a_megabyte_takes_little_room_and_is_still_one_name() -> None:
    guard = Guard()
    long = "x" * 1_000_000
    assert short_name("x" * NAME_BYTES_MAX) == "x" * NAME_BYTES_MAX
    register(guard, [long, long + "y"])
    assert len(guard._names) == 2
    assert len(guard.to_bytes()) < 10_000
    guard.block(long, "too long", 0.0)
    assert guard.admits(pa.array([long, long + "y", None, "x"])).tolist() == [False, True, True, True]


def test_operators_block_unblock_and_exempt() -> None:
    guard = Guard()
    users = pa.array(["ann", "ben"])
    guard.block("ann", "asked to", 7.0)
    assert guard.blocked_users() == [("ann", 7.0, "asked to")]
    assert guard.admits(users).tolist() == [False, True]
    assert guard.unblock("ann")
    assert not guard.unblock("ann")
    guard.block("ben", "by mistake", 8.0)
    guard.exempt("ben")
    assert guard.admits(users).all()
    assert guard.exempt_users() == ["ben"]
    assert guard.unexempt("ben")
    assert guard.exempt_users() == []


def test_an_unblocked_user_begins_with_a_clean_slate() -> None:
    guard = Guard()
    world = World([normal(np.random.default_rng(1)), attack()], guard, 1).run(600.0)
    assert "attacker0" in world.blocked
    guard.unblock("attacker0")
    assert guard._names.code("attacker0") == -1


def test_the_oldest_block_is_lifted_when_there_are_too_many_but_no_operators() -> None:
    guard = Guard(GuardRules(blocked_max=6))
    guard.block("spammer", "by hand", 0.0)
    world = World([normal(np.random.default_rng(1)), attack()], guard, 1).run(600.0)
    assert len(guard.blocked_users()) == 6
    assert guard.blocked_users()[0][0] == "spammer"
    blocks = 1 + sum(found.entry.blocked_users for found in world.rounds)
    assert sum(len(found.entry.lifted) for found in world.rounds) == blocks - 6 > 0


def test_after_a_restart_the_story_goes_on_as_if_there_had_been_none() -> None:
    def story(restarts: bool) -> list[object]:
        world = World([normal(np.random.default_rng(1)), attack(stay_s=120.0)], Guard(seed=4), 1)
        rounds: list[object] = []
        close = world._close

        def restart(now_s: float) -> None:
            close(now_s)
            rounds.append(world.rounds[-1])
            if restarts:
                world.guard = Guard.from_bytes(world.guard.to_bytes())

        world._close = restart  # type: ignore[method-assign]
        world.run(600.0)
        assert world.blocked
        return [*rounds, world.guard.blocked_users()]

    assert story(True) == story(False)


def test_bytes_that_are_not_guards_are_refused() -> None:
    whole = Guard().to_bytes()
    for broken in (b"", b"nonsense", whole[: len(whole) // 2]):
        with pytest.raises(CorruptState, match="start without"):
            Guard.from_bytes(broken)


def test_moments_belong_to_rounds_as_they_were_closed() -> None:
    guard = Guard()
    assert not guard.is_due(100.0)
    assert not guard.is_due(159.0)
    assert guard.is_due(160.0)
    guard.close_round(172.0)  # late
    assert guard.round == 1
    assert [guard.round_at(at) for at in (100.0, 171.9, 172.0, 500.0)] == [0, 0, 1, 1]
    assert guard.round - guard.round_at(-1e9) > guard.rules.ages
    guard.close_round(172.0 + 200.0)  # no detection for three rounds
    assert guard.round == 4
    assert [guard.round_at(at) for at in (180.0, 240.0, 300.0, 372.0)] == [1, 2, 3, 4]


def test_what_does_not_fit_together_is_refused() -> None:
    guard = Guard()
    with pytest.raises(InputError, match="one per operation"):
        guard.count_operations(pa.array(["a"]), np.ones(2, np.bool_), np.zeros(1, np.bool_), 0.0)
    with pytest.raises(InputError, match="no time"):
        guard.is_due(float("nan"))
    with pytest.raises(InputError, match="ask `Guard"):
        guard.add_hotspot(HotspotSummary(np.array([10**6]), np.ones((1, 6), np.int64)))
    with pytest.raises(InputError, match="summarise"):
        guard.add_hotspot(HotspotSummary(np.array([0]), np.ones((1, 5), np.int64)))


def test_a_suspicion_is_not_inherited_by_the_next_user_of_the_row() -> None:
    guard = Guard(SMALL)
    register(guard, ["eve"])
    code = guard.codes(pa.array(["eve"]))
    guard._detector._since = np.full(100, -1)
    guard._detector._until = np.full(100, -1)
    guard._detector._since[code], guard._detector._until[code] = 0, 30
    assert guard.suspects() == ["eve"]
    register(guard, [f"nobody{i}" for i in range(100)], 1.0)
    assert guard._names.code("eve") < 0
    assert guard.suspects() == []


def test_who_gets_which_row_is_the_same_after_a_restart() -> None:
    guard = Guard(SMALL)
    register(guard, [f"user{i}" for i in range(20)])
    guard._forget(np.array([7, 3, 11]))
    again = Guard.from_bytes(guard.to_bytes(), SMALL)
    newcomers = pa.array(["x", "y", "z", "w"])
    assert guard.codes(newcomers).tolist() == again.codes(newcomers).tolist()
