"""Some subscriptions in memory: their ids, and the values of every attribute of `attributes.py`, as parallel arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints, SubIds
from geoswarm.core.subscriptions.attribute_kind import Attribute
from geoswarm.core.subscriptions.attributes import ATTRIBUTES, OPERATION

V = TypeVar("V")
S = TypeVar("S")


@dataclass(frozen=True)
class Subs:
    """`subs[REGION]` are the regions: attributes are the keys, so that a type checker knows the type of the values."""

    ids: SubIds
    values: dict[str, Any]

    def __getitem__(self, attribute: Attribute[V, S]) -> V:
        values: V = self.values[attribute.name]
        return values

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> "Subs":
        """These rows, in this order."""
        return Subs(self.ids[rows], {a.name: a.take(self.values[a.name], rows) for a in ATTRIBUTES})

    def table(self) -> pa.Table:
        """The operations that register the same."""
        columns: dict[str, Any] = {"op": pa.array(["register"] * len(self)), "sub_id": pa.array(self.ids)}
        for attribute in ATTRIBUTES:
            columns |= attribute.show(self.values[attribute.name])
        return pa.table([columns[name] for name in OPERATION.names], schema=OPERATION)


def concatenate_subs(parts: Sequence[Subs]) -> Subs:
    ids = np.concatenate([part.ids for part in parts])
    return Subs(ids, {a.name: a.concatenate([part.values[a.name] for part in parts]) for a in ATTRIBUTES})
