"""Commands about the subscriptions of a checkpoint: show some of them, export all.

The engine may be running: these commands take no lock, and write nothing but the file that is asked for.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from geoswarm.errors import SettingsError
from geoswarm.service.cli.checkpoint_commands import CheckpointFolder
from geoswarm.service.cli.past_commands import TABLE_ROWS, Box, Condition, Form, Shape, To, print_or_write
from geoswarm.service.cli.program import print_lines


def subscriptions(
    checkpoint: CheckpointFolder,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    rectangle: Box = None,
    geometry: Shape = None,
    predicate: Annotated[str | None, typer.Option(help="intersects, or within the region; contains, covers.")] = None,
    where: Condition = None,
    sub_ids: Annotated[list[str] | None, typer.Option("--id", help="Only this one; may be given again.")] = None,
    after: Annotated[str | None, typer.Option(help="Only ids behind this: the last one of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many; 20 in a table, else 1,000.")] = None,
    form: Form = "table",
    to: To = None,
) -> None:
    """Show live subscriptions by ascending id, as of the newest committed version; the engine may be running."""
    from geoswarm.run.collection import PAGE_ROWS, Subscriptions
    from geoswarm.service.past import read_rectangle
    from geoswarm.service.subscriptions import feature_of
    from geoswarm.service.watch import existing

    if rectangle is not None and geometry is not None:
        raise SettingsError("--rectangle and --geometry are two regions: leave one out")
    held = Subscriptions(existing(checkpoint))
    found = held.page(
        read_rectangle(rectangle) if rectangle else geometry,
        predicate=predicate,
        user=user,
        where=where,
        sub_ids=[_id("--id", each, held.ids) for each in sub_ids] if sub_ids else None,
        after=None if after is None else _id("--after", after, held.ids),
        limit=limit or (TABLE_ROWS if form == "table" else PAGE_ROWS),
    )
    if form == "table":  # a column without a value would take the place of the others
        has_value = [name for name in found.schema.names[1:] if found[name].null_count < len(found)]
        found = found.select(["sub_id", *has_value])
    print_or_write(found, "subscriptions", "by ascending id", form, to, feature_of)


def _id(option: str, given: str, kind: str) -> int | str:
    if kind == "text":
        return given
    try:
        return int(given)
    except ValueError:
        raise SettingsError(f"{option} {given} is no integer, and the ids of this checkpoint are: give one") from None


def export(
    checkpoint: CheckpointFolder,
    to: Annotated[Path, typer.Option("--out", help="The file to write: .parquet or .geojson.")],
) -> None:
    """Write all live subscriptions with all their attributes to a file, which `load` takes back."""
    from geoswarm.run.collection import Subscriptions
    from geoswarm.service import subscriptions as service
    from geoswarm.service.watch import existing

    count = service.export(Subscriptions(existing(checkpoint)), to)
    print_lines([f"{count:,} subscriptions in {to}"])


COMMANDS: tuple[Callable[..., None], ...] = (subscriptions, export)
"""The commands in the order of the help; each has the name of its function."""
