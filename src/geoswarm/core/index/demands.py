"""What subscriptions of a segment ask of the columns of an event: conditions, and the names of objects.

`flow/match/facts.py` says of which events a demand is true. Words of a text are something else (`words.py`).
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.jit import Bools, Bytes, Ints, Ordinals, SubIds, read_only
from geoswarm.core.index.word_kernels import TextIndex
from geoswarm.core.text.expression import Expressions, no_conditions

UNLISTED, LISTED, SETTLED = range(3)
"""How a subscription is found: by its place; by lists; by lists, after which nothing is left to ask of columns."""


class Lists(NamedTuple):
    by_value: TextIndex
    """Its alternatives are those of `list_kernels.py`."""
    words: ByteRows
    """The values."""
    columns: tuple[str, ...]
    """Those whose values have lists."""
    how: Bytes
    """By ordinal: UNLISTED, LISTED or SETTLED."""


class Demands:
    def __init__(
        self,
        codes: Ordinals,
        texts: pa.StringArray,
        objects: Expressions | None,
        count: int,
        lists: Lists | None = None,
    ) -> None:
        """`codes` are positions in `texts` by ordinal, and empty if none of the `count` subscriptions has a condition;
        the empty text is none. `objects` are as in `core/subscriptions/objects.py`. Without `lists`, all are found by
        their places."""
        self.codes = codes if len(codes) else read_only(np.zeros(count, np.uint32))
        self.texts = texts if len(codes) else pa.array([""], pa.string())
        self.objects, self.count, self.lists = objects, count, lists
        self._text: TextIndex | None = None

    @classmethod
    def of(
        cls, codes: Ordinals, texts: pa.StringArray, objects: Expressions | None, count: int, lists: Lists | None = None
    ) -> "Demands | None":
        """None: nothing is asked."""
        return None if not len(codes) and objects is None else cls(codes, texts, objects, count, lists)

    @property
    def listed(self) -> Bools:
        """Whether each subscription is found by lists only."""
        return np.zeros(self.count, np.bool_) if self.lists is None else self.lists.how != UNLISTED

    @cached_property
    def ordinals(self) -> SubIds:
        return read_only(np.arange(self.count))

    def by_ordinal(self, text: TextIndex) -> TextIndex:
        """The index of the segment's words, which gives ordinals instead of ids."""
        if self._text is None:
            self._text = text.with_ids(self.ordinals)
        return self._text

    @cached_property
    def by_place(self) -> "Demands":
        """The same for an index that has none of those in lists."""
        return Demands(self.codes, self.texts, self.objects, self.count)

    @cached_property
    def no_condition(self) -> int:
        """The code of the empty text, or -1."""
        return int(pc.index(self.texts, "").as_py())

    def names(self, ordinals: Ints) -> tuple[Ints, pa.StringArray]:
        """The number of objects that each of some subscriptions names, and all these names."""
        objects = no_conditions(self.count) if self.objects is None else self.objects
        taken = objects.select(ordinals)
        return np.diff(taken.conjunctions_offsets), taken.vocabulary.take(pa.array(taken.terms))

    @cached_property
    def names_any(self) -> Bools:
        """Whether each subscription names objects."""
        if self.objects is None:
            return np.zeros(self.count, np.bool_)
        named: Bools = np.diff(self.objects.conjunctions_offsets) > 0
        return named
