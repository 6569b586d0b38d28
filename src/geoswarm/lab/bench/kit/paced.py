"""A producer in a process of its own: events at a steady rate, into a folder or a Kafka topic, whoever reads them.

Each event's `ts` is the time at which it is due, by the rate alone. A producer, a broker or a reader that falls behind
makes no event later: the delay counts (no coordinated omission). `engine/latency.py` measures it.

    python -m geoswarm.lab.bench.kit.paced '{"rate": 100000, "seconds": 20, "seed": 0, "folder": "events"}'
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoswarm.core.arrays.jit import Ints
from geoswarm.errors import StreamError
from geoswarm.lab.crash.processes import end_with_parent
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.model import EVENT
from geoswarm.version import SOURCE_FOLDER

STEP_S = 0.02
"""Seconds between two files, or two sends to Kafka: an event waits for half of it, on average."""
POOL_EVENTS = 200_000
"""Places are drawn before the first event is due, and used again."""
LEAD_S = 0.2
"""Seconds between the end of the preparations and the first event."""
UNSENT_MAX = 2_000_000
"""Messages that wait for the broker: if there are more, the producer waits, too."""
FLUSH_S_MAX = 60.0
"""Seconds for the last messages to arrive."""

Send = Callable[[pa.Table, int], None]
"""Takes the events of a step, and its number."""


@dataclass(frozen=True)
class Pacing:
    rate: int
    """Events per second."""
    seconds: float
    seed: int
    prefix: str = ""
    """Of the names of files."""
    folder: str = ""
    """Where Parquet files go; or else"""
    bootstrap: str = ""
    topic: str = ""

    @property
    def step_events(self) -> int:
        return max(1, round(self.rate * STEP_S))

    @property
    def steps(self) -> int:
        return round(self.seconds * self.rate / self.step_events)

    @property
    def events(self) -> int:
        return self.steps * self.step_events


@dataclass(frozen=True)
class Paced:
    """What the producer did."""

    began_s: float
    """When its first event was due, in seconds since 1970."""
    late_s: float
    """The 99th percentile of how much later than due a step was sent."""


class Producer:
    """The process, from the side of the one who measures."""

    def __init__(self, pacing: Pacing) -> None:
        path = os.pathsep.join(filter(None, [SOURCE_FOLDER, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(asdict(pacing))],
            stdin=subprocess.PIPE,  # never written to; it is closed when this process ends
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def wait(self) -> Paced:
        assert self._process.stdout is not None
        out = self._process.stdout.read()  # `communicate` would close its standard input, and so end it
        if self._process.wait() != 0:
            raise StreamError(f"the producer of events ended with code {self._process.returncode}: its error is above")
        return Paced(**json.loads(out))

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def produce(pacing: Pacing, send: Send, clock_s: Callable[[], float], sleep: Callable[[float], None]) -> Paced:
    """Send every step when its last event is due, or as soon after as possible."""
    events = Tweets(seed=pacing.seed).events(0, max(POOL_EVENTS, pacing.step_events))
    pool = pa.Table.from_batches([events]).select(["x", "y"])
    late_s, size = [], pacing.step_events
    began_s = clock_s() + LEAD_S
    for step in range(pacing.steps):
        numbers = np.arange(step * size, (step + 1) * size)
        start = step * size % (len(pool) - size + 1)
        rows = _events(numbers, began_s + numbers / pacing.rate, pool.slice(start, size))
        due_s = began_s + (step + 1) * size / pacing.rate
        sleep(max(0.0, due_s - clock_s()))
        send(rows, step)
        late_s.append(clock_s() - due_s)
    return Paced(began_s, float(np.quantile(late_s, 0.99)))


def _events(numbers: Ints, made_s: "np.ndarray[tuple[int], np.dtype[np.float64]]", places: pa.Table) -> pa.Table:
    made = pa.array((made_s * 1e6).astype(np.int64)).cast(EVENT.field("ts").type)
    columns = [pa.array(numbers), made, places["x"], places["y"]]
    return pa.table(columns, schema=EVENT)


@contextmanager
def into_folder(folder: str, prefix: str) -> Iterator[Send]:
    """A file for each step, which appears when it is whole."""

    def send(rows: pa.Table, step: int) -> None:
        hidden = Path(folder) / f".{step:06d}"
        pq.write_table(rows, hidden, use_dictionary=False)
        hidden.rename(Path(folder) / f"{prefix}{step:06d}.parquet")

    yield send


@contextmanager
def into_topic(bootstrap: str, topic: str) -> Iterator[Send]:
    """A JSON message for each event; all have arrived at the end."""
    from confluent_kafka import Producer as KafkaProducer  # imported here, since few have it

    client = KafkaProducer({"bootstrap.servers": bootstrap, "linger.ms": 2, "queue.buffering.max.messages": UNSENT_MAX})

    def send(rows: pa.Table, step: int) -> None:
        for message in messages(rows):
            while True:
                try:
                    client.produce(topic, message)
                    break
                except BufferError:
                    client.poll(STEP_S)
        client.poll(0)

    yield send
    unsent = client.flush(FLUSH_S_MAX)
    if unsent:
        raise StreamError(f"{unsent:,} messages did not reach {bootstrap} in {FLUSH_S_MAX:.0f} s: see its log")


def messages(rows: pa.Table) -> list[str]:
    """JSON objects, made column by column."""
    named: list[pa.Array | str] = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        is_time = pa.types.is_timestamp(column.type)
        text = pc.strftime(column, format='"%Y-%m-%dT%H:%M:%SZ"') if is_time else column.cast(pa.string())
        named += [f'{"," if named else "{"}"{name}":', text]
    texts: list[str] = pc.binary_join_element_wise(*named, "}", "").to_pylist()
    return texts


def main() -> None:
    end_with_parent()
    pacing = Pacing(**json.loads(sys.argv[1]))
    way = into_folder(pacing.folder, pacing.prefix) if pacing.folder else into_topic(pacing.bootstrap, pacing.topic)
    with way as send:
        paced = produce(pacing, send, time.time, time.sleep)
    print(json.dumps(asdict(paced)))


if __name__ == "__main__":
    main()
