"""Guard's journal entry of a detection round, as values: the users it found, the evidence, and how they differ.

`detector.py` and `causes.py` make the evidence, `guard.py` the entry; `store/guard_files.py` hands it to the journal,
and `geoswarm explain --user` makes sentences of it. Thesis chapter 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from geoswarm.core.journal_entry_base import JournalEntry


@dataclass(frozen=True)
class UserCluster:
    """A cluster of similar users, and the rate that they are judged by."""

    users: int
    alqr: float
    """The share of their recent requests that lies in the round's hotspots."""
    alqr_normal: float
    """The same share of all other users."""


@dataclass(frozen=True)
class HotspotNote:
    """A hotspot that the users in question made."""

    id: int
    round: int
    share: float
    """Their share of the new queries there."""
    users: int
    place: tuple[float, float] | None
    """Its place as shares of the world's sides; None: unknown."""


@dataclass(frozen=True)
class Evidence:
    """The grounds of a verdict. The thesis' algorithm gives one cluster's figures, the careful one all others."""

    users: int | None = None
    """The number of users in the cluster of the thesis' algorithm."""
    alqr: float | None = None
    alqr_normal: float | None = None
    clusters: tuple[UserCluster, ...] | None = None
    hotspots: tuple[HotspotNote, ...] | None = None
    suspected_before: int | None = None
    """Users of the clusters who were suspected in an earlier round."""
    places_least: float | None = None
    """The fewest places that one of the blocked users made hot."""
    rounds_least: float | None = None
    """The fewest rounds in which one of them did little else."""
    cancels_least: float | None = None
    """The smallest share of registrations that one of them cancelled again."""

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
    """When the round ended, in microseconds since 1970."""
    users: int
    """The number of users examined."""
    users_driven_out: int
    """The number of users who had to leave Guard's table, since it was made."""
    hotspots: int
    """The number of hotspots of this round."""
    suspicious: tuple[str, ...]
    suspicious_users: int
    blocked: tuple[str, ...]
    """Users blocked in this round."""
    blocked_users: int
    evidence: Evidence
    features: Mapping[str, Mapping[str, float]]
    """Features by user, blocked users first, and by the feature's name (`features.py`)."""
    features_others: Mapping[str, float]
    """The mean features of all users who are not suspicious."""
    lifted: tuple[str, ...] = ()
    """Users whose block was lifted to make room."""
