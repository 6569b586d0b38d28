"""The append-only record of what the engine did: batches with their loads, rounds, verdicts, commands, repairs.

Nothing reads it to decide anything; `status`, `explain`, `users`, the live views and the tests read it to report. The
kinds of entries are in `entries.py`, the writer in `writer.py`, the reader in `reader.py`.
"""

from geoswarm.store.journal.reader import JournalReader as JournalReader
from geoswarm.store.journal.writer import Journal as Journal
