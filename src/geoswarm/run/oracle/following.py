"""Who enters, leaves and stays, fix by fix and subscription by subscription, in plain dicts and lists.

The rules are those of `flow/keyed/transitions.py`; here each is written out as it is said there.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import isnan
from typing import Any


@dataclass(frozen=True)
class Rules:
    """What one subscription is on, and when a transition counts for it."""

    on: str | float
    """"enter", "exit", or the seconds of a dwell."""
    fixes: int = 1
    """How many a run must have."""
    lasts_us: int | None = None
    """How long a run must last, in place of a number of fixes."""
    cooldown_us: int = 0
    buffer_m: float = 0.0
    """How far outside an object must be before it is out."""


@dataclass
class Known:
    """What is known of one object and one subscription."""

    since_us: int | None = None
    """When the stay began; None: the object is outside."""
    has_dwelt: bool = False
    run: list[int] = field(default_factory=list)
    """The ts of the last fixes, which are all on the side where the object does not count as being yet."""
    quiet_us: int | None = None
    """The end of the pause after an alert."""
    told: list[int] = field(default_factory=list)
    """The ts of the alerts in the sequence."""


@dataclass(frozen=True, order=True)
class Told:
    """What a subscription is told of a fix."""

    transition: str
    since_us: int | None
    sequence: int | None


INSIDE = Told("inside", None, None)


@dataclass(frozen=True)
class Unprompted:
    """What a subscription is told of an object that sent nothing."""

    sub: int
    name: object
    told: Told
    ts_us: int
    place: Any
    """Of its last fix."""


@dataclass
class ObjectState:
    """What is known of one moving object."""

    interval: int = 0
    newest_us: int | None = None
    place: Any = None
    """That of its newest fix."""
    way_from: tuple[int, Any] | None = None
    """The ts and the place of its newest fix that was not vague."""
    known: dict[int, Known] = field(default_factory=dict)


@dataclass
class Follower:
    accuracy_max_m: float | None = None
    accuracy_needed: bool = False
    sequence_us: int = 0
    """How long a sequence goes on after an alert."""
    objects: dict[object, ObjectState] = field(default_factory=dict)
    cooled: int = 0
    vague: int = 0
    gaps: int = 0
    late: int = 0

    def forget(self, interval: int, asks: Collection[int] = ()) -> list[Unprompted]:
        """Forget the objects whose last event is of this interval or older. Returns what those who ask are told of
        objects that are inside."""
        gone = [(name, here) for name, here in self.objects.items() if here.interval <= interval]
        self.objects = {name: here for name, here in self.objects.items() if here.interval > interval}
        return [
            self._unprompted("ended", sub, name, here, None if known.has_dwelt else known.since_us)
            for name, here in gone
            for sub, known in here.known.items()
            if sub in asks and known.since_us is not None
        ]

    def begin(self, subs: Collection[int], is_inside: Callable[[int, object, Any], bool]) -> list[Unprompted]:
        """Subscriptions that want to be told who is inside begin."""
        told = list[Unprompted]()
        for name, here in self.objects.items():
            for sub in subs:
                known = here.known.setdefault(sub, Known())
                if known.since_us is None and is_inside(sub, name, here.place):
                    known.since_us, known.run = here.newest_us, []
                    told.append(self._unprompted("initial", sub, name, here, here.newest_us))
        return told

    def _unprompted(
        self, transition: str, sub: int, name: object, here: ObjectState, since_us: int | None
    ) -> Unprompted:
        assert here.newest_us is not None
        known = here.known[sub]
        if known.told and here.newest_us - known.told[-1] > self.sequence_us:
            known.told = []
        known.told.append(here.newest_us)
        return Unprompted(sub, name, Told(transition, since_us, len(known.told)), here.newest_us, here.place)

    def see(
        self,
        name: object,
        ts_us: int,
        interval: int,
        accuracy_m: float | None,
        met: Collection[int],
        rules: dict[int, Rules],
        near: Collection[int] = (),
        place: Any = None,
        cross: Callable[[Any, Any], Collection[int] | None] = lambda begin, end: (),
    ) -> dict[int, Told]:
        """The next fix of an object, which is inside of `met`, and not further outside of `near` than they ask for.
        Returns what those of the live subscriptions in `rules` are told that are told of it. `cross` finds the
        subscriptions that the way between two places passes through; None: it is a gap."""
        here = self.objects.setdefault(name, ObjectState())
        if here.newest_us is not None and ts_us < here.newest_us:
            self.late += 1
            return {}
        here.newest_us, here.interval, here.place = ts_us, interval, place
        here.known = {sub: known for sub, known in here.known.items() if sub in rules}
        for sub, known in here.known.items():
            if rules[sub].on == "cross":
                known.since_us, known.has_dwelt, known.run = None, False, []
            if not rules[sub].cooldown_us:
                known.quiet_us = None
        if self._is_vague(accuracy_m):
            self.vague += 1
            return {}
        began_us, crossed = here.way_from[0] if here.way_from else 0, self._cross(here, place, cross)
        here.way_from = ts_us, place
        told = dict[int, Told]()
        for sub, asked in rules.items():
            known = here.known.setdefault(sub, Known())
            before_us = None if known.has_dwelt else known.since_us
            if asked.on == "cross":
                if sub not in crossed:
                    continue
            elif not _transits(known, asked, ts_us, sub in met or (known.since_us is not None and sub in near)):
                continue
            if known.quiet_us is not None and ts_us < known.quiet_us:
                self.cooled += 1
                continue
            if known.told and ts_us - known.told[-1] > self.sequence_us:
                known.told = []
            known.told.append(ts_us)
            since_us = {"exit": before_us, "cross": began_us}.get(str(asked.on), known.since_us)
            told[sub] = Told(asked.on if isinstance(asked.on, str) else "dwell", since_us, len(known.told))
            known.quiet_us = ts_us + asked.cooldown_us if asked.cooldown_us else None
        return told

    def _cross(
        self, here: ObjectState, place: Any, cross: Callable[[Any, Any], Collection[int] | None]
    ) -> Collection[int]:
        if here.way_from is None or here.way_from[1] == place:
            return ()
        crossed = cross(here.way_from[1], place)
        self.gaps += crossed is None
        return crossed or ()

    def _is_vague(self, accuracy_m: float | None) -> bool:
        if self.accuracy_max_m is None:
            return False
        if accuracy_m is None or isnan(accuracy_m) or accuracy_m < 0:
            return self.accuracy_needed
        return accuracy_m > self.accuracy_max_m


def _transits(known: Known, asked: Rules, ts_us: int, is_inside: bool) -> bool:
    """Whether the subscription has what it is on, with this fix."""
    was_inside = known.since_us is not None
    if is_inside == was_inside:
        known.run = []
    else:
        known.run.append(ts_us)
        long_enough = asked.lasts_us is None or known.run[-1] - known.run[0] >= asked.lasts_us
        if len(known.run) >= asked.fixes and long_enough:
            known.since_us, known.has_dwelt = (known.run[0] if is_inside else None), False
            known.run = []
    stays = known.since_us is not None
    if asked.on == "enter":
        return stays and not was_inside
    if asked.on == "exit":
        return was_inside and not stays
    if not is_inside or known.since_us is None or known.has_dwelt:
        return False
    known.has_dwelt = ts_us - known.since_us >= float(asked.on) * 1e6
    return known.has_dwelt


def read_rules(on: object, confirm: object, cooldown: object, buffer_m: object = None) -> Rules | None:
    """The rules in an operation's columns, where `on` has been read; None if they cannot be read, or if there is
    nothing for them to be about."""
    if on == "inside":
        return Rules("inside") if confirm is cooldown is buffer_m is None else None
    if on == "cross" and not confirm is buffer_m is None:
        return None
    metres = 0.0 if buffer_m is None else float(str(buffer_m))
    if buffer_m is not None and not 0.001 <= metres <= 100_000:
        return None
    fixes, lasts_us, cooldown_us = 1, None, 0
    if confirm is not None:
        number, unit = _amount(confirm)
        if unit in ("fix", "fixes"):
            fixes = int(number)
            if fixes != number or not (fixes == 1 if unit == "fix" else 1 <= fixes <= 1000):
                return None
        else:
            lasts_us = _time_us(number, unit)
            if not 0 < lasts_us <= 86_400_000_000:
                return None
    if cooldown is not None:
        cooldown_us = _time_us(*_amount(cooldown))
        if not 0 < cooldown_us <= 30 * 86_400_000_000:
            return None
    return Rules(on if isinstance(on, float) else str(on), fixes, lasts_us, cooldown_us, round(metres, 3))


def _amount(text: object) -> tuple[float, str]:
    number, _, unit = str(text).strip().partition(" ")
    try:
        return float(number), unit.strip()
    except ValueError:
        return -1.0, ""


def _time_us(number: float, unit: str) -> int:
    """-1: it is no time."""
    seconds = {"s": 1, "min": 60, "hours": 3600, "days": 86_400}.get(unit)
    return -1 if seconds is None else round(number * seconds * 1e6)
