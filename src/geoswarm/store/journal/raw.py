"""Lines of the journal as plain dictionaries, for the benchmarks that have not turned to `reader.py` yet.

Nothing else reads this way; the file goes when the last of them has turned.
"""

import json
from collections.abc import Iterator
from typing import Any

from geoswarm.store.journal.writer import FOLDER
from geoswarm.store.lines import read_lines
from geoswarm.store.storage import Storage


def read(storage: Storage, *kinds: str) -> Iterator[dict[str, Any]]:
    """The entries of these kinds, or all, oldest first."""
    for name in storage.names(FOLDER):
        for line in read_lines(storage, f"{FOLDER}/{name}")[0]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # torn by a crash
            if isinstance(entry, dict) and (not kinds or entry.get("kind") in kinds):
                yield entry
