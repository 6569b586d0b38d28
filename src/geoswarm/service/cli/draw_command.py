"""`geoswarm draw`: a picture of the fences, events and alerts of a checkpoint (`service/map_picture.py`)."""

from pathlib import Path
from typing import Annotated

import typer

from geoswarm.errors import SettingsError
from geoswarm.service.cli.checkpoint_commands import CheckpointFolder
from geoswarm.service.cli.past_commands import Box, Condition
from geoswarm.service.cli.program import print_lines

PICTURES = (".png", ".pdf", ".svg")


def draw(
    checkpoint: CheckpointFolder,
    to: Annotated[Path, typer.Option("--out", help="The picture to write: .png, .pdf or .svg.")],
    alerts: Annotated[Path | None, typer.Option(help="What a sink wrote: a Parquet folder, or JSON lines.")] = None,
    rectangle: Box = None,
    where: Condition = None,
) -> None:
    """Draw the fences, the ways of objects by kept events, and alerts; the engine may be running."""
    from geoswarm.service import map_picture
    from geoswarm.service.past import read_rectangle
    from geoswarm.service.watch import existing

    if to.suffix.lower() not in PICTURES:
        raise SettingsError(f"--out {to} is no picture: name it with {', '.join(PICTURES)}")
    if not to.absolute().parent.is_dir():
        raise SettingsError(f"there is no folder {to.absolute().parent}: make it first")
    box = read_rectangle(rectangle) if rectangle else None
    drawn = map_picture.gather(existing(checkpoint), alerts, box, where)
    map_picture.draw(drawn, box).savefig(to)
    print_lines([f"{to}: {map_picture.sentence(drawn)}"])


COMMANDS = (draw,)
