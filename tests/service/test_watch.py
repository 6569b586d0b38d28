"""A watcher sees each batch once, as it is journalled."""

from pathlib import Path

from geoswarm.service.watch import WatchedTotals, rates
from geoswarm.store.journal import Journal, JournalReader
from geoswarm.store.journal.entries import BatchEntry, RepairEntry
from geoswarm.store.journal.reader import Follower
from geoswarm.store.storage import Storage


def append(journal: Journal, batch: int, events: int = 100, now_us: int = 0) -> None:
    entry = BatchEntry(batch, now_us=now_us, events_in=events, matched=50, matches=2 * events, dead=1, batch_s=0.5)
    journal.append(entry)


def follow(storage: Storage) -> Follower[BatchEntry]:
    return JournalReader(storage).follow(BatchEntry)


def test_a_follower_sees_what_is_new_and_only_that(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    first = Journal(storage)
    append(first, 0)
    follower = follow(storage)
    assert follower.new() == []
    append(first, 1)
    first.append(RepairEntry("segment", "something else"))
    second = Journal(storage)  # a restart begins another file
    append(second, 2)
    assert [batch.batch for batch in follower.new()] == [1, 2]
    append(second, 3)
    assert [batch.batch for batch in follower.new()] == [3]


def test_a_line_that_is_half_written_is_left_until_it_is_whole(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    append(Journal(storage), 0)
    follower = follow(storage)
    (file,) = (tmp_path / "journal").iterdir()
    with file.open("a") as half:
        half.write('{"kind":"batch",')
    assert follower.new() == []
    with file.open("a") as half:
        half.write('"batch":1}\n')
    assert follower.new() == [BatchEntry(1)]


def test_a_batch_that_a_crash_made_run_twice_counts_once(tmp_path: Path) -> None:
    storage, totals = Storage(str(tmp_path)), WatchedTotals()
    follower, journal = follow(storage), Journal(storage)
    for batch in (0, 1, 1):
        append(journal, batch)
    totals.add(follower.new())
    assert (totals.batches, totals.events, totals.matches, totals.dead, totals.busy_s) == (2, 200, 400, 2, 1.0)


def test_rates_span_from_the_first_begin_to_the_last_end(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    follower, journal = follow(storage), Journal(storage)
    append(journal, 0, events=100, now_us=0)
    append(journal, 1, events=300, now_us=1_500_000)
    assert rates(follower.new()) == (200.0, 400.0)
    assert rates([]) == (0.0, 0.0)
