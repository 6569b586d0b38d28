"""An attack on the balancing of the real engine, without Spark: the gang is blocked, no other user, and it stays so."""

import os
import signal
from pathlib import Path

import pytest

from attacked import GANG, NORMAL, SETTINGS, AttackedEngine
from geoswarm.guard.commands import Command
from geoswarm.guard.findings import DetectionEntry
from geoswarm.guard.guard import Guard
from geoswarm.guard.limits import GuardSettings
from geoswarm.service.users import overview, user_record, user_sentences
from geoswarm.store import dead_files
from geoswarm.store.guard_files import put_command
from geoswarm.store.journal import JournalReader

pytestmark = pytest.mark.slow

CALM, TOGETHER = 12, 40


def guard_of(world: AttackedEngine) -> Guard:
    assert world.held.guarding is not None
    return world.held.guarding.guard


def until_blocked(world: AttackedEngine) -> None:
    for b in range(TOGETHER):
        world.step(attacks=b >= CALM)
        if world.blocked():
            return
    pytest.fail(f"no user is blocked after {TOGETHER} batches")


def test_a_gang_that_steers_the_balancing_is_blocked_and_no_other_user(tmp_path: Path) -> None:
    world = AttackedEngine(tmp_path, SETTINGS.model_copy(update={"remove_queries": "nothing"}))
    until_blocked(world)
    result = world.step()
    assert world.blocked() == set(GANG)
    assert result.manifest.refused >= 30 * len(GANG)
    letters = [row for part in dead_files.read(world.held.storage) for row in part.to_pylist()]
    assert {(row["kind"], row["reason"]) for row in letters} == {("operation", "blocked")}
    assert "made hotspots" in letters[0]["detail"]
    world.close()
    record = user_record(world.held.storage, GANG[0])
    lines = list(user_sentences(record))
    assert lines[0].startswith("mallory0 is blocked since 2023-11-14T")
    assert lines[0].endswith("and has 150 live subscriptions")
    assert any("suspected with 4 others" in line for line in lines)
    assert any("blocked with 4 others" in line for line in lines)
    assert any(line.startswith("  hotspot ") and "at (" in line for line in lines)
    assert any("asked for" in line and "(others" in line for line in lines)
    calm = list(user_sentences(user_record(world.held.storage, NORMAL[0])))
    assert calm[0] == "user0 is neither blocked nor suspected, and has 30 live subscriptions"
    assert "was suspicious in none of them" in calm[1]
    found = overview(world.held.storage, 3)
    assert {row["user"] for row in found["users"] if row["state"] == "blocked"} == set(GANG)
    assert found["users_all"] == len(GANG) + len(NORMAL)


def test_features_suspicions_and_blocks_survive_restarts_as_of_the_version(tmp_path: Path) -> None:
    world = AttackedEngine(tmp_path)
    known: list[object] = []
    while not known and world.batches < TOGETHER:
        world.step(attacks=world.batches >= CALM)
        known = list(guard_of(world).suspects())
    asked, number = guard_of(world).busiest(50), guard_of(world).round
    world.close()
    world.open()
    assert guard_of(world).suspects() == known == sorted(GANG)
    assert (guard_of(world).busiest(50), guard_of(world).round) == (asked, number)
    while not world.blocked() and world.batches < 2 * TOGETHER:
        world.step()
    assert world.blocked() == set(GANG)
    world.close()
    world.open()
    assert world.blocked() == set(GANG)
    assert world.step().manifest.refused >= 30 * len(GANG)
    rounds = [entry.round for entry in JournalReader(world.held.storage).read(DetectionEntry)]
    assert rounds == list(range(len(rounds))), "each round was closed once"
    world.close()


def test_blocks_survive_a_kill_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    world = AttackedEngine(tmp_path)
    until_blocked(world)
    world.close()
    child = os.fork()
    if child == 0:  # prepares a batch, and is killed before it has run
        world.open()
        put_command(world.held.storage, Command("block", "user0", world.now_us, "by hand"))
        rows = world.traffic.operations(world.batches, attacks=True)
        world.held.prepare(world.batches, lambda: [rows], world.now_us)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    world.open()
    assert world.blocked() == {*GANG, "user0"}
    version, refused = world.held.manifest.version, world.held.manifest.refused
    assert refused >= 30 * len(GANG)
    fixed = world.held.prepare(world.batches, lambda: pytest.fail("asked again"), world.now_us)
    assert (fixed.version, fixed.refused) == (version, refused)
    world.close()


def test_an_exempt_user_is_never_blocked(tmp_path: Path) -> None:
    world = AttackedEngine(tmp_path)
    put_command(world.held.storage, Command("exempt", GANG[0], 0))
    until_blocked(world)
    for _ in range(8):
        world.step()
    assert world.blocked() <= set(GANG[1:])
    assert world.blocked()
    world.close()


def test_an_unblocked_user_may_register_again_and_nothing_is_held_against_them(tmp_path: Path) -> None:
    world = AttackedEngine(tmp_path)
    until_blocked(world)
    for user in GANG:
        put_command(world.held.storage, Command("unblock", user, 0))
    assert world.step(attacks=False).manifest.refused == 0
    for _ in range(4):
        world.step(attacks=False)
    assert world.blocked() == set()
    world.close()


@pytest.mark.parametrize("settings", [SETTINGS, SETTINGS.model_copy(update={"remove_queries": "all"})])
def test_the_queries_of_a_blocked_user_are_removed(tmp_path: Path, settings: GuardSettings) -> None:
    world = AttackedEngine(tmp_path, settings)
    until_blocked(world)
    assert world.held.guarding is not None
    assert [world.held.guarding.accounts.read(user)[0] for user in GANG] == [0] * len(GANG)
    assert len(world.held.live_rects()) <= 30 * len(NORMAL)
    world.close()
