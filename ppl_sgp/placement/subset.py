"""Which rows hyperparameters are found on: some from everywhere, some that are neighbours of each other."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

#: Neighbours that are chosen together, and most inputs that vary for neighbours to be near.
WINDOW, MOST_INPUTS = 25, 3
#: Rows that spacings are taken from, to compare distances along different inputs.
SPACED = 20_000
#: Points for each input from which on its two ends are among them.
ENDS = 10


def chosen_rows(rng: np.random.Generator, X: np.ndarray, count: int) -> np.ndarray:
    """Numbers of at most ``count`` rows, in increasing order.

    Up to three inputs, half of the rows are windows of neighbours: rows spread over a long series are further apart
    than its period, and say nothing of it. Chosen by X alone, so that no outcome is preferred.

    :param X: inputs (n, d).
    """
    if len(X) <= count:
        return np.arange(len(X))
    columns = np.flatnonzero(np.ptp(X, axis=0) > 0)
    if not 0 < len(columns) <= MOST_INPUTS:
        return np.sort(rng.choice(len(X), count, replace=False))
    spread = rng.choice(len(X), count // 2, replace=False)
    Z = X[:, columns]
    unit = spacing_scale(Z[rng.choice(len(X), min(len(X), SPACED), replace=False)])
    Z = Z / np.where(unit > 0, unit, np.ptp(Z, axis=0))
    centres = rng.choice(len(X), -(-(count - len(spread)) // WINDOW), replace=False)
    near = KDTree(Z).query(Z[centres], k=min(WINDOW, len(X)))[1]
    together = rng.permutation(np.setdiff1d(near, spread))[: count - len(spread)]
    return np.sort(np.concatenate([spread, together]))


def spacing_scale(X: np.ndarray) -> np.ndarray:
    """The standard deviation that each input would have if its values were spaced evenly at their median gap, (d,).

    Neither a gap nor one wrong value moves it far, unlike the standard deviation. Zero for an input that never varies.
    """

    def of_column(values: np.ndarray) -> float:
        distinct = np.unique(values)
        return float(np.median(np.diff(distinct))) * len(distinct) / 12**0.5 if len(distinct) > 1 else 0.0

    return np.array([of_column(column) for column in X.T])


def distinct_rows(rng: np.random.Generator, X: np.ndarray, count: int, sample: int) -> np.ndarray:
    """At most ``count`` rows of X, no two alike; from at most ``sample`` of them, in random order.

    Those with the least and largest values of each input come first, where they are few among so many: no row is then
    outside the box of the others, however far out it lies.

    :param X: inputs (n, d).
    """
    chosen = rng.choice(len(X), min(len(X), sample), replace=False)
    if ENDS * X.shape[1] <= count:
        chosen = np.concatenate([np.argmin(X, axis=0), np.argmax(X, axis=0), chosen])
    first = np.sort(np.unique(X[chosen], axis=0, return_index=True)[1])
    return X[chosen[first[:count]]]
