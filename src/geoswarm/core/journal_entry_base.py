"""The base of every entry of the journal: a frozen dataclass that names its kind, declared where it is made.

Rounds are declared in `control/outcome.py`, Guard's in `guard/findings.py`, all others in `store/journal/entries.py`.
How a declaration becomes a line of JSON, and a line the declared value, is `store/journal/mapping.py`.
"""

from typing import ClassVar

Figure = float | int | str
"""A number or a word that a strategy writes down beside its decision."""
FLAT = {"flat": True}
"""Metadata of a field whose own fields are written beside those of the entry, not inside an object."""


class JournalEntry:
    kind: ClassVar[str]
    """The name of the kind on disk. It never changes: journals that were written before are read by it."""
