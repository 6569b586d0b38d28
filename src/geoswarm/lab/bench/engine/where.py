"""Events per second where each of a million subscriptions asks for one object, or for a value of a column.

No Spark: what the tasks of a batch do, from a Parquet file with events to one with matches (read, validate, route,
exchange, match, write), in CPU time of the process. *The same without* are the same events and the same regions, of
which nothing is asked. `objects_vs_plain` and `where_vs_plain` compare with that where an event is in three regions:
there it is hardest, because plain subscriptions are found at once. They have three matches of an event to write, those
who ask one, which favours them a little. Where thousands watch a place, those who ask for nothing are slower for their
matches alone, and the ratio would say how many were left out. `match_us` leaves writing out.

*Filtering afterwards* is what an application does whose engine cannot ask: it takes all matches of the plain
subscriptions, compares two columns, all pairs of a run at once, and writes what is left. `vs_post_filter` is for places
that many watch, the least of objects and values; that both have the same matches is checked.

Each object is in the region of its own subscription, so each event matches one. Of values there are a hundred, so that
each is that of one event in a hundred; `ranges` ask for as many by `speed >= 12.0 AND speed < 13.2`, for which there
are no lists; `where_vs_plain` is the lesser of the two.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geoswarm.config import Contract
from geoswarm.control.layout.uniform import uniform
from geoswarm.core.arrays.jit import Bools, Floats, Ints
from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attributes import operation_batch
from geoswarm.errors import GeoswarmError
from geoswarm.flow.dead_letters import DeadLetters
from geoswarm.flow.exchange import pack_parcels, unpack_parcels
from geoswarm.flow.match.match import MatchRun, Searchable, match
from geoswarm.flow.merge import as_arrays
from geoswarm.flow.route import route
from geoswarm.flow.sound import marked_schema
from geoswarm.flow.validate import validate_events, validate_operations
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, interleave, ratio
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.model import TIMESTAMP
from geoswarm.store.segments.open import segment_in_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = Grid.of(Contract())
GROUPS = 100
"""Each value is that of one event in a hundred."""
TOWN_DEGREES = 0.7
"""How far from the middle of their town subscriptions lie."""
SPEED_MAX = 120.0
FILE_EVENTS, EXECUTORS = 131_072, 8
WAYS = ("plain", "objects", "values", "ranges")
PAIRS_MAX = 8_000_000


@dataclass(frozen=True)
class WhereSizes:
    subscriptions: int
    events: int
    near: float
    """Regions that an event is in, where few watch a place; about."""
    crowd: float
    """Where many do."""
    crowd_events: int
    towns: int
    """Subscriptions lie about them."""
    repeats: int


SIZES = {
    Scale.SMALL: WhereSizes(100_000, 262_144, 3.0, 2000.0, 16_384, 20, 5),
    Scale.FULL: WhereSizes(1_000_000, 1_048_576, 3.0, 2000.0, 65_536, 100, 7),
}


class Watched(NamedTuple):
    """Subscriptions, each for one object or group, and events of these objects."""

    rects: Floats
    groups: Ints
    """The group that each subscription asks for; the object has its own number."""
    events: list[bytes]
    """Parquet files."""
    events_in_all: int


def measure(sizes: WhereSizes, seed: int, report: Progress) -> Result:
    rng = np.random.default_rng(seed)
    rows, figures = list[dict[str, object]](), dict[str, dict[str, list[float]]]()
    for name, inside, count in (("few", sizes.near, sizes.events), ("many", sizes.crowd, sizes.crowd_events)):
        report(f"{name} at a place: indexing {sizes.subscriptions:,} subscriptions, {len(WAYS)} times")
        world = make_world(sizes.subscriptions, sizes.towns, inside, count, rng)
        held = {way: index_of(world, way) for way in WAYS}
        turns: dict[str, Turn] = {way: Turn(world, held[way], None) for way in WAYS}
        if name == "many":
            turns |= {f"{way}, afterwards": Turn(world, held["plain"], FILTERS[way]) for way in WAYS[1:]}
        for way, turn in turns.items():
            report(f"{name} at a place: {way}, once to warm up")
            turn()
        check_matches(turns)
        timed = {way: timed_turn(turn, f"{name} at a place: {way}", report) for way, turn in turns.items()}
        seconds = interleave(timed, sizes.repeats, rng)
        rows += [_row(name, way, turns[way], seconds[way]) for way in turns]
        figures[name] = seconds
    few, many = figures["few"], figures["many"]
    summary = {
        "objects_vs_plain": ratio(few["plain"], few["objects"]),
        "values_vs_plain": ratio(few["plain"], few["values"]),
        "ranges_vs_plain": ratio(few["plain"], few["ranges"]),
        "objects_vs_post_filter": ratio(many["objects, afterwards"], many["objects"]),
        "values_vs_post_filter": ratio(many["values, afterwards"], many["values"]),
        "ranges_vs_post_filter": ratio(many["ranges, afterwards"], many["ranges"]),
    }
    summary["where_vs_plain"] = min(summary["values_vs_plain"], summary["ranges_vs_plain"])
    summary["vs_post_filter"] = min(summary["objects_vs_post_filter"], summary["values_vs_post_filter"])
    config = {
        "subscriptions": sizes.subscriptions,
        "groups": GROUPS,
        "events_of_a_file": FILE_EVENTS,
        "executors": EXECUTORS,
    }
    return Result(rows, summary, config)


def make_world(subscriptions: int, towns: int, inside: float, events: int, rng: np.random.Generator) -> Watched:
    """An event is in about `inside` regions, the one of its own object among them."""
    places = rng.uniform((-150.0, -60.0), (150.0, 60.0), (towns, 2))
    middles = places[rng.integers(0, towns, subscriptions)] + rng.normal(0.0, TOWN_DEGREES, (subscriptions, 2))
    # Two points of a town are as far apart as chance has it: a square of side s has s^2 / (4 pi d^2) of the others.
    side = TOWN_DEGREES * np.sqrt(4 * np.pi * max(inside - 1.0, 0.5) * towns / subscriptions)
    rects = np.concatenate([middles - side / 2, middles + side / 2], axis=1)
    objects = rng.integers(0, subscriptions, events)
    x, y = (middles[objects] + rng.uniform(-side / 2, side / 2, (events, 2))).T
    files = []
    for first in range(0, events, FILE_EVENTS):
        some, n = slice(first, first + FILE_EVENTS), min(FILE_EVENTS, events - first)
        table = pa.table(
            {
                "event_id": np.arange(first, first + n),
                "ts": pa.array(np.zeros(n, np.int64)).cast(TIMESTAMP),
                "x": x[some],
                "y": y[some],
                "object_id": objects[some],
                "fleet": pa.array([f"fleet {k}" for k in range(GROUPS)]).take(pa.array(rng.integers(0, GROUPS, n))),
                "speed": rng.uniform(0.0, SPEED_MAX, n),
            }
        )
        pq.write_table(table, file := pa.BufferOutputStream())
        files.append(file.getvalue().to_pybytes())
    return Watched(rects, rng.integers(0, GROUPS, subscriptions), files, events)


def index_of(world: Watched, way: str) -> Searchable:
    """The subscriptions as a segment, as the engine reads and indexes them."""
    count = len(world.rects)
    columns: dict[str, pa.Array] = {"op": pa.array(["register"] * count), "sub_id": pa.array(np.arange(count))}
    columns |= {side: pa.array(world.rects[:, k]) for k, side in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    if way == "objects":
        columns["objects"] = pa.array([f"[{k}]" for k in range(count)])
    elif way != "plain":
        columns["where"] = pa.array([condition_of(way, k) for k in range(GROUPS)]).take(pa.array(world.groups))
    dead = DeadLetters("operation", 0)
    read = validate_operations(operation_batch(columns), GRID, 0, dead)
    if len(dead):
        raise GeoswarmError(f"{len(dead)} subscriptions were refused: {dead.table()['detail'][0]}")
    return segment_in_memory(GRID, read.subs(np.arange(count))).searchable()


def condition_of(way: str, group: int) -> str:
    if way == "values":
        return f"fleet = 'fleet {group}'"
    low, high = (SPEED_MAX * edge / GROUPS for edge in (group, group + 1))
    return f"speed >= {low!r} AND speed < {high!r}"


def _is_own_object(world: Watched, events: pa.RecordBatch, owners: Ints, subs: Ints) -> Bools:
    return events.column("object_id").to_numpy()[owners] == subs  # type: ignore[no-any-return]


def _is_in_fleet(world: Watched, events: pa.RecordBatch, owners: Ints, subs: Ints) -> Bools:
    names = pa.array([f"fleet {k}" for k in range(GROUPS)])
    codes = pc.index_in(events.column("fleet"), names).to_numpy()
    return codes[owners] == world.groups[subs]  # type: ignore[no-any-return]


def _is_as_fast(world: Watched, events: pa.RecordBatch, owners: Ints, subs: Ints) -> Bools:
    speeds, groups = events.column("speed").to_numpy()[owners], world.groups[subs]
    edges = np.array([SPEED_MAX * edge / GROUPS for edge in range(GROUPS + 1)])
    return (speeds >= edges[groups]) & (speeds < edges[groups + 1])  # type: ignore[no-any-return]


Filter = Callable[[Watched, pa.RecordBatch, Ints, Ints], Bools]
FILTERS: dict[str, Filter] = {"objects": _is_own_object, "values": _is_in_fleet, "ranges": _is_as_fast}


class Turn:
    """Takes all files from events to matches, and filters on the way if it is asked to."""

    def __init__(self, world: Watched, held: Searchable, filter_: Filter | None) -> None:
        self.world, self._held, self._filter = world, held, filter_
        self._plan = uniform(GRID, EXECUTORS)
        self.found, self.checksum, self.match_s = 0, 0, float("inf")

    def __call__(self) -> float:
        """CPU seconds; counts the matches on the way."""
        began_s, match_s, self.found, self.checksum = time.process_time(), 0.0, 0, 0
        for file in self.world.events:
            (batch,) = pq.read_table(pa.BufferReader(file)).combine_chunks().to_batches()
            valid = validate_events(batch, GRID, DeadLetters("event", 0), marks=True)
            packed, out = pack_parcels(route(valid, self._plan)), list[pa.RecordBatch]()
            for parcel in unpack_parcels(packed, marked_schema(batch.schema)):
                since_s = time.process_time()
                runs = list(self._matches(parcel.events))
                match_s += time.process_time() - since_s
                out += [rows for met in runs for rows in as_arrays(met)]
            pq.write_table(pa.Table.from_batches(out), pa.BufferOutputStream())
        self.match_s = min(self.match_s, match_s)
        return time.process_time() - began_s

    def _matches(self, events: pa.RecordBatch) -> Iterator[MatchRun]:
        for met in match(events, [self._held], GRID, 0, rows_max=1 << 18, pairs_max=PAIRS_MAX):
            run = met if self._filter is None else self._filtered(met, self._filter)
            self.found += len(run.subs)
            self.checksum += int(run.subs.sum())
            yield run

    def _filtered(self, met: MatchRun, filter_: Filter) -> MatchRun:
        owners = np.repeat(np.arange(len(met.events)), np.diff(met.offsets))
        kept = filter_(self.world, met.events, owners, met.subs)
        counts = np.bincount(owners[kept], minlength=len(met.events))
        return MatchRun(met.events, np.concatenate([[0], np.cumsum(counts)]), met.subs[kept])


def check_matches(turns: dict[str, Turn]) -> None:
    for way, turn in turns.items():
        asked = turns.get(way.removesuffix(", afterwards"), turn)
        if (asked.found, asked.checksum) != (turn.found, turn.checksum):
            raise GeoswarmError(f"{way} has {turn.found} matches, and {asked.found} were found: one of them is wrong")


def timed_turn(turn: Turn, what: str, report: Progress) -> Callable[[], float]:
    def timed() -> float:
        report(what)
        return turn()

    return timed


def _row(name: str, way: str, turn: Turn, seconds: list[float]) -> dict[str, object]:
    events = turn.world.events_in_all
    return {
        "at_a_place": name,
        "way": way,
        "events_per_s": round(events / best(seconds)),
        "us_per_event": round(best(seconds) * 1e6 / events, 3),
        "match_us": round(turn.match_s * 1e6 / events, 3),
        "matches_per_event": round(turn.found / events, 2),
    }


def plot(result: Result) -> "Figure":
    drawn, axes = figure(2)
    for place, rates in zip(("few", "many"), axes, strict=True):
        rows = [row for row in result.rows if row["at_a_place"] == place][::-1]
        rates.barh([row["way"] for row in rows], [row["events_per_s"] for row in rows], color=PALETTE[0], height=0.6)
        rates.set(xlabel="events per second on one core", title=f"{place} at a place")
    return drawn
