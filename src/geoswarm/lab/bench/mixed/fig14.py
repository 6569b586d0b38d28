"""Mixed Fig. 14: throughput of a word count (Social) and a self-join (Stock) over the tolerance, projected.

On the real engine: the streams are in `keyed_streams.py`, what is measured of a round, and Ideal, in `keyed_race.py`.
The first round, which all start from plain hash, is left out. How plain hash fares on Stock hangs on whether two of the
few stocks that are traded most fall to the same executor, so several markets are run, and their rounds are summed up.

In the print MinTable pays for the state that it moves; here nothing is moved. Readj's σ is searched, as there; a
compiled Readj plans these streams in a fraction of a round, and its slowness, which decides the print's Fig. 14(b),
does not show.

`vs_hash` is Mixed's at θ_max = 0.02 on Stock, where the print has 2.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.bench.mixed.keyed_race import EXECUTORS, PKG, Contestant, Race, cpu_vs_hash, line, raced, timed
from geoswarm.lab.bench.mixed.keyed_streams import Stream, social, stock

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLANNERS = ("mixed", "min-table", "readj-searched")
FIXED = ("hash", PKG)
"""They know no tolerance."""


class Sizes(NamedTuple):
    posts: int
    trades: int
    thetas: tuple[float, ...]
    rounds_social: int
    rounds_stock: int
    markets: int
    executors: int = EXECUTORS


SIZES = {
    Scale.SMALL: Sizes(30_000, 80_000, (0.02, 0.3), 4, 5, 2),
    Scale.FULL: Sizes(100_000, 300_000, (0.02, 0.05, 0.08, 0.15, 0.3), 10, 16, 5),
}


def run(scale: Scale, seed: int, report: Progress) -> Result:
    return measure(SIZES[scale], seed, report)


def measure(sizes: Sizes, seed: int, report: Progress) -> Result:
    rows, config, cpu = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    strictest = Contestant("mixed", sizes.thetas[0]).name
    posts, markets = social(sizes.posts, seed), [stock(sizes.trades, seed + n) for n in range(sizes.markets)]
    for streams, rounds in (([posts], sizes.rounds_social), (markets, sizes.rounds_stock)):
        name, contestants = streams[0].name, _contestants(streams[0], sizes.thetas)
        laps = [
            raced(
                Race(stream.operator, contestants, sizes.executors),
                stream.batches,
                rounds,
                seed,
                report,
                f"{name} {n + 1}",
                n,
            )
            for n, stream in enumerate(streams)
        ]
        times, costs = timed(laps)
        config[f"costs_{name}"] = costs.to_json()
        cpu[f"cpu_vs_hash_{name}"] = fmean(cpu_vs_hash(told, strictest) for told in times)
        rows += [
            {"stream": name, "planner": c.planner, "theta_max": theta}
            | line([lap for told in times for lap in told[c.name][1:]])
            for c in contestants
            for theta in (sizes.thetas if c.planner in FIXED else (c.theta_max,))
        ]
    return Result(rows, _summary(rows, sizes.thetas[0]) | cpu, sizes._asdict() | config)


def _contestants(stream: Stream, thetas: Sequence[float]) -> list[Contestant]:
    fixed = [Contestant(planner) for planner in FIXED if planner != PKG or stream.can_split]
    return [*(Contestant(planner, theta) for planner in PLANNERS for theta in thetas), *fixed]


def _summary(rows: Sequence[dict[str, Any]], theta: float) -> dict[str, float]:
    def ratio(stream: str, rival: str, key: str = "rows_per_s") -> float:
        here = {r["planner"]: r for r in rows if (r["stream"], r["theta_max"]) == (stream, theta)}
        return float(here["mixed"][key] / here[rival][key])

    def closeness(stream: str) -> float:
        mixed = next(r for r in rows if (r["stream"], r["planner"], r["theta_max"]) == (stream, "mixed", theta))
        return float(mixed["rows_per_s"] / mixed["ideal_rows_per_s"])

    return {
        "vs_hash": ratio("stock", "hash"),
        "vs_hash_social": ratio("social", "hash"),
        "vs_readj_stock": ratio("stock", "readj-searched"),
        "vs_pkg_social": ratio("social", PKG),
        "latency_vs_pkg_social": ratio("social", PKG, "latency_ms"),
        "vs_ideal_social": closeness("social"),
        "vs_ideal_stock": closeness("stock"),
    }


def plot(result: Result) -> "Figure":
    drawn, panels = figure(2, width_in=5.6)
    for axes, stream in zip(panels, ("social", "stock"), strict=True):
        here = [row for row in result.rows if row["stream"] == stream]
        for name in dict.fromkeys(row["planner"] for row in here):
            of = [row for row in here if row["planner"] == name]
            axes.plot([r["theta_max"] for r in of], [r["rows_per_s"] / 1e6 for r in of], label=name)
        axes.set(xlabel="θ_max", ylabel="M rows/s, projected", ylim=(0, None))
        axes.set_title(f"{stream} (Mixed Fig. 14)")
    panels[0].legend()
    return drawn
