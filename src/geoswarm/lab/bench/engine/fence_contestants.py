"""Who takes part in `fences.py`: Tile38, the local engine in a process of its own, and the engine on Spark.

Measures for `fences.py`. Each has the fences when it is entered, and is given the moves of one turn after the other,
whose objects differ. Its first fixes are not timed: each object gets a place, and what is cold gets warm.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.errors import StreamError
from geoswarm.lab.bench.engine.fence_worlds import KINDS, Moves, World, alert_keys
from geoswarm.lab.bench.engine.latency import TimedSink
from geoswarm.lab.bench.engine.many_subscriptions import resident_bytes
from geoswarm.lab.bench.kit.process_tree import Watch, split_cpu_s
from geoswarm.lab.bench.kit.tile38 import END, Notification, Subscriber, Tile38, batched
from geoswarm.run import local
from geoswarm.run.engine import BaseEngine
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine

PIPELINES = ((1, 100), (1, 1000), (4, 100))
"""Connections, and commands that each sends before it waits for their replies: one of these in each turn."""
SETTING_DEPTH = 500
"""Commands in flight where time does not count."""
TILE38_RATE_MAX = 200_000
"""SETs per second that nobody expects; so many are encoded."""
CONTRACT = Contract(executors=2)
TUNING = Tuning(matches="alerts", object_ttl_s=1e9, strategy="static-uniform")
TICK_S = 0.02
"""Between two sends of moves, where delays are measured."""
SETTLED_S = 2.0
"""The first seconds of these are left out."""
FENCES_FILE, EVENTS = "fences.parquet", "events"
_SPAWN = multiprocessing.get_context("spawn")


class Told(NamedTuple):
    """What one did with the moves of a turn."""

    moves_per_s: float
    moves: int
    """Moves of which it has reported all."""
    alerts: Ints
    """As `alert_keys`."""
    cpu_us: float
    """CPU time of a move: of Tile38's server alone, without who sends and receives; of an engine with all that it does,
    reading and writing included."""


class OnTile38:
    def __init__(self, world: World, seconds: float) -> None:
        """It is given moves for so long."""
        self._world, self._seconds = world, seconds
        self._server = Tile38()

    def __enter__(self) -> Self:
        self._server.__enter__()
        try:
            self._connections = [self._server.connect() for _ in range(max(count for count, _ in PIPELINES))]
            for piece, replies in batched(self._world.commands(), SETTING_DEPTH):
                self._connections[0].send(piece, replies)
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def memory_bytes(self) -> int:
        return resident_bytes(self._server.pid)["RssAnon"]

    def run(self, moves: Moves, turn: int) -> Told:
        count, depth = PIPELINES[turn % len(PIPELINES)]
        assert moves.objects % count == 0, (
            f"the moves of {moves.objects} objects are divided among {count} connections, so those of one object would "
            "come in no order: give a multiple of the connections"
        )
        self._place(moves, turn)
        end = moves.objects + min(len(moves), int(self._seconds * TILE38_RATE_MAX))
        commands = moves.commands(moves.objects, end, turn * moves.objects)
        pieces = [list(batched(commands[k::count], depth)) for k in range(count)]
        subscriber, done = Subscriber(self._server.port), [0] * count
        cpu_s, began_s = self._cpu_s(), time.time()

        def send(k: int) -> None:
            for piece, replies in pieces[k]:
                if time.time() - began_s > self._seconds:
                    return
                self._connections[k].send(piece, replies)
                done[k] += replies

        threads = [threading.Thread(target=send, args=(k,)) for k in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._connections[0].call("PUBLISH", END, END)
        subscriber.wait()
        took_s, cpu_s = time.time() - began_s, self._cpu_s() - cpu_s
        told = _numbered(list(subscriber.notifications()), moves, turn)
        return Told(sum(done) / took_s, min(done) * count, told, 1e6 * cpu_s / sum(done))

    def delays(self, moves: Moves, turn: int, rate: int, seconds: float) -> Floats:
        self._place(moves, turn)
        size, steps = round(rate * TICK_S), round(seconds / TICK_S)
        commands = moves.commands(moves.objects, moves.objects + size * steps, turn * moves.objects)
        subscriber = Subscriber(self._server.port)
        began_s = time.time()
        for step, (piece, replies) in enumerate(batched(commands, size)):
            _sleep_until(began_s + (step + 1) * TICK_S)
            self._connections[0].send(piece, replies)
        self._connections[0].call("PUBLISH", END, END)
        subscriber.wait()
        notes = list(subscriber.notifications())
        numbers = _numbers(notes, moves, turn)
        due_s = (numbers - moves.objects) / rate
        delays: Floats = np.array([note.at_s for note in notes]) - began_s - due_s
        return delays[due_s >= SETTLED_S]

    def _cpu_s(self) -> float:
        return sum(split_cpu_s(self._server.pid, ""))

    def _place(self, moves: Moves, turn: int) -> None:
        for piece, replies in batched(moves.commands(0, moves.objects, turn * moves.objects), SETTING_DEPTH):
            self._connections[0].send(piece, replies)


def _numbers(notes: list[Notification], moves: Moves, turn: int) -> Ints:
    """The fix that each is about."""
    first = turn * moves.objects
    of: dict[tuple[int, float, float], int] = {}
    names = (first + np.arange(len(moves.x)) % moves.objects).tolist()
    for number, place in enumerate(zip(names, moves.x.tolist(), moves.y.tolist(), strict=True)):
        of.setdefault(place, number)
    return np.array([of[int(note.object_id), note.lon, note.lat] for note in notes], np.int64)


def _numbered(notes: list[Notification], moves: Moves, turn: int) -> Ints:
    fences = np.array([int(note.channel) for note in notes], np.int64)
    kinds = np.array([KINDS.index(note.detect) for note in notes], np.int64)
    return alert_keys(fences, kinds, _numbers(notes, moves, turn) - moves.objects)


class CpuSink(TimedSink):
    """Notes also how much CPU time had gone by then."""

    def __init__(self, folder: Path, cpu_s: Callable[[], float]) -> None:
        super().__init__(folder)
        self._now_cpu_s = cpu_s
        self.cpu_s: dict[int, float] = {}

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        self.cpu_s[batch_id] = self._now_cpu_s()


class OurFences:
    """An engine that has the fences, and a folder from which it reads moves."""

    def __init__(
        self,
        engine: BaseEngine,
        home: Path,
        name: str,
        batch: int,
        open_source: Callable[[str, int], Any],
        cpu_s: Callable[[], float],
    ) -> None:
        """`open_source` takes a folder, and how many files are a batch at most."""
        self._engine, self._open_source, self._batch = engine, open_source, batch
        self._folder, self._sink = home / f"{name}-{EVENTS}", CpuSink(home / f"{name}-alerts", cpu_s)
        self._files = 0
        self._folder.mkdir()
        engine.load(str(home / FENCES_FILE))

    def run(self, moves: Moves, turn: int) -> Told:
        before, names = set(self._sink.placed_s), turn * moves.objects
        self._write(moves.events(0, moves.objects, names))
        for first in range(moves.objects, len(moves.x), self._batch):
            self._write(moves.events(first, min(first + self._batch, len(moves.x)), names))
        self._start(1, available_now=True).wait()
        batches = sorted(set(self._sink.placed_s) - before)
        took_s, cpu_s = (noted[batches[-1]] - noted[batches[0]] for noted in (self._sink.placed_s, self._sink.cpu_s))
        alerts = self._alerts(batches[1:])
        subs = alerts["sub_id"].to_numpy()
        keys = alert_keys(subs // len(KINDS), subs % len(KINDS), alerts["event_id"].to_numpy() - moves.objects)
        return Told(len(moves) / took_s, len(moves), keys, 1e6 * cpu_s / len(moves))

    def delays(self, moves: Moves, turn: int, rate: int, seconds: float) -> Floats:
        before, names = set(self._sink.placed_s), turn * moves.objects
        size, steps = round(rate * TICK_S), round(seconds / TICK_S)
        self._write(moves.events(0, moves.objects, names, np.full(moves.objects, int(time.time() * 1e6))))
        run = self._start(1_000_000, available_now=False)
        run.drain()
        began_s = time.time()
        for step in range(steps):
            first, end = (moves.objects + k * size for k in (step, step + 1))
            due_s = began_s + (np.arange(first, end) - moves.objects) / rate
            rows = moves.events(first, end, names, (due_s * 1e6).astype(np.int64))
            _sleep_until(began_s + (step + 1) * TICK_S)
            self._write(rows)
        run.drain()
        run.stop()
        delays = [np.empty(0)]
        for batch in sorted(set(self._sink.placed_s) - before):
            due_s = self._alerts([batch])["ts"].cast(pa.int64()).to_numpy() / 1e6
            delays.append((self._sink.placed_s[batch] - due_s)[due_s >= began_s + SETTLED_S])
        return np.concatenate(delays)

    def _start(self, files: int, *, available_now: bool) -> Any:
        engine: Any = self._engine  # each has a `start` of its own
        source = self._open_source(str(self._folder), files)
        return engine.start(events=source, sink=self._sink, available_now=available_now)

    def _write(self, rows: pa.Table) -> None:
        """A file appears when it is whole."""
        hidden = self._folder / f".{self._files:06d}"
        pq.write_table(rows, hidden, use_dictionary=False)
        hidden.rename(self._folder / f"{self._files:06d}.parquet")
        self._files += 1

    def _alerts(self, batches: list[int]) -> pa.Table:
        folders = [Path(self._sink.inner.path) / f"batch={batch}" for batch in batches]
        tables = [
            pq.read_table(folder, columns=["event_id", "sub_id", "ts"], partitioning=None)
            for folder in folders
            if folder.exists()
        ]
        if not tables:
            raise StreamError(f"{len(batches)} batches have no alerts: give more moves, or more fences")
        return pa.concat_tables(tables)


class OnSpark:
    """The engine in this process, with its virtual machine and workers."""

    def __init__(self, home: Path, batch: int, spark: Any) -> None:
        self._engine = Engine(spark, CONTRACT, TUNING, checkpoint=str(home / "spark-state"))

        def open_source(folder: str, files: int) -> Any:
            return sources.events_from_files(spark, folder, format="parquet", files_per_batch=files)

        self._watch = Watch(os.getpid())
        self._fences = OurFences(self._engine, home, "spark", batch, open_source, lambda: self._watch.read()[0])

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, trace)
        self._engine.close()

    def run(self, moves: Moves, turn: int) -> Told:
        return self._fences.run(moves, turn)

    def delays(self, moves: Moves, turn: int, rate: int, seconds: float) -> Floats:
        return self._fences.delays(moves, turn, rate, seconds)

    def memory_bytes(self) -> int:
        """The most of the driver, the virtual machine and the workers, and of what measures them."""
        return self._watch.read()[1]


class InProcess:
    """The local engine, alone in a process, so that its memory is that of an engine."""

    def __init__(self, home: Path, batch: int) -> None:
        self._home, self._batch = home, batch
        self._process = ProcessPoolExecutor(1, _SPAWN)

    def __enter__(self) -> Self:
        self._process.submit(_open_fences, self._home, self._batch).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.shutdown()

    def run(self, moves: Moves, turn: int) -> Told:
        return self._process.submit(_run, moves, turn).result()

    def delays(self, moves: Moves, turn: int, rate: int, seconds: float) -> Floats:
        return self._process.submit(_delays, moves, turn, rate, seconds).result()

    def memory_bytes(self) -> int:
        return self._process.submit(resident_bytes, self._process.submit(os.getpid).result()).result()["RssAnon"]


# -- in the process of the local engine

_fences: OurFences | None = None


def _open_fences(home: Path, batch: int) -> None:
    global _fences

    def open_source(folder: str, files: int) -> Any:
        return local.events_from_files(folder, format="parquet", files_per_batch=files)

    engine = LocalEngine(CONTRACT, TUNING, checkpoint=str(home / "local-state"))
    _fences = OurFences(engine, home, "local", batch, open_source, time.process_time)


def _run(moves: Moves, turn: int) -> Told:
    assert _fences is not None
    return _fences.run(moves, turn)


def _delays(moves: Moves, turn: int, rate: int, seconds: float) -> Floats:
    assert _fences is not None
    return _fences.delays(moves, turn, rate, seconds)


def _sleep_until(due_s: float) -> None:
    time.sleep(max(0.0, due_s - time.time()))
