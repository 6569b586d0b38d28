"""Guard's limits: each has a name, a unit and a reason.

What a user may do in the first seconds, before any detection, is limited in `limits.py`. Thesis chapter 5.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from geoswarm.guard.sensor import AGES

Share = Annotated[float, Field(ge=0, le=1)]


class GuardRules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    algorithm: Literal["careful", "printed"] = "careful"
    """"printed" is Algorithm 4 of the thesis, which blocks festivals (`docs/guard.md`). Of the other rules it uses only
    `round_s`, `beta`, `near_zero` and the limits of time and memory."""

    # Algorithm 4
    round_s: float = Field(default=60.0, gt=0)
    """The length of a detection round, enough for more than one hotspot: four rounds of SWARM (§5.2)."""
    beta: float = Field(default=3.0, ge=1)
    """A rate of queries in hotspots up to this many times that of the others is normal (§5.4)."""
    near_zero: float = Field(default=0.1, ge=0)
    """A spread of Hotspot_Seq_New (x11) that counts as zero: its standard deviation as a share of its mean. The numbers
    of hotspots grow for ever, so in plain units a hotspot that a member missed weighs more every day; as a share of
    the mean it is always the part of their common history that differs."""
    suspicious_rounds_min: int = Field(default=5, ge=1)
    suspicious_rounds_max: int = Field(default=30, ge=1)
    """A suspicion is forgotten after a random number of rounds from min to max, so that no attacker can wait for it
    (§5.4). The makers of hotspots are remembered for the longer time."""

    # Further conditions before a user is blocked
    reach: Share = 0.015
    """How far from the centre of a hotspot the sensor counts queries, as a share of the world's sides: a city and its
    suburbs. 0: only the partition itself."""
    focus_min: Share = 0.5
    """The least share of a user's recent requests round a hotspot that makes the user its maker."""
    queries_min: float = Field(default=10.0, ge=0)
    """The least number of a maker's recent queries round it, by weight: 4 of 5 can be chance, 10 of 12 not."""
    share_min: Share = 0.25
    """The least share of a group in what is new round a hotspot: with less, it would be hot without them."""
    alike_min: Share = 0.33
    """A member has at least this share of the group's median there: with less, it is only a neighbour."""
    crowd_min: Share = 0.5
    """If this share of the active users made a hotspot, it is a crowd's: what most users do is normal."""
    normal_users_min: int = Field(default=10, ge=1)
    """The least number of other users with recent requests. Fewer are no norm: a single user makes all hotspots."""
    trade_rounds_min: int = Field(default=2, ge=1)
    """An attack trades: the same users made hotspots in at least this many rounds, and both shares below hold."""
    trade_focus_min: Share = 0.8
    """The least share of their requests that was for these hotspots."""
    trade_cancels_min: Share = 0.5
    """The least share of their registrations that they cancelled: a crowd comes, but does not cancel."""
    places_min: int = Field(default=3, ge=2)
    """Or an attack moves: at least this many places that the same users made hot, whatever they cancel, since queries
    may also expire."""
    place_gap: Share = 0.03
    """Places closer than this, as a share of the world's sides, are one place: twice the reach."""
    clusters_max: int = Field(default=16, ge=1)
    """How often Algorithm 4 runs in a round, each time on the candidates who are left: the rest of a group that K-Means
    cut in two, or a second group, need not wait for another hotspot."""

    # Memory and time
    users_max: int = Field(default=1 << 20, ge=2)
    """The most users that Guard knows at a time, about 250 bytes each. `names.py` decides who leaves."""
    hotspots_max: int = Field(default=128, ge=1)
    """The most hotspots whose makers are remembered: four a round for half an hour."""
    makers_max: int = Field(default=4096, ge=1)
    """The most makers remembered of one hotspot, those with most queries in it; 32 bytes each."""
    blocked_max: int = Field(default=100_000, ge=1)
    """The most users blocked at a time; the oldest block not made by an operator is lifted first, and reported."""
    listed_max: int = Field(default=100, ge=1)
    """The most users that one entry of the journal names."""
    clustered_rows_max: int = Field(default=50_000, ge=2)
    """The most users, drawn at random, that K-Means finds its centres from; all are then assigned."""
    clusterings: int = Field(default=4, ge=1)
    """The number of starts of K-Means++; the tightest result is taken."""

    @property
    def ages(self) -> int:
        """Detection rounds that the sensor distinguishes (§5.3.1)."""
        return AGES

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.suspicious_rounds_min > self.suspicious_rounds_max:
            raise ValueError(
                f"suspicions of {self.suspicious_rounds_min} to {self.suspicious_rounds_max} rounds: "
                "give suspicious_rounds_min at most suspicious_rounds_max"
            )
        if 2 * self.hotspots_max * self.makers_max > self.users_max and self.algorithm == "careful":
            raise ValueError(
                f"{self.hotspots_max} hotspots of {self.makers_max} makers may fill more than half of a table of "
                f"{self.users_max} users, where the remembered keep a place: lower one of the two, or raise users_max"
            )
        return self


PRINTED = GuardRules(algorithm="printed", reach=0.0)
"""The thesis' Guard, for comparison."""
