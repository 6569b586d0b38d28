"""A spatial join of points and polygons: `gs.join` beside a broadcast STRtree in a UDF and beside Apache Sedona.

Each rival runs in a process of its own with its own Spark on two cores, one after the other, in turns of a new order:
same files, same memory, same settings, and the same answer, which is compared (pairs, and a checksum over them).
Clocked from reading both files to the answer; a small join before it starts JVM, workers and compiled kernels. At full
scale one more run of ours and of the UDF, from the start of its process and with nothing before it, is the cold figure.

    3k      districts that tile the country, 380 vertices each        points of `lab/workload/tweets.py`: many of both
    200k    fences of 20 to 200 vertices, heaped up in the cities     in a large city (`lab/workload/zones.py`)

Sedona needs an environment of its own, named by GEOSWARM_SEDONA_ENV (`SEDONA_HOW`); without it its figures are left
out. Distributor §4; issue 6 asks for at least 1 on 3k, and at least 3 on 200k.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.errors import MachineError, StreamError
from geoswarm.lab.bench.engine import join_sedona
from geoswarm.lab.bench.engine.join_rivals import BEGINS
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, median, ratio
from geoswarm.lab.bench.kit.places import US
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.bench.kit.process_tree import Watch
from geoswarm.lab.bench.kit.sessions import MASTER
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.lab.workload.zones import districts, zones

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONF = {
    "spark.driver.memory": "6g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    # Splits of a file, so that two cores end together.
    "spark.sql.files.maxPartitionBytes": str(16 << 20),
    # Long batches to Python, with no limit in bytes, which Spark would measure after every row: the UDF gains, too.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""Settings of Spark, the same for all rivals."""
OURS, UDF = "geoswarm", "udf"
SEDONA = ("sedona-broadcast", "sedona-divided")
SEDONA_ENV = "GEOSWARM_SEDONA_ENV"
SEDONA_HOW = (
    f"{SEDONA_ENV} names no Python with Apache Sedona, so it is left out: make an environment with "
    "`pip install pyspark==4.0.* apache-sedona==1.8.0 pandas setuptools`, put the jars sedona-spark-shaded-4.0_2.13 "
    "and geotools-wrapper of that version into its pyspark/jars, and name its Python"
)
FILES = 16
WARM_POINTS, WARM_REGIONS = 60_000, 500
"""Of the small join: so many points that each rival has tasks for both cores, and starts both of its workers."""
RUN_S_MAX = 3600.0


class JoinSizes(NamedTuple):
    points: int
    regions: tuple[tuple[str, int], ...]
    """What each set is called in the keys, and how many it has; the first is of districts, others are of zones."""
    turns: int
    cold: bool


SIZES = {
    Scale.SMALL: JoinSizes(200_000, (("3k", 3_000), ("200k", 200_000)), 1, False),
    Scale.FULL: JoinSizes(10_000_000, (("3k", 3_000), ("200k", 200_000)), 3, True),
}


class JoinRun(NamedTuple):
    """One join of one rival."""

    seconds: float
    """Seconds by the rival's own clock; for a cold run by ours, from the start of the process."""
    cpu_s: float
    peak_mb: float
    pairs: int
    checksum: int


def measure(sizes: JoinSizes, seed: int, report: Progress) -> Result:
    python = os.environ.get(SEDONA_ENV)
    if not python:
        print(SEDONA_HOW, file=sys.stderr)
    return measure_join(sizes, seed, report, python)


def measure_join(sizes: JoinSizes, seed: int, report: Progress, sedona: str | None = None) -> Result:
    """`sedona` is the Python of its environment."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    summary: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="geoswarm-bench-join-") as folder:
        report("drawing the points")
        places = Tweets(seed=seed, country="US", bounds=US)
        points = write_points(places, sizes.points, Path(folder) / "points")
        few = write_points(places, min(WARM_POINTS, sizes.points), Path(folder) / "few")
        for number, (name, count) in enumerate(sizes.regions):
            report(f"drawing {count} regions")
            regions, warm = (str(Path(folder) / f"{name}{kind}.parquet") for kind in ("", "-few"))
            drawn = (zones if number else districts)(places, count)
            pq.write_table(drawn, regions)
            pq.write_table(drawn.slice(0, WARM_REGIONS), warm)
            race = JoinRace(points, regions, [(few, warm)], sedona)
            cold = {rival: race.run(rival, report, cold=True) for rival in (OURS, UDF)} if sizes.cold else {}
            runs = race.turns(sizes.turns, rng, report)
            _check(runs)
            rows += _rows(name, sizes.points, runs, cold)
            summary |= _summary(name, runs)
    config = {"points": sizes.points, "turns": sizes.turns, "master": MASTER, "conf": CONF, "country": "US"}
    return Result(rows, summary, config | {"sedona": sedona_versions(sedona) if sedona else None})


def write_points(places: Tweets, count: int, folder: Path) -> str:
    """Write points in the order of the stream, which follows no place."""
    folder.mkdir()
    for number, first in enumerate(range(0, count, step := -(-count // FILES))):
        drawn = places.events(first, min(step, count - first))
        table = pa.table({"id": drawn["event_id"], "x": drawn["x"], "y": drawn["y"]})
        pq.write_table(table, folder / f"{number:03d}.parquet")
    return str(folder)


class JoinRace:
    def __init__(self, points: str, regions: str, warm: list[tuple[str, str]], sedona: str | None) -> None:
        self._joins, self._warm, self._sedona = [(points, regions)], warm, sedona
        self.rivals = [OURS, UDF, *(SEDONA if sedona else ())]

    def turns(self, count: int, rng: np.random.Generator, report: Progress) -> dict[str, list[JoinRun]]:
        """Run all rivals in turns. Of Sedona's two ways, only the one that was faster in the first turn goes on."""
        runs: dict[str, list[JoinRun]] = {rival: [] for rival in self.rivals}
        for turn in range(count):
            for i in rng.permutation(len(self.rivals)):
                rival = self.rivals[i]
                runs[rival].append(self.run(rival, lambda line, turn=turn: report(f"turn {turn + 1}: {line}")))  # type: ignore[misc]
            if turn == 0 and self._sedona:
                slower = max(SEDONA, key=lambda rival: runs[rival][0].seconds)
                self.rivals = [rival for rival in self.rivals if rival != slower]
        return runs

    def run(self, rival: str, report: Progress, *, cold: bool = False) -> JoinRun:
        report(f"{rival}, {Path(self._joins[0][1]).stem}{', cold' if cold else ''}")
        joins = self._joins if cold else [*self._warm, *self._joins]
        asked = {"rival": rival, "master": MASTER, "conf": CONF, "joins": joins}
        began_s = time.perf_counter()
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [*self._command(rival), json.dumps(asked)], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            try:
                with Watch(process.pid) as watch:
                    answer = _listen(process.stdout or iter(()), watch, cold)
                    cold_s = time.perf_counter() - began_s
                    cpu_s, peak_bytes = watch.read()
                process.wait(RUN_S_MAX)
            finally:
                process.kill()
            if answer is None:
                errors.seek(0)
                output = [line.strip() for line in errors if line.strip()]
                raise MachineError(f"{rival} gave no answer ({' / '.join(output[-3:])[:600]}): see that it can start")
        seconds = cold_s if cold else answer["seconds"]
        return JoinRun(seconds, cpu_s, peak_bytes / 1e6, answer["pairs"], answer["checksum"])

    def _command(self, rival: str) -> list[str]:
        if rival in SEDONA:
            return [str(self._sedona), join_sedona.__file__]
        return [sys.executable, "-c", "from geoswarm.lab.bench.engine.join_rivals import main; main()"]


def _listen(lines: Iterator[str], watch: Watch, cold: bool) -> dict[str, Any] | None:
    """The last answer. What is measured begins with each join; cold, with the process."""
    answer: dict[str, Any] | None = None
    for line in lines:
        if line.strip() == BEGINS and not cold:
            watch.restart()
        elif line.startswith("{"):
            answer = json.loads(line)
    return answer


def sedona_versions(python: str) -> str:
    """The versions of Sedona and of the Spark that it runs on."""
    asked = "from importlib.metadata import version as v; print(v('apache-sedona'), 'on Spark', v('pyspark'))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"{python} has no apache-sedona and pyspark ({done.stderr[-200:].strip()}): {SEDONA_HOW}")
    return done.stdout.strip()


def _check(runs: dict[str, list[JoinRun]]) -> None:
    answers = {rival: {(one.pairs, one.checksum) for one in of_rival} for rival, of_rival in runs.items()}
    if len(set().union(*answers.values())) != 1:
        raise StreamError(f"the rivals do not agree, (pairs, checksum) are {answers}: one of them is wrong")


def _rows(name: str, points: int, runs: dict[str, list[JoinRun]], cold: dict[str, JoinRun]) -> Iterator[dict[str, Any]]:
    for rival, of_rival in runs.items():
        seconds = median([one.seconds for one in of_rival])
        yield {
            "regions": name,
            "rival": rival,
            "seconds": seconds,
            "cold_s": cold[rival].seconds if rival in cold else None,
            "cpu_s": median([one.cpu_s for one in of_rival]),
            "peak_mb": max(one.peak_mb for one in of_rival),
            "points_per_s": points / seconds,
            "pairs": of_rival[0].pairs,
            "turns": len(of_rival),
        }


def _summary(name: str, runs: dict[str, list[JoinRun]]) -> dict[str, float]:
    """Theirs over ours, turn by turn: above 1, ours is faster."""
    ours = runs[OURS]
    rivals = {"udf": UDF} | ({"sedona": _best(runs)} if SEDONA[0] in runs else {})
    summary: dict[str, float] = {}
    for key, rival in rivals.items():
        summary[f"vs_{key}_{name}"] = ratio([r.seconds for r in runs[rival]], [r.seconds for r in ours])
        summary[f"cpu_vs_{key}_{name}"] = ratio([r.cpu_s for r in runs[rival]], [r.cpu_s for r in ours])
    for key, rival in ({"geoswarm": OURS} | rivals).items():
        summary[f"peak_mb_{key}_{name}"] = max(one.peak_mb for one in runs[rival])
    return summary


def _best(runs: dict[str, list[JoinRun]]) -> str:
    """The one of Sedona's ways that was run in every turn; of a single turn, the faster one."""
    return max(SEDONA, key=lambda rival: (len(runs[rival]), -runs[rival][0].seconds))


def plot(result: Result) -> "Figure":
    names = list(dict.fromkeys(row["regions"] for row in result.rows))
    drawn, panels = figure(len(names), width_in=4.6, height_in=3.6)
    for panel, name in zip(panels, names, strict=True):
        rows = [row for row in result.rows if row["regions"] == name]
        bars = panel.bar([row["rival"] for row in rows], [row["seconds"] for row in rows], color=_colours(rows))
        panel.bar_label(bars, [f"{row['peak_mb'] / 1000:.1f} GB" for row in rows], padding=2)
        panel.tick_params(axis="x", rotation=20)
        panel.set(title=f"{result.config['points'] / 1e6:g} M points × {name}", ylabel="seconds (peak memory above)")
    return drawn


def _colours(rows: Sequence[dict[str, Any]]) -> list[str]:
    order = (OURS, UDF, *SEDONA)
    return [PALETTE[order.index(row["rival"])] for row in rows]
