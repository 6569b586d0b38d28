"""The newest matches of each subscription, as many as there is room for: against sorting all of them."""

import numpy as np
import pyarrow as pa
import pytest

import worlds
from geoswarm.flow.match.match import MatchRun
from geoswarm.flow.newest_matches import NewestMatches, share_of_each


@pytest.mark.parametrize("most", [1, 7, 60, 400, 10_000])
@pytest.mark.parametrize("seed", range(6))
def test_each_gets_its_newest_and_all_get_equally_many(seed: int, most: int) -> None:
    rng, ids = np.random.default_rng(seed), np.array([3, 5, 8, 13])
    since_us = np.array([0, 100, 0, 700])
    newest, found = NewestMatches(ids, since_us, most), list[tuple[int, int, int]]()  # subscription, time, event
    for run in range(12):
        events = worlds.events(rng, 80, first_id=1000 * run)
        times = rng.integers(0, 1000, 80)
        events = events.set_column(1, "ts", pa.array(times).cast(pa.timestamp("us", tz="UTC")))
        met = rng.random((80, 4)) < [0.9, 0.5, 0.02, 0.3]
        subs = np.concatenate([rng.permutation(ids[row]) for row in met])
        newest.add(MatchRun(events, np.concatenate([[0], np.cumsum(met.sum(axis=1))]), subs))
        pairs = [(int(ids[k]), int(times[i]), 1000 * run + int(i)) for i, k in zip(*np.nonzero(met), strict=True)]
        found += [pair for pair in pairs if pair[1] >= since_us[ids.tolist().index(pair[0])]]
    of_each = {int(sub): sorted((pair[1:] for pair in found if pair[0] == sub), reverse=True) for sub in ids}
    share = max(n for n in range(2000) if sum(min(n, len(each)) for each in of_each.values()) <= most)
    want = sorted((time, event, sub) for sub, each in of_each.items() for time, event in each[:share])
    got = list[tuple[int, int, int]]()
    for events, offsets, subs in newest.read():
        rows = zip(events["ts"].cast(pa.int64()).to_pylist(), events["event_id"].to_pylist(), strict=True)
        got += [(*row, int(sub)) for i, row in enumerate(rows) for sub in subs[offsets[i] : offsets[i + 1]]]
    assert got == want
    assert newest.left_out == len(found) - len(want)


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [([5, 2, 9], 10, 4), ([5, 2, 9], 16, 9), ([5, 2, 9], 15, 8), ([5, 2, 9], 2, 0), ([0, 0], 1, 0), ([], 5, 0)],
)
def test_the_share_of_each_is_the_largest_that_fits(counts: list[int], most: int, share: int) -> None:
    assert share_of_each(np.array(counts, np.int64), most) == share
