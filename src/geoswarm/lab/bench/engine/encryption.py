"""What encryption costs: events/s of the pipeline, opening a segment, committing a batch, with and without a key.

The two pipelines run in processes of their own, because Spark's settings hold for a process; they take turns over the
same events and subscriptions, so that a machine that slows down slows both. With a key every connection, spill, shuffle
and state file is encrypted (`docs/running.md`).

    geoswarm bench encryption          starts:   python -m geoswarm.lab.bench.engine.encryption FOLDER BATCHES
    once in clear
                                                 and once with GEOSWARM_KEY_FILE; a line in, seconds out
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.errors import SettingsError, StreamError
from geoswarm.lab.bench.kit.contest import PIPELINE_EXECUTORS, PipelineContestant, PipelineWorld
from geoswarm.lab.bench.kit.density import tweets_for
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, cpu_s, interleave, median, ratio
from geoswarm.lab.bench.kit.sessions import MASTER
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.run.spark.session import build_session
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.key_source import KEY_FILE, KeySource, make_key_file
from geoswarm.store.loading import load
from geoswarm.store.segments.open import open_segment
from geoswarm.store.segments.segment import SEGMENTS_FOLDER

CLEAR, ENCRYPTED = "clear", "encrypted"
DENSITY = 1.0
COMMIT_OPERATIONS = 1000
CONTRACT = Contract(executors=PIPELINE_EXECUTORS)


@dataclass(frozen=True)
class EncryptionSizes:
    subscriptions: int
    events: int
    """Events of a batch."""
    batches: int
    """Batches of a round, the first of which is not counted."""
    rounds: int
    repeats: int
    """Repetitions of what needs no Spark."""


SIZES = {
    Scale.SMALL: EncryptionSizes(200_000, 200_000, 3, 2, 5),
    Scale.FULL: EncryptionSizes(1_000_000, 500_000, 6, 5, 15),
}


def measure(sizes: EncryptionSizes, seed: int, report: Progress) -> Result:
    if KeySource.from_environment() is not None:
        raise SettingsError(f"a key is in the environment, so nothing would be in clear: unset {KEY_FILE}")
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_key_file(root / "key")
        keys = {CLEAR: None, ENCRYPTED: KeySource(str(root / "key"))}
        report(f"loading {sizes.subscriptions:,} subscriptions, twice")
        _draw(root, sizes, seed)
        for name, key in keys.items():
            _load(root / name, root / "subscriptions.parquet", key)
        report("opening a segment")
        opened = interleave({n: _opening(root / n, key) for n, key in keys.items()}, sizes.repeats, rng)
        size, private = _memory(root, keys)
        report("committing batches")
        committed = interleave({n: _committing(root / n, key) for n, key in keys.items()}, sizes.repeats, rng)
        report("starting Spark, twice")
        with ExitStack() as stack:
            turns = {n: stack.enter_context(_pipeline(root, n, key, sizes.batches)) for n, key in keys.items()}
            for turn in turns.values():
                turn()  # the virtual machine compiles what it runs often
            report("running the pipelines in turn")
            batch_s = interleave(turns, sizes.rounds, rng)
    rows = [
        {
            "state": name,
            "events_per_s": round(sizes.events / median(batch_s[name])),
            "open_segment_cpu_s": round(best(opened[name]), 4),
            "commit_s": round(median(committed[name]), 4),
            "private_mb_per_worker": round(private[name] / 1e6, 1),
        }
        for name in keys
    ]
    summary = {
        "throughput_ratio": ratio(batch_s[CLEAR], batch_s[ENCRYPTED]),
        "open_ratio": best(opened[ENCRYPTED]) / best(opened[CLEAR]),
        "commit_ratio": ratio(committed[ENCRYPTED], committed[CLEAR]),
        "segment_mb": size / 1e6,
        "private_mb_per_worker": private[ENCRYPTED] / 1e6,
    }
    config = {"master": MASTER, "subscriptions": sizes.subscriptions, "batch_events": sizes.events}
    return Result(rows, summary, config | {"commit_operations": COMMIT_OPERATIONS, "rounds": sizes.rounds})


def _draw(root: Path, sizes: EncryptionSizes, seed: int) -> None:
    subscriptions = tweets_for(sizes.subscriptions, DENSITY, seed).subscriptions(0, sizes.subscriptions)
    pq.write_table(pa.Table.from_batches([subscriptions]), root / "subscriptions.parquet")
    pq.write_table(pa.Table.from_batches([Tweets(seed=seed).events(0, sizes.events)]), root / "events.parquet")


def _load(home: Path, file: Path, key: KeySource | None) -> None:
    (home / "events").mkdir(parents=True)
    for place in ("checkpoint", "commits"):
        checkpoint = Checkpoint(str(home / place), CONTRACT, Tuning(), key=key)
        if place == "checkpoint":
            load(checkpoint, str(file), 0)
        checkpoint.close()


def _reopen(home: Path, key: KeySource | None) -> tuple[Checkpoint, str]:
    checkpoint = Checkpoint(str(home / "checkpoint"), CONTRACT, Tuning(), key=key)
    checkpoint.close()
    return checkpoint, max(checkpoint.manifest.segments, key=lambda entry: entry.subs).name


def _opening(home: Path, key: KeySource | None) -> Callable[[], float]:
    checkpoint, name = _reopen(home, key)

    def turn() -> float:
        began_s = cpu_s()
        open_segment(checkpoint.storage, name)
        return cpu_s() - began_s

    return turn


def _memory(root: Path, keys: dict[str, KeySource | None]) -> tuple[int, dict[str, int]]:
    """Bytes of the segment's files, and those that a process which opens it has for itself alone."""
    private, size = {}, 0
    for name, key in keys.items():
        checkpoint, held = _reopen(root / name, key)
        before = _anonymous()
        opened = open_segment(checkpoint.storage, held)
        private[name] = max(0, _anonymous() - before)
        size = sum(file.stat().st_size for file in (root / name / "checkpoint" / SEGMENTS_FOLDER).glob(f"{held}.*"))
        del opened
    return size, private


def _anonymous() -> int:
    """Memory of this process that no other shares, in bytes."""
    facts = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(facts["RssAnon"].split()[0]) * 1024


def _committing(home: Path, key: KeySource | None) -> Callable[[], float]:
    """One batch with some operations: inbox, delta segment, manifest, journal; all but the matching."""
    rows = Tweets().subscriptions(0, 50 * COMMIT_OPERATIONS)
    done = [0]

    def turn() -> float:
        checkpoint = Checkpoint(str(home / "commits"), CONTRACT, Tuning(), key=key)
        some = pa.table(rows.slice(done[0] * COMMIT_OPERATIONS, COMMIT_OPERATIONS))
        some = some if "op" in some.schema.names else some.append_column("op", pa.array(["register"] * len(some)))
        began_s = time.perf_counter()
        checkpoint.prepare(done[0], lambda: [some], done[0])
        checkpoint.finish(done[0])
        checkpoint.journal.append(BatchEntry(done[0]))
        taken_s = time.perf_counter() - began_s
        done[0] += 1
        checkpoint.close()
        return taken_s

    return turn


@contextmanager
def _pipeline(root: Path, name: str, key: KeySource | None, batches: int) -> Iterator[Callable[[], float]]:
    command = [sys.executable, "-m", "geoswarm.lab.bench.engine.encryption", str(root), name, str(batches)]
    environ = os.environ | ({KEY_FILE: str(key.file)} if key else {})
    with (root / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environ, text=True
        )

    def turn() -> float:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        if not answer:
            raise StreamError(f"the {name} pipeline ended: {(root / f'{name}.log').read_text()[-2000:]}")
        return float(json.loads(answer))

    try:
        yield turn
    finally:
        child.communicate()  # its input ends, and so does it


def _serve(root: Path, name: str, batches: int) -> None:
    spark: Any = build_session(MASTER, f"geoswarm-bench-{name}")
    contestant = PipelineContestant(PipelineWorld(root / name, 1), [root / "events.parquet"])
    for _ in sys.stdin:
        print(json.dumps(contestant.round(spark, batches)), flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
