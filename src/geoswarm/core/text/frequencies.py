"""How common each term is in the recent stream: counts by hash, in a table of fixed size, that fade.

A count-min sketch: two rows of counts; each half of a term's hash is its place in one row, and the lesser count is
read. It never reads too little; a term that shares both places with a common one reads too much. Good for choosing the
rarest of a few terms (PS2Stream §IV-D), where an error costs time and no match. Exact counts are not kept anywhere.
"""

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import Floats, kernel
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens
from geoswarm.errors import InputError

WIDTH = 1 << 16
"""Places in a row; the table takes 512 kB. With more distinct terms than that, rare ones cannot be told apart."""


class TermCounts:
    def __init__(self, counts: npt.NDArray[np.float32]) -> None:
        self.counts = counts  # (2, a power of two)

    @classmethod
    def empty(cls, width: int = WIDTH) -> "TermCounts":
        if width < 1 or width & (width - 1):
            raise InputError(f"a table of {width} counts: its width must be a power of two, such as {WIDTH}")
        return cls(np.zeros((2, width), np.float32))

    def add(self, tokens: Tokens, every: int = 1, first: int = 0) -> None:
        """Counts every `every`-th text from `first` on, each for `every` of them."""
        _add(tokens, every, first, self.counts)

    def take_in(self, hashes: Hashes, faded: float) -> None:
        """Multiply all counts by `faded`, then add more terms; in place."""
        self.counts *= np.float32(faded)
        mask = np.uint64(self.counts.shape[1] - 1)
        np.add.at(self.counts[0], hashes & mask, 1)
        np.add.at(self.counts[1], (hashes >> np.uint64(32)) & mask, 1)

    def __add__(self, other: "TermCounts") -> "TermCounts":
        if self.counts.shape != other.counts.shape:
            widths = self.counts.shape[1], other.counts.shape[1]
            raise InputError(f"tables of {widths[0]} and {widths[1]} counts cannot be added: use one width everywhere")
        return TermCounts(self.counts + other.counts)

    def fade(self, share: float) -> "TermCounts":
        """All counts multiplied by `share`: 0.5 forgets half."""
        return TermCounts(self.counts * np.float32(share))

    def read(self, hashes: Hashes) -> Floats:
        """About how many of the recent texts had each term, for `build_text` in the order of its vocabulary."""
        mask = np.uint64(self.counts.shape[1] - 1)
        low, high = self.counts[0][hashes & mask], self.counts[1][(hashes >> np.uint64(32)) & mask]
        counts: Floats = np.minimum(low, high).astype(np.float64)
        return counts


@kernel
def _add(tokens: Tokens, every: int, first: int, counts: npt.NDArray[np.float32]) -> None:
    mask = np.uint64(counts.shape[1] - 1)
    for i in range(first, len(tokens.offsets) - 1, every):
        for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
            counts[0, tokens.hashes[t] & mask] += every
            counts[1, (tokens.hashes[t] >> np.uint64(32)) & mask] += every
