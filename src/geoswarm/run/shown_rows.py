"""Rows on a terminal: a table where all of it can be read, else a paragraph for each row with the names of its values.

A table that is too wide would cut ids, times and numbers in the middle. Geometries are shown as text. What is null is
an empty cell of a table, and is left out of a paragraph.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import shapely
from rich.console import Console
from rich.markup import escape
from rich.table import Table

VALUE_CHARACTERS_MAX = 300
"""Of one value: a region may have a million vertices."""
CELL_FRAME = 3
"""Characters of a table's column beside its text."""


def show_rows(terminal: Console, rows: pa.Table, title: str) -> None:
    names = rows.schema.names
    texts = [[_text(value) for value in row.values()] for row in rows.to_pylist()]
    columns = list(zip(names, *([text or "" for text in row] for row in texts), strict=True))
    terminal.print(f"[italic]{escape(title)}[/]", highlight=False)
    if sum(max(map(len, column)) + CELL_FRAME for column in columns) + 1 <= terminal.width:
        table = Table(*map(escape, names))
        for row in texts:
            table.add_row(*(escape(text or "") for text in row))
        terminal.print(table)
        return
    for row in texts:
        terminal.print(_paragraph(zip(names, row, strict=True)), highlight=False)


def _paragraph(values: Iterable[tuple[str, str | None]]) -> str:
    shown = (f"[dim]{escape(name)}=[/]{escape(text)}" for name, text in values if text is not None)
    return "[dim]·[/] " + "  ".join(shown)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = _geometry(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."


def _geometry(value: bytes) -> str:
    """WKB as WKT; a circle is text already."""
    try:
        return str(shapely.to_wkt(shapely.from_wkb(value), rounding_precision=6))
    except shapely.errors.ShapelyError:
        return value.decode(errors="replace")
