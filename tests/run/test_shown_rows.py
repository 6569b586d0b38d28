"""Rows on a terminal: nothing is cut in the middle, however narrow it is."""

import io

import pyarrow as pa
import shapely
from rich.console import Console

from geoswarm.run.shown_rows import VALUE_CHARACTERS_MAX, show_rows


def shown(rows: pa.Table, width: int = 80) -> str:
    terminal = Console(file=io.StringIO(), width=width)
    show_rows(terminal, rows, "batch 3: 2 rows [all]")
    return terminal.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_table_is_shown_where_all_of_it_can_be_read() -> None:
    rows = pa.table({"event_id": ["a-1", "[b]"], "x": [1.5, None]})
    text = shown(rows)
    assert text.startswith("batch 3: 2 rows [all]")
    assert "│ [b]      │     │" in text, "null"
    assert "·" not in text


def test_a_text_is_not_taken_for_null_nor_a_name_for_markup() -> None:
    rows = pa.table({"name": ["None", None], "[red]": ["", "b"]})
    assert "│ None │       │" in shown(rows)
    assert "│      │ b     │" in shown(rows)
    assert "[red]" in shown(rows)
    paragraphs = shown(rows, 12).split("· ")[1:]
    assert [each.split() for each in paragraphs] == [["name=None", "[red]="], ["[red]=b"]]


def test_what_is_too_wide_becomes_a_paragraph_for_each_row_without_nulls() -> None:
    ids = ["cab1f6f8-094f-4426-9926-3332033dc695", "769843fd-82b5-4d87-9595-5fc9eb5e05a5"]
    rows = pa.table({"event_id": ids, "text": ["[flood] " * 4, None], "object_id": ["van-7", "van-8"]})
    assert "┃" in shown(rows, 200)
    first, second = shown(rows).split("· ")[1:]
    assert first.split() == [f"event_id={ids[0]}", "text=[flood]", "[flood]", "[flood]", "[flood]", "object_id=van-7"]
    assert second.split() == [f"event_id={ids[1]}", "object_id=van-8"]


def test_geometries_are_texts_and_long_values_end() -> None:
    rows = pa.table({"geometry": [shapely.to_wkb(shapely.Point(1, 2)), b"CIRCLE(2 48, 80)"], "name": ["a" * 400, "b"]})
    text = " ".join(shown(rows).split())
    assert "geometry=POINT (1 2)" in text
    assert "geometry=CIRCLE(2 48, 80)" in text
    assert "..." in text
    assert text.count("a") < VALUE_CHARACTERS_MAX + 20
