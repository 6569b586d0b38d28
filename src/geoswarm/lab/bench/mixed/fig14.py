"""Mixed Fig. 14: throughput of a word count (Social) and a self-join (Stock) over the tolerance, projected.

On the real engine: the streams are in `keyed_streams.py`, what is measured of a round, and Ideal, in `keyed_race.py`.
The first round, which all start from plain hash, is left out. How plain hash fares on Stock hangs on whether two of the
few stocks that are traded most fall to the same executor, so several markets are run, and their rounds are summed up.

In the paper MinTable pays for the state that it moves; here nothing is moved. Readj's σ is searched, as there; a
compiled Readj plans these streams in a fraction of a round, and its slowness, which decides the paper's Fig. 14(b),
does not show.

The stock that is traded most is more than an executor's share, and more so the larger a round is, since pairs grow
faster than rows. The engine splits such a key by account (`flow/keyed/self_join.py`), which the paper does not:
`mixed, splits` is the engine, `mixed` at the first tolerance the paper's planner with whole keys, and the rivals have
whole keys, too.

`vs_hash` is Mixed's at θ_max = 0.02 on Stock, where the paper has 2. `vs_ideal` is the lesser of its two closenesses
to Ideal, `vs_ideal_social` and `vs_ideal_stock`; `vs_ideal_raw` is the same by the CPU times of tasks as they came, the
least of `turns`, and `vs_ideal_once` that of single turns, in which the largest of 15 is also the unluckiest.
`..._whole_keys` are of the paper's Mixed on Stock; by work, no plan of
whole keys is nearer to Ideal than `bound_whole_keys`.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.mixed.keyed_race import (
    EXECUTORS,
    PKG,
    KeyedContestant,
    KeyedRace,
    cpu_vs_hash,
    rounds_row,
    run_keyed_race,
    time_rounds,
)
from geoswarm.lab.bench.mixed.keyed_streams import KeyedWorkload, draw_streams, social, stock

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIXED = "mixed, splits"
RIVALS = ("min-table", "readj-searched")
FIXED = ("hash", PKG)
"""They know no tolerance."""


class ToleranceSizes(NamedTuple):
    posts: int
    trades: int
    thetas: tuple[float, ...]
    rounds_social: int
    rounds_stock: int
    markets: int
    executors: int = EXECUTORS
    turns: int = 4
    """Of Mixed at the first tolerance, and of plain hash, with which its CPU time is compared."""


SIZES = {
    Scale.SMALL: ToleranceSizes(60_000, 160_000, (0.02, 0.3), 3, 4, 2, turns=3),
    Scale.FULL: ToleranceSizes(100_000, 300_000, (0.02, 0.05, 0.08, 0.15, 0.3), 6, 10, 5),
}


def measure(sizes: ToleranceSizes, seed: int, report: Progress) -> Result:
    rows, config, cpu = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    strictest = KeyedContestant("mixed", sizes.thetas[0], splits=True).name
    posts, markets = social(sizes.posts, seed), [stock(sizes.trades, seed + n) for n in range(sizes.markets)]
    for streams, rounds in (([posts], sizes.rounds_social), (markets, sizes.rounds_stock)):
        name, contestants = streams[0].name, _keyed_contestants(streams[0], sizes)
        laps = [
            run_keyed_race(
                KeyedRace(stream.operator, contestants, sizes.executors),
                stream.batches,
                rounds,
                seed,
                report,
                f"{name} {n + 1}",
                n,
            )
            for n, stream in enumerate(streams)
        ]
        times, costs = time_rounds(laps)
        config[f"costs_{name}"] = costs.to_json()
        cpu[f"cpu_vs_hash_{name}"] = fmean(cpu_vs_hash(timed, strictest) for timed in times)
        rows += [
            {"stream": name, "planner": f"{c.planner}{', splits' if c.splits else ''}", "theta_max": theta}
            | rounds_row([lap for timed in times for lap in timed[c.name][1:]])
            for c in contestants
            for theta in (sizes.thetas if c.planner in FIXED else (c.theta_max,))
        ]
    return Result(rows, _summary(rows, sizes.thetas[0]) | cpu, sizes._asdict() | config)


def _keyed_contestants(stream: KeyedWorkload, sizes: ToleranceSizes) -> list[KeyedContestant]:
    strict, turns = sizes.thetas[0], sizes.turns
    mixed = [KeyedContestant("mixed", theta, True, turns if theta == strict else 1) for theta in sizes.thetas]
    whole = [] if stream.counts else [KeyedContestant("mixed", strict)]
    rivals = [KeyedContestant(planner, theta) for planner in RIVALS for theta in sizes.thetas]
    pkg = [KeyedContestant(PKG)] if stream.counts else []
    return [*mixed, *whole, *rivals, KeyedContestant("hash", turns=turns), *pkg]


def _summary(rows: Sequence[dict[str, Any]], theta: float) -> dict[str, float]:
    def row(stream: str, planner: str) -> dict[str, Any]:
        return next(r for r in rows if (r["stream"], r["planner"], r["theta_max"]) == (stream, planner, theta))

    def ratio(stream: str, rival: str, key: str = "rows_per_s") -> float:
        return float(row(stream, MIXED)[key] / row(stream, rival)[key])

    def closeness(stream: str, key: str = "max_over_mean", planner: str = MIXED) -> float:
        return 1.0 / float(row(stream, planner)[key])

    return {
        "vs_ideal": min(closeness("social"), closeness("stock")),
        "vs_ideal_raw": min(closeness(stream, "max_over_mean_raw") for stream in ("social", "stock")),
        "vs_ideal_once": min(closeness(stream, "max_over_mean_once") for stream in ("social", "stock")),
        "vs_hash": ratio("stock", "hash"),
        "vs_hash_social": ratio("social", "hash"),
        "vs_readj_stock": ratio("stock", "readj-searched"),
        "vs_pkg_social": ratio("social", PKG),
        "latency_vs_pkg_social": ratio("social", PKG, "latency_ms"),
        "vs_ideal_social": closeness("social"),
        "vs_ideal_stock": closeness("stock"),
        "vs_ideal_raw_social": closeness("social", "max_over_mean_raw"),
        "vs_ideal_raw_stock": closeness("stock", "max_over_mean_raw"),
        "vs_ideal_once_social": closeness("social", "max_over_mean_once"),
        "vs_ideal_once_stock": closeness("stock", "max_over_mean_once"),
        "vs_ideal_whole_keys": closeness("stock", planner="mixed"),
        "bound_whole_keys": 1.0 / max(1.0, float(row("stock", "mixed")["heaviest_key"])),
        "vs_hash_whole_keys": float(row("stock", "mixed")["rows_per_s"] / row("stock", "hash")["rows_per_s"]),
    }


def plot(result: Result) -> "Figure":
    return draw_streams(result, "Mixed Fig. 14", "theta_max", "θ_max")
