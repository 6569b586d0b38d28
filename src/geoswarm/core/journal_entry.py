"""What every entry of the journal is: a frozen dataclass that names its kind. Whoever makes an entry declares it.

Rounds are declared in `control/outcome.py`, Guard's in `guard/findings.py`, all others in `store/journal/entries.py`.
How a declaration becomes a line of JSON, and a line the declared value, is `store/journal/mapping.py`.
"""

from typing import ClassVar

Figure = float | int | str
"""A number or a word that somebody who decides writes down beside the decision."""
FLAT = {"flat": True}
"""Metadata of a field whose own fields are written beside those of the entry, not inside an object."""


class JournalEntry:
    kind: ClassVar[str]
    """The name of the kind on disk. It never changes: journals that were written before are read by it."""
