"""How terms are divided into shares: a short list for the heavy terms, a hash for all others.

A plan gives the shares of a place to its partitions (`core/space/plan.py`). PS2Stream §IV-C: H1, which maps the
complete term set. A vocabulary has millions of terms, most of which occur once, so only terms whose load matters are
listed; the hash of any other decides its share.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from geoswarm.core.arrays.jit import kernel
from geoswarm.core.text.kernels import Hashes
from geoswarm.errors import PlanError

ShareIds = npt.NDArray[np.int16]
SHARES_MAX = 4096
LISTED_MAX = 65_536
"""Most listed terms: 10 bytes each in every plan that has the cut."""
Directory = npt.NDArray[np.int32]
"""Where the listed hashes with the same first bits begin, and where the last of them end. There are about as many
entries as terms, so a term is found at once: a binary search misses the cache at each step."""


@dataclass(frozen=True, eq=False)
class TermCut:
    count: int
    """The number of shares, which are 0 .. count - 1."""
    hashes: Hashes
    """The hashes of the listed terms, ascending, each once."""
    shares: ShareIds
    """The shares of the listed terms."""

    def __post_init__(self) -> None:
        if not 2 <= self.count <= SHARES_MAX:
            raise PlanError(f"terms cannot be divided into {self.count} shares: use 2 to {SHARES_MAX}")
        if len(self.hashes) != len(self.shares) or len(self.hashes) > LISTED_MAX:
            raise PlanError(
                f"a cut lists {len(self.hashes)} terms with {len(self.shares)} shares: give each one, "
                f"and list {LISTED_MAX} at most"
            )
        if len(self.hashes) and not (
            (self.hashes[1:] > self.hashes[:-1]).all() and self.shares.min() >= 0 and self.shares.max() < self.count
        ):
            raise PlanError("a cut lists terms out of order, or with shares that it does not have")
        self.hashes.setflags(write=False)
        self.shares.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TermCut) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.count, self.hashes.tobytes(), self.shares.tobytes()))

    @classmethod
    def of(cls, count: int, share_of_hash: Mapping[int, int]) -> "TermCut":
        order = sorted(share_of_hash)
        return cls(count, np.array(order, np.uint64), np.array([share_of_hash[h] for h in order], np.int16))

    def shares_of(self, hashes: Hashes) -> ShareIds:
        """The shares of any terms, by their hashes."""
        return share_of_each(hashes, self.hashes, self.shares, self.count, self.directory)

    @cached_property
    def directory(self) -> Directory:
        bits = len(self.hashes).bit_length()
        firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(1, np.uint64)
        return np.append(np.searchsorted(self.hashes, firsts), len(self.hashes)).astype(np.int32)

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "hashes": b64encode(self.hashes.astype("<u8").tobytes()).decode(),
            "shares": b64encode(self.shares.astype("<i2").tobytes()).decode(),
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "TermCut":
        hashes, shares = (
            np.frombuffer(b64decode(written[name]), kind) for name, kind in (("hashes", "<u8"), ("shares", "<i2"))
        )
        return cls(int(written["count"]), hashes.astype(np.uint64), shares.astype(np.int16))


@kernel
def share_of_each(hashes: Hashes, listed: Hashes, shares: ShareIds, count: int, directory: Directory) -> ShareIds:
    found = np.empty(len(hashes), np.int16)
    for i in range(len(hashes)):
        found[i] = share_of(hashes[i], listed, shares, count, directory)
    return found


@kernel
def share_of(term: np.uint64, listed: Hashes, shares: ShareIds, count: int, directory: Directory) -> np.int16:
    entries, entry = len(directory) - 1, np.int64(0)
    if entries > 1:
        bits = 0
        while (1 << bits) < entries:
            bits += 1
        entry = np.int64(term >> np.uint64(64 - bits))
    first, last = directory[entry], directory[entry + 1]
    at = first + np.searchsorted(listed[first:last], term)
    if at < last and listed[at] == term:
        return shares[at]  # type: ignore[no-any-return]
    return np.int16((term >> np.uint64(32)) % np.uint64(count))
