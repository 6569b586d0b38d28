"""What Guard writes down of a detection round, as values: whom it found, by what evidence, and how they differ.

`detector.py` and `causes.py` make the evidence, `guard.py` the entry; `store/guard_files.py` hands it to the journal,
and `geoswarm explain --user` makes sentences of it. Thesis chapter 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from geoswarm.core.journal_entry import JournalEntry


@dataclass(frozen=True)
class UserCluster:
    """Users who are alike, and the rate that they are judged by."""

    users: int
    alqr: float
    """Of what they asked for lately, the share that lies in the round's hotspots."""
    alqr_normal: float
    """The same of all others."""


@dataclass(frozen=True)
class HotspotNote:
    """A hotspot that the users in question made."""

    id: int
    round: int
    share: float
    """Of what was new there, how much was theirs."""
    users: int
    place: tuple[float, float] | None
    """As shares of the world's sides; None: unknown."""


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on. The printed algorithm gives one cluster's figures, the careful one all that follows."""

    users: int | None = None
    """Of the printed algorithm's cluster."""
    alqr: float | None = None
    alqr_normal: float | None = None
    clusters: tuple[UserCluster, ...] | None = None
    hotspots: tuple[HotspotNote, ...] | None = None
    suspected_before: int | None = None
    """Users of the clusters who were suspected in an earlier round."""
    places_least: float | None = None
    """Of those blocked, the fewest places that became hot by one of them."""
    rounds_least: float | None = None
    """The fewest rounds in which one of them did hardly anything else."""
    cancels_least: float | None = None
    """The smallest share of what one of them registered that was cancelled again."""

    @property
    def groups(self) -> tuple[UserCluster, ...]:
        """The clusters, by either algorithm."""
        if self.clusters is not None:
            return self.clusters
        if self.users is None or self.alqr is None or self.alqr_normal is None:
            return ()
        return (UserCluster(self.users, self.alqr, self.alqr_normal),)


@dataclass(frozen=True)
class DetectionEntry(JournalEntry):
    """A detection round: what was found and why. Lists of users are cut at `GuardRules.listed_max`."""

    kind: ClassVar[str] = "guard"

    round: int
    now_us: int
    """When the round ended, microseconds since 1970."""
    users: int
    """Who were looked at."""
    users_driven_out: int
    """Who had to leave Guard's table to make room, since it was made."""
    hotspots: int
    """Of this round."""
    suspicious: tuple[str, ...]
    suspicious_users: int
    blocked: tuple[str, ...]
    """In this round."""
    blocked_users: int
    evidence: Evidence
    features: Mapping[str, Mapping[str, float]]
    """By user, those who are blocked first, then by the feature's name (`features.py`)."""
    features_others: Mapping[str, float]
    """Means of all who are not suspicious."""
    lifted: tuple[str, ...] = ()
    """Whose block was lifted to make room."""
