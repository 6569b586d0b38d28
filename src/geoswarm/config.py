"""Settings in two values: what a checkpoint remembers, and what a restart may change.

Every limit of the engine has its name, unit and reason here. `settings_file.py` reads them from TOML.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

CELLS_MAX = 16_777_216
"""A plan keeps one partition number per cell: 64 MB at this size, in every worker."""

EXECUTORS_MAX = 4096
"""Each is one shuffle partition; with more, scheduling would take longer than matching."""

EXECUTORS_MIN = 2
"""Executors of a new checkpoint on a machine with one core: with one executor there would be nothing to balance."""

LATENESS_S_MAX = 366 * 86_400.0
"""As long as the longest window."""


REORDER_S_MAX = 86_400.0
"""A day. Objects are forgotten after `object_ttl_s` without events, so what is later is rarely about the same stay."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


SubIdKind = Literal["integer", "text"]


class Contract(_Settings):
    """Settings that a checkpoint is made for. Another value needs another checkpoint, except for `executors`."""

    bounds: Annotated[tuple[float, float, float, float], Field(strict=False)] = (-180.0, -90.0, 180.0, 90.0)
    """(xmin, ymin, xmax, ymax) of the world. Points on any edge are inside."""
    columns: int = Field(default=1000, ge=1, le=65536)
    rows: int = Field(default=1000, ge=1, le=65536)
    executors: int | None = Field(default=None, ge=1, le=EXECUTORS_MAX)
    """Executors of a new checkpoint; None: as many as the cluster runs tasks at once. From then on the plan has their
    number, and only scaling changes it (`geoswarm scale`, or a range in `Tuning`)."""
    subscription_ids: SubIdKind = "integer"
    """What `sub_id` is. With "text" it is any text or UUID, in every output as it was given, and an integer is the text
    of its digits."""

    @property
    def executors_max(self) -> int:
        """The most executors that can share the cells."""
        return min(EXECUTORS_MAX, self.columns * self.rows)

    @field_validator("executors", mode="before")
    @classmethod
    def _no_range(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            raise ValueError("is a range, which any start may change: write it in [tuning], Tuning(executors=...)")
        return given

    @model_validator(mode="after")
    def _relations(self) -> Self:
        xmin, ymin, xmax, ymax = self.bounds
        finite = all(abs(v) < 1e150 for v in self.bounds)  # also false for NaN
        if not (finite and xmin < xmax and ymin < ymax):
            raise ValueError(f"bounds {self.bounds} enclose no area: give (xmin, ymin, xmax, ymax), min below max")
        cells = self.columns * self.rows
        if cells > CELLS_MAX:
            raise ValueError(
                f"a grid of {self.columns} x {self.rows} has {cells} cells, limit {CELLS_MAX}: use a coarser grid"
            )
        if self.executors is not None and cells < self.executors:
            raise ValueError(
                f"{self.executors} executors cannot share {cells} cells: use at least one cell per executor"
            )
        return self


class ExecutorRange(_Settings):
    """Between which numbers the executors follow the load (`control/elastic.py`)."""

    min: int = Field(ge=1, le=EXECUTORS_MAX)
    max: int = Field(ge=1, le=EXECUTORS_MAX)
    batch_s: float | None = Field(default=None, gt=0)
    """Seconds that a batch may take; None: the trigger's interval, or 2 s where it has none."""

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: swap them")
        return self

    def clamp(self, executors: int) -> int:
        """The number in the range that is nearest to this one."""
        return min(max(executors, self.min), self.max)


class WindowSettings(_Settings):
    """Which events are kept for queries about the past, and for how long (SWARM §5.2)."""

    keep: str
    """How much of the stream: a time such as "1 hour", a number such as "5000000 events", or a size such as "2 GB". At
    least so much; what is older goes batch by batch."""
    columns: tuple[str, ...] | None = Field(default=None, strict=False)
    """The columns that are kept beside `event_id`, `ts`, `x` and `y`; None: all."""
    bytes_max: int = Field(default=64 * 1024**3, ge=1 << 20)
    """Bytes on disk, whatever `keep` asks for: beyond it the oldest batches go early, and `status` counts them."""
    marks_past: bool = False
    """Whether subscriptions may ask for kept events (`since`). Matches then have a column `past`: readers, and tables
    that are there already, must know it."""
    past_matches_max: int = Field(default=1_000_000, ge=1)
    """Matches of kept events that a batch gives to new subscriptions, held in the memory of one task. With more, each
    of these subscriptions gets its newest ones, and the journal counts what was left out."""

    @field_validator("keep")
    @classmethod
    def _readable(cls, text: str) -> str:
        amount_of(text)
        return text

    @property
    def seconds(self) -> float | None:
        """None if it is not a time."""
        number, unit = amount_of(self.keep)
        return number * KEPT_SECONDS[unit] if unit in KEPT_SECONDS else None

    @property
    def events(self) -> float | None:
        number, unit = amount_of(self.keep)
        return number if unit in KEPT_EVENTS else None

    @property
    def bytes(self) -> float:
        """Bytes that may be kept."""
        number, unit = amount_of(self.keep)
        return min(number * KEPT_BYTES[unit], self.bytes_max) if unit in KEPT_BYTES else self.bytes_max


KEPT_SECONDS = {"s": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0, "day": 86_400.0}
KEPT_EVENTS = {"event": 1.0}
KEPT_BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}


def amount_of(text: str) -> tuple[float, str]:
    """A number and the singular of its unit."""
    found = re.fullmatch(r"\s*(\d+(?:_\d+)*(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    unit = found[2].lower() if found else ""
    unit = unit if unit in KEPT_SECONDS | KEPT_EVENTS | KEPT_BYTES else unit.removesuffix("s")
    if not found or unit not in KEPT_SECONDS | KEPT_EVENTS | KEPT_BYTES or not float(found[1].replace("_", "")):
        raise ValueError(f'{text!r} is no amount of the stream: write "1 hour", "5000000 events" or "2 GB"')
    return float(found[1].replace("_", "")), unit


class AggregateSettings(_Settings):
    """When the windows of aggregates are closed (`docs/aggregates.md`)."""

    lateness_s: float = Field(default=10.0, ge=0, le=LATENESS_S_MAX)
    """How late events may come: a window stays open so long after the newest event has passed its end."""
    ahead_s: float = Field(default=60.0, ge=0, le=LATENESS_S_MAX)
    """How far ahead of the clock an event may be and still close windows, and let go events that are held back
    (`reorder_s`)."""

    @property
    def lateness_us(self) -> int:
        return round(self.lateness_s * 1e6)

    @property
    def ahead_us(self) -> int:
        return round(self.ahead_s * 1e6)


class Tuning(_Settings):
    """Settings that may change from one start to the next."""

    strategy: str = "auto"
    """The strategy that redraws the plan: a name in `geoswarm strategies`. "static-uniform" never redraws it."""
    options: dict[str, Any] = {}
    """Parameters of the strategy, by name."""
    executors: ExecutorRange | None = None
    """A range, such as { min = 2, max = 64 }, within which the number of executors follows the load; None: it stays as
    it is, until someone scales. It is here and not in the contract because any start may change it."""
    round_s: float = Field(default=15.0, gt=0)
    """Seconds between two decisions about the plan (SWARM §4.3.1); if too short, noise is taken for a change."""
    object_ttl_s: float = Field(default=3600.0, gt=0)
    """An object without events for so long is forgotten; no "exit" is reported for it."""
    keeps_objects: bool = False
    """Whether the last place of every object is kept (`Engine.objects`), also while no subscription is on "enter",
    "exit" or "dwell". Then every event with an `object_id` goes on to the executor of its object."""
    accuracy_max_m: float | None = Field(default=None, ge=0)
    """An event of an object whose `accuracy_m` is a larger number of metres is passed over for "enter", "exit" and
    "dwell"; None: none is."""
    accuracy_needed: bool = False
    """Whether an event of an object of unknown `accuracy_m` is passed over, too."""
    cross_way_m_max: float = Field(default=10_000.0, gt=0)
    """For "cross", the straight way from one event of an object to the next. One of more metres is a gap, in which
    nobody knows where the object was: a minute of an airliner is 15 km, that of a ship 0.6. In a world that is not in
    degrees, the unit is that of its coordinates."""
    reorder_s: float = Field(default=0.0, ge=0, le=REORDER_S_MAX)
    """For subscriptions that follow objects: seconds of event time for which events of objects are held back, to go on
    in the order of their `ts`. What comes later than that is late. 0: nothing is held back, and what is older than the
    newest event of its object in an earlier batch is late. How far ahead of the clock they may be is `ahead_s` of
    `aggregates`."""
    reorder_bytes_max: int = Field(default=4 << 30, ge=1 << 20)
    """Bytes on disk of events that are held back, about 40 million of a hundred bytes. With more, all of them go on in
    the next batch, and what is older than they are is late."""
    matches: Literal["arrays", "pairs", "alerts"] = "arrays"
    """One row per event with the array of its subscriptions, or one row per (event, subscription): with "alerts" these
    say what happened, since when, whose the subscription is, and what it was registered with (`payload`)."""
    pipeline: Literal["spis", "sps", "rihps", "risps"] = "spis"
    """How events find subscriptions (Distributor §4.2). "spis": both are divided by space, and an index finds matches.
    For comparison: "sps" tests every subscription of the partition; with "rihps" and "risps" the router looks up which
    subscriptions may match, and sends the event to them, by the hash of their ids or by their place."""
    join_at: Literal["static", "stream"] = "static"
    """Where they are joined (Distributor §4.5). "static": the subscriptions stay, and workers keep their index.
    "stream", for comparison: the subscriptions of every partition are sent to its events, again for each batch."""

    @property
    def keeps_index(self) -> bool:
        """Whether workers match by an index that they keep."""
        return self.pipeline == "spis" and self.join_at == "static"

    exchange: Literal["packed", "rows"] = "packed"
    """How events travel to their executor; the row exchange is kept for comparison (docs/decisions)."""
    driver_bytes_max: int = Field(default=4 << 20, ge=0, le=64 << 20)
    """Bytes of the files of a batch up to which the driver of Spark runs it itself, about 140,000 events of Parquet; it
    holds about ten times as much meanwhile. With more, tasks share the work. 0: tasks run all batches."""
    route_rows_max: int = Field(default=1_000_000, ge=1)
    """Events routed at once by a task: more gives longer runs per partition, at about 100 bytes each."""
    match_rows_max: int = Field(default=262_144, ge=1)
    """Events matched at once by a task; bounds the memory of one output batch."""
    match_pairs_max: int = Field(default=8_000_000, ge=1)
    """(event, subscription) pairs held at once by a task, 8 bytes each."""
    operations_at_once_max: int = Field(default=2_000_000, ge=1)
    """Operations applied in one step; more in a batch take several. The driver holds about 200 bytes of each."""
    inbox_files_max: int = Field(default=100_000, ge=1)
    """Calls of `subscribe` and `cancel` that may wait for the next batch; each is a file."""
    deltas_max: int = Field(default=8, ge=1, le=64)
    """Small segments before they are merged; each costs one look-up per event. A batch waits for a merge only where
    there are sixteen times as many."""
    segment_subs_max: int = Field(default=50_000_000, ge=1000, le=400_000_000)
    """Subscriptions in one segment: the process that merges it needs some 30 bytes of memory for each. Entries of its
    index are numbered with 32 bits, which is enough for 9 entries of each at the upper limit."""
    subscriptions_max: int = Field(default=200_000_000, ge=1)
    """Subscriptions in all: about 17 GB on disk at the size of a city block."""
    dead_share_max: float = Field(default=0.25, gt=0, le=1)
    """Share of cancelled or expired subscriptions that makes a segment worth rewriting."""
    window: WindowSettings | None = None
    """Events that are kept for queries; None: none. In a settings file the section [window]."""
    aggregates: AggregateSettings = AggregateSettings()
    """When windows of aggregates are closed. In a settings file the section [aggregates]."""
    dead_letter_folders_max: int = Field(default=10_000, ge=1)
    """Batches whose dead letters are kept; the oldest are removed first."""

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.accuracy_needed and self.accuracy_max_m is None:
            raise ValueError("accuracy_needed says nothing without accuracy_max_m: give that, too, or leave it out")
        return self

    @field_validator("executors", mode="before")
    @classmethod
    def _no_number(cls, given: Any) -> Any:
        if isinstance(given, int):
            raise ValueError("is one number: give a range, { min = 2, max = 64 }, or write the number in [contract]")
        return given


class KeyBalancing(_Settings):
    """How the keys of an operator are assigned to executors, and within which limits (Mixed, Table II)."""

    round_s: float | None = Field(default=None, ge=0.001)
    """Seconds between two decisions about the table; None: when an interval ends."""
    planner: str = "mixed"
    """The planner that redraws the table: a name that `geoswarm strategies` lists. "hash" never does."""
    options: dict[str, Any] = {}
    """Parameters of the planner, by name."""
    load_by: Literal["time", "work"] = "time"
    """What the load of a key is: its share of the CPU time that executors took, or the work that its operator counts
    for it, which is the same each time a stream runs."""
    theta_max: float = Field(default=0.08, ge=0)
    """θ_max: how far an executor's load may be above the average, as a share of it."""
    table_max: int = Field(default=3000, ge=0)
    """A_max: keys that may be assigned otherwise than by their hash; 0 is plain hashing."""
    beta: float = Field(default=1.5, ge=0, le=10)
    """β: above 1, few heavy keys are moved rather than many light ones."""


class KeyTuning(KeyBalancing):
    """How a keyed operator is spread over executors. May change from one start to the next."""

    executors: int | None = Field(default=None, ge=1, le=EXECUTORS_MAX)
    """Executors that share the keys; their number can also be changed while the stream runs. None: beside the matching
    always as many as match; in a stream of its own as many as the cluster runs tasks at once."""
    interval_s: float = Field(default=10.0, ge=0.001)
    """Seconds of an interval; state is kept and forgotten by intervals."""
