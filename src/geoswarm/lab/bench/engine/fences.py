"""Enter and exit of moving objects, beside Tile38: moves per second to alerts received, memory, and delay.

The same fences and the same moves, on one machine, in turn. Tile38 has a channel for each fence (`DETECT enter,exit`)
and one subscriber that takes all; SETs are encoded before the clock runs and pipelined, by one connection or by
several, of which the best turn counts. It keeps no log on disk, which is how it is fastest. Ours has two subscriptions
of each fence, reads the moves from Parquet files of `batch` moves, and writes alerts to Parquet files that are on disk
after each batch, with the state of its objects: `local` is one process that works on one core at a time, `spark` has
two. Fences are of one size, so the more there are, the more lie over each other (`fence_worlds.py`). Tile38 is given
moves for so many seconds, the engines all of them; of those that Tile38 had, all must report the same alerts. The first
fix of each object is not counted. It needs a `tile38-server` (`GEOSWARM_PEERS`, see `kit/tile38.py`).

    vs_tile38_23k        moves per second, of local, by those of Tile38, where there are 23,000 fences; others likewise
    spark_vs_tile38_23k  the same of Spark
    cpu_vs_tile38_23k    of local, by CPU time: what neighbours do does not count, nor who feeds Tile38 and hears it
    tile38_p99_ms        from the time at which a move was due to its alert, at a rate that all hold; others likewise
    mb_23k               resident memory of its own (anonymous pages) of the local engine; tile38_mb_23k of Tile38
    same_alerts          1: all reported the same alerts
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.errors import StreamError
from geoswarm.lab.bench.engine.fence_contestants import InProcess, OnSpark, OnTile38, Told
from geoswarm.lab.bench.engine.fence_worlds import STANDARD, World
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, interleave
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.sessions import bench_session
from geoswarm.lab.bench.kit.tile38 import find_server

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TILE38, LOCAL, SPARK = "tile38", "local", "spark"
MANY = 100_000
"""Beyond so many fences there are fewer moves."""


@dataclass(frozen=True)
class FenceSizes:
    fences: tuple[int, ...]
    spark_fences: tuple[int, ...]
    """Where Spark is measured, too."""
    objects: int
    moves: int
    """Of a turn."""
    batch: int
    tile38_s: float
    """Seconds of a turn in which Tile38 is given moves."""
    turns: int
    rate: int
    """Moves per second, where delays are measured."""
    rate_s: float

    def among(self, fences: int) -> "FenceSizes":
        """Where so many lie over each other that a move meets hundreds, there are fewer objects and moves."""
        part = min(1.0, MANY / fences)
        objects = round(self.objects * part)
        moves, batch = (round(count * part) // objects * objects for count in (self.moves, self.batch))
        return replace(self, objects=objects, moves=moves, batch=batch)


SIZES = {
    Scale.SMALL: FenceSizes((1_000, STANDARD), (STANDARD,), 20_000, 400_000, 400_000, 3.0, 3, 2_000, 5.0),
    Scale.FULL: FenceSizes(
        (1_000, STANDARD, 100_000, 1_000_000),
        (1_000, STANDARD, 100_000),
        50_000,
        2_000_000,
        500_000,
        20.0,
        6,
        5_000,
        20.0,
    ),
}


def measure(sizes: FenceSizes, seed: int, report: Progress, spark: Any = None) -> Result:
    find_server()  # before anything is made
    rows, summary = list[dict[str, Any]](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="geoswarm-fences-") as folder, _given_or_own(sizes, spark) as session:
        for fences in sizes.fences:
            report(f"{fences:,} fences: making the world")
            world, home = World.of(fences, seed), Path(folder) / str(fences)
            home.mkdir()
            names = (TILE38, LOCAL, *((SPARK,) if fences in sizes.spark_fences else ()))
            rows += _contest(world, home, names, sizes.among(fences), seed, session, report)
            shutil.rmtree(home)
    found = {(row["engine"], row["fences"]): row for row in rows}
    for fences in sizes.fences:
        size = _short(fences)
        theirs, ours = found[TILE38, fences], found[LOCAL, fences]
        summary[f"vs_tile38_{size}"] = ours["moves_per_s"] / theirs["moves_per_s"]
        summary[f"cpu_vs_tile38_{size}"] = theirs["cpu_us"] / ours["cpu_us"]
        if fences in sizes.spark_fences:
            summary[f"spark_vs_tile38_{size}"] = found[SPARK, fences]["moves_per_s"] / theirs["moves_per_s"]
        summary |= {f"mb_{size}": ours["memory_mb"], f"tile38_mb_{size}": theirs["memory_mb"]}
    for row in rows:
        if row["fences"] == STANDARD and row["p99_ms"] is not None:
            summary |= {f"{row['engine']}_{name}": row[name] for name in ("p50_ms", "p99_ms")}
    summary["same_alerts"] = 1.0
    return Result(rows, summary, {"objects": sizes.objects, "moves_of_a_turn": sizes.moves, "rate": sizes.rate})


@contextmanager
def _given_or_own(sizes: FenceSizes, spark: Any) -> Iterator[Any]:
    if not sizes.spark_fences:
        yield None
        return
    with bench_session(spark) as session:
        yield session


def _contest(
    world: World, home: Path, names: Sequence[str], sizes: FenceSizes, seed: int, spark: Any, report: Progress
) -> list[dict[str, Any]]:
    """All of these over one world."""
    moves = [world.moves(sizes.objects, sizes.moves, turn, seed) for turn in range(sizes.turns + 1)]
    world.write_operations(home / "fences.parquet")
    fences, told = len(world.rects), dict[str, list[Told]]()
    with ExitStack() as closing:
        running: dict[str, OnTile38 | InProcess | OnSpark] = {}
        for name in names:
            report(f"{fences:,} fences: {name} takes them")
            if name == TILE38:
                running[name] = closing.enter_context(OnTile38(world, sizes.tile38_s))
            elif name == LOCAL:
                running[name] = closing.enter_context(InProcess(home, sizes.batch))
            else:
                running[name] = closing.enter_context(OnSpark(home, sizes.batch, spark))
        turns = dict.fromkeys(names, 0)

        def turn(name: str) -> float:
            number = turns[name]
            report(f"{fences:,} fences: {name}, turn {number + 1} of {sizes.turns}")
            told.setdefault(name, []).append(running[name].run(moves[number], number))
            turns[name] += 1
            return told[name][-1].moves_per_s

        rates = interleave({name: partial(turn, name) for name in names}, sizes.turns, np.random.default_rng(seed))
        check_alerts(told)
        held = {name: running[name].memory_bytes() for name in names}
        delays = dict[str, Floats]()
        if fences == STANDARD:
            for name in names:
                report(f"{fences:,} fences: {name} at {sizes.rate:,} moves/s")
                delays[name] = running[name].delays(moves[-1], sizes.turns, sizes.rate, sizes.rate_s)
    return [
        {
            "fences": fences,
            "engine": name,
            "moves_per_s": max(rates[name]),
            "least_moves_per_s": min(rates[name]),
            "cpu_us": min(one.cpu_us for one in told[name]),
            "moves": told[name][0].moves,
            "alerts_per_move": len(told[name][0].alerts) / told[name][0].moves,
            "memory_mb": held[name] / 1e6,
            "p50_ms": 1e3 * float(np.quantile(delays[name], 0.5)) if name in delays else None,
            "p99_ms": 1e3 * float(np.quantile(delays[name], 0.99)) if name in delays else None,
        }
        for name in names
    ]


def check_alerts(told: Mapping[str, Sequence[Told]]) -> None:
    """All must have reported the same alerts of the moves that all were given."""
    for turn, each in enumerate(zip(*told.values(), strict=True)):
        given = min(one.moves for one in each)
        seen = [one.alerts[: np.searchsorted(one.alerts, given << 32)] for one in each]
        if not len(seen[0]):
            raise StreamError(f"turn {turn} has no alerts in {given:,} moves: give more moves, or more fences")
        for name, alerts in zip(told, seen, strict=True):
            if not np.array_equal(alerts, seen[0]):
                differ = len(np.setxor1d(alerts, seen[0]))
                raise StreamError(
                    f"of {given:,} moves {name} reports {len(alerts):,} alerts, and {next(iter(told))} "
                    f"{len(seen[0]):,}; {differ:,} are not of both: see docs/tile38.md"
                )


def _short(fences: int) -> str:
    """1k, 23k, 1m."""
    return f"{fences // 1_000_000}m" if fences >= 1_000_000 else f"{fences // 1000}k"


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    for color, name in zip(PALETTE, dict.fromkeys(row["engine"] for row in result.rows), strict=False):
        line = [row for row in result.rows if row["engine"] == name]
        axes.plot([row["fences"] for row in line], [row["moves_per_s"] for row in line], color=color, label=name)
    axes.set(xscale="log", yscale="log", xlabel="fences", ylabel="moves per second, to alerts received")
    axes.legend()
    return drawn
