"""How terms are divided into shares: a short list for the heavy ones, a hash for the rest.

Says nothing of places or executors: a plan gives the shares of a place to its partitions (`space/plan.py`). PS2Stream
§IV-C: H1, which maps the complete term set. A vocabulary has millions of terms, most of which are said once and never
again, so only terms whose load matters are listed; any other has the share that its hash falls into.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoswarm.errors import PlanError
from geoswarm.jit import kernel
from geoswarm.text.kernels import Hashes

Shares = npt.NDArray[np.int16]
SHARES_MAX = 4096
LISTED_MAX = 65_536
"""Terms by name: 10 bytes each in every plan that has the cut."""


@dataclass(frozen=True, eq=False)
class TermCut:
    count: int
    """Of shares, 0 .. count - 1."""
    hashes: Hashes
    """Of the listed terms, ascending, each once."""
    shares: Shares
    """Of the listed terms."""

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

    def shares_of(self, hashes: Hashes) -> Shares:
        """Of any terms, by their hashes."""
        return share_of_each(hashes, self.hashes, self.shares, self.count)

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
def share_of_each(hashes: Hashes, listed: Hashes, shares: Shares, count: int) -> Shares:
    found = np.empty(len(hashes), np.int16)
    for i in range(len(hashes)):
        at = np.searchsorted(listed, hashes[i])
        if at < len(listed) and listed[at] == hashes[i]:
            found[i] = shares[at]
        else:
            found[i] = np.int16((hashes[i] >> np.uint64(32)) % np.uint64(count))
    return found
