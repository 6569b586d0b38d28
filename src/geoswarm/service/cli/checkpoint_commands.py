"""Commands about a checkpoint: what its engine refused, decided and did, who its users are, and commands to Guard.
`past_commands.py` has those about kept events and objects, `subscription_commands.py` those about subscriptions.

The engine may be running: these commands take no lock. Only `scale`, `block`, `unblock` and `exempt` write, one file
each.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from geoswarm.errors import SettingsError
from geoswarm.service.cli.program import AsJson, out, print_lines

CheckpointFolder = Annotated[str, typer.Argument(help="The folder that an engine uses, or used.")]
User = Annotated[str, typer.Argument(help="As operations name the user.")]


def dead_letters(
    checkpoint: CheckpointFolder,
    last: Annotated[int, typer.Option(min=0, help="How many of the newest rows to show.")] = 10,
    reason: Annotated[str | None, typer.Option(help="Only those with this reason.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the rows that were refused: how many for which reason, then the newest."""
    from geoswarm.service.watch import dead_rows

    rows = dead_rows(checkpoint, reason)
    counts = Counter((row["kind"], row["reason"]) for row in rows)
    newest = rows[-last:] if last else []
    if as_json:
        by_reason = [{"kind": k, "reason": r, "count": n} for (k, r), n in counts.most_common()]
        print(json.dumps({"count": len(rows), "by_reason": by_reason, "rows": newest}))
        return
    if not rows:
        out.print("no dead letters" + (f" with reason {reason}" if reason else ""))
        return
    table = Table("kind", "reason", title=f"{len(rows):,} dead letters", title_justify="left")
    table.add_column("count", justify="right")
    for (kind, why), count in counts.most_common():
        table.add_row(kind, why, f"{count:,}")
    out.print(table)
    for row in reversed(newest):
        batch = "outside any batch" if row["batch_id"] < 0 else f"batch {row['batch_id']}"
        out.print(f"[bold]{batch}[/], {row['kind']}, {escape(row['detail'])}", soft_wrap=True, highlight=False)
        out.print(f"  [dim]{escape(row['row'])}[/]", soft_wrap=True, highlight=False)


def explain(
    checkpoint: CheckpointFolder,
    plan: Annotated[int | None, typer.Argument(help="The epoch of a plan; without it, every round is shown.")] = None,
    operator: Annotated[str | None, typer.Option(help="A keyed operator: show how its keys were assigned.")] = None,
    user: Annotated[str | None, typer.Option(help="A user: show what Guard holds against them, and why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a plan came about: what was measured, decided and refused, round by round. Or why a user is blocked."""
    from geoswarm.service.explain import aggregates, costs, kept_events, key_rounds, key_sentences, rounds, sentences
    from geoswarm.service.watch import existing
    from geoswarm.store.journal.writer import entry_json

    if plan is not None and operator is not None:
        raise SettingsError("a PLAN is one of places, an --operator has plans of its own: give one of the two")
    storage = existing(checkpoint)
    if user is not None:
        if plan is not None or operator is not None:
            raise SettingsError("a --user has neither a PLAN nor an --operator: give one of the three")
        from geoswarm.service.users import user_record, user_sentences

        record = user_record(storage, user)
        print_lines([json.dumps(record.to_json())] if as_json else user_sentences(record))
        return
    entries = rounds(storage, plan) if operator is None else []
    key_entries = key_rounds(storage, operator) if operator is not None else []
    if as_json:
        print(json.dumps([entry_json(entry) for entry in (*entries, *key_entries)]))
        return
    lines = chain(sentences(entries), costs(storage), kept_events(storage), aggregates(storage))
    print_lines(lines if operator is None else key_sentences(key_entries))
    if not entries and operator is None:
        out.print("no round has ended yet: the first plan is in force")


def status(checkpoint: CheckpointFolder, as_json: AsJson = False) -> None:
    """Show what a checkpoint holds and what its engine has done; it may be running."""
    from geoswarm.service.cli.run_view import status_table
    from geoswarm.service.watch import status as status_of

    found = status_of(checkpoint)
    if as_json:
        print(json.dumps(found))
    else:
        out.print(status_table(found))


def scale(
    checkpoint: CheckpointFolder, executors: Annotated[int, typer.Argument(help="How many are to match.")]
) -> None:
    """Change the number of executors, from the next batch on; if no engine runs, from the next start on."""
    from geoswarm.service.watch import existing
    from geoswarm.store.scale_requests import put_request

    put_request(existing(checkpoint), executors, time.time_ns() // 1000)
    print_lines([f"{executors} executors from the next batch on: `geoswarm explain {checkpoint}` shows the plan"])


def users(
    checkpoint: CheckpointFolder,
    most: Annotated[int, typer.Option(min=0, help="How many of those who have or ask for most to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List users: who is blocked, suspected or exempt, and who has or asks for most. The engine may be running."""
    from geoswarm.service.users import overview, users_table
    from geoswarm.service.watch import existing

    found = overview(existing(checkpoint), most)
    if as_json:
        print(json.dumps(found))
    else:
        out.print(users_table(found))
        print_lines(found["notes"])


def block(
    checkpoint: CheckpointFolder,
    user: User,
    why: Annotated[str, typer.Option(help="For the user's dead letters, and for whoever asks later.")] = "",
    remove: Annotated[str, typer.Option(help="Of the user's standing queries: nothing, recent or all.")] = "nothing",
) -> None:
    """Refuse what a user asks for, from the next batch on."""
    _give(checkpoint, "block", user, why, remove)


def unblock(checkpoint: CheckpointFolder, user: User) -> None:
    """Let a user in again, and forget what was held against them."""
    _give(checkpoint, "unblock", user)


def exempt(
    checkpoint: CheckpointFolder,
    user: User,
    undo: Annotated[bool, typer.Option("--undo", help="The user is like all others again.")] = False,
) -> None:
    """Never block a user, and set no limits."""
    _give(checkpoint, "unexempt" if undo else "exempt", user)


def _give(checkpoint: str, command: str, user: str, why: str = "", remove: str = "nothing") -> None:
    from geoswarm.service.users import give
    from geoswarm.service.watch import existing

    print_lines([give(existing(checkpoint), command, user, why, remove)])


COMMANDS: tuple[Callable[..., None], ...] = (dead_letters, explain, status, scale, users, block, unblock, exempt)
"""The commands in the order of the help; each has the name of its function."""
