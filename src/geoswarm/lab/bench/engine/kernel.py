"""Points against rectangles on one thread: the flat index beside shapely's STRtree and libspatialindex (rtree).

No Spark, no files: `pipeline.py` has the whole road. All contestants get the same coordinates in stream order and hand
back every match as arrays; each pays for what it must do first (we sort by Z-order, shapely makes its points). The
STRtree runs twice: with `predicate="intersects"`, which any geometry needs, and by bounding boxes alone, which is exact
for rectangles and its best case. The rivals take points one by one and get fewer of them. We get as many as the engine
matches at once, and the same points again in runs as short as a parcel, each of which is sorted by itself. CPU time of
one thread, interleaved; the matches must be equal.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Floats, Ints, SubIds
from geoswarm.core.space.grid import Grid
from geoswarm.errors import GeoswarmError, MachineError
from geoswarm.flow.match.match import match
from geoswarm.lab.bench.kit.density import rectangles_of, segment_of, tweets_for, z_order
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, cpu_s, interleave, ratio
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.tweets import Tweets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLAT, STRTREE, STRTREE_BOXES, RTREE = "flat index", "STRtree intersects", "STRtree boxes", "rtree"
FLAT_PARCELS = "flat index, parcels"
PARCEL_POINTS = 32_768
"""Events of a parcel in `pipeline.py`, about."""
SPARSE, DENSE = 1.0, 17.0
"""Matches per event."""
REPEATS = 3
CHECKED_POINTS = 2_000
WEIGHED_MIN = 100_000
"""Rectangles from which on the growth of the resident set says something about an index."""

Pairs = tuple[Ints, SubIds]
"""Rows of points and the rectangles they lie in, in any order."""


@dataclass(frozen=True)
class KernelSizes:
    rectangles: tuple[int, ...]
    points: int
    rival_points: int
    """The first of them. A rival's time per point does not depend on how many there are; ours falls as runs grow, so
    there are ratios for runs of the length of a parcel, too."""
    claim_at: int
    """The count of rectangles that the claims are about."""


SIZES = {
    Scale.SMALL: KernelSizes((10_000, 100_000, 1_000_000), 262_144, 32_768, 1_000_000),
    Scale.FULL: KernelSizes((10_000, 100_000, 1_000_000, 10_000_000), 262_144, 131_072, 1_000_000),
}


@dataclass(frozen=True)
class IndexContestant:
    find: Callable[[Floats, Floats], Any]
    """The measured part: coordinates in, matches as arrays out."""
    pairs: Callable[[Any], Pairs]
    count: Callable[[Any], int]
    build_s: float
    index_bytes: int


def measure(sizes: KernelSizes, seed: int, report: Progress) -> Result:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    times: dict[tuple[int, float], dict[str, list[float]]] = {}
    sides: dict[str, float] = {}
    weights: dict[tuple[int, str], float] = {}
    report("warming up the kernels")
    _warm_kernels(seed)
    for count in sizes.rectangles:
        for density in (SPARSE, DENSE):
            report(f"{count:,} rectangles, {density:g} matches per event")
            workload = tweets_for(count, density, seed)
            sides[f"{count} at {density:g}"] = workload.side_share
            events = workload.events(0, sizes.points)
            x, y = (np.asarray(events.column(axis), np.float64) for axis in ("x", "y"))
            contestants = _index_contestants(rectangles_of(workload, count))
            given = {name: sizes.points if name == FLAT else sizes.rival_points for name in contestants}
            _check_equal(contestants, x[: sizes.rival_points], y[: sizes.rival_points])
            found = contestants[FLAT].count(contestants[FLAT].find(x, y)) / sizes.points
            turns = {name: _time_per_point(c, x[: given[name]], y[: given[name]]) for name, c in contestants.items()}
            turns[FLAT_PARCELS] = _time_per_point(contestants[FLAT], x, y, PARCEL_POINTS)
            times[count, density] = interleave(turns, REPEATS, rng)
            for name, contestant in (contestants | {FLAT_PARCELS: contestants[FLAT]}).items():
                # Later builds of the rivals reuse memory that earlier ones freed.
                if contestant is contestants[FLAT] or density == SPARSE:
                    weights[count, name] = contestant.index_bytes / count
                points_per_s = 1 / best(times[count, density][name])
                rows.append(
                    {
                        "rectangles": count,
                        "matches_per_event": round(found, 2),
                        "wanted": density,
                        "index": name,
                        "points_per_s": round(points_per_s),
                        "matches_per_s": round(points_per_s * found),
                        "build_s": round(contestant.build_s, 4),
                        "bytes_per_rectangle": round(weights[count, name], 1) if count >= WEIGHED_MIN else None,
                    }
                )
            del contestants
            gc.collect()
    summary = {"points_per_s_1m": 1 / best(times[sizes.claim_at, SPARSE][FLAT])}
    for density, suffix in ((SPARSE, ""), (DENSE, "_dense")):
        taken = times[sizes.claim_at, density]
        summary[f"vs_strtree{suffix}"] = ratio(taken[STRTREE], taken[FLAT])
        summary[f"vs_strtree_boxes{suffix}"] = ratio(taken[STRTREE_BOXES], taken[FLAT])
        summary[f"vs_rtree{suffix}"] = ratio(taken[RTREE], taken[FLAT])
        summary[f"vs_strtree_32k{suffix}"] = ratio(taken[STRTREE], taken[FLAT_PARCELS])
        summary[f"vs_boxes_32k{suffix}"] = ratio(taken[STRTREE_BOXES], taken[FLAT_PARCELS])
    config = {
        "points": sizes.points,
        "rival_points": sizes.rival_points,
        "parcel_points": PARCEL_POINTS,
        "repeats": REPEATS,
        "claims_at_rectangles": sizes.claim_at,
        "side_share": sides,
        "time": "CPU seconds of one thread, best of the repeats; ratios are medians of the turn-by-turn ratios",
        "bytes": "flat index: its arrays, rectangles and ids included; the others: growth of the resident set",
    }
    return Result(rows, summary, config)


def _index_contestants(rects: Floats) -> dict[str, IndexContestant]:
    try:
        import shapely
        from rtree.index import Index
    except ImportError as why:
        raise MachineError(f"the rivals are missing ({why}): install geoswarm[bench]") from None
    grid, tuning, numbers = Grid.of(Contract()), Tuning(), np.arange(len(rects))
    held, flat_s, _ = _measure_build(lambda: segment_of(grid, rects))
    flat_bytes = held.records.rects.nbytes + held.records.ids.nbytes
    flat_bytes += sum(array.nbytes for array in held.rectangles or ())

    def flat(x: Floats, y: Floats) -> Any:
        points, order = pa.record_batch({"x": x, "y": y}), z_order(grid, x, y)
        met = match(
            points.take(pa.array(order)),
            [held],
            grid,
            0,
            rows_max=tuning.match_rows_max,
            pairs_max=tuning.match_pairs_max,
        )
        return order, [(run.offsets, run.subs) for run in met]

    def bulk_tree() -> Any:
        tree = shapely.STRtree(shapely.box(*rects.T))
        tree.query(shapely.points(0.0, 0.0))  # it is built by its first query
        return tree

    tree, tree_s, tree_bytes = _measure_build(bulk_tree)
    rtree, rtree_s, rtree_bytes = _measure_build(lambda: Index((numbers, rects[:, :2], rects[:, 2:])))

    def by_rtree(x: Floats, y: Floats) -> Any:
        corners = np.stack([x, y], axis=1)
        return rtree.intersection_v(corners, corners)

    return {
        FLAT: IndexContestant(flat, _flat_pairs, lambda out: sum(len(s) for _, s in out[1]), flat_s, flat_bytes),
        STRTREE: IndexContestant(
            lambda x, y: tree.query(shapely.points(x, y), predicate="intersects"),
            lambda out: (out[0], out[1]),
            lambda out: len(out[0]),
            tree_s,
            tree_bytes,
        ),
        STRTREE_BOXES: IndexContestant(
            lambda x, y: tree.query(shapely.points(x, y)),
            lambda out: (out[0], out[1]),
            lambda out: len(out[0]),
            tree_s,
            tree_bytes,
        ),
        RTREE: IndexContestant(
            by_rtree,
            lambda out: (np.repeat(np.arange(len(out[1])), out[1].astype(np.int64)), out[0]),
            lambda out: len(out[0]),
            rtree_s,
            rtree_bytes,
        ),
    }


def _flat_pairs(out: Any) -> Pairs:
    order, runs = out
    counts = np.concatenate([np.diff(offsets) for offsets, _ in runs])
    return np.repeat(order, counts), np.concatenate([subs for _, subs in runs])


def _check_equal(contestants: dict[str, IndexContestant], x: Floats, y: Floats) -> None:
    """All find as many matches for all points, and the same pairs for the first ones."""
    counts = {name: c.count(c.find(x, y)) for name, c in contestants.items()}
    samples = {}
    for name, c in contestants.items():
        points, subs = c.pairs(c.find(x[:CHECKED_POINTS], y[:CHECKED_POINTS]))
        samples[name] = np.sort(points.astype(np.int64) << 32 | subs.astype(np.int64))
    for name in contestants:
        if counts[name] != counts[FLAT] or not np.array_equal(samples[name], samples[FLAT]):
            raise GeoswarmError(
                f"{name} finds {counts[name]} matches, the flat index {counts[FLAT]}, and they differ: "
                "one of them is wrong, nothing was measured"
            )


def _time_per_point(
    contestant: IndexContestant, x: Floats, y: Floats, at_once: int | None = None
) -> Callable[[], float]:
    """A turn returns the seconds of one point; `at_once` are those that are looked up together, if not all."""
    runs = [slice(first, first + (at_once or len(x))) for first in range(0, len(x), at_once or len(x))]

    def turn() -> float:
        gc.collect()
        gc.disable()  # a rival that makes an object per point would pay for a walk over all of ours
        try:
            began_s = cpu_s()
            for run in runs:
                found = contestant.find(x[run], y[run])
            took_s = cpu_s() - began_s
        finally:
            gc.enable()
        del found
        return took_s / len(x)

    return turn


def _warm_kernels(seed: int) -> None:
    workload = Tweets(seed=seed)
    events = workload.events(0, 100)
    x, y = (np.asarray(events.column(axis), np.float64) for axis in ("x", "y"))
    for contestant in _index_contestants(rectangles_of(workload, 100)).values():
        contestant.find(x, y)


def _measure_build(build: Callable[[], Any]) -> tuple[Any, float, int]:
    """What was built, the CPU seconds and the growth of the resident set that it took."""
    gc.collect()
    before, began_s = _resident_bytes(), cpu_s()
    made = build()
    took_s = cpu_s() - began_s
    gc.collect()
    return made, took_s, max(0, _resident_bytes() - before)


def _resident_bytes() -> int:
    import resource

    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def plot(result: Result) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, wanted in zip(panels, (SPARSE, DENSE), strict=True):
        rows = [row for row in result.rows if row["wanted"] == wanted]
        for name in dict.fromkeys(row["index"] for row in rows):
            mine = [row for row in rows if row["index"] == name]
            axes.plot([r["rectangles"] for r in mine], [r["points_per_s"] for r in mine], label=name)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="rectangles",
            title=f"About {wanted:g} match{'es' * (wanted > 1)} per event",
        )
        axes.set_ylabel("points per second, one thread")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    low = min(axes.get_ylim()[0] for axes in panels)
    high = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(low, high)
    return drawn
