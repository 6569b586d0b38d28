"""The journal keeps what is appended, reads what other versions wrote, and does not grow for ever."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from geoswarm.control.outcome import Handover, KeyRoundEntry, RoundEntry, ScaleEntry
from geoswarm.control.task_costs import UNKNOWN
from geoswarm.core.journal_entry_base import JournalEntry
from geoswarm.core.space.change import DivideNote, Merge, Split
from geoswarm.flow.observe import Load, LoadReport
from geoswarm.guard.findings import DetectionEntry, UserCluster
from geoswarm.store.journal import Journal, JournalReader, writer
from geoswarm.store.journal.entries import (
    ENTRY_KINDS,
    BatchEntry,
    CommandEntry,
    KeyedBatchEntry,
    KeyedLoad,
    MergeEntry,
    RepairEntry,
    RunTotals,
    SilenceEntry,
)
from geoswarm.store.journal.reader import parse_line
from geoswarm.store.journal.writer import entry_json
from geoswarm.store.manifest import EMPTY
from geoswarm.store.storage import Storage

BEFORE = (Path(__file__).parent / "journal_before.jsonl").read_text().splitlines()
"""Lines that engines wrote when entries were still dictionaries."""


def entries_of(folder: Path, *lines: str) -> list[JournalEntry]:
    """What is read of a journal with these lines."""
    (folder / "journal").mkdir()
    (folder / "journal" / "00000000.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return list(JournalReader(Storage(str(folder))).read(JournalEntry))


def test_entries_come_back_in_order_across_restarts(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for start in (0, 10):
        journal = Journal(storage)
        for i in range(start, start + 10):
            journal.append(BatchEntry(i) if i % 2 else RepairEntry(str(i), ""))
    reader = JournalReader(storage)
    assert [type(entry) for entry in reader.read(JournalEntry)] == [RepairEntry, BatchEntry] * 10
    assert [entry.batch for entry in reader.read(BatchEntry)] == list(range(1, 20, 2))
    assert len(list(reader.read(BatchEntry, RepairEntry))) == 20
    assert reader.last(RepairEntry) == RepairEntry("18", "")
    assert reader.last(CommandEntry) is None


def test_a_line_torn_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    Journal(storage).append(BatchEntry(1))
    file = next((tmp_path / "journal").iterdir())
    file.write_text(file.read_text() + '{"kind":"batch","bat')
    Journal(storage).append(BatchEntry(2))
    assert [entry.batch for entry in JournalReader(storage).read(BatchEntry)] == [1, 2]


def test_old_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LINES_PER_FILE", 5)
    monkeypatch.setattr(writer, "FILES_MAX", 3)
    storage = Storage(str(tmp_path))
    journal = Journal(storage)
    for i in range(100):
        journal.append(BatchEntry(i))
    assert [entry.batch for entry in JournalReader(storage).read(BatchEntry)] == list(range(85, 100))


def _without_later(written: Any, said: Any) -> Any:
    """What came later is zero, and left out here."""
    if not isinstance(written, dict) or not isinstance(said, dict):
        return written
    return {name: _without_later(value, said.get(name)) for name, value in written.items() if name in said or value}


@pytest.mark.parametrize("line", BEFORE, ids=lambda line: line[9:40])
def test_a_line_written_before_is_read_and_would_be_written_the_same(line: str) -> None:
    entry = parse_line(line, JournalEntry)
    assert entry is not None
    said, written = json.loads(line), entry_json(entry)
    assert _without_later(written, said) == said
    assert parse_line(json.dumps(entry_json(entry)), JournalEntry) == entry


def test_lines_written_before_are_of_every_kind_and_their_values_have_names(tmp_path: Path) -> None:
    found = entries_of(tmp_path, *BEFORE)
    came_later = {ScaleEntry, MergeEntry, SilenceEntry}
    assert {type(entry) for entry in found} == set(ENTRY_KINDS.values()) - came_later
    reader = JournalReader(Storage(str(tmp_path)))
    batch, keyed = reader.last(BatchEntry), reader.last(KeyedBatchEntry)
    assert batch is not None
    assert batch.executors[1] == Load(events=28, matched=21, matches=21, cpu_us=1021)
    assert (batch.totals.events, batch.totals_before.events) == (400, 200)
    assert keyed is not None
    assert keyed.executors[0] == KeyedLoad(rows=817, cpu_us=8309)
    changes = [change for entry in reader.read(RoundEntry) for change in entry.changes]
    assert {Split, DivideNote, Merge} < {type(change) for change in changes}
    handed = [entry.handover for entry in reader.read(RoundEntry) if entry.handover is not None]
    assert [type(handover) for handover in handed] == [Handover]
    scaled, rebalanced = reader.read(KeyRoundEntry)
    assert (scaled.figures, scaled.executors_before) == (None, 3)
    assert rebalanced.figures is not None
    assert (rebalanced.figures.table, rebalanced.figures.more) == (16, {"trials": 1})
    careful, printed = reader.read(DetectionEntry)
    assert careful.evidence.hotspots
    assert [len(entry.evidence.groups) for entry in (careful, printed)] == [len(careful.evidence.clusters or ()), 1]
    assert isinstance(printed.evidence.groups[0], UserCluster)


def test_what_an_older_version_left_out_has_its_default(tmp_path: Path) -> None:
    first = {"kind": "batch", "batch": 7, "totals": {"batches": 8, "events": 90}}
    old = first | {"partitions": {"3": [1, 60, 50, 70, 1000]}}  # the executor was among them
    assert entries_of(tmp_path, json.dumps(old)) == [BatchEntry(7, RunTotals(batches=8, events=90))]


def test_what_a_newer_version_added_is_passed_over(tmp_path: Path) -> None:
    lines = [
        {"kind": "weather", "sky": "blue"},
        {"kind": ["batch"]},
        {"kind": "batch", "batch": 1, "sky": {"colour": "blue"}},
        {"kind": "batch", "batch": "first"},
        {"kind": "batch"},
        {"kind": "round", "round": 1, "strategy": "swarm", "epoch": 0, "outcome": "kept"}
        | {
            "changes": [{"change": "reroute", "partition": 3}, {"change": "merge", "partitions": [1, 2], "executor": 0}]
        },
    ]
    merged = RoundEntry(1, "swarm", 0, "kept", changes=(Merge((1, 2), 0),))
    assert entries_of(tmp_path, *map(json.dumps, lines), "[1]", "7", '"batch"') == [BatchEntry(1), merged]


def test_a_batch_that_is_run_again_after_a_crash_counts_once() -> None:
    report = LoadReport(events_in=10, dead=3, late=6, ahead=1)
    report.add(0, 1, Load(7, 4, 5, 100))
    seconds = {"prepare_s": 0.1, "batch_s": 0.2}
    zero = BatchEntry.of(0, EMPTY, report, UNKNOWN, seconds, (2, 9), {"cooled": 3, "reported": 7}, None)
    one = BatchEntry.of(1, EMPTY, report, UNKNOWN, seconds, (2, 9), {"vague": 4}, zero)
    again = BatchEntry.of(1, EMPTY, report, UNKNOWN, seconds, (2, 9), {"vague": 4}, one)
    assert one == again
    assert zero.totals == RunTotals(
        batches=1, events=10, dead=3, matched=4, matches=5, late=6, ahead=1, answers=2, cooled=3, reported=7
    )
    assert again.totals == RunTotals(
        batches=2, events=20, dead=6, matched=8, matches=10, late=12, ahead=2, answers=4, cooled=3, vague=4, reported=7
    )
    assert (again.answers, again.held) == (2, 9)
    assert (again.executors, again.events_in, again.batch_s) == ({1: Load(7, 4, 5, 100)}, 10, 0.2)


@pytest.mark.parametrize("kind", ENTRY_KINDS.values(), ids=lambda kind: str(kind.kind))
def test_a_kind_is_declared_once_and_its_name_is_no_field(kind: type[JournalEntry]) -> None:
    assert ENTRY_KINDS[kind.kind] is kind
    assert "kind" not in {each.name for each in fields(kind)}  # type: ignore[arg-type]
