"""UUIDs of 16 bytes become the texts that everybody writes."""

import uuid

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.uuids import is_uuid, uuid_texts


def test_a_uuid_becomes_its_usual_text_wherever_a_column_is_cut() -> None:
    rng = np.random.default_rng(1)
    for count, share in ((0, 0.0), (1, 1.0), (60, 0.0), (60, 0.4), (60, 1.0)):
        known = [None if rng.random() < share else uuid.UUID(bytes=rng.bytes(16)) for _ in range(count)]
        column = pa.array([u and u.bytes for u in known], pa.uuid())
        assert is_uuid(column.type)
        for first in (0, 1, 9):
            texts = uuid_texts(column.slice(first))
            texts.validate(full=True)
            assert texts.to_pylist() == [u and str(u) for u in known[first:]]
