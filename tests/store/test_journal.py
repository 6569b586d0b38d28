"""The journal keeps what it is told, passes over a torn line, and does not grow for ever."""

from pathlib import Path

import pytest

from geoswarm.store import journal
from geoswarm.store.storage import Storage


def test_entries_come_back_in_order_across_restarts(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for start in (0, 10):
        keeper = journal.Journal(storage)
        for i in range(start, start + 10):
            keeper.append("batch" if i % 2 else "plan", number=i)
    assert [entry["number"] for entry in journal.read(storage)] == list(range(20))
    assert [entry["number"] for entry in journal.read(storage, "batch")] == list(range(1, 20, 2))
    newest = journal.last(storage, "plan")
    assert newest is not None
    assert newest["number"] == 18
    assert journal.last(storage, "verdict") is None


def test_a_line_torn_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    journal.Journal(storage).append("batch", number=1)
    file = next((tmp_path / "journal").iterdir())
    file.write_text(file.read_text() + '{"kind":"batch","num')
    journal.Journal(storage).append("batch", number=2)
    assert [entry["number"] for entry in journal.read(storage)] == [1, 2]


def test_old_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINES_PER_FILE", 5)
    monkeypatch.setattr(journal, "FILES_MAX", 3)
    storage = Storage(str(tmp_path))
    keeper = journal.Journal(storage)
    for i in range(100):
        keeper.append("batch", number=i)
    assert [entry["number"] for entry in journal.read(storage)] == list(range(85, 100))
