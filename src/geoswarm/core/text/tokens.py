"""Cuts texts into terms: one rule for events and for subscriptions, in plain Python and in bulk.

`expression.py` has the terms of expressions, `core/index/words.py` finds subscriptions by terms. PS2Stream §II-A.

The rule (`terms_of` is its definition, `tokenize` the same for a whole column):

1. Of a text longer than TEXT_BYTES_MAX only the beginning is read, without a word that is cut off.
2. The text is decomposed (NFD), case-folded, and composed (NFC), so that texts that Unicode calls canonically
   equal, in any case, give equal terms: `Straße`, `STRASSE`; é as one character or as e with an accent.
3. A term is a letter or digit (categories L, N) and all letters, digits and marks (M) that follow it. Everything else
   separates: `#flood` gives `flood`, `don't` gives `don` and `t`, and a heart's variation selector is no word.
4. A term of more than TERM_CHARS_MAX characters is left out. Expressions cannot ask for it, either.

Accents count (`café` is not `cafe`), and words are not stemmed. Scripts written without spaces are not cut into words:
a run of them is one term. The same Python gives the same terms; a newer one may have letters that an older has not.

Terms are looked up by a 64-bit hash, which is the same on every machine. Two terms may share one, by chance or by
intent, so each token also carries its bytes, which are compared after a look-up by hash.
"""

import re
import unicodedata
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.buffers import ByteRows, rows_of
from geoswarm.core.arrays.jit import Bytes, Ints
from geoswarm.core.text.kernels import GROWTH_MAX, Hashes, Room, beyond_ascii, cut_terms, hash_rows, to_fold_whole
from geoswarm.core.text.unicode_tables import FoldTables, fold, tables

TEXT_BYTES_MAX = 65_536
"""Bytes of one text: a post has hundreds, an article thousands; a megabyte in one row is an error or an attack."""
TERM_CHARS_MAX = 64
"""Characters of one term, after folding: words of no language are longer, but base64 is."""

_RUN = re.compile("[LN][LNM]*")  # over the categories of characters
_NO_TABLES = FoldTables(np.empty(0, np.uint16), np.empty(0, np.uint16), np.empty(0, np.uint64))
for _table in _NO_TABLES:
    _table.setflags(write=False)  # kernels are compiled for the kind of array that `tables` gives


class Tokens(NamedTuple):
    """The distinct terms of text i are rows offsets[i]:offsets[i + 1], ascending by hash.

    The bytes of token t are folded[starts[t]:ends[t]], in UTF-8. Tokens of equal hash and other bytes are other terms.
    """

    offsets: Ints
    hashes: Hashes
    starts: Ints
    ends: Ints
    folded: Bytes

    def between(self, start: int, end: int) -> "Tokens":
        """The tokens of consecutive texts; the arrays of tokens are shared."""
        return self._replace(offsets=self.offsets[start : end + 1])

    def terms(self, row: int) -> list[str]:
        """The terms of one text, for tests and people."""
        tokens = range(self.offsets[row], self.offsets[row + 1])
        return [self.folded[self.starts[t] : self.ends[t]].tobytes().decode() for t in tokens]


def terms_of(text: str) -> list[str]:
    """The distinct terms of one text, in order of appearance."""
    return list(dict.fromkeys(run for run in runs_of(fold_text(text)) if len(run) <= TERM_CHARS_MAX))


def fold_text(text: str) -> str:
    """The text after rules 1 and 2."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= TEXT_BYTES_MAX:
        return fold(text)
    head = fold(encoded[:TEXT_BYTES_MAX].decode("utf-8", "ignore"))
    return head[: len(head) - len(_last_run(head))]


def runs_of(folded: str) -> list[str]:
    """Rule 3: all runs of a folded text, of any length."""
    marked = "".join(unicodedata.category(character)[0] for character in folded)
    return [folded[run.start() : run.end()] for run in _RUN.finditer(marked)]


def _last_run(folded: str) -> str:
    """The run that reaches the end, or an empty text."""
    runs = runs_of(folded)
    return runs[-1] if runs and folded.endswith(runs[-1]) else ""


def tokenize(texts: pa.StringArray) -> Tokens:
    """The terms of each text; a null has none. Takes string and large_string arrays, sliced or not."""
    rows = rows_of(texts)
    sizes = rows.ends - rows.begins
    high = beyond_ascii(rows)
    known = tables() if len(high) else _NO_TABLES
    folded_before = np.zeros(len(sizes), np.uint8)
    folded_before[sizes > TEXT_BYTES_MAX] = 1
    if len(high):
        folded_before[to_fold_whole(rows, high, known)] = 1
    if folded_before.any():
        whole = np.flatnonzero(folded_before)
        known = tables()  # a long text in ASCII is among them
        rows = _with_texts(rows, whole, [fold_text(rows.text(row)) for row in whole.tolist()])
        sizes = rows.ends - rows.begins
    return _cut(rows, sizes, folded_before, known)


def _with_texts(rows: ByteRows, changed: Ints, texts: list[str]) -> ByteRows:
    """The rows with some texts replaced; the new texts lie after the old."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    bounds = len(rows.data) + np.cumsum([0, *map(len, encoded)])
    begins, ends = rows.begins.copy(), rows.ends.copy()
    begins[changed], ends[changed] = bounds[:-1], bounds[1:]
    data = np.concatenate([rows.data, np.frombuffer(b"".join(encoded), np.uint8)])
    data.setflags(write=False)
    return ByteRows(data, begins, ends)


def _cut(rows: ByteRows, sizes: Ints, folded_before: Bytes, known: FoldTables) -> Tokens:
    """Most texts have at most one term per five bytes; if there are more, the room is doubled."""
    total, longest = int(sizes.sum()), int(sizes.max(initial=0))
    room = _room(len(sizes) + 1, total // 5 + longest + 1, total + GROWTH_MAX * longest + 8)
    found = _room(longest, longest, 0)
    row = 0
    while row < len(sizes):
        row = cut_terms(rows, folded_before, known, TERM_CHARS_MAX, found, room, row)
        if row < len(sizes):
            room = _double_room(room)
    count = room.offsets[-1]
    return Tokens(room.offsets, room.hashes[:count], room.starts[:count], room.ends[:count], room.folded)


def _room(rows: int, tokens: int, size: int) -> Room:
    starts_and_ends = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    return Room(np.zeros(rows, np.int64), np.empty(tokens, np.uint64), *starts_and_ends, np.empty(size, np.uint8))


def _double_room(room: Room) -> Room:
    grown = _room(0, 2 * len(room.hashes), 2 * len(room.folded))
    n, size = len(room.hashes), len(room.folded)
    grown.hashes[:n], grown.starts[:n], grown.ends[:n] = room.hashes, room.starts, room.ends
    grown.folded[:size] = room.folded
    return grown._replace(offsets=room.offsets)


def hash_terms(terms: pa.StringArray) -> Hashes:
    """The hash of each term, which must be folded already (a vocabulary of `expression.py` is)."""
    return hash_rows(rows_of(terms))
