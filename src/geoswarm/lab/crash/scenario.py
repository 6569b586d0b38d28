"""One small world, drawn from a seed, for every runner: files of events and operations, and the oracle's answer.

`lab/crash/victim.py` runs the real engine on these files, on any master, and may be killed on the way.
Which files a batch holds is Spark's choice, and after a crash not always one of each; so it is read from Spark's
offset log, and what must come out of those files is computed here, the slow way (`run/oracle/oracle.py`).
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import OPERATION
from geoswarm.model import EVENT, GEOMETRY, OBJECT, PREDICATES, TRANSITION
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import Alert, Pair, alerts_of, pairs_of
from geoswarm.run.oracle.regions import read_region
from geoswarm.store import dead_files
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.storage import Storage

START = datetime(2026, 1, 1, tzinfo=UTC)
STEP_S = 60.0
"""Seconds from one batch to the next by the scenario's clock."""

CONTRACT = Contract(bounds=(0.0, 0.0, 100.0, 50.0), columns=40, rows=25, executors=5)
TUNING = Tuning(deltas_max=3, object_ttl_s=6 * STEP_S, driver_bytes_max=13_900, cross_way_m_max=2_000_000.0)
"""Few deltas, so that segments are merged every few batches; objects are forgotten after as few batches. On Spark the
driver runs the smaller half of the files, and tasks the rest."""
OBJECT_INTERVALS, OBJECT_INTERVAL_S = 4, 2 * STEP_S
"""The intervals that follow from it (`run/side_stages.py`)."""

FILES_PER_BATCH_MAX = 4
"""Each crash between the logs of the two sources may put one more file into a batch. Spark reads the files of a
batch in no promised order, so files this close to each other never touch the same subscription."""

DEMAND_SHARE = 0.1
"""Of subscriptions, those with a condition on columns, and of all those that name objects."""
ASKED = ("aggregate", "window", "group_by", "when")
COUNTED = (
    ("count", "sliding(3 min, 1 min)", None, None),
    ("count", "tumbling(2 min)", "object_id", "count > 1"),
    ("sum(speed)", "tumbling(1 min)", None, None),
    ("avg(speed)", "session(90 s)", None, "avg > 100"),
    ("max(speed)", "count(20)", None, None),
    ("distinct(object_id)", "sliding(4 min, 2 min)", None, None),
    ("top(object_id, 2)", "tumbling(3 min)", None, None),
)
"""What those that count ask for, in the columns ASKED."""

WHERES = (
    "speed > 100",
    "object_id = 7",
    "speed IN (10, 11, 12, 13, 14, 16, 17, 18, 19) OR speed >= 150",
    "NOT speed BETWEEN 50 AND 250",
    "text LIKE '%1%' AND object_id <> 3",
    "text IS NULL OR speed IS NULL",
    "altitude > 3",
)
"""Conditions on columns of events, the last on one that there is not."""

EVENTS_SCHEMA = pa.schema(
    [*(f.with_nullable(True) for f in EVENT), ("text", pa.string()), ("speed", pa.float64()), OBJECT, GEOMETRY]
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    seed: int
    events_per_file: int = 300
    operations_per_file: int = 60
    counts: bool = False
    """Whether some subscriptions count instead of reporting matches."""

    def events(self, number: int) -> pa.Table:
        """The events of one file: some on borders and corners, some that are areas, and one of each way to be
        malformed."""
        rng = np.random.default_rng((self.seed, number, 0))
        n = self.events_per_file
        xmin, ymin, xmax, ymax = CONTRACT.bounds
        x, y = rng.uniform(xmin, xmax, n), rng.uniform(ymin, ymax, n)
        whole = rng.random(n) < 0.3  # rectangles have whole sides: these lie on their borders
        x[whole], y[whole] = np.round(x[whole]), np.round(y[whole])
        rows: list[Row] = [
            {
                "event_id": number * n + i,
                "ts": START + timedelta(seconds=number * STEP_S + i / 1000),
                "x": float(x[i]),
                "y": float(y[i]),
                "text": None if i % 7 == 0 else f"event {i} of file {number}",
                "speed": None if i % 5 == 0 else float(i),
                "object_id": None if i % 11 == 0 else i % 23,
            }
            for i in range(n)
        ]
        wrong = ({"x": float("nan")}, {"y": float("inf")}, {"x": xmax + 0.001}, {"y": ymin - 1.0})
        missing: tuple[Row, ...] = ({"event_id": None}, {"ts": None}, {"x": None}, {"y": None})
        bow_tie: Row = {"geometry": b"POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))"}
        changes = (*wrong, *missing, bow_tie)
        for i in range(4, n, 13):
            rows[i] |= {"x": None, "y": None, "geometry": _region(rng)}
        for i, change in zip(rng.choice(n, len(changes), replace=False), changes, strict=True):
            rows[i] |= {"geometry": None} | change
        return pa.Table.from_pylist(rows, schema=EVENTS_SCHEMA)

    def operations(self, number: int) -> pa.Table:
        """The operations of one file: valid, repeated, on unknown ids, soon to expire, and malformed."""
        rng, rules, who = (np.random.default_rng((self.seed, number, kind)) for kind in (1, 2, 3))
        now = START + timedelta(seconds=number * STEP_S)
        rows: list[Row] = []
        for _ in range(self.operations_per_file):
            row: Row = {"op": str(rng.choice(["register", "register", "register", "replace", "cancel"]))}
            row["sub_id"] = int(rng.integers(0, 80)) * FILES_PER_BATCH_MAX + number % FILES_PER_BATCH_MAX
            if row["op"] != "cancel":
                row |= _rectangle(rng) | {"user": f"user {rng.integers(0, 9)}"}
                if rng.random() < 0.2:
                    row["geometry"] = _region(rng)
                if rng.random() < 0.3:
                    row["predicate"] = str(rng.choice(PREDICATES))
                if rng.random() < 0.4:
                    row["keywords"] = _keywords(rng, self.events_per_file)
                if rng.random() < 0.4:
                    row["on"] = str(rng.choice(["enter", "exit", "dwell(0.1)", "dwell(90)", "inside"]))
                if row.get("on", "inside") != "inside":
                    row["confirm"] = (None, None, "2 fixes", "0.1 s")[rules.integers(4)]
                    row["cooldown"] = (None, None, "0.1 s", "1 min")[rules.integers(4)]
                    row["exit_buffer_m"] = (None, None, 50_000.0)[rules.integers(3)]
                    if rules.random() < 0.2:
                        row |= {"on": "cross", "confirm": None, "exit_buffer_m": None}
                    row["payload"] = (None, '{"note": "é"}', "7")[rules.integers(3)]
                if who.random() < DEMAND_SHARE:
                    row["where"] = str(who.choice(WHERES))
                if who.random() < DEMAND_SHARE:
                    row["objects"] = json.dumps(who.integers(0, 24, int(who.integers(1, 12))).tolist())
                if rng.random() < 0.3:  # half a step off, so that no batch begins just then
                    row["expires"] = now + timedelta(seconds=(float(rng.integers(0, 12)) + 0.5) * STEP_S)
            rows.append(row)
        if self.counts:
            self._make_count(rows, number)
        changes: tuple[Row, ...] = (
            {"op": "upsert"},
            {"sub_id": None},
            {"op": "register", "xmin": 9.0, "xmax": 1.0},
            {"op": "replace", "xmin": 5.0, "xmax": 5.0},
            {"op": "register", "xmin": -1000.0},
            {"op": "register", "ymin": None},
            {"op": "register", **_rectangle(rng), "keywords": "event AND ("},
            {"op": "replace", **_rectangle(rng), "expires": START - timedelta(days=1)},
            {"op": "register", **_rectangle(rng), "on": "leave"},
            {"op": "replace", **_rectangle(rng), "predicate": "touches"},
            {"op": "register", **_rectangle(rng), "where": "speed > 80 AND"},
            {"op": "replace", **_rectangle(rng), "objects": "[]"},
        )
        for i, change in zip(rng.choice(len(rows), len(changes), replace=False), changes, strict=True):
            rows[i].update(change)
        return pa.Table.from_pylist(rows, schema=OPERATION)

    def _make_count(self, rows: list[Row], number: int) -> None:
        """Half of the registrations on `inside` ask for an aggregate."""
        rng = np.random.default_rng((self.seed, number, 2))
        for row in rows:
            asks = rng.random() < 0.5 and row["op"] != "cancel" and row.get("on", "inside") == "inside"
            if asks:
                row |= zip(ASKED, COUNTED[rng.integers(len(COUNTED))], strict=True)

    def write(self, folder: Path, numbers: Iterable[int]) -> None:
        """Write the files of these numbers, each in one step, with times one second apart: Spark sorts by time."""
        for name in ("events", "operations"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            operations = [_json(row) for row in self.operations(number).to_pylist()]
            operations.insert(len(operations) // 2, '{"op": "register", "sub_id": tw')  # not JSON
            staged = folder / "staged"
            staged.write_text("\n".join(operations) + "\n")
            _place(staged, folder / "operations" / f"{number:05d}.json", number)
            pq.write_table(self.events(number), staged)
            _place(staged, folder / "events" / f"{number:05d}.parquet", number)


@dataclass(frozen=True)
class BatchFiles:
    """The numbers of the files that one batch held."""

    events: range
    operations: range


@dataclass(frozen=True)
class Expected:
    pairs: list[Pair]
    alerts: list[Alert]
    dead: Counter[str]
    """Dead letters by kind."""
    events_in: int
    matched: int  # events inside any region, before transitions
    matches: int  # matches, before transitions


@dataclass(frozen=True)
class Comparison:
    """The output compared with the oracle's. `batches` and `pairs` are how much was compared."""

    batches: int
    pairs: int
    lost: int
    repeated: int
    wrong: int
    differences: list[str] = field(default_factory=list)
    """Other differences: in counts, dead letters, extra columns."""

    @property
    def is_equal(self) -> bool:
        return not (self.lost or self.repeated or self.wrong or self.differences)


def now_s(checkpoint: Path) -> float:
    """The scenario's clock: the time follows from the current batch, whenever and however often it runs."""
    return START.timestamp() + STEP_S * max(_numbers(checkpoint / "spark" / "offsets"), default=0)


def batches_of(checkpoint: Path) -> list[BatchFiles]:
    """The files that Spark put into each batch, from its whole offset log (spark.sql.streaming.minBatchesToRetain)."""
    batches, ends = [], (-1, -1)
    numbers = _numbers(checkpoint / "spark" / "offsets")
    if numbers != list(range(len(numbers))):
        raise ValueError(f"the offset log lacks batches: it has {numbers}")
    for number in numbers:
        # a version, settings of the query, then one line per source in the order of the union
        lines = (checkpoint / "spark" / "offsets" / str(number)).read_text().splitlines()[2:]
        events, operations = (
            ends[i] if line == "-" else int(json.loads(line)["logOffset"]) for i, line in enumerate(lines)
        )
        batches.append(BatchFiles(range(ends[0] + 1, events + 1), range(ends[1] + 1, operations + 1)))
        ends = (events, operations)
    return batches


def expected_batches(scenario: Scenario, batches: Sequence[BatchFiles]) -> list[Expected]:
    return list(_expected(scenario, tuple(batches)))


@lru_cache(maxsize=32)  # many runs of one scenario have the same batches
def _expected(scenario: Scenario, batches: tuple[BatchFiles, ...]) -> list[Expected]:
    oracle, answers = Oracle(CONTRACT.bounds), []
    oracle.way_m_max = TUNING.cross_way_m_max
    oracle.following.sequence_us = round(TUNING.object_ttl_s * 1e6)
    for k, batch in enumerate(batches):
        if len(batch.operations) > FILES_PER_BATCH_MAX:
            raise ValueError(f"batch {k} holds {len(batch.operations)} files of operations: their order is not known")
        now_us = int((START.timestamp() + k * STEP_S) * 1e6)
        refused = sum(oracle.operate(scenario.operations(n), now_us) + 1 for n in batch.operations)
        tables = [scenario.events(n) for n in batch.events]
        events = pa.concat_tables(tables) if tables else EVENTS_SCHEMA.empty_table()
        sound = events.filter(pa.array([is_sound(row) for row in events.to_pylist()], pa.bool_()))
        inside = oracle.match(sound, now_us)
        told = oracle.tell(sound, now_us, now_us // int(OBJECT_INTERVAL_S * 1e6), OBJECT_INTERVALS, inside)
        dead = Counter(event=len(events) - len(sound), operation=refused)
        answers.append(
            Expected(
                sorted(told), oracle.alerts(told), +dead, len(events), len({event for event, _ in inside}), len(inside)
            )
        )
    return answers


def compare(scenario: Scenario, checkpoint: Path, output: Path) -> Comparison:
    """Compare a finished run with the oracle: the matches of every batch as a list, its dead letters and its counts."""
    want = expected_batches(scenario, batches_of(checkpoint))
    dead = {k: Counter[str]() for k in range(len(want))}
    for table in dead_files.read(Storage(str(checkpoint))):
        for k, kind in zip(table["batch_id"].to_pylist(), table["kind"].to_pylist(), strict=True):
            dead.setdefault(k, Counter())[kind] += 1
    counted = {entry.batch: entry for entry in JournalReader(Storage(str(checkpoint))).read(BatchEntry)}
    lost = repeated = wrong = 0
    differences = []
    parts = delivered(output, len(want))
    came = [k for batches, _ in parts for k in batches]
    if came != list(range(len(want))) or set(dead) != set(came) or set(counted) != set(came):
        differences.append(f"{len(want)} batches ran, {came} came out, {sorted(counted)} were counted")
    for batches, tables in parts:
        got = Counter(pairs_of(tables))
        wanted = Counter(pair for k in batches if k < len(want) for pair in want[k].pairs)
        lost += (wanted - got).total()
        repeated += sum(n - 1 for n in got.values())
        wrong += len(set(got) - set(wanted))
        differences += [f"batch {batches[0]}: {text}" for text in _extra_columns(scenario, tables)]
        if tables and TRANSITION.name in tables[0].schema.names:
            alerts = (alert for k in batches if k < len(want) for alert in want[k].alerts)
            wrong += len(set(alerts_of(tables)) ^ set(alerts))
    lost += sum(len(answer.pairs) for k, answer in enumerate(want) if k not in came)
    for k, answer in enumerate(want):
        if dead[k] != answer.dead:
            differences.append(f"batch {k}: dead letters {dict(dead[k])} instead of {dict(answer.dead)}")
        entry = counted.get(k)
        sums = [entry.events_in, entry.dead, entry.matched, entry.matches] if entry else []
        if sums != [answer.events_in, answer.dead["event"], answer.matched, answer.matches]:
            differences.append(f"batch {k}: counted {sums} instead of {answer}"[:300])
    return Comparison(len(want), sum(len(a.pairs) for a in want), lost, repeated, wrong, differences)


def delivered(output: Path, batches: int) -> list[tuple[range, list[pa.Table]]]:
    """What a reader of the output finds: tables, and the numbers of the batches that are in them, in order. A Delta
    table has no file for a batch without rows."""
    if (output / "_delta_log").exists():
        from deltalake import DeltaTable

        files = [Path(unquote(uri.removeprefix("file://"))) for uri in DeltaTable(output).file_uris()]
        written: dict[int, list[Path]] = {k: [] for k in range(batches)}
        for file in sorted(files):
            written.setdefault(int(file.name.split("-")[1]), []).append(file)
        parts = [(range(k, k + 1), paths) for k, paths in written.items()]
    else:
        parts = []
        for first, folder in sorted((int(f.name.removeprefix("batch=")), f) for f in output.glob("batch=*")):
            paths = sorted(folder.glob("*.parquet"))
            rolled = [int(path.stem.split("-")[2]) for path in paths if path.name.startswith("batches-")]
            parts.append((range(first, max([first, *rolled]) + 1), paths))
    return [(numbers, [pq.ParquetFile(path).read() for path in paths]) for numbers, paths in parts]


def _extra_columns(scenario: Scenario, tables: Sequence[pa.Table]) -> Iterable[str]:
    for row in (row for table in tables for row in table.to_pylist()):
        i = row["event_id"] % scenario.events_per_file
        text = None if i % 7 == 0 else f"event {i} of file {row['event_id'] // scenario.events_per_file}"
        speed = None if i % 5 == 0 else float(i)
        if (row["text"], row["speed"]) != (text, speed):
            yield f"event {row['event_id']} came out with {row['text']!r}, {row['speed']}"


def is_sound(row: Row) -> bool:
    """Whether an event can be matched, independently of the engine's validation."""
    if row["geometry"] is not None:
        return row["event_id"] is not None and row["ts"] is not None and read_region(row["geometry"]) is not None
    if any(row[name] is None for name in EVENT.names):
        return False
    xmin, ymin, xmax, ymax = CONTRACT.bounds
    return bool(xmin <= row["x"] <= xmax and ymin <= row["y"] <= ymax)  # false for NaN


def _rectangle(rng: np.random.Generator) -> Row:
    xmin, ymin = float(rng.integers(0, 100)), float(rng.integers(0, 50))
    width, height = rng.integers(1, 101 if rng.random() < 0.05 else 15, 2)
    return {"xmin": xmin, "ymin": ymin, "xmax": min(100.0, xmin + width), "ymax": min(50.0, ymin + height)}


def _region(rng: np.random.Generator) -> bytes:
    """A triangle with whole corners, or a circle."""
    x, y = (float(v) for v in rng.integers((5, 5), (80, 35)))
    wide, high = (float(v) for v in rng.integers(1, 15, 2))
    if rng.random() < 0.3:
        return f"CIRCLE({x} {y}, {wide * 100_000})".encode()
    return f"POLYGON(({x} {y}, {x + wide} {y}, {x} {y + high}, {x} {y}))".encode()


def _keywords(rng: np.random.Generator, numbers: int) -> str:
    """Words that occur in all texts of this scenario, in many, or in few."""
    some = " OR ".join(str(n) for n in rng.integers(0, numbers, int(rng.integers(1, 40))))
    return str(rng.choice(["Event", "file AND event", f"event ({some})", f"{some} OR nobody"]))


def _json(row: Row) -> str:
    return json.dumps({k: _plain(v) for k, v in row.items() if v is not None})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode() if isinstance(value, bytes) else value


def _place(staged: Path, final: Path, number: int) -> None:
    moment_s = START.timestamp() + number
    os.utime(staged, (moment_s, moment_s))
    staged.rename(final)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in folder.glob("*") if entry.name.isdecimal())
