"""The kinds of entries of the journal: every batch, and what happened to files and users. `ENTRY_KINDS` lists all.

Entries of the control plane are declared in `control/outcome.py` and Guard's in `guard/findings.py`, where they are
made. A field that is added here gets a default, which lines that were written before are read with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from geoswarm.control.outcome import KeyRoundEntry, RoundEntry, ScaleEntry
from geoswarm.control.task_costs import CostRates
from geoswarm.core.journal_entry_base import JournalEntry
from geoswarm.flow.observe import COUNT_NAMES, Load, LoadReport
from geoswarm.flow.silence import NOT_SILENT, Silence
from geoswarm.guard.commands import Command
from geoswarm.guard.findings import DetectionEntry
from geoswarm.store.manifest import Manifest


@dataclass(frozen=True)
class RunTotals:
    """Sums over all batches since the checkpoint was made; a batch that was run twice counts once."""

    batches: int = 0
    events: int = 0
    """Events that came in, dead ones included."""
    dead: int = 0
    matched: int = 0
    """Events that matched at least one subscription."""
    matches: int = 0
    operations_refused: int = 0
    late: int = 0
    ahead: int = 0
    answers: int = 0
    cooled: int = 0
    vague: int = 0
    without_object: int = 0
    without_text: int = 0
    gaps: int = 0
    reported: int = 0
    late_fixes: int = 0
    ahead_fixes: int = 0

    def after(
        self, report: LoadReport, operations_refused: int, answers: int, followed: Mapping[str, int]
    ) -> "RunTotals":
        """The sums with one more batch."""
        return RunTotals(
            self.batches + 1,
            self.events + report.events_in,
            self.dead + report.dead,
            self.matched + report.matched,
            self.matches + report.matches,
            self.operations_refused + operations_refused,
            self.late + report.late,
            self.ahead + report.ahead,
            self.answers + answers,
            self.cooled + followed.get("cooled", 0),
            self.vague + followed.get("vague", 0),
            self.without_object + report.without_object,
            self.without_text + report.without_text,
            self.gaps + followed.get("gaps", 0),
            self.reported + followed.get("reported", 0),
            self.late_fixes + followed.get("late_fixes", 0),
            self.ahead_fixes + followed.get("ahead_fixes", 0),
        )


@dataclass(frozen=True)
class BatchEntry(JournalEntry):
    """A finished batch: its version and plan, how long it took, and what it counted."""

    kind: ClassVar[str] = "batch"

    batch: int
    totals: RunTotals = RunTotals()
    """The sums, this batch included."""
    totals_before: RunTotals = RunTotals()
    """The sums before this batch: if it is run again after a crash, they go on from here."""
    version: int = 0
    """The version of the subscriptions."""
    plan_epoch: int = 0
    now_us: int = 0
    """The batch's own time, in microseconds since 1970."""
    subscriptions: int = 0
    segments: int = 0
    """The number of files that hold the subscriptions."""
    operations_refused: int = 0
    matched: int = 0
    """Events that matched at least one subscription."""
    matches: int = 0
    prepare_s: float = 0.0
    """Seconds until the operations were in force."""
    batch_s: float = 0.0
    """Seconds from beginning to end."""
    partitions: Mapping[int, Load] = field(default_factory=dict)
    executors: Mapping[int, Load] = field(default_factory=dict)
    """The same work, by the executor that did it."""
    events_in: int = 0
    dead: int = 0
    """Events that became dead letters."""
    route_cpu_us: int = 0
    copies: int = 0
    """Rows sent for events, beyond the first row of each."""
    dropped: int = 0
    """Events that were sent to no executor, since no subscription asks for their words."""
    repeated: int = 0
    """Rows that the merger joined to another row of the same event."""
    in_transit: int = 0
    """Rows that did not reach the merger."""
    pasts: int = 0
    """New subscriptions that were given their past: the kept events of the batches before."""
    past_matches: int = 0
    """Matches of kept events that they were given; `matches` has none of them."""
    past_left_out: int = 0
    """The oldest matches of kept events, beyond those that a batch may give."""
    late: int = 0
    """(event, subscription, window) that no aggregate counts, since the window was closed."""
    ahead: int = 0
    """Events too far ahead of the clock to close windows of aggregates."""
    answers: int = 0
    """Rows that aggregates gave."""
    held: int = 0
    """Rows that are held for windows of aggregates that are open: each a pane, a session, or an event where a window is
    of so many."""
    cooled: int = 0
    """Transitions that were not reported, since their subscription had a pause (`cooldown`)."""
    vague: int = 0
    """Events of objects that were passed over for transitions, since their place is too inaccurate."""
    without_object: int = 0
    """Valid events without an `object_id`, while some subscription is on enter, exit or dwell."""
    without_text: int = 0
    """Valid events without a `text`, while some subscription asks for words."""
    silent_since_us: int | None = None
    """Since when no event has matched, although some came; None: one of the newest has."""
    silent_why: tuple[str, ...] = ()
    """Why that may be, once it has lasted (`flow/silence.py`)."""
    gaps: int = 0
    """Pairs of events of an object that are too far apart for a way, where subscriptions are on `cross`."""
    reported: int = 0
    """Transitions that went out; `matches` has every event inside instead, whatever its subscription is on."""
    late_fixes: int = 0
    """Events of objects that were passed over for transitions, since they came too late (`reorder_s`)."""
    ahead_fixes: int = 0
    """Events of objects that were passed over for transitions, since they are too far ahead of the clock: where
    events are held back."""
    held_fixes: int = 0
    """Events of objects that are held back after the batch, to go on in order."""
    rates: CostRates | None = None
    """What match tasks spend beyond matching, as it was fitted when this batch was charged."""

    @property
    def now_s(self) -> float:
        return self.now_us * 1e-6

    @classmethod
    def of(
        cls,
        batch: int,
        manifest: Manifest,
        report: LoadReport,
        rates: CostRates,
        seconds: Mapping[str, float],
        answers: tuple[int, int],
        followed: Mapping[str, int],
        last: "BatchEntry | None",
        silence: Silence = NOT_SILENT,
    ) -> "BatchEntry":
        """`seconds` has `prepare_s` and `batch_s`; `answers` are the rows that aggregates gave and those they hold;
        `followed` has what transitions counted; `last` is the newest entry, which may be of the same batch."""
        start = RunTotals()
        if last is not None:
            start = last.totals_before if last.batch == batch else last.totals
        return cls(
            batch=batch,
            totals=start.after(report, manifest.refused, answers[0], followed),
            totals_before=start,
            version=manifest.version,
            plan_epoch=manifest.plan_epoch,
            now_us=manifest.now_us,
            subscriptions=manifest.subs,
            segments=len(manifest.segments),
            operations_refused=manifest.refused,
            matched=report.matched,
            matches=report.matches,
            prepare_s=seconds["prepare_s"],
            batch_s=seconds["batch_s"],
            partitions=dict(sorted(report.partitions.items())),
            executors=dict(sorted(report.executors.items())),
            answers=answers[0],
            held=answers[1],
            cooled=followed.get("cooled", 0),
            vague=followed.get("vague", 0),
            silent_since_us=silence.since_us,
            silent_why=silence.why,
            gaps=followed.get("gaps", 0),
            reported=followed.get("reported", 0),
            late_fixes=followed.get("late_fixes", 0),
            ahead_fixes=followed.get("ahead_fixes", 0),
            held_fixes=followed.get("held_fixes", 0),
            rates=rates,
            **{name: getattr(report, name) for name in COUNT_NAMES},
        )


@dataclass(frozen=True)
class SilenceEntry(JournalEntry):
    """A stream has ended, and no event of its run has matched; `silent_why` of a batch is for one that goes on."""

    kind: ClassVar[str] = "silence"

    why: tuple[str, ...]
    """Why that may be (`flow/silence.py`)."""
    since_us: int | None = None
    """Since when no event has matched: the time of a batch, maybe of a run before."""


class KeyedLoad(NamedTuple):
    """What an executor did for a keyed operator in a batch."""

    rows: int
    cpu_us: int


@dataclass(frozen=True)
class KeyedBatchEntry(JournalEntry):
    """A batch of a keyed operator."""

    kind: ClassVar[str] = "keyed"

    operator: str
    batch: int
    interval: int
    plan_epoch: int
    rows: int
    """Rows that came in, dead ones included."""
    dead: int
    given: int
    """Rows that the operator put out."""
    state_rows: int
    state_bytes: int
    files: int
    """The number of files that hold the state."""
    executors: Mapping[int, KeyedLoad] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the operator counted beside its rows."""


@dataclass(frozen=True)
class CommandEntry(JournalEntry):
    """A command of a person, by the command line or the API, that was applied (`guard/commands.py`)."""

    kind: ClassVar[str] = "operator"

    command: str
    """The name of the command; "none" if its file was damaged."""
    user: str | None = None
    """The user that the command is about."""
    at_us: int | None = None
    """When it was given, in microseconds since 1970."""
    why: str = ""
    removes: str | None = None
    """Which of the user's standing queries a block cancels: nothing, recent or all."""

    @classmethod
    def of(cls, given: Command) -> "CommandEntry":
        return cls(given.command, given.user, given.at_us, given.why, given.removes)


@dataclass(frozen=True)
class RepairEntry(JournalEntry):
    """A file of the checkpoint that was damaged and has been made anew."""

    kind: ClassVar[str] = "repair"

    segment: str
    what: str


@dataclass(frozen=True)
class MergeEntry(JournalEntry):
    """Segments that were merged beside the stream and adopted, or a merge that failed."""

    kind: ClassVar[str] = "merge"

    segment: str
    """The new segment; "none" if it failed."""
    sources: int
    """The number of segments that it replaces."""
    subscriptions: int
    seconds: float
    """From its beginning until the segment could be adopted."""
    error: str = ""


ENTRY_KINDS: dict[str, type[JournalEntry]] = {
    kind.kind: kind
    for kind in (
        BatchEntry,
        SilenceEntry,
        RoundEntry,
        ScaleEntry,
        KeyRoundEntry,
        KeyedBatchEntry,
        DetectionEntry,
        CommandEntry,
        RepairEntry,
        MergeEntry,
    )
}
"""The kinds of entries, by their names on disk."""
