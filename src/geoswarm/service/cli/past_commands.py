"""Commands about what an engine has kept: events of a region and a time, the nearest to a place, and who is where now.

The engine may be running: these commands take no lock, and write nothing but the file that is asked for.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from geoswarm.errors import SettingsError
from geoswarm.service.cli.checkpoint_commands import CheckpointFolder
from geoswarm.service.cli.program import out, print_lines

TABLE_ROWS = 20
"""Rows in a table, unless a limit is given."""

Box = Annotated[str | None, typer.Option("--rectangle", help="xmin,ymin,xmax,ymax; without a region, the world.")]
Shape = Annotated[str | None, typer.Option("--geometry", help="WKT, GeoJSON or CIRCLE(lon lat, metres).")]
Words = Annotated[str | None, typer.Option("--keywords", help='As in subscriptions: "flood AND (river OR dam)".')]
Condition = Annotated[str | None, typer.Option("--where", help="A condition: \"speed > 80 AND status = 'free'\".")]
Since = Annotated[str | None, typer.Option("--since", help='A time, or how long ago: 2026-01-31T12:00, "15 min".')]
Until = Annotated[str | None, typer.Option("--until", help="The same; events at this time are not shown.")]
Columns = Annotated[str | None, typer.Option("--columns", help="Which columns, with commas between them.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="How many of the newest; 20 in a table.")]
Form = Annotated[str, typer.Option("--format", help="table, csv, geojson, json or parquet.")]
To = Annotated[Path | None, typer.Option("--out", help="The file to write; else it is printed.")]


def query(
    checkpoint: CheckpointFolder,
    rectangle: Box = None,
    geometry: Shape = None,
    keywords: Words = None,
    where: Condition = None,
    since: Since = None,
    until: Until = None,
    columns: Columns = None,
    limit: Limit = None,
    form: Form = "table",
    to: To = None,
    explained: Annotated[bool, typer.Option("--explain", help="Say what was read, and who had the region.")] = False,
) -> None:
    """Show kept events of a region and a time, as of the newest committed batch; the engine may be running."""
    from geoswarm.run.past import Past
    from geoswarm.service.past import explanation, read_rectangle, read_time
    from geoswarm.service.watch import existing

    if explained and (to is not None or form != "table"):
        raise SettingsError("--explain says what was read and shows no events: leave out --format and --out")
    past, now_s = Past(existing(checkpoint)), time.time()
    answer = past.query(
        read_rectangle(rectangle) if rectangle else None,
        geometry=geometry,
        keywords=keywords,
        where=where,
        since=read_time("--since", since, now_s),
        until=read_time("--until", until, now_s),
        columns=_names(columns),
        limit=limit or (TABLE_ROWS if form == "table" and not explained else None),
    )
    if explained:
        print_lines(explanation(past, answer))
    else:
        print_or_write(answer.events, "events", "the newest first", form, to)


def nearest(
    checkpoint: CheckpointFolder,
    at: Annotated[str, typer.Option(help="lon,lat: the place.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many.")] = 10,
    of: Annotated[str, typer.Option(help="events, or objects by their last places.")] = "events",
    within_m: Annotated[float | None, typer.Option("--within", help="None that are so many metres away.")] = None,
    keywords: Words = None,
    since: Since = None,
    until: Until = None,
    columns: Columns = None,
    form: Form = "table",
    to: To = None,
) -> None:
    """Show the kept events, or the objects, that are nearest to a place, with their distances in metres."""
    from geoswarm.run.past import Past
    from geoswarm.run.questions import Of
    from geoswarm.service.past import read_place, read_time
    from geoswarm.service.watch import existing

    past, now_s = Past(existing(checkpoint)), time.time()
    found = past.nearest(
        *read_place(at),
        k,
        of=cast(Of, of),
        within_m=within_m,
        keywords=keywords,
        since=read_time("--since", since, now_s),
        until=read_time("--until", until, now_s),
        columns=_names(columns),
    )
    print_or_write(found, of, "the nearest first", form, to)


def objects(
    checkpoint: CheckpointFolder,
    rectangle: Box = None,
    geometry: Shape = None,
    columns: Columns = None,
    limit: Limit = None,
    form: Form = "table",
    to: To = None,
) -> None:
    """Show the objects that are in a region now, by their last events; the engine may be running."""
    from geoswarm.run.past import Past
    from geoswarm.service.past import read_rectangle
    from geoswarm.service.watch import existing

    found = Past(existing(checkpoint)).objects(
        read_rectangle(rectangle) if rectangle else None,
        geometry=geometry,
        columns=_names(columns),
        limit=limit or (TABLE_ROWS if form == "table" else None),
    )
    print_or_write(found, "objects", "the newest first", form, to)


def _names(columns: str | None) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def print_or_write(rows: Any, what: str, order: str, form: str, to: Path | None, feature: Any = None) -> None:
    """Print rows, or write them to a file; `feature` makes a feature of GeoJSON of a row that is no point."""
    from geoswarm.run.shown_rows import show_rows
    from geoswarm.service.past import EventFormat, as_text, write_events

    if form not in get_args(EventFormat):
        raise SettingsError(f"--format {form} is unknown: use {', '.join(get_args(EventFormat))}")
    if (to is None and form == "parquet") or (to is not None and form == "table"):
        raise SettingsError(f"--format {form} and --out do not fit: Parquet goes to a file, a table to the terminal")
    if to is not None:
        write_events(rows, to, cast(EventFormat, form), feature)
        print_lines([f"{len(rows):,} {what} in {to}"])
    elif form == "table":
        show_rows(out, rows, f"{len(rows):,} {what}, {order}")
    else:
        print(as_text(rows, cast(EventFormat, form), feature), end="")


COMMANDS: tuple[Callable[..., None], ...] = (query, nearest, objects)
"""The commands in the order of the help; each has the name of its function."""
