"""As many subscriptions as the machine holds: loaded, started cold, and matched beside a hundredth of them.

Measures a part of `subscriptions.py`. The two engines that match run in processes of their own, so that the resident
memory is that of an engine and of nothing else; they take turns. Rectangles are the smaller the more there are, so that
an event meets as many in both: what differs is only what has to be looked through.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.lab.bench.engine.mapped_pages import evict_files
from geoswarm.lab.bench.kit.density import tweets_for
from geoswarm.lab.bench.kit.harness import Progress, interleave, ratio
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.sinks import Noop
from geoswarm.store.checkpoint import Checkpoint

CONTRACT = Contract(executors=16)
NOW_US = 1_700_000_000_000_000
STEP_ROWS = 1_000_000
STEPS_MIN = 15
"""More than there may be segments that are not merged."""
MATCHES_PER_EVENT = 1.0
LOOK_S = 0.1
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class ManySizes:
    most: int
    few: int
    events: int
    """Events of a batch."""
    turns: int


@dataclass
class MergerPeak:
    """The most memory of its own that a merging process had, without pages of files."""

    anon_bytes: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watch(self, checkpoint: Checkpoint) -> Iterator[None]:
        thread = threading.Thread(target=self._look, args=(checkpoint,), daemon=True)
        thread.start()
        yield
        self._over.set()
        thread.join()

    def _look(self, checkpoint: Checkpoint) -> None:
        while not self._over.wait(LOOK_S):
            for pid in checkpoint.merging.pids():
                self.anon_bytes = max(self.anon_bytes, resident_bytes(pid).get("RssAnon", 0))


def resident_bytes(pid: int) -> dict[str, int]:
    """VmRSS, RssAnon, ... of a process; none if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    found = (line.split() for line in lines if line.startswith(("VmRSS", "RssAnon", "RssFile")))
    return {name.rstrip(":"): int(kilobytes) * 1024 for name, kilobytes, _ in found}


def measure_many(
    folder: str, sizes: ManySizes, seed: int, report: Progress
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows and figures of the summary."""
    peak, roots = MergerPeak(), {"few": f"{folder}/few", "most": f"{folder}/most"}
    _load_rectangles(roots["few"], tweets_for(sizes.few, MATCHES_PER_EVENT, seed), sizes.few, MergerPeak(), report)
    loaded = _load_rectangles(roots["most"], tweets_for(sizes.most, MATCHES_PER_EVENT, seed), sizes.most, peak, report)
    with _engines() as engines:
        started = {}
        for name, root in roots.items():
            report(f"starting cold on {name}")
            evict_files(Path(root))
            started[name] = engines[name].submit(_start_cold, root, seed, sizes.events).result()
        report("matching")
        turns = {name: _turn(engine) for name, engine in engines.items()}
        taken = interleave(turns, sizes.turns, np.random.default_rng(seed))
        held = engines["most"].submit(_resident).result()
        counts = {name: engine.submit(_matches_per_event).result() for name, engine in engines.items()}
    rows: list[dict[str, Any]] = [
        {
            "what": f"load {sizes.most:,}",
            "operations": sizes.most,
            "per_s": round(sizes.most / loaded.seconds),
            "merger_own_gb": round(peak.anon_bytes / 1e9, 2),
        },
        *(
            {
                "what": f"match among {number:,}",
                "operations": sizes.events,
                "per_s": round(sizes.events / min(taken[name])),
                "segments": loaded.segments if name == "most" else None,
                "matches_per_event": round(counts[name], 2),
                "start_s": round(started[name], 2),
            }
            for name, number in (("few", sizes.few), ("most", sizes.most))
        ),
    ]
    summary = {
        "register_per_s_100m": sizes.most / loaded.seconds,
        "start_s_100m": started["most"],
        "bytes_per_subscription_100m": loaded.bytes_each,
        "events_100m_vs_1m": ratio(taken["few"], taken["most"]),
        "rss_gb_100m": held["VmRSS"] / 1e9,
        "rss_own_gb_100m": held["RssAnon"] / 1e9,
    }
    return rows, summary


@dataclass(frozen=True)
class _Loaded:
    seconds: float
    segments: int
    bytes_each: float


def _load_rectangles(root: str, workload: Tweets, count: int, peak: MergerPeak, report: Progress) -> _Loaded:
    """As `Engine.load` does, without the reading of a file. The time to draw rectangles does not count."""
    checkpoint, seconds = Checkpoint(root, CONTRACT, Tuning()), 0.0
    with peak.watch(checkpoint):
        step = min(STEP_ROWS, -(-count // STEPS_MIN))
        for start in range(0, count, step):
            report(f"loading, {start:,} of {count:,}")
            table = pa.table(workload.subscriptions(start, min(step, count - start)))
            began_s = time.perf_counter()
            checkpoint.take_in(table, NOW_US, {})
            seconds += time.perf_counter() - began_s
        began_s = time.perf_counter()
        held = checkpoint.settle(NOW_US)
        seconds += time.perf_counter() - began_s
    checkpoint.close()
    return _Loaded(seconds, len(held.segments), held.bytes / held.subs)


# -- in the processes of the engines

_engine: LocalEngine | None = None
_batches = list[pa.Table]()
"""All tables that the engine was given since its checkpoint was made: it goes on with those that are new."""


@contextmanager
def _engines() -> Iterator[dict[str, ProcessPoolExecutor]]:
    with ProcessPoolExecutor(1, _SPAWN) as few, ProcessPoolExecutor(1, _SPAWN) as most:
        for pool in (few, most):
            pool.submit(os.getpid).result()  # the start of a process is not that of an engine
        yield {"few": few, "most": most}


def _turn(engine: ProcessPoolExecutor) -> Any:
    return lambda: engine.submit(_match).result()


def _start_cold(root: str, seed: int, events: int) -> float:
    """Seconds until the first batch, of a thousand events, is through."""
    global _engine
    began_s = time.perf_counter()
    _engine = LocalEngine(CONTRACT, Tuning(), checkpoint=root, strategy="static-uniform", clock=lambda: NOW_US / 1e6)
    workload = Tweets(seed=seed)
    _batches.append(pa.table(workload.events(0, 1_000)))
    _engine.start(events=_batches, sink=Noop(), available_now=True).wait()
    taken_s = time.perf_counter() - began_s
    _batches.append(pa.table(workload.events(1_000, events)))
    _engine.start(events=_batches, sink=Noop(), available_now=True).wait()  # it touches the pages that others touch
    return taken_s


def _match() -> float:
    """The CPU time of one batch."""
    assert _engine is not None
    _batches.append(_batches[-1])
    began_s = time.process_time()
    _engine.start(events=_batches, sink=Noop(), available_now=True).wait()
    return time.process_time() - began_s


def _matches_per_event() -> float:
    assert _engine is not None
    totals = _engine.status()
    return float(totals["matches"]) / float(totals["events"])


def _resident() -> dict[str, int]:
    return resident_bytes(os.getpid())
