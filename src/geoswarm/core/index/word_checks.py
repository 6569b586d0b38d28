"""What remains to be checked of an entry of the text index once its box has passed, so that records are rarely read.

A subscription asks for alternatives, conjunctions of terms, and has an entry in each of its cells for each of them:

    entry         row of the alternative 32 | box 32                              the box as in `cell_boxes.py`
    alternative   id 64, ordinal 32 | 0 | mark 1 | place 8 | slot 11 | slot 11    the place among its conjunctions

All after the ordinal is the check. Its slots are those of a signature of the event's words; where the term of the list
is all that is asked for, it is NO_CHECK. Box and slots may leave a doubt, never an error: `flow/match/word_match.py`
then looks at the record and at the expression.
"""

from geoswarm.core.arrays.jit import Floats, inner
from geoswarm.core.index.word_kernels import Conditions
from geoswarm.core.index.word_tables import as_signed, scatter_term

NO_CHECK = 0
ENTRY_CONJUNCTIONS_MAX = 256
"""Conjunctions of one subscription that an entry can number. `text/grammar.py` allows as many."""
SIGNATURE_BITS = 11
SIGNATURE_SLOTS = 1 << SIGNATURE_BITS
NO_TERM = 0
"""The slot that no term has."""
ALL = 1 << 30
"""The mark of a check whose two slots the event must have; its terms are checked then. Without the mark, the slots are
those of earlier conjunctions: if the event has neither, this conjunction is the first that is satisfied."""


@inner
def signature_slot(scatter: int) -> int:
    """The slot of a term in signatures; never NO_TERM."""
    return max(NO_TERM + 1, (scatter >> 13) & (SIGNATURE_SLOTS - 1))


@inner
def conjunction_place(check: int) -> int:
    """The place of the conjunction among those of its subscription."""
    return (check >> 2 * SIGNATURE_BITS) & (ENTRY_CONJUNCTIONS_MAX - 1)


@inner
def posting_of(first: int, conjunction: int, conditions: Conditions, frequencies: Floats) -> tuple[int, int]:
    """The rarest term of a conjunction, and its check. The slots are those of the rarest of its other terms; or, if it
    has none, of the rarest term of each conjunction before it. Terms that must not occur are checked with the terms."""
    rarest, second, third = _rarest(conjunction, conditions, frequencies)
    place, mark, last = conjunction - first, 0, as_signed(conditions.terms_offsets[conjunction + 1]) - 1
    if second == rarest and place <= 2 and conditions.terms[last] >= 0:
        slots = NO_CHECK
        for c in range(first, conjunction):
            earlier, _, _ = _rarest(c, conditions, frequencies)
            slots = slots << SIGNATURE_BITS | signature_slot(scatter_term(earlier))
    else:
        mark, slots = ALL, signature_slot(scatter_term(third)) << SIGNATURE_BITS | signature_slot(scatter_term(second))
    return rarest, mark | place << 2 * SIGNATURE_BITS | slots


@inner
def _rarest(conjunction: int, conditions: Conditions, frequencies: Floats) -> tuple[int, int, int]:
    """The three rarest terms that must occur; if there are fewer, one of them is repeated."""
    begin = as_signed(conditions.terms_offsets[conjunction])
    end = as_signed(conditions.terms_offsets[conjunction + 1])
    rarest = second = third = as_signed(conditions.terms[begin])
    for t in range(begin + 1, end):
        term = as_signed(conditions.terms[t])
        if term < 0:
            break
        if frequencies[term] < frequencies[rarest]:
            rarest, second, third = term, rarest, second
        elif second == rarest or frequencies[term] < frequencies[second]:
            second, third = term, second
        elif third in (rarest, second) or frequencies[term] < frequencies[third]:
            third = term
    return rarest, second, third
