"""Who ends and why, alert by alert, in plain dicts: what is cancelled, has expired, or has had its `max_events`.

- A subscription with `max_events` has the first so many alerts of events since it was registered or replaced, by
  batch, then by (ts, event_id), and is over with the next batch.
- Who asked for `ended` is told it once: with the batch of the last alert, or with the first batch without it, if it
  was in force in the one before. Who is registered again with that batch has not ended.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from geoswarm.run.oracle.following import Told

Pair = tuple[int, int]


class End(NamedTuple):
    sub: int
    reason: str
    ts_us: int
    user: str
    payload: str | None


class InForce(NamedTuple):
    """What is needed of a subscription to tell its end."""

    tells: bool
    expires_us: int | None
    user: str
    payload: str | None


class Asked(NamedTuple):
    """What a subscription says of its end."""

    max_events: int | None = None
    tells: bool = False
    initial: bool = False


@dataclass
class Endings:
    asked: dict[int, Asked] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    """The number of alerts that each has had."""
    reached: set[int] = field(default_factory=set)
    """Those that are over with the next batch."""
    begun: set[int] = field(default_factory=set)
    """Those that were registered or replaced since the last batch."""
    ends: list[End] = field(default_factory=list)

    def begin(self, sub: int, asked: Asked) -> None:
        """It was registered or replaced."""
        self.asked[sub], self.told[sub] = asked, 0
        self.begun.add(sub)

    def settle(self, in_force: Mapping[int, InForce], live: Collection[int], now_us: int) -> None:
        """Those that were in force in the batch before, and are not any more."""
        for sub, held in in_force.items():
            if held.tells and sub not in live:
                has_expired = held.expires_us is not None and held.expires_us <= now_us
                ts_us = held.expires_us if has_expired and held.expires_us is not None else now_us
                self.ends.append(End(sub, "expired" if has_expired else "cancelled", ts_us, held.user, held.payload))

    def limit(
        self,
        told: Mapping[Pair, Told],
        ts_us: Mapping[int, int],
        users: Mapping[int, str],
        payloads: Mapping[int, str | None],
    ) -> dict[Pair, Told]:
        """What is told of what would be."""
        kept = dict[Pair, Told]()
        for pair in sorted(told, key=lambda pair: (ts_us[pair[0]], pair)):
            event, sub = pair
            most = self.asked[sub].max_events
            if most is not None and self.told[sub] == most:
                continue
            kept[pair] = told[pair]
            self.told[sub] += 1
            if self.told[sub] == most:
                self.reached.add(sub)
                if self.asked[sub].tells:
                    self.ends.append(End(sub, "max_events", ts_us[event], users[sub], payloads[sub]))
        return kept

    def take(self) -> list[End]:
        """The ends that a batch tells."""
        ends, self.ends = sorted(self.ends), []
        return ends


def read_asked(row: Mapping[str, object], on: object) -> Asked | None:
    """What the columns of an operation say; None if it cannot be read, or does not go together."""
    most, notify = row.get("max_events"), row.get("notify")
    if most is not None and not 1 <= int(str(most)) <= 1_000_000_000:
        return None
    if most is not None and (row.get("aggregate") is not None or row.get("since") is not None):
        return None
    words = [] if notify is None else [word.strip() for word in str(notify).split(",")]
    if len(set(words)) < len(words) or not set(words) <= {"ended", "initial"}:
        return None
    if "initial" in words and (on in ("inside", "cross") or not row.get("keywords") is row.get("where") is None):
        return None
    return Asked(None if most is None else int(str(most)), "ended" in words, "initial" in words)
