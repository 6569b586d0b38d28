"""The seeds of random worlds: which ones a run plays, and those that once failed (`tests/seeds.txt`).

Two kinds of tests take seeds. Both join by existing, and both must hold for any seed:

    @pytest.mark.parametrize("seed", range(20))    twenty worlds; a list such as [0, 1, 5] instead means just these
    @given(...)                                    Hypothesis draws the cases, from one seed for all of them

An ordinary run plays the same seeds each time, and after them those that `seeds.txt` lists for the test. A run with
`--fresh NUMBER` plays others, drawn from that number; a seed that fails there is appended to `seeds.txt`. `soak.py`
starts such runs, one after another.
"""

from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("seeds.txt")
SEED_MAX = 2**32 - 1


def name_of(node_id: str) -> str:
    """The id of a test without its parameters: a seed that failed for one of them is played for all."""
    return node_id.split("[")[0]


def kept_seeds(text: str) -> dict[str, list[int]]:
    """By test. A line is a test's name and a seed; what follows a # is a remark."""
    kept: dict[str, list[int]] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdecimal():
            raise ValueError(f"{FILE.name} has the line {line!r}: write the name of a test and a seed")
        kept.setdefault(words[0], []).append(int(words[1]))
    return kept


def fresh_seeds(number: int, name: str, count: int) -> list[int]:
    """Other worlds for this test, the same whenever the number is."""
    rng = np.random.default_rng([number, *name.encode()])
    return sorted(rng.integers(0, SEED_MAX, count, endpoint=True).tolist())


def keep(name: str, seed: int, file: Path = FILE) -> bool:
    """Append a seed that failed. False: it is there already."""
    text = file.read_text()
    if seed in kept_seeds(text).get(name, []):
        return False
    file.write_text(f"{text.rstrip()}\n{name} {seed}\n")
    return True
