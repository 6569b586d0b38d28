"""Users as operators see them: who is blocked and why, who has most, and commands for the engine.

The newest version is read without a lock; only `give` writes, one file, which the engine applies
(`store/guard_files.py`).
"""

import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from geoswarm.config import Contract
from geoswarm.core.space.grid import Grid
from geoswarm.errors import InputError
from geoswarm.guard.commands import Command
from geoswarm.guard.findings import DetectionEntry, Evidence
from geoswarm.guard.guard import Guard
from geoswarm.guard.letters import when
from geoswarm.guard.names import short_name
from geoswarm.store import manifest
from geoswarm.store.guard_files import put_command, read_guard, waiting_commands
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import CommandEntry
from geoswarm.store.journal.writer import entry_json
from geoswarm.store.owners import live_of_users
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions import View

SHOWN = (
    ("new_queries_faded", "asked for {} queries lately"),
    ("deleted_queries_faded", "cancelled {}"),
    ("lrb_involvement_faded", "was in {} hotspots"),
    ("lrb_queries_rate", "had {} of what was asked for in them"),
)
"""The features of Table 5.1 that are useful to a person."""
NEVER_ON = "Guard has not been on for this checkpoint: start its engine with [guard] in the settings"


def overview(storage: Storage, most: int) -> dict[str, Any]:
    """All users that are blocked, suspected or exempt, and `most` of those who have or ask for most."""
    newest, contract = _engines(storage)
    guard = read_guard(storage, newest) or Guard()
    live = live_of_users(View.open(storage, newest), Grid.of(contract), newest.now_us)
    asked = dict(guard.busiest(most))
    richest = sorted(live, key=lambda user: (-live[user][0], user))[:most]
    blocked: dict[str, dict[str, Any]] = {
        user: {"since_s": since_s, "why": why} for user, since_s, why in guard.blocked_users()
    }
    exempt, suspected = guard.exempt_users(), guard.suspects()
    names = list(dict.fromkeys([*blocked, *suspected, *exempt, *asked, *(user for user in richest if user)]))
    rows = [
        {
            "user": user,
            "state": _state(user, blocked, suspected, exempt),
            "since": when(blocked[user]["since_s"]) if user in blocked else None,
            "why": blocked[user]["why"] if user in blocked else None,
            "subscriptions": live.get(user, (0, 0.0))[0],
            "cost": round(live.get(user, (0, 0.0))[1], 3),
            "asked_lately": round(asked.get(user, 0.0), 1),
        }
        for user in names
    ]
    waiting = [f"{c.command} {c.user}" for c in waiting_commands(storage).values() if c is not None]
    notes = [NEVER_ON] if newest.guard is None else []
    notes += [f"waits for the next batch: {command}" for command in waiting]
    if "" in live:
        notes.append(f"{live[''][0]:,} subscriptions have no user")
    return {"users": rows, "users_all": len(live), "version": newest.version, "notes": notes}


def users_table(found: dict[str, Any]) -> Table:
    title = f"{found['users_all']:,} users have live subscriptions, by version {found['version']}"
    table = Table("user", "state", title=title, title_justify="left")
    for name in ("subscriptions", "cost", "asked for lately"):
        table.add_column(name, justify="right")
    table.add_column("since, why")
    for row in found["users"]:
        numbers = f"{row['subscriptions']:,}", f"{row['cost']:,.0f}", f"{row['asked_lately']:,.0f}"
        why = f"{row['since']}, {row['why']}" if row["since"] else ""
        table.add_row(escape(row["user"]), row["state"], *numbers, escape(why))
    return table


def give(storage: Storage, command: str, user: str, why: str = "", removes: str = "nothing") -> str:
    """Write a command for the engine. Returns a sentence for the operator."""
    newest, _ = _engines(storage)
    put_command(storage, Command(command, user, time.time_ns() // 1000, why, removes))
    taken = "the next batch takes it in, or the next start" if newest.guard else NEVER_ON
    return f"{command} {user}: {taken}"


@dataclass(frozen=True)
class UserRecord:
    """All that the newest version and the journal have about a user."""

    user: str
    state: str
    """One of "blocked", "exempt" and "suspected", or empty."""
    block: tuple[float, str] | None
    """The start of the block, in seconds since 1970, and its reason."""
    subscriptions: int
    rounds: list[DetectionEntry]
    """The rounds in which the user was suspicious."""
    commands: list[CommandEntry]
    detection_rounds: int
    """The number of detection rounds in the journal."""
    beta: float
    bounds: tuple[float, float, float, float]
    """The bounds of the world, for `places`."""

    def places(self, entry: DetectionEntry) -> list[list[float] | None]:
        """The places of the round's hotspots, in the world's coordinates."""
        xmin, ymin, xmax, ymax = self.bounds
        found = [hotspot.place for hotspot in entry.evidence.hotspots or ()]
        return [p and [round(xmin + p[0] * (xmax - xmin), 4), round(ymin + p[1] * (ymax - ymin), 4)] for p in found]

    def to_json(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "state": self.state,
            "block": self.block and {"since_s": self.block[0], "why": self.block[1]},
            "subscriptions": self.subscriptions,
            "rounds": [{**entry_json(entry), "places": self.places(entry)} for entry in self.rounds],
            "commands": [entry_json(entry) for entry in self.commands],
            "rounds_told": self.detection_rounds,
            "beta": self.beta,
        }


def user_record(storage: Storage, user: str) -> UserRecord:
    newest, contract = _engines(storage)
    user, guard = short_name(user), read_guard(storage, newest)
    if guard is None:
        raise InputError(NEVER_ON)
    reader = JournalReader(storage)
    rounds = {entry.round: entry for entry in reader.read(DetectionEntry)}  # of two entries, the last counts
    given = {entry.at_us: entry for entry in reader.read(CommandEntry) if entry.user == user}
    blocked = {name: (since_s, why) for name, since_s, why in guard.blocked_users()}
    live = live_of_users(View.open(storage, newest), Grid.of(contract), newest.now_us)
    return UserRecord(
        user=user,
        state=_state(user, blocked, guard.suspects(), guard.exempt_users()),
        block=blocked.get(user),
        subscriptions=live.get(user, (0, 0.0))[0],
        rounds=[entry for entry in rounds.values() if user in entry.suspicious or user in entry.blocked],
        commands=list(given.values()),
        detection_rounds=len(rounds),
        beta=guard.rules.beta,
        bounds=contract.bounds,
    )


def user_sentences(record: UserRecord) -> Iterator[str]:
    user, held = record.user, f"has {record.subscriptions:,} live subscriptions"
    if record.block is not None:
        since_s, why = record.block
        yield f"{user} is blocked since {when(since_s)} ({why}), and {held}"
    else:
        yield f"{user} is {record.state or 'neither blocked nor suspected'}, and {held}"
    for entry in record.rounds:
        did = "blocked" if user in entry.blocked else "suspected"
        others = max((entry.blocked_users if did == "blocked" else entry.suspicious_users) - 1, 0)
        company = f" with {others} others" if others else ""
        yield f"detection round {entry.round}, {when(entry.now_us / 1e6)}: {did}{company}"
        yield from _evidence(entry.evidence, record.places(entry))
        if user in entry.features:
            yield "  " + _features(entry.features[user], entry.features_others)
    for given in record.commands:
        why = f" ({given.why})" if given.why else ""
        yield f"{when((given.at_us or 0) / 1e6)}: an operator gave the command {given.command}{why}"
    if not record.rounds and not record.commands:
        yield f"the journal has {record.detection_rounds} detection rounds, and {user} was suspicious in none of them"


def _evidence(evidence: Evidence, places: list[list[float] | None]) -> Iterator[str]:
    for cluster in evidence.groups:
        yield (
            f"  {cluster.users} users alike: of what they asked for lately {cluster.alqr:.0%} lies in the "
            f"round's hotspots, of what all others asked for {cluster.alqr_normal:.0%}"
        )
    for hotspot, place in zip(evidence.hotspots or (), places, strict=True):
        where = f" at ({place[0]:g}, {place[1]:g})" if place else ""
        yield (
            f"  hotspot {hotspot.id}{where} in round {hotspot.round}: {hotspot.share:.0%} of what was new "
            f"there was of {hotspot.users} such users"
        )
    if evidence.places_least is not None:
        yield (
            f"  each of those blocked: {evidence.places_least:g} places or more became hot by them, in "
            f"{evidence.rounds_least or 0:g} rounds or more they did hardly anything else, and they cancelled "
            f"{evidence.cancels_least or 0:.0%} or more of what they registered"
        )


def _features(mine: Mapping[str, float], others: Mapping[str, float]) -> str:
    parts = [f"{text.format(f'{mine[name]:g}')} (others {others[name]:g})" for name, text in SHOWN]
    return ", ".join(parts)


def _state(user: str, blocked: Container[str], suspected: Container[str], exempt: Container[str]) -> str:
    known = {"blocked": blocked, "exempt": exempt, "suspected": suspected}
    return next((state for state, users in known.items() if user in users), "")


def _engines(storage: Storage) -> tuple[manifest.Manifest, Contract]:
    if not storage.exists("contract.json"):
        raise InputError(f"{storage.root} is of a KeyedStream, which has no users: give the checkpoint of an engine")
    return manifest.newest(storage), Contract.model_validate(storage.read_document("contract.json"))
