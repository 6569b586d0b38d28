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
    """"printed" is Algorithm 4 as it stands, which blocks festivals (`docs/guard.md`). It uses, of what follows, only
    `round_s`, `beta`, `near_zero` and the limits of time and memory."""

    # Algorithm 4
    round_s: float = Field(default=60.0, gt=0)
    """A detection round, long enough for more than one hotspot: four looks of SWARM at the load (§5.2)."""
    beta: float = Field(default=3.0, ge=1)
    """How many times the others' rate of queries in hotspots is still normal (§5.4)."""
    near_zero: float = Field(default=0.1, ge=0)
    """A spread of Hotspot_Seq_New (x11) that is none: its standard deviation as a share of its mean. Hotspots are
    numbered without end, so one that a member missed weighs more every day in plain units; as a share of the mean it
    says how much of their common history differs, today and in a year."""
    suspicious_rounds_min: int = Field(default=5, ge=1)
    suspicious_rounds_max: int = Field(default=30, ge=1)
    """A suspicion is forgotten at random between these, so that nobody can wait for it (§5.4). What hotspots were made
    of is remembered for the longer one."""

    # What must hold besides, before anybody is blocked
    reach: Share = 0.015
    """How far round the middle of a hotspot the sensor looks, as a share of the world's sides: a city and its suburbs.
    0: only the partition itself."""
    focus_min: Share = 0.5
    """Of what a user asked for lately, so much must lie round a hotspot, or it is not the user's doing."""
    queries_min: float = Field(default=10.0, ge=0)
    """So many of the user's recent queries, by weight, must lie round it: 4 of 5 can be chance, 10 of 12 not."""
    share_min: Share = 0.25
    """Of what is new round a hotspot, so much must be the group's: else it would have come without them."""
    alike_min: Share = 0.33
    """Who has less than this of what the median of the group has there is no member: a neighbour, not an accomplice."""
    crowd_min: Share = 0.5
    """If so many of the active users made a hotspot, it is a crowd's: what most do is normal."""
    normal_users_min: int = Field(default=10, ge=1)
    """Others who asked for something lately. Fewer are no norm: whoever is alone makes all hotspots."""
    trade_rounds_min: int = Field(default=2, ge=1)
    """So many rounds with hotspots by the same users,"""
    trade_focus_min: Share = 0.8
    """who hardly asked for anything else,"""
    trade_cancels_min: Share = 0.5
    """and who cancelled so much of what they registered, are an attack: a crowd comes, it does not trade. Or"""
    places_min: int = Field(default=3, ge=2)
    """so many separate places with hotspots by the same users, whatever they cancel: queries may also expire."""
    place_gap: Share = 0.03
    """Places closer than this, as a share of the world's sides, are one: twice the reach."""
    clusters_max: int = Field(default=16, ge=1)
    """Algorithm 4 is run again on the candidates who are left, so often in a round: a group that K-Means cut in two,
    or a second group, need not wait for another hotspot."""

    # Memory and time
    users_max: int = Field(default=1 << 20, ge=2)
    """Users that Guard knows at a time, about 250 bytes each. Who has to go beyond: `names.py`."""
    hotspots_max: int = Field(default=128, ge=1)
    """Whose makers are remembered: four a round for half an hour."""
    makers_max: int = Field(default=4096, ge=1)
    """Remembered of one hotspot, those with most queries in it; 32 bytes each."""
    blocked_max: int = Field(default=100_000, ge=1)
    """Blocked at a time; the oldest block that no operator made is lifted first, and Guard's entry says so."""
    listed_max: int = Field(default=100, ge=1)
    """Users named in one entry of the journal."""
    clustered_rows_max: int = Field(default=50_000, ge=2)
    """K-Means finds its centres among so many, drawn at random; all are then assigned."""
    clusterings: int = Field(default=4, ge=1)
    """Starts of K-Means++, of which the tightest is taken."""

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
