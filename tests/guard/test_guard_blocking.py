"""Who is blocked, and who is not, in a small world of users, cities and hotspots (`crowd.py`)."""

from typing import Any

import numpy as np
import pytest

from geoswarm.guard.guard import Guard
from geoswarm.guard.rules import PRINTED, GuardRules
from guard.crowd import World, attack, festival, normal


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def attackers(world: World) -> set[str]:
    return {name for party in world.parties for name in party.names if name.startswith("attacker")}


def second_malicious_round(world: World, start_round: int = 5) -> int:
    """Of the second hotspot in a city that the attackers chose, after they began."""
    seen = [number for number, _ in world.hot if number >= start_round]
    return seen[1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("users", "per_s"), [(10, 75.0), (10, 600.0), (1, 300.0), (50, 300.0)])
def test_all_attackers_are_blocked_soon_and_no_other_user(users: int, per_s: float, seed: int) -> None:
    attack_of = attack(users, per_s, stay_s=2 * 60_000 / per_s if per_s > 100 else 600.0, seed=seed)
    world = World([normal(rng(seed)), attack_of], Guard(seed=seed), seed).run(900.0)
    assert set(world.blocked) == attackers(world)
    assert max(world.blocked.values()) <= second_malicious_round(world) + 2


def test_attackers_who_let_queries_expire_are_blocked_at_the_third_place() -> None:
    party = attack(stay_s=180.0, goes=False)
    world = World([normal(rng(1)), party], Guard(), 1).run(1500.0)
    assert set(world.blocked) == attackers(world)
    assert min(world.blocked.values()) >= (300 + 2 * 180) // 60


@pytest.mark.parametrize("seed", range(4))
def test_on_a_calm_day_no_user_is_blocked(seed: int) -> None:
    world = World([normal(rng(seed))], Guard(seed=seed), seed).run(2400.0)
    assert len(world.hot) > 20
    assert world.blocked == {}


@pytest.mark.parametrize("guests", [10, 30, 100])
def test_at_a_festival_no_user_is_blocked(guests: int) -> None:
    party = festival([f"user{100 - i - 1}" for i in range(guests)])
    world = World([normal(rng(2)), party], Guard(), 2).run(1200.0)
    assert sum(city == 7 for _, city in world.hot) > 3
    assert world.blocked == {}


def test_guests_who_came_only_for_the_festival_are_not_blocked() -> None:
    party = festival([f"guest{i}" for i in range(20)])
    world = World([normal(rng(3)), party], Guard(), 3).run(1200.0)
    assert any(found.entry.suspicious_users for found in world.rounds)
    assert world.blocked == {}


def test_a_user_who_goes_from_one_festival_to_another_is_not_blocked() -> None:
    names = [f"guest{i}" for i in range(20)]
    parties = [festival(names, city=7), festival(names, start_s=1200.0, stop_s=1800.0, city=20)]
    world = World([normal(rng(4)), *parties], Guard(), 4).run(2100.0)
    assert {city for _, city in world.hot} >= {7, 20}
    assert world.blocked == {}


@pytest.mark.slow
def test_by_the_paper_guests_of_a_festival_are_blocked() -> None:
    """Why Guard differs from the paper."""
    party = festival([f"guest{i}" for i in range(20)])
    world = World([normal(rng(3)), party], Guard(PRINTED), 3).run(1200.0)
    assert any(user.startswith("guest") for user in world.blocked)


@pytest.mark.slow
def test_by_the_paper_the_attack_is_found_too() -> None:
    world = World([normal(rng(5), home_share=0.0), attack()], Guard(PRINTED), 5).run(1500.0)
    assert set(world.blocked) & attackers(world)


def test_an_attack_in_the_middle_of_a_festival_is_blocked_and_the_festival_is_not() -> None:
    crowd = festival([f"user{i}" for i in range(100)], per_s=150.0)
    world = World([normal(rng(6)), crowd, attack(per_s=300.0, start_s=420.0, stay_s=300.0)], Guard(), 6).run(1500.0)
    assert set(world.blocked) == attackers(world)


def test_blocked_users_cannot_operate_and_the_others_can() -> None:
    guard = Guard()
    world = World([normal(rng(1)), attack()], guard, 1).run(900.0)
    party = world.parties[1]
    before = party.live.sum()
    world.run(60.0)
    assert party.live.sum() == before
    assert world.parties[0].live[:, :, 0].sum() > 0


def test_a_user_who_is_alone_is_never_blocked() -> None:
    world = World([attack(1)], Guard(), 1).run(1500.0)
    assert len({city for _, city in world.hot}) > 2
    assert world.blocked == {}


def test_exempt_users_are_not_blocked_whatever_they_do() -> None:
    guard = Guard()
    guard.exempt("attacker3")
    world = World([normal(rng(1)), attack()], guard, 1).run(900.0)
    assert set(world.blocked) == attackers(world) - {"attacker3"}


def test_one_seed_gives_one_story() -> None:
    def story(seed: int) -> list[object]:
        world = World([normal(rng(1)), attack()], Guard(seed=seed), 1).run(900.0)
        return [found.entry for found in world.rounds]

    assert story(3) == story(3)


def test_an_entry_tells_why() -> None:

    world = World([normal(rng(1)), attack()], Guard(GuardRules(listed_max=4, **SMALL)), 1).run(900.0)
    entry = next(found.entry for found in world.rounds if found.blocked)
    assert entry.blocked_users == 10
    assert len(entry.blocked) == len(entry.features) == 4
    assert (entry.evidence.cancels_least or 0.0) > 0.5
    assert entry.evidence.hotspots
    (user, since_s, why) = world.guard.blocked_users()[0]
    assert user.startswith("attacker")
    assert since_s % 60 == 0
    assert "made hotspots" in why


SMALL: dict[str, Any] = {"hotspots_max": 64, "makers_max": 64, "users_max": 10_000}


def test_a_gang_in_a_sea_of_invented_names_is_still_blocked_and_the_sea_is_not() -> None:
    """Ten thousand names a round against a table of ten thousand: no user who matters is forgotten."""
    guard = Guard(GuardRules(**SMALL))
    world = World([normal(rng(1)), attack()], guard, 1)
    invented = iter(range(10**9))
    close = world._close

    def flood(now_s: float) -> None:
        import pyarrow as pa

        names = pa.array([f"nobody{next(invented)}" for _ in range(10_000)])
        guard.count_operations(names, np.ones(10_000, np.bool_), np.zeros(10_000, np.bool_), now_s - 1.0)
        close(now_s)

    world._close = flood  # type: ignore[method-assign]
    world.run(1200.0)
    assert world.rounds[-1].entry.users_driven_out > 50_000
    assert set(world.blocked) == attackers(world)
