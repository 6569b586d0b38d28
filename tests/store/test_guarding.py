"""Guard before the store: who passes, who owns what, limits from the first batch on, and commands from elsewhere."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import BIRTH, OPERATION
from geoswarm.core.subscriptions.kinds import LONG_AGO_US
from geoswarm.errors import InputError
from geoswarm.guard import door, limits
from geoswarm.guard.commands import Command
from geoswarm.guard.limits import GuardSettings
from geoswarm.guard.rules import GuardRules
from geoswarm.model import TIMESTAMP
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.store import dead_files
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.guard_files import COMMANDS_FOLDER, put_command
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import CommandEntry
from stepped import SteppedEngine
from worlds import BOUNDS, events, operations, with_keywords, with_shapes

WORLD = Contract(columns=30, rows=20, executors=4)
NOW_US = 1_700_000_000_000_000
BOX = {"xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}


def open_checkpoint(folder: Path, **settings: Any) -> Checkpoint:
    return Checkpoint(str(folder), WORLD, Tuning(deltas_max=3), guard=GuardSettings(seed=1, **settings))


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=OPERATION)


def register(sub_id: int, user: str | None, **more: Any) -> dict[str, Any]:
    return {"op": "register", "sub_id": sub_id, "user": user, **BOX, **more}


def cancel(sub_id: int, user: str | None) -> dict[str, Any]:
    return {"op": "cancel", "sub_id": sub_id, "user": user}


def many_registers(n: int, users: list[str], first: int = 0) -> pa.Table:
    sides = {name: np.full(n, value) for name, value in BOX.items()}
    return pa.table({"op": ["register"] * n, "sub_id": np.arange(first, first + n), "user": users, **sides})


class Batches:
    """One after another, each a second after the one before."""

    def __init__(self, held: Checkpoint) -> None:
        self.held, self.number = held, -1

    def run(self, *rows: dict[str, Any], seconds: float | None = None) -> list[tuple[str, str]]:
        return self.run_table(table(*rows), seconds)

    def run_table(self, rows: pa.Table, seconds: float | None = None) -> list[tuple[str, str]]:
        """Reasons and details of what was turned away."""
        self.number += 1
        now_us = NOW_US + int((self.number if seconds is None else seconds) * 1e6)
        self.held.prepare(self.number, lambda: [rows], now_us)
        self.held.finish(self.number)
        return self.letters(self.held.manifest.version)

    def letters(self, version: int) -> list[tuple[str, str]]:
        folder = dead_files.folder_of(dead_files.OPERATIONS, version).rpartition("/")[2]
        if folder not in self.held.storage.folders(dead_files.DEAD_FOLDER):
            return []
        rows = [row for part in dead_files.read(self.held.storage) for row in part.to_pylist()]
        return [(row["reason"], row["detail"]) for row in rows if row["batch_id"] == self.number]


@pytest.fixture
def batches(tmp_path: Path) -> Any:
    held = open_checkpoint(tmp_path / "state")
    yield Batches(held)
    held.close()


def count_live(held: Checkpoint) -> int:
    return len(held.live_rects())


def read_account(held: Checkpoint, user: str) -> tuple[int, float]:
    assert held.guarding is not None
    return held.guarding.accounts.read(user)


def test_an_operation_without_a_user_is_refused_and_says_what_to_do(batches: Batches) -> None:
    assert batches.run(register(1, None), register(2, ""), register(3, "ana")) == [
        ("no-user", "operation register of subscription 1 has no user: send who asks, or turn Guard off"),
        ("no-user", "operation register of subscription 2 has no user: send who asks, or turn Guard off"),
    ]
    assert count_live(batches.held) == 1
    assert batches.held.manifest.refused == 2


def test_a_name_that_is_too_long_or_no_text_is_refused_and_the_stream_goes_on(batches: Batches) -> None:
    rows = table(register(1, "a" * 201), register(2, "x"), register(3, "ana"))
    raw = pa.array([b"a" * 201, b"\xff\xfe", b"ana"]).cast(pa.binary())
    users = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    rows = rows.set_column(rows.schema.get_field_index("user"), "user", users)
    assert [reason for reason, _ in batches.run_table(rows)] == ["user-name"] * 2
    assert count_live(batches.held) == 1


def test_no_user_can_cancel_or_replace_the_subscription_of_another(batches: Batches) -> None:
    batches.run(register(1, "ana"))
    refused = batches.run(cancel(1, "ben"), {**register(1, "ben"), "op": "replace"})
    assert refused == [("not-owner", "subscription 1 is not ben's: only who has it may change it")] * 2
    assert batches.run(cancel(1, "ana"), register(1, "ben"), cancel(1, "ana")) == [
        ("not-owner", "subscription 1 is not ana's: only who has it may change it")
    ]
    assert (read_account(batches.held, "ana")[0], read_account(batches.held, "ben")[0]) == (0, 1)


def test_limits_hold_in_the_very_first_batch_in_the_order_of_arrival(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_operations_per_s=2.0, user_operations_burst=3)
    batches = Batches(held)
    refused = batches.run(*(register(i, "ana") for i in range(5)), register(9, "ben"))
    assert [reason for reason, _ in refused] == ["user-rate"] * 2
    assert refused[0][1].startswith(
        "user ana may do 2 operations a second, 3 at once after a rest: send this one later"
    )
    assert sorted(held.live_rects().shape) == [4, 4]
    assert len(batches.run(*(register(10 + i, "ana") for i in range(5)))) == 3, "two more after a second"
    assert len(batches.run(*(register(20 + i, "ana") for i in range(5)), seconds=60)) == 2, "three after a rest"
    held.close()


def test_a_user_has_so_many_subscriptions_and_room_again_after_a_cancel_or_an_expiry(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_subscriptions_max=3)
    batches, soon = Batches(held), pa.scalar(NOW_US + 1_500_000, pa.int64()).cast(TIMESTAMP).as_py()
    refused = batches.run(register(1, "ana", expires=soon), *(register(i, "ana") for i in (2, 3, 4)))
    limit = "user ana has 3 live subscriptions, as many as one user may"
    assert refused == [("user-subscriptions", f"{limit}: cancel some, or have an operator exempt the user")]
    assert len(batches.run(register(4, "ana"), cancel(2, "ana"), register(5, "ana"))) == 1, "the cancel came later"
    assert batches.run(register(6, "ana")) == [], "number 1 has expired"
    assert [reason for reason, _ in batches.run(register(7, "ana"))] == ["user-subscriptions"]
    assert read_account(held, "ana")[0] == count_live(held) == 3
    held.close()
    again = open_checkpoint(tmp_path, user_subscriptions_max=3)
    assert read_account(again, "ana")[0] == 3, "counted anew at the start"
    again.close()


def test_large_regions_many_vertices_and_many_words_cost_more(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_cost_max=1100.0)
    batches = Batches(held)
    world = {"xmin": -180.0, "ymin": -90.0, "xmax": 180.0, "ymax": 90.0}
    assert batches.run(register(1, "ana", **world)) == []
    assert read_account(held, "ana") == (1, 1001.0)
    refused = batches.run(register(2, "ana", **world), register(3, "ana"), register(4, "ben"))
    assert [reason for reason, _ in refused] == ["user-cost"]
    assert "subscription 2 costs 1001, with which user ana would exceed 1100" in refused[0][1]
    batches.run(
        {"op": "register", "sub_id": 5, "user": "çağ", "keywords": "flood OR fire OR (dam AND river)"},
        {"op": "register", "sub_id": 6, "user": "dan", "geometry": b"POLYGON((0 0, 9 0, 9 9, 0 9, 0 0))"},
    )
    assert read_account(held, "çağ") == (1, 1 + 3 + limits.AREA_COST_WORDED)
    assert read_account(held, "dan")[1] == pytest.approx(1 + 5 / 100 + 1000 * 81 / (360 * 180), abs=0.001)
    held.close()


def test_an_aggregate_is_charged_while_it_is_live(tmp_path: Path) -> None:
    batches = Batches(open_checkpoint(tmp_path / "state", user_cost_max=60.0))
    heavy = {"aggregate": "quantile(v, 0.5)", "window": "sliding(5 min, 1 min)"}
    assert batches.run(register(1, "ana", **heavy)) == []
    number, cost = read_account(batches.held, "ana")
    assert (number, round(cost - 50)) == (1, 1)
    ((reason, detail),) = batches.run(register(2, "ana", **heavy))
    assert reason == "user-cost"
    assert "ana" in detail
    again = register(1, "ana", aggregate="count", window="tumbling(60 s)") | {"op": "replace"}
    assert batches.run(again, register(2, "ana", **heavy)) == []
    assert round(read_account(batches.held, "ana")[1]) == 53
    assert batches.run(cancel(1, "ana"), cancel(2, "ana")) == []
    assert read_account(batches.held, "ana") == (0, 0.0)
    batches.held.close()


def test_what_an_operator_loads_passes_unasked_counts_and_is_of_long_ago(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_operations_burst=200, user_subscriptions_max=5)
    held.take_in(many_registers(300, ["ana"] * 300), NOW_US, {"file": 300})
    assert held.manifest.refused == 0
    assert read_account(held, "ana")[0] == 300
    assert {int(b) for s in held._view.segments.values() for b in s[BIRTH]} == {LONG_AGO_US}
    assert [reason for reason, _ in Batches(held).run(register(999, "ana"))] == ["user-subscriptions"]
    held.take_in(table({"op": "cancel", "sub_id": 0}), NOW_US, {"mending": 1})
    assert read_account(held, "ana")[0] == 299
    held.close()


def test_a_subscription_keeps_its_birth_through_merges_and_a_replacement_is_born_anew(batches: Batches) -> None:
    for i in range(8):  # more deltas than may be
        batches.run(register(i, "ana"))
    batches.run({**register(2, "ana"), "op": "replace"})
    held = batches.held
    births = {
        int(i): int(b)
        for name, s in held._view.segments.items()
        for i, b, alive in zip(
            s.ids,
            BIRTH.read(s[BIRTH], np.arange(len(s.ids))),
            s.live(held._view.dead[name], held.manifest.now_us),
            strict=True,
        )
        if alive
    }
    assert len(held.manifest.segments) < 8
    assert births == {i: NOW_US + (8 if i == 2 else i) * 1_000_000 for i in range(8)}


def test_without_guard_nothing_is_refused_or_noted_and_blocks_wait(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path)
    put_command(held.storage, Command("block", "ana", NOW_US, "spam"))
    assert [reason for reason, _ in Batches(held).run(register(1, "ana"))] == ["blocked"]
    held.close()
    plain = Checkpoint(str(tmp_path), WORLD, Tuning())
    plain.prepare(1, lambda: [table(register(1, "ana"), register(2, None))], NOW_US + 1)
    assert plain.manifest.refused == 0
    assert [s[BIRTH].tolist() for s in plain._view.segments.values()] == [[LONG_AGO_US]]
    plain.close()
    again = open_checkpoint(tmp_path)
    assert again.guarding is not None
    assert [user for user, _, _ in again.guarding.guard.blocked_users()] == ["ana"]
    again.close()


def test_with_guard_on_and_no_user_refused_the_matches_are_the_oracles(tmp_path: Path) -> None:
    rng, oracle = np.random.default_rng(5), Oracle(BOUNDS)
    engine = SteppedEngine(tmp_path, WORLD, guard=GuardRules(round_s=1e-5))
    for b in range(12):
        batch, storm = pa.table(events(rng, 200, first_id=200 * b)), operations(rng, 80, ids=100, now_us=10 * b)
        storm = with_keywords(rng, with_shapes(rng, storm), 0.3)
        one = pa.array(["ana"] * len(storm), pa.string())  # all of one user, who may change everything
        storm = storm.set_column(storm.schema.get_field_index("user"), "user", one)
        oracle.operate(storm, 10 * b)
        result = engine.batch(b, batch, storm, 10 * b)
        assert sorted(result.pairs) == sorted(oracle.match(batch, 10 * b))
        assert read_account(engine.checkpoint, "ana")[0] == count_live(engine.checkpoint)
    kept = read_account(engine.checkpoint, "ana")
    engine.close()
    again = SteppedEngine(tmp_path, WORLD, guard=GuardRules())
    assert read_account(again.checkpoint, "ana") == kept, "what was added and taken is what there is"
    assert kept[0] > 20
    again.close()


def test_a_replayed_batch_counts_once(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_operations_per_s=1.0, user_operations_burst=4)
    batches = Batches(held)
    batches.run(*(register(i, "ana") for i in range(3)))
    guard = held.storage.names("guard")
    asked = held.guarding.guard.busiest(1) if held.guarding else []
    held.prepare(0, lambda: [table(register(7, "ana"))], NOW_US + 9)
    assert held.storage.names("guard") == guard
    assert held.guarding is not None
    assert held.guarding.guard.busiest(1) == asked == [("ana", 3.0)]
    held.close()
    again = open_checkpoint(tmp_path)
    again.prepare(0, lambda: [table(register(7, "ana"))], NOW_US + 9)
    assert again.guarding is not None
    assert again.guarding.guard.busiest(1) == [("ana", 3.0)]
    again.close()


def test_a_batch_that_fails_leaves_no_trace_in_accounts_or_guard(batches: Batches) -> None:
    batches.run(register(1, "ana"))
    held = batches.held

    def failing() -> Any:
        yield table(register(2, "ana"), register(3, "ana"))
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="source"):
        held.prepare(1, failing, NOW_US + 1_000_000)
    assert held.guarding is not None
    assert read_account(held, "ana")[0] == 1
    assert held.guarding.guard.busiest(1) == [("ana", 1.0)]
    assert batches.run(register(2, "ana")) == []
    assert held.guarding.guard.busiest(1) == [("ana", 2.0)]


def test_where_nothing_has_changed_guards_file_stays(batches: Batches) -> None:
    batches.run(register(1, "ana"))
    name = batches.held.manifest.guard
    batches.run()
    assert batches.held.manifest.guard == name
    batches.run(register(2, "ana"))
    assert batches.held.manifest.guard != name
    assert name not in batches.held.storage.names("guard")


def test_a_block_names_when_and_why_and_an_unblock_ends_it(batches: Batches) -> None:
    batches.run(register(1, "ana"))
    put_command(batches.held.storage, Command("block", "ana", NOW_US, "spam since noon"))
    assert (
        batches.run(register(2, "ana"), cancel(1, "ana"), register(3, "ben"))
        == [
            (
                "blocked",
                "user ana is blocked since 2023-11-14T22:13:20+00:00 (spam since noon): an operator can unblock",
            )
        ]
        * 2
    )
    assert batches.held.storage.names(COMMANDS_FOLDER) == []
    put_command(batches.held.storage, Command("unblock", "ana", NOW_US))
    assert batches.run(register(2, "ana")) == []
    assert count_live(batches.held) == 3


def test_a_block_may_remove_what_is_recent_or_all(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, round_s=1.0)
    batches = Batches(held)
    batches.run(register(1, "ana"), register(2, "ben"))
    batches.run(register(3, "ana"), register(4, "ben"), seconds=100)
    for user, which in (("ana", "recent"), ("ben", "all")):
        put_command(held.storage, Command("block", user, NOW_US, "", which))
    batches.run(seconds=101)
    assert (read_account(held, "ana")[0], read_account(held, "ben")[0], count_live(held)) == (1, 0, 1)
    held.close()


def test_an_exempt_user_has_no_limits(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, user_operations_per_s=1.0, user_operations_burst=1, user_subscriptions_max=2)
    put_command(held.storage, Command("exempt", "fleet", NOW_US))
    batches = Batches(held)
    assert batches.run(*(register(i, "fleet") for i in range(50))) == []
    put_command(held.storage, Command("unexempt", "fleet", NOW_US))
    assert [reason for reason, _ in batches.run(register(99, "fleet"))] == ["user-subscriptions"]
    held.close()


@pytest.mark.slow
def test_commands_come_from_another_process_while_the_engine_runs(batches: Batches) -> None:
    batches.run(register(1, "ana"))
    program = "import sys; from geoswarm.service.cli import app; app(sys.argv[1:])"
    words = ["block", batches.held.storage.root, "ana", "--why", "asked to"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "block ana: the next batch takes it in, or the next start\n"
    assert [reason for reason, _ in batches.run(register(2, "ana"))] == ["blocked"]


def test_a_damaged_command_is_reported_and_passed_over(batches: Batches) -> None:
    batches.held.storage.write("commands/0-damaged.json", b"{")
    assert batches.run(register(1, "ana")) == []
    assert batches.held.storage.names(COMMANDS_FOLDER) == []
    assert [entry.why for entry in JournalReader(batches.held.storage).read(CommandEntry)] == [
        "a file in commands/ is damaged: give it again"
    ]


def test_a_command_without_a_meaning_is_refused(tmp_path: Path, batches: Batches) -> None:
    storage = batches.held.storage
    for command in (Command("ban", "ana", 0), Command("block", "", 0), Command("block", "ana", 0, "", "half")):
        with pytest.raises(InputError, match=r"no command|needs a user|cannot be removed"):
            put_command(storage, command)
    for command in (Command("block", "\udcff", 0), Command("block", "ana", 0, "since \udcff")):
        with pytest.raises(InputError, match="no Unicode text"):
            put_command(storage, command)


def test_a_command_that_a_version_has_taken_in_is_not_taken_in_again(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path)
    batches = Batches(held)
    batches.run(register(1, "ana"))
    put_command(held.storage, Command("block", "ana", NOW_US, "", "all"))
    put_command(held.storage, Command("unblock", "ana", NOW_US + 1))
    given = {name: held.storage.read(f"commands/{name}") for name in held.storage.names(COMMANDS_FOLDER)}
    assert batches.run(register(2, "ana")) == []
    held.close()
    for name, content in given.items():  # as if it had been killed before they were removed
        held.storage.write(f"commands/{name}", content)
    again = open_checkpoint(tmp_path)
    batches.held = again
    batches.run()
    assert again.storage.names(COMMANDS_FOLDER) == []
    assert read_account(again, "ana")[0] == count_live(again) == 1
    again.close()


def test_of_very_many_users_a_round_is_written_at_once_and_blocks_are_never_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "USERS_EXACT_MAX", 2)
    held = open_checkpoint(tmp_path)
    batches = Batches(held)
    batches.run(*(register(i, f"user{i}") for i in range(5)), seconds=0)
    first = held.manifest.guard
    batches.run(register(5, "user0"), seconds=1)
    assert held.manifest.guard == first
    put_command(held.storage, Command("block", "user1", NOW_US))
    batches.run(register(6, "user0"), seconds=2)
    assert held.manifest.guard not in (None, first)
    second = held.manifest.guard
    batches.run(register(7, "user0"), seconds=3)
    assert held.manifest.guard == second
    batches.run(register(8, "user0"), seconds=70)
    assert held.manifest.guard != second
    held.close()
    again = open_checkpoint(tmp_path)
    assert again.guarding is not None
    assert [user for user, *_ in again.guarding.guard.blocked_users()] == ["user1"]
    assert again.guarding.guard.busiest(1)[0][0] == "user0"
    again.close()


def test_of_a_flood_so_many_refusals_are_kept_and_all_are_counted(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoswarm.guard.letters.LETTERS_MAX", 10)
    put_command(batches.held.storage, Command("block", "ana", NOW_US, "spam"))
    letters = batches.run_table(many_registers(1000, ["ana"] * 990 + ["ben"] * 10))
    assert [reason for reason, _ in letters] == ["blocked"] * 11
    assert letters[-1][1] == "980 more operations were refused for this reason, of ana (980): not kept"
    assert batches.held.manifest.refused == 990


def test_a_hundred_thousand_users_in_one_batch_are_bounded(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, accounts_max=50_000, users_max=20_000, hotspots_max=2)
    users = [f"user{i}" for i in range(100_000)]
    batches = Batches(held)
    letters = batches.run_table(many_registers(100_000, users))
    assert held.manifest.refused == 50_000
    assert letters[0] == ("full", "all 50000 accounts of users are taken: raise accounts_max")
    assert len(letters) == limits.LETTERS_MAX + 1
    assert held.guarding is not None
    assert len(held.guarding.accounts) == 50_000
    assert len(held.guarding.guard.busiest(100_000)) <= 20_000
    assert batches.run(register(0, "user0"))[0][0] == "duplicate", "a user with an account goes on"
    held.close()


def test_a_user_without_subscriptions_who_has_rested_makes_room(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, accounts_max=5000, user_operations_per_s=0.1, user_operations_burst=2)
    batches = Batches(held)
    batches.run_table(many_registers(5000, [f"user{i}" for i in range(5000)]))
    leaving = [cancel(i, f"user{i}") for i in range(100)]
    batches.run(*leaving)
    assert {reason for reason, _ in batches.run(*(register(9000 + i, f"new{i}") for i in range(5)))} == {"full"}
    assert batches.run(*(register(9000 + i, f"new{i}") for i in range(5)), seconds=60) == []
    held.close()


def test_a_checkpoint_from_before_guard_was_made_opens_and_all_in_it_was_born_long_ago(tmp_path: Path) -> None:
    held = Checkpoint(str(tmp_path), WORLD, Tuning())
    Batches(held).run(register(1, "ana"), register(2, "ben"))
    for entry in held.manifest.segments:
        name = f"subscriptions/{entry.name}.records"
        records = {part: array.copy() for part, array in held.storage.map_arrays(name).items() if part != "born_us"}
        held.storage.write_arrays(name, records)
    name = f"manifests/{held.manifest.version:012d}.json"
    body = held.storage.read_document(name)
    del body["guard"]
    held.storage.write_document(name, body)
    held.close()
    again = open_checkpoint(tmp_path)
    assert again.manifest.guard is None
    assert [BIRTH.read(s[BIRTH], np.arange(2)).tolist() for s in again._view.segments.values()] == [[LONG_AGO_US] * 2]
    assert (read_account(again, "ana")[0], read_account(again, "ben")[0]) == (1, 1)
    again.close()
