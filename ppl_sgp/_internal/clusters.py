"""Clusters of rows by k-means, SciPy's, from starts of k-means++."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.cluster.vq import kmeans2


def cluster(X: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Centres (at most k, d), and the number of the cluster of each row of X, (n,).

    Inputs are compared in units of their standard deviations. Empty clusters are dropped; if there are no more than k
    distinct rows, these are the centres. O(n·k·d) an iteration.
    """
    distinct, label = np.unique(X, axis=0, return_inverse=True)
    if len(distinct) <= k:
        return distinct, label.reshape(-1)
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    scaled = X / spread
    with warnings.catch_warnings():  # of empty clusters, which are left out
        warnings.simplefilter("ignore", UserWarning)
        centres, label = kmeans2(scaled, _seeds(scaled, k, rng), minit="matrix")
    kept, label = np.unique(label, return_inverse=True)
    return centres[kept] * spread, label.reshape(-1)


def _seeds(X: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Starts of k-means++ in O(n·k·d); SciPy's own take O(n·k²·d)."""
    chosen = [int(rng.integers(len(X)))]
    distance = np.sum((X - X[chosen[0]]) ** 2, axis=1)
    while len(chosen) < k:
        chosen.append(int(rng.choice(len(X), p=distance / distance.sum())))
        distance = np.minimum(distance, np.sum((X - X[chosen[-1]]) ** 2, axis=1))
    return X[chosen]
