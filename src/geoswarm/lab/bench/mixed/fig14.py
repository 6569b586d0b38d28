"""Mixed Fig. 14: throughput of a word count (Social) and a self-join (Stock) over the tolerance, projected.

On the real engine: the streams are in `keyed_streams.py`, what is measured of a round, and Ideal, in `keyed_race.py`.
The first round, which all start from plain hash, is left out. How plain hash fares on Stock hangs on whether two of the
few stocks that are traded most fall to the same executor, so several markets are run, and their rounds are summed up.

In the paper MinTable pays for the state that it moves; here nothing is moved. Readj's σ is searched, as there; a
compiled Readj plans these streams in a fraction of a round, and its slowness, which decides the paper's Fig. 14(b),
does not show.

`vs_hash` is Mixed's at θ_max = 0.02 on Stock, where the paper has 2. `vs_ideal` is the lesser of its two closenesses
to Ideal, `vs_ideal_social` and `vs_ideal_stock`; `vs_ideal_raw` is the same by the CPU times of tasks as they came, in
which the largest of 15 is also the unluckiest.
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

PLANNERS = ("mixed", "min-table", "readj-searched")
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


SIZES = {
    Scale.SMALL: ToleranceSizes(30_000, 80_000, (0.02, 0.3), 4, 5, 2),
    Scale.FULL: ToleranceSizes(100_000, 300_000, (0.02, 0.05, 0.08, 0.15, 0.3), 10, 16, 5),
}


def measure(sizes: ToleranceSizes, seed: int, report: Progress) -> Result:
    rows, config, cpu = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    strictest = KeyedContestant("mixed", sizes.thetas[0]).name
    posts, markets = social(sizes.posts, seed), [stock(sizes.trades, seed + n) for n in range(sizes.markets)]
    for streams, rounds in (([posts], sizes.rounds_social), (markets, sizes.rounds_stock)):
        name, contestants = streams[0].name, _keyed_contestants(streams[0], sizes.thetas)
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
            {"stream": name, "planner": c.planner, "theta_max": theta}
            | rounds_row([lap for timed in times for lap in timed[c.name][1:]])
            for c in contestants
            for theta in (sizes.thetas if c.planner in FIXED else (c.theta_max,))
        ]
    return Result(rows, _summary(rows, sizes.thetas[0]) | cpu, sizes._asdict() | config)


def _keyed_contestants(stream: KeyedWorkload, thetas: Sequence[float]) -> list[KeyedContestant]:
    fixed = [KeyedContestant(planner) for planner in FIXED if planner != PKG or stream.can_split]
    return [*(KeyedContestant(planner, theta) for planner in PLANNERS for theta in thetas), *fixed]


def _summary(rows: Sequence[dict[str, Any]], theta: float) -> dict[str, float]:
    def ratio(stream: str, rival: str, key: str = "rows_per_s") -> float:
        here = {r["planner"]: r for r in rows if (r["stream"], r["theta_max"]) == (stream, theta)}
        return float(here["mixed"][key] / here[rival][key])

    def closeness(stream: str, key: str = "max_over_mean") -> float:
        mixed = next(r for r in rows if (r["stream"], r["planner"], r["theta_max"]) == (stream, "mixed", theta))
        return 1.0 / float(mixed[key])

    return {
        "vs_ideal": min(closeness("social"), closeness("stock")),
        "vs_ideal_raw": min(closeness(stream, "max_over_mean_raw") for stream in ("social", "stock")),
        "vs_hash": ratio("stock", "hash"),
        "vs_hash_social": ratio("social", "hash"),
        "vs_readj_stock": ratio("stock", "readj-searched"),
        "vs_pkg_social": ratio("social", PKG),
        "latency_vs_pkg_social": ratio("social", PKG, "latency_ms"),
        "vs_ideal_social": closeness("social"),
        "vs_ideal_stock": closeness("stock"),
    }


def plot(result: Result) -> "Figure":
    return draw_streams(result, "Mixed Fig. 14", "theta_max", "θ_max")
