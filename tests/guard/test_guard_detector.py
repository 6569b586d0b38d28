"""Algorithm 4: as in the paper on small tables, and the conditions that make blocking rarer, one by one."""

import numpy as np
import pytest

from geoswarm.core.arrays.jit import Floats, Ints
from geoswarm.guard.causes import Causes, separate
from geoswarm.guard.detector import Detector
from geoswarm.guard.features import X1, X3, X6, X7, X11, X14, FeatureTable, HotspotUsers, normalise
from geoswarm.guard.rules import PRINTED, GuardRules
from geoswarm.guard.sensor import NOWHERE

NORMAL, GANG = 40, 5


def table(
    gang_rate: float = 0.9, gang_hotspots: float = 1, gang_sequence: tuple[float, ...] = (30.0,) * GANG
) -> FeatureTable:
    """Normal users, then a gang who made the same hotspots."""
    rng = np.random.default_rng(0)
    raw = np.zeros((NORMAL + GANG, 14))
    raw[:, [X1, X6]] = rng.integers(20, 60, (NORMAL + GANG, 1))
    raw[:, X7] = raw[:, X6]
    raw[:NORMAL, X14] = rng.uniform(0.05, 0.15, NORMAL)
    raw[:NORMAL, X11] = rng.integers(0, 60, NORMAL)
    raw[:NORMAL, X3] = rng.integers(0, 2, NORMAL)
    raw[NORMAL:, X14] = gang_rate + rng.uniform(-0.02, 0.02, GANG)
    raw[NORMAL:, X11] = gang_sequence
    raw[NORMAL:, X3] = gang_hotspots
    return FeatureTable(np.arange(len(raw)), raw, normalise(raw))


GANG_CODES = list(range(NORMAL, NORMAL + GANG))


def paper_detector() -> Detector:
    return Detector(PRINTED, np.random.default_rng(0))


def test_by_the_paper_a_cluster_is_suspicious_first_and_confirmed_when_it_comes_again() -> None:
    detector = paper_detector()
    first, second = detector.detect(table(), 1), detector.detect(table(), 2)
    assert (first.suspicious.tolist(), first.confirmed.tolist()) == (GANG_CODES, [])
    assert second.confirmed.tolist() == GANG_CODES
    (cluster,) = second.evidence.groups
    assert cluster.alqr > 3 * cluster.alqr_normal


@pytest.mark.parametrize(
    ("why", "changed"),
    [
        ("not above beta", table(gang_rate=0.28)),
        ("not in a hotspot now", table(gang_hotspots=0)),
    ],
)
def test_by_the_paper_there_is_no_attack(why: str, changed: FeatureTable) -> None:
    detector = paper_detector()
    for now_round in range(3):
        assert detector.detect(changed, now_round).suspicious.tolist() == [], why


@pytest.mark.slow
def test_by_the_paper_a_suspicion_is_forgotten_at_a_random_time_between_5_and_30_rounds() -> None:
    remembered = []
    for seed in range(40):
        detector = Detector(PRINTED, np.random.default_rng(seed))
        detector.detect(table(), 0)
        remembered.append([bool(len(_detect_again(detector, rounds))) for rounds in (5, 12, 30, 31)])
    kept = np.mean(remembered, axis=0)
    assert kept[0] == 1
    assert 0.5 < kept[1] < 1
    assert kept[2] < 0.2
    assert kept[3] == 0


def _detect_again(detector: Detector, now_round: int) -> Ints:
    copied = Detector.from_arrays(PRINTED, np.random.default_rng(1), detector.to_arrays())
    return copied.detect(table(), now_round).confirmed


def test_by_the_paper_another_cluster_is_not_confirmed_by_the_first() -> None:
    detector = paper_detector()
    detector.detect(table(), 1)
    smaller = table()
    smaller.raw[NORMAL, [X3, X11, X14]] = smaller.raw[0, [X3, X11, X14]]
    second = detector.detect(FeatureTable(smaller.codes, smaller.raw, normalise(smaller.raw)), 2)
    assert second.suspicious.tolist() == GANG_CODES[1:]
    assert second.confirmed.tolist() == []


@pytest.mark.parametrize("users", [0, 1, 2, 7])
def test_users_whom_nothing_tells_apart_end_the_search(users: int) -> None:
    raw = np.zeros((users, 14))
    raw[:, X11] = np.arange(users)  # a spread that no feature explains once all columns are the same
    same = FeatureTable(np.arange(users), raw, np.zeros((users, 14), np.float32))
    assert paper_detector().detect(same, 0).confirmed.tolist() == []


def test_the_same_seed_finds_the_same_users() -> None:
    spread = table(gang_sequence=(30, 30, 31, 55, 30))
    found = [Detector(PRINTED, np.random.default_rng(7)).detect(spread, 0) for _ in range(3)]
    assert found[0].suspicious.tolist() == found[1].suspicious.tolist() == found[2].suspicious.tolist()


RULES = GuardRules()


def add_hotspot(
    causes: Causes,
    now_round: int,
    place: tuple[float, float] = (0.5, 0.5),
    *,
    focus: float = 1.0,
    queries: float = 40.0,
    others: float = 50.0,
    users: int = NORMAL + GANG,
    codes: Ints | None = None,
    fresh: int = 0,
) -> None:
    """A hotspot that the gang made, in which others have some queries, too."""
    gang = np.array(GANG_CODES) if codes is None else codes
    weights = np.append(np.full(len(gang), queries), others)
    asked = np.append(np.full(len(gang), queries / focus), 2000.0)
    touched = HotspotUsers(
        np.append(gang, 10_000), weights, asked, np.full(len(weights), fresh), weights, 4000.0, users
    )
    causes.add(now_round, now_round, place, touched)


def blocked_users(causes: Causes, now_round: int = 9, **changed: float) -> list[int]:
    """Users whom the detector confirms if the gang was suspected before."""
    features = table()
    if "cancels" in changed:
        features.raw[:, X7] = changed["cancels"] * features.raw[:, X6]
    detector = Detector(RULES, np.random.default_rng(0))
    detector._suspect(np.array(GANG_CODES), now_round - 1)
    confirmed: list[int] = detector.detect(features, now_round, causes).confirmed.tolist()
    return confirmed


def test_who_makes_hotspots_in_two_rounds_and_cancels_as_much_is_blocked() -> None:
    causes = Causes(RULES)
    add_hotspot(causes, 8)
    add_hotspot(causes, 9)
    assert blocked_users(causes) == GANG_CODES
    assert blocked_users(causes, cancels=0.2) == [], "a crowd comes, it does not trade"


def test_who_makes_three_places_hot_is_blocked_whatever_is_cancelled() -> None:
    causes = Causes(RULES)
    for now_round, x in ((7, 0.1), (8, 0.5), (9, 0.9)):
        add_hotspot(causes, now_round, (x, 0.5))
    assert blocked_users(causes, cancels=0.0) == GANG_CODES


@pytest.mark.parametrize(
    ("why", "changed"),
    [
        ("most of what they asked for lies elsewhere", {"focus": 0.4}),
        ("they also do other things", {"focus": 0.6}),
        ("too few queries to tell from chance", {"queries": 5.0, "others": 1.0}),
        ("it would have come without them", {"others": 1000.0}),
        ("what most do is normal", {"users": 2 * GANG}),
    ],
)
def test_no_user_is_blocked_when(why: str, changed: dict[str, float]) -> None:
    causes = Causes(RULES)
    for now_round in (8, 9):
        add_hotspot(causes, now_round, **changed)  # type: ignore[arg-type]
    assert blocked_users(causes) == [], why


def test_who_has_just_moved_is_judged_by_what_was_done_since() -> None:
    causes = Causes(RULES)
    for now_round in (8, 9):
        add_hotspot(causes, now_round, focus=0.4, fresh=40)
    assert blocked_users(causes) == GANG_CODES


def test_one_round_of_hotspots_is_not_enough() -> None:
    causes = Causes(RULES)
    add_hotspot(causes, 9)
    add_hotspot(causes, 9)
    assert blocked_users(causes) == []


def test_hotspots_that_drift_are_one_place() -> None:
    causes = Causes(RULES)
    for step in range(8):
        add_hotspot(causes, 2 + step, (0.5 + 0.02 * step, 0.5))
    assert blocked_users(causes, cancels=0.0) == []


def test_hotspots_of_half_an_hour_ago_are_forgotten() -> None:
    causes = Causes(RULES)
    add_hotspot(causes, 8)
    add_hotspot(causes, 39)
    assert blocked_users(causes, 39) == []


def test_a_neighbour_of_the_attack_is_not_an_accomplice() -> None:
    """With far fewer queries there than the gang, though nearly all of its own."""
    causes = Causes(RULES)
    for now_round in (8, 9):
        codes = np.array([3, *GANG_CODES])
        weights = np.array([12.0, *[60.0] * GANG, 20.0])
        asked = np.append(weights[:-1], 2000.0)
        none = np.zeros(len(weights), np.int64)
        touched = HotspotUsers(np.append(codes, 10_000), weights, asked, none, asked, 4000.0, 60)
        causes.add(now_round, now_round, (0.5, 0.5), touched)
    features = table()
    features.raw[3, X11] = features.raw[NORMAL, X11]
    detector = Detector(RULES, np.random.default_rng(0))
    detector._suspect(np.array([3, *GANG_CODES]), 8)
    verdict = detector.detect(features, 9, causes)
    assert verdict.suspicious.tolist() == [3, *GANG_CODES]
    assert verdict.confirmed.tolist() == GANG_CODES


def test_no_user_is_blocked_on_a_first_suspicion() -> None:
    causes = Causes(RULES)
    add_hotspot(causes, 8)
    add_hotspot(causes, 9)
    detector = Detector(RULES, np.random.default_rng(0))
    assert detector.detect(table(), 9, causes).confirmed.tolist() == []
    assert detector.suspects(10).tolist() == GANG_CODES


def test_two_gangs_are_found_in_one_round() -> None:
    causes, other = Causes(RULES), np.arange(10, 14)
    for now_round in (8, 9):
        add_hotspot(causes, now_round, (0.2, 0.2))
        add_hotspot(causes, now_round, (0.8, 0.8), codes=other)
    features = table()
    features.raw[other, X11] = 300.0
    detector = Detector(RULES, np.random.default_rng(0))
    detector._suspect(np.array([*other, *GANG_CODES]), 8)
    assert detector.detect(features, 9, causes).confirmed.tolist() == [*other, *GANG_CODES]


def test_places_are_separate_unless_others_lie_between() -> None:
    def labels(*places: tuple[float, float]) -> Floats | list[int]:
        return separate(list(places), 0.1)

    assert labels((0, 0), (0.05, 0.05), (0.5, 0.5)) == [0, 0, 2]
    assert labels((0, 0), (0.16, 0), (0.08, 0)) == [0, 0, 0]
    assert labels(NOWHERE, NOWHERE, (0.1, 0.1)) == [0, 1, 2]
    assert labels() == []


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="at most suspicious_rounds_max"):
        GuardRules(suspicious_rounds_min=9, suspicious_rounds_max=5)
    with pytest.raises(ValueError, match="raise users_max"):
        GuardRules(users_max=1000)
