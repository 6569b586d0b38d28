"""Least squares for costs: what each unit takes can be too small to see, but never negative."""

from collections.abc import Sequence

import numpy as np

from geoswarm.core.arrays.jit import Floats

ROUNDS = 3
"""Times that a trimmed fit is repeated, each without what was furthest off the time before."""


def fit_nonnegative(terms: Floats, wanted: Floats, dislike: Sequence[float] = ()) -> Floats:
    """Coefficients x ≥ 0 with `terms` @ x near `wanted`. Negative ones are set to 0, the most negative first, and the
    rest is fitted again. Where the rows leave open which of several coefficients it is, the one with the greater
    `dislike` is the smaller one; one of 0.01 hardly matters where they do not."""
    if len(dislike):
        terms = np.concatenate([terms, np.diag(np.sqrt(np.asarray(dislike) * max(1, len(terms))))])
        wanted = np.concatenate([wanted, np.zeros(len(dislike))])
    scale = np.maximum(np.abs(terms).max(axis=0, initial=0.0), np.finfo(np.float64).tiny)
    kept, found = list(range(terms.shape[1])), np.zeros(terms.shape[1])
    while kept:
        some = np.linalg.lstsq(terms[:, kept] / scale[kept], wanted, rcond=None)[0]
        if some.min() >= 0.0:
            found[kept] = some / scale[kept]
            break
        kept.pop(int(np.argmin(some)))
    return found


def fit_trimmed(terms: Floats, wanted: Floats, share: float = 0.9, dislike: Sequence[float] = ()) -> Floats:
    """The same without what was disturbed: only the `share` of all rows that is nearest to the fit counts."""
    found = fit_nonnegative(terms, wanted, dislike)
    for _ in range(ROUNDS):
        wrong = np.abs(terms @ found - wanted)
        used = wrong <= np.quantile(wrong, share)
        found = fit_nonnegative(terms[used], wanted[used], dislike)
    return found
