"""What the tokenizer's kernel needs for each code point, as flat arrays, built once per process.

Not a Unicode library: the two tables answer "does it separate, is it copied, what does it fold to" for texts in which
code points can be folded one by one, and say which cannot. Those texts are folded by `tokens.fold_text` first.

A text can be folded code point by code point when composing the result would change nothing. That is so when none of
its code points can be composed with the one before it (Unicode's quick check for NFC, UAX #15 §9, answers "yes" for
all), and marks stand in canonical order: their combining classes do not descend within a run of marks. So:

    kind            meaning
    SEPARATES       ends a term, or is a mark's base that is no letter
    IN_TERM         a letter or digit that stays as it is
    WHOLE_TEXT      the text must be normalised as a whole
    FOLD + k        a letter that folds to the bytes folds[k]
    MARK + class    a mark that stays as it is; belongs to a term if it follows one
"""

import functools
import itertools
import sys
import unicodedata
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SEPARATES = 0
IN_TERM = 1
WHOLE_TEXT = 2
MARK = 256
FOLD = 512
FOLD_BYTES_MAX = 7
"""Bytes that fit beside their number into 64 bits; texts with longer images are folded as a whole."""

CODES = sys.maxunicode + 1
_CODES_ASSIGNED = (range(0x80, 0x40000), range(0xE0000, 0xE1000))
"""Unicode has no letter, digit or mark outside these (planes 4 to 13 are empty, 15 and 16 private)."""
_IOTA_SUBSCRIPT = "\u0345"
"""The one mark that folds to a letter. Marks after its base would have to move before that letter."""

Kinds = npt.NDArray[np.uint16]


class FoldTables(NamedTuple):
    folding: Kinds  # by code point, for texts as they come
    plain: Kinds  # by code point, for texts that are folded already: nothing folds, any order of marks
    folds: npt.NDArray[np.uint64]  # UTF-8 from the lowest byte up; the highest byte is their number


def fold(text: str) -> str:
    """Canonically equal texts, in any case, become equal (Unicode D145, composed)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


@functools.cache
def tables() -> FoldTables:
    folding, plain = array("H", bytes(2 * CODES)), array("H", bytes(2 * CODES))
    folds: dict[int, int] = {}
    composable = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}  # Hangul vowels and finals, composed by rule
    for code in itertools.chain(*_CODES_ASSIGNED):
        character = chr(code)
        group = unicodedata.category(character)[0]
        if group not in "LNM":
            continue
        plain[code] = MARK if group == "M" else IN_TERM
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and parts[0][0] != "<":
            composable.add(int(parts[1], 16))
        if not parts and character.casefold() == character:
            folding[code] = plain[code] + unicodedata.combining(character)
        else:
            folding[code] = _kind(character, group, folds)
    for code in composable:
        folding[code] = WHOLE_TEXT
    return FoldTables(
        _read_only_table(folding, np.uint16),
        _read_only_table(plain, np.uint16),
        _read_only_table(list(folds), np.uint64),
    )


def _kind(character: str, group: str, folds: dict[int, int]) -> int:
    image = fold(character)
    if _IOTA_SUBSCRIPT in unicodedata.normalize("NFD", character):
        return WHOLE_TEXT
    if image == character:
        return (MARK if group == "M" else IN_TERM) + unicodedata.combining(character)
    letters = all(unicodedata.category(c)[0] in "LN" for c in image)
    if group == "M" or not letters or len(image.encode()) > FOLD_BYTES_MAX:
        return WHOLE_TEXT
    return FOLD + folds.setdefault(_pack(image), len(folds))


def _pack(image: str) -> int:
    encoded = image.encode()
    return int.from_bytes(encoded, "little") | len(encoded) << 56


def _read_only_table(values: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    table = np.array(values, dtype)
    table.setflags(write=False)
    return table
